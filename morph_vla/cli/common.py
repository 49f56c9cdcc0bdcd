"""What the subcommands share: the parser's words, the common options, tables and JSON."""

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.plain import to_plain


class Parser(argparse.ArgumentParser):
    """argparse with our words: a wrong word is an error that names the nearest right one."""

    def __init__(self, **options: Any):
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, *arguments: Any, **options: Any) -> tuple[Any, list[str]]:
        """Refuse what is left over here, where the options that it may have meant are known."""
        namespace, rest = super().parse_known_args(*arguments, **options)
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        """Raise what `main` prints as `error: ...`, with the nearest option or choice."""
        choice = re.search(r"invalid choice: '([^']*)'", message)
        option = re.search(r"unrecognized arguments: (-\S+)", message)
        if choice:
            choices = [name for action in self._actions for name in action.choices or ()]
            near = nearest(choice.group(1), map(str, choices))
            message = f"no '{choice.group(1)}' here{near} ({', '.join(map(str, choices))})"
        elif option:
            message = f"no option {option.group(1)}{nearest(option.group(1), self._option_string_actions)}"
        raise MorphVlaError(f"{message} (see {self.prog} --help)")


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`: the same answer for a machine to read."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")


def add_engine(parser: argparse.ArgumentParser) -> None:
    """`--engine`: who simulates."""
    parser.add_argument(
        "--engine", default="mujoco", metavar="NAME[,KEY=VALUE...]",
        help="mujoco (the default), or isaaclab with physics=newton|physx, renderer=newton|rtx, device=cuda",
    )  # fmt: skip


def add_folders(parser: argparse.ArgumentParser) -> None:
    """`--folder`: more places for files dropped in, searched first."""
    parser.add_argument(
        "--folder",
        action="append",
        default=[],
        metavar="FOLDER",
        dest="folders",
        help="search here first (may be given several times); before MORPH_VLA_PATH, the current folder and "
        "what is shipped",
    )


def add_verbs(
    parser: argparse.ArgumentParser, verbs: dict[str, tuple[str, Callable[..., Any]]]
) -> dict[str, argparse.ArgumentParser]:
    """The second word of a command, such as `list` and `show`: name -> (what it does, the function)."""
    subparsers = parser.add_subparsers(metavar="VERB", required=True)
    made = {}
    for name, (summary, function) in verbs.items():
        made[name] = subparsers.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", epilog=parser.epilog
        )
        made[name].set_defaults(run=function)
    return made


def print_json(value: Any) -> None:
    """Print values, dataclasses too, as JSON that every reader accepts: what is not finite becomes null."""
    json.dump(_finite(to_plain(value)), sys.stdout, indent=2, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, before: str = "", right: Iterable[int] = ()
) -> None:
    """Print rows in aligned columns; numbers, and the columns `right`, to the right, words to the left.

    Every line begins with `before`.
    """
    cells = [list(map(str, header)), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    named = set(right)
    to_the_right = [
        column in named or (bool(rows) and all(isinstance(row[column], int | float) for row in rows))
        for column in range(len(header))
    ]
    for row in cells:
        aligned = zip(row, widths, to_the_right, strict=True)
        print((before + "  ".join(f"{c:>{w}}" if r else f"{c:<{w}}" for c, w, r in aligned)).rstrip())


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
