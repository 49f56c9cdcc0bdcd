"""What the subcommands share: the parser's words and the common arguments."""

import argparse
import math
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from morph_vla.cli import options as unknown
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.dropin import add_to_path
from morph_vla.files.home import expanded

MOST_ROWS = 1_000_000  # of a suite's table: all before the last one asked for are drawn


class Parser(argparse.ArgumentParser):
    """argparse with our words: a wrong word is an error that names the nearest right one."""

    overridden: unknown.Noun | None = None
    """Of what the command's KEY=VALUE change the values"""

    def __init__(self, **options: Any):
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Refuse what is left over here, where the options that it may have meant are known."""
        words = list(sys.argv[1:] if args is None else args)
        if self._subparsers is None and (wrong := unknown.first(words, self._option_string_actions)):
            self.refuse(unknown.sentence(*wrong, self._option_string_actions, self.overridden))
        namespace, rest = super().parse_known_args(words, namespace)
        if self.overridden and all("=" in word for word in rest):  # argparse takes none behind an option
            namespace.overrides, rest = [*namespace.overrides, *rest], []
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return namespace, rest

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Leave after --help or --version; a reader that has gone is found here, where `main` knows it."""
        if sys.stdout is not None:
            sys.stdout.flush()
        super().exit(status, message)

    def refuse(self, sentence: str) -> NoReturn:
        """Raise what `main` prints as `error: ...`."""
        raise MorphVlaError(f"{sentence} (see {self.prog} --help)")

    def error(self, message: str) -> NoReturn:
        """Raise what `main` prints as `error: ...`, with the nearest option or choice."""
        choice = re.search(r"(?:argument (\S+): )?invalid choice: '([^']*)'", message)
        if choice:
            option, given = (choice.group(1) or "").split("/"), choice.group(2)
            of_it = [action for action in self._actions if {*option} & {*action.option_strings}]
            choices = [str(name) for action in of_it or self._actions for name in action.choices or ()]
            where = f"for {option[-1]}" if of_it else "here"
            message = f"no '{given}' {where}{nearest(given, choices)} ({', '.join(choices)})"
        self.refuse(message)


def add(
    parser: argparse.ArgumentParser, names: str, about: str, metavar: str | None = None, **more: Any
) -> None:
    """An argument (`recipe`), an option (`-o --output`), or without a `metavar` a flag (`--json`).

    In a path (`type=Path`) a `~` is the home folder: shells leave it as it is in `--output=~/demos`.
    """
    if more.get("type") is Path:
        more["type"] = expanded
    if metavar is None:
        more["action"] = "store_true"
    else:
        more["metavar"] = metavar
    parser.add_argument(*names.split(), help=about, **more)


def refuse(arguments: argparse.Namespace, why: str, **defaults: object) -> None:
    """Raise MorphVlaError for options that change nothing, and `why`; their `defaults` are no request."""
    asked = [name for name, default in defaults.items() if getattr(arguments, name) != default]
    if asked:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in asked)
        them = "it" if len(asked) == 1 else "them"
        raise MorphVlaError(f"{why}: {options} would change nothing; leave {them} out")


def add_json(parser: argparse.ArgumentParser, **more: Any) -> None:
    """`--json`: the same answer for a machine to read."""
    add(parser, "--json", "print the answer as JSON", **more)


def add_engine(parser: argparse.ArgumentParser) -> None:
    """`--engine`: which simulator."""
    engines = "mujoco (default), or isaaclab with physics=, renderer=, device=, contacts="
    add(parser, "--engine", f"the simulator: {engines}", "NAME[,KEY=VALUE...]", default="mujoco")


def add_folders(parser: argparse.ArgumentParser) -> None:
    """`--folder`: more places for files dropped in, searched first."""
    then = "MORPH_VLA_PATH, the current folder and what is installed"
    about = f"search this folder first (may be repeated), then {then}"
    add(parser, "--folder", about, "FOLDER", action="append", default=[], dest="folders")


def search(folders: Sequence[str]) -> Sequence[str]:
    """The folders, from now on searched here and in started processes: a suite or recipe names its robot.

    Raises MorphVlaError for one that is not there.
    """
    for folder in reversed(folders):
        if not expanded(folder).is_dir():
            raise MorphVlaError(f"no such folder: {folder}")
        add_to_path(expanded(folder))
    return folders


def add_common(parser: argparse.ArgumentParser) -> None:
    """`--folder` and `--json`."""
    add_folders(parser)
    add_json(parser)


def add_output(parser: argparse.ArgumentParser, about: str, default: Path | None = None) -> None:
    """`-o`: the folder that a command writes; required without a default."""
    add(parser, "-o --output", about, "FOLDER", type=Path, default=default, required=default is None)


def add_overrides(parser: argparse.ArgumentParser, noun: unknown.Noun, more: str = "") -> None:
    """`KEY=VALUE`: changes to a recipe or a suite; `more` follows that word in the help."""
    if isinstance(parser, Parser):
        parser.overridden = noun
    add(parser, "overrides", f"changes to the {noun}{more}", "KEY=VALUE", nargs="*")


def add_number(
    parser: argparse.ArgumentParser,
    option: str,
    default: int | float | None,
    about: str,
    metavar: str = "N",
    least: int | None = None,
    most: int | None = None,
    **more: Any,
) -> None:
    """An option with a number, whole unless its default is a float; the help ends with the default."""
    kind = float if isinstance(default, float) else int

    def number(text: str) -> int | float:
        """The value; refused in words outside its bounds."""
        value = kind(text)
        if least is not None and not least <= value < math.inf:
            finite = "a finite number of " if kind is float else ""
            raise MorphVlaError(f"{option} must be {finite}at least {least:g}, not {text}")
        if most is not None and value > most:
            raise MorphVlaError(f"{option} must be at most {most:,}, not {text}")
        if isinstance(value, float) and math.isnan(value):
            raise MorphVlaError(f"{option} must be a number, not {text}")
        return value

    shown = "" if default is None else f" (default {default:g})"
    add(parser, option, f"{about}{shown}", metavar, type=number, default=default, **more)


def rows(text: str) -> tuple[int, int]:
    """`--episodes` as (first row, how many): `100` is rows 0 to 99, `150:300` rows 150 to 299."""
    numbers = text.split(":")
    if len(numbers) > 2 or not all(number.isdecimal() for number in numbers):
        raise MorphVlaError(f"--episodes expects a number or A:B, for example 150:300, not '{text}'")
    if any(len(number.lstrip("0")) > 7 or int(number) > MOST_ROWS for number in numbers):
        raise MorphVlaError(f"--episodes {text[:40]}: no more than {MOST_ROWS:,} rows are drawn")
    first, end = (0, int(text)) if len(numbers) == 1 else map(int, numbers)
    if end > first:
        return first, end - first
    if len(numbers) == 1:
        raise MorphVlaError(f"--episodes must be at least 1, not {end}")
    raise MorphVlaError(f"--episodes {text} is empty: A:B begins with A and ends before B")


def shard(text: str) -> tuple[int, int]:
    """`2/8` as (2, 8)."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    part = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= part[0] <= part[1]:
        raise MorphVlaError(f"--shard expects K/N with K from 1 to N, for example 2/8, not '{text}'")
    return part


def add_verbs(
    parser: argparse.ArgumentParser, verbs: dict[str, tuple[str, Callable[..., Any]]]
) -> dict[str, argparse.ArgumentParser]:
    """The second word of a command, such as `list` and `show`: name -> (what it does, the function).

    Each shows its own of the command's examples.
    """
    subparsers = parser.add_subparsers(metavar="VERB", required=True)
    made = {}
    for name, (summary, function) in verbs.items():
        lines = (parser.epilog or "").splitlines()
        own = [line for line in lines if f"{line} ".startswith(f"  {parser.prog} {name} ")]
        made[name] = subparsers.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
            epilog="\n".join(["examples:", *own]) if own else None,
        )
        made[name].set_defaults(run=function)
    return made
