"""What an option that a command does not have may have meant: a key of its file, or another option.

Other trainers take a configuration's values as options (`--batch_size=8`, `--data.repo_id ...`); ours are
written KEY=VALUE.
"""

import importlib
import itertools
import re
from argparse import Action
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from morph_vla.errors import closest

Noun = Literal["recipe", "suite"]
SCHEMAS: dict[Noun, tuple[str, str]] = {
    "recipe": ("morph_vla.recipes.keys", "Recipe"),
    "suite": ("morph_vla.suites.suite", "SuiteFile"),
}
"""Where the keys of a file are: a module and its class"""
NEAR = 0.75
"""Likeness of a mistyped key: one suggested wrongly is worse than none"""
EXAMPLES: dict[Noun, str] = {"recipe": "training.steps=200", "suite": "seed=7"}


def first(words: Sequence[str], options: Mapping[str, Action]) -> tuple[str, str] | None:
    """The first `--name` of a command line that is no option, and its value or ""."""
    for word, after in itertools.zip_longest(words, words[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if word == "--":
            return None
        if word.startswith("--") and name not in options:
            return name, value if equals else "" if after.startswith("-") else after
    return None


def sentence(option: str, value: str, options: Mapping[str, Action], noun: Noun | None) -> str:
    """What to write instead of an option that is none."""
    name = option.lstrip("-").replace("-", "_")
    if (noun, name) == ("suite", "robot"):
        return f"no option {option}; the robot is the suite's: give a suite of {value or 'that robot'}"
    keys = _keys(noun) if noun else ()
    for kind, meant in _meant(name, options, keys):
        if meant and kind == "option":
            return f"no option {option}; did you mean '{meant}'?"
        if meant:
            return f"{_without_dashes(option, noun)}: {meant}={value or '...'}"
    return f"{_without_dashes(option, noun)}, for example {EXAMPLES[noun]}" if noun else f"no option {option}"


def _without_dashes(option: str, noun: Noun | None) -> str:
    return f"no option {option}; a {noun}'s values are written without dashes"


def _keys(noun: Noun) -> tuple[str, ...]:
    from morph_vla.files import typed_yaml

    module, name = SCHEMAS[noun]
    every = typed_yaml.keys(getattr(importlib.import_module(module), name))
    sections = {key.rpartition(".")[0] for key in every}
    return tuple(key for key in every if key not in sections)


def _meant(
    name: str, options: Mapping[str, Action], keys: Sequence[str]
) -> Iterator[tuple[Literal["option", "key"], str]]:
    """What may be meant, the surest first: the same word, a word of several, one of nearly its letters."""
    spelled = {option.lstrip("-"): option for option in options if option.startswith("--")}
    spelled |= {
        str(action.metavar).lower(): option
        for option, action in options.items()
        if action.metavar is not None and option.startswith("--")
    }
    words, last = re.split(r"[._]", name), name.rpartition(".")[2]
    by_last = {key.rpartition(".")[2]: key for key in sorted(keys, key=lambda key: -key.count("."))}
    yield "key", name if name in keys else by_last.get(last, "")
    yield "key", closest(name, keys, NEAR) if "." in name else ""
    yield "option", next((spelled[word] for word in words if word in spelled), "")
    yield "key", next((by_last[word] for word in reversed(words) if word in by_last), "")
    yield "option", spelled.get(closest(name, spelled), "")
    yield "key", by_last.get(closest(name, by_last, NEAR), "")
