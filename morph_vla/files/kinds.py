"""Which kind of file of ours a mapping is, where a command was given one of another kind."""

from collections.abc import Collection
from dataclasses import dataclass

ENOUGH = 2  # keys of another kind: one is a slip


@dataclass(frozen=True)
class Kind:
    """A kind of YAML file."""

    noun: str
    keys: frozenset[str]
    """Those by which it is known"""
    remedy: str


KINDS = (
    Kind(
        "a recipe",
        frozenset({"data", "model", "training", "optimizer", "tokenizer", "evaluation", "weights"}),
        "use `morph-vla recipes show`",
    ),
    Kind(
        "a suite",
        frozenset({"task", "tasks", "objects", "placement", "success", "episode_seconds", "expert"}),
        "use `morph-vla suites show`",
    ),
    Kind(
        "a robot's side file",
        frozenset({"joints", "drives", "gripper", "unit", "signs", "zeros", "rest", "contact", "names"}),
        "use `morph-vla robots show` with the robot's name",
    ),
    Kind(
        "a grid of a study",
        frozenset({"conditions", "bodies", "splits", "hypotheses"}),
        "use `morph-vla evidence check`",
    ),
)


def other(keys: Collection[str], known: Collection[str]) -> Kind | None:
    """The kind that keys are of which a schema with the keys `known` does not have."""
    unknown = {*keys} - {*known}
    likely = max(KINDS, key=lambda kind: len(kind.keys & unknown))
    return likely if len(likely.keys & unknown) >= ENOUGH else None
