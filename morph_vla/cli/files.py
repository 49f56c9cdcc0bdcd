"""`list` and `show`, which recipes and suites have in common, and what one of them adds."""

import argparse
import importlib
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from morph_vla.cli.common import add_folders, add_json, add_verbs, print_json, print_table
from morph_vla.files import dropin
from morph_vla.files.plain import to_plain

Verbs = Mapping[str, tuple[str, Callable[[argparse.Namespace], Any]]]


def configure(
    parser: argparse.ArgumentParser,
    kind: str,
    loader: str,
    counts: str = "",
    more: Verbs | None = None,
    alone: Verbs | None = None,
) -> dict[str, argparse.ArgumentParser]:
    """Add `list` and `show` for a kind of file; `loader` is "module:function(name, overrides, folders)".

    `counts` names a module whose `of(loaded)` says more about a file and whose `show` prints that. `more`
    are further verbs that take a file and overrides, as `show` does: name -> (what it does, the function);
    `alone` are verbs that take neither (the caller may add what they take). Returns the parser of each verb.
    """
    noun = kind.removesuffix("s")
    verbs = add_verbs(
        parser,
        {
            "list": (f"every {noun} found, with the first line of its head", partial(run_list, kind)),
            "show": (
                f"a {noun}, checked; with overrides, as they leave it",
                partial(run_show, kind, loader, counts),
            ),
            **(more or {}),
            **(alone or {}),
        },
    )
    for verb in verbs.values():
        add_folders(verb)
        add_json(verb)
    for name in ("show", *(more or {})):
        verb = verbs[name]
        verb.add_argument("name", metavar=noun.upper(), help=f"a {noun}'s name, or the path to its file")
        verb.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="for example seed=7")
    return verbs


def run_list(kind: str, arguments: argparse.Namespace) -> None:
    """Name, first line of the head, path."""
    found = dropin.available(kind, arguments.folders)
    rows = [{"name": name, "about": head(path), "path": str(path)} for name, path in found.items()]
    if arguments.json:
        print_json(rows)
    else:
        print_table((kind.removesuffix("s"), "about", "file"), [tuple(row.values()) for row in rows])


def run_show(kind: str, loader: str, counts: str, arguments: argparse.Namespace) -> None:
    """The file as it is written, once it has passed its checks; with overrides, the values they lead to."""
    module, _, function = loader.partition(":")
    load: Callable[..., Any] = getattr(importlib.import_module(module), function)
    loaded = load(arguments.name, arguments.overrides, arguments.folders)
    counter: Any = importlib.import_module(counts) if counts else None
    more = counter.of(loaded) if counts else {}
    if arguments.json:
        print_json({**to_plain(loaded), **({"counts": more} if counts else {})})
        return
    # RECIPE@TABLE.ROW is a variant of a recipe, SUITE:TASK a task of a suite.
    base, *variant = [arguments.name] if Path(arguments.name).is_file() else re.split("[@:]", arguments.name)
    if arguments.overrides or variant:
        import yaml

        print(yaml.safe_dump(to_plain(loaded), sort_keys=False, allow_unicode=True), end="")
    else:
        print(dropin.find(kind, base, arguments.folders).read_text(encoding="utf-8"), end="")
        resolved = getattr(loaded, "resolved", dict)()  # what a recipe's presets fill in
        if resolved:
            import yaml

            print("\n# with its presets filled in:")
            print(yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True), end="")
    if counts:
        counter.show(more)


def head(path: Path) -> str:
    """The first line of the comment a file begins with, or nothing."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline().strip()
    return first.lstrip("# ") if first.startswith("#") else ""
