"""`list` and `show`, which recipes and suites have in common."""

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from morph_vla.cli.common import add, add_common, add_overrides, add_verbs
from morph_vla.cli.options import Noun
from morph_vla.cli.render import render
from morph_vla.files import dropin
from morph_vla.files.plain import to_plain
from morph_vla.wording import table

Load = Callable[[str, list[str], list[str]], Any]
"""(name, overrides, folders) -> the recipe or suite, checked"""
Count = Callable[[Any], object]
"""What is counted of a recipe; its words are comments"""
Kind = Literal["recipes", "suites"]
EXAMPLES = {"recipes": "training.seed=7", "suites": "seed=7"}
Verbs = Mapping[str, tuple[str, Callable[[argparse.Namespace], Any]]]


@dataclass(frozen=True)
class Row:
    """A file in the list."""

    name: str
    about: str
    path: Path


def configure(
    parser: argparse.ArgumentParser,
    kind: Kind,
    load: Load,
    count: Count | None = None,
    more: Verbs | None = None,
    alone: Verbs | None = None,
) -> dict[str, argparse.ArgumentParser]:
    """Add `list` and `show` for a kind of file; returns the parser of each verb.

    `more` are further verbs that take a file and overrides, as `show` does: name -> (what it does, the
    function); `alone` are verbs that take neither.
    """
    noun: Noun = "recipe" if kind == "recipes" else "suite"
    showing = f"check and print a {noun}; with overrides, the values that they lead to"
    more = {"show": (showing, partial(show, kind, load, count)), **(more or {})}
    listing = (f"list every {noun} found, with the first line of its comment", partial(show_list, kind))
    verbs = add_verbs(parser, {"list": listing, **more, **(alone or {})})
    for name, verb in verbs.items():
        add_common(verb)
        if name in more:
            add(verb, "name", f"a {noun}'s name, or the path to its file", noun.upper())
            add_overrides(verb, noun, f", for example {EXAMPLES[kind]}")
    return verbs


def show_list(kind: str, arguments: argparse.Namespace) -> None:
    """Name, first line of the comment at the top, path."""
    files = dropin.available(kind, arguments.folders)
    rows = [Row(name, dropin.about(path), path) for name, path in files.items()]
    header = (kind.removesuffix("s"), "about", "file")
    render(rows, arguments.json, text="\n".join(table(header, rows)))


def show(kind: str, load: Load, count: Count | None, arguments: argparse.Namespace) -> None:
    """The file as it is written, once it has passed its checks; with overrides, the values they lead to."""
    loaded = load(arguments.name, arguments.overrides, arguments.folders)
    more = {"counts": count(loaded)} if count else {}
    lines = [*_text(kind, arguments, loaded), *(f"\n{counted}" for counted in more.values())]
    render(loaded, arguments.json, text="\n".join(lines), **more)


def _text(kind: str, arguments: argparse.Namespace, loaded: Any) -> Iterator[str]:
    from morph_vla.files import typed_yaml

    def as_yaml(value: Any) -> str:
        """A plain value as the files have it."""
        return typed_yaml.dump(value).rstrip()

    # RECIPE@TABLE.ROW is a variant of a recipe, SUITE:TASK a task of a suite.
    base, *variant = [arguments.name] if Path(arguments.name).is_file() else re.split("[@:]", arguments.name)
    if arguments.overrides or variant:
        yield as_yaml(to_plain(loaded))
        return
    yield dropin.find(kind, base, arguments.folders).read_text(encoding="utf-8").rstrip("\n")
    if resolved := getattr(loaded, "resolved", dict)():  # what a recipe's presets fill in
        yield f"\n# with its presets filled in:\n{as_yaml(resolved)}"
