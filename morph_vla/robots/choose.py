"""Choosing the joints an action drives: by patterns, and what to say of more than a model takes."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.robots import graph
from morph_vla.robots.records import Urdf

MODEL_VALUES = 32
"""Action values of pi0.5's published checkpoints (openpi: `action_dim`); a robot may drive fewer."""


def match(names: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    """The names that the patterns choose, in the patterns' order: `["left_arm_*", "gripper"]`.

    A pattern is a name, or has `*`, `?` and `[abc]` as in a shell; names under one pattern keep their order,
    and one that an earlier pattern chose is not chosen again.

    Raises MorphVlaError for a pattern that chooses nothing.
    """
    chosen: dict[str, None] = {}
    for pattern in patterns:
        matching = [pattern] if pattern in names else [name for name in names if fnmatchcase(name, pattern)]
        if not matching:
            raise MorphVlaError(
                f"no joint '{pattern}' to choose{nearest(pattern, names)} ({', '.join(names)})"
            )
        chosen.update(dict.fromkeys(matching))
    return tuple(chosen)


def limbs(urdf: Urdf, chosen: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """The chosen joints in groups that lie in a row: a new one begins at every body that carries several.

    A humanoid's legs, waist, arms and fingers, each as a tuple of joints from its base to its tip, in the
    order in which `chosen` first names one of them.
    """
    ends = graph.ends(urdf, chosen).tolist()
    below: dict[int, list[int]] = {}
    for index, (parent, _) in enumerate(ends):
        below.setdefault(parent, []).append(index)
    carried = {child for _, child in ends}
    starts = [i for i, (parent, _) in enumerate(ends) if len(below[parent]) > 1 or parent not in carried]
    groups = []
    for start in starts:
        row = [start]
        while len(below.get(ends[row[-1]][1], [])) == 1:
            row += below[ends[row[-1]][1]]
        groups.append(tuple(chosen[index] for index in row))
    return tuple(groups)


def too_many(urdf: Urdf, chosen: Sequence[str], limit: int = MODEL_VALUES) -> str:
    """What to do about more action joints than a model has values, in a few lines; "" where they fit."""
    if len(chosen) <= limit:
        return ""
    rows = [
        f"  {len(row):3}  {row[0]}" + (f" ... {row[-1]}" if len(row) > 1 else "")
        for row in limbs(urdf, chosen)
    ]
    return "\n".join(
        [
            f"{urdf.file} has {len(chosen)} action joints,"
            f" and a model of {limit} action values cannot drive them all.",
            "Choose those that your dataset records, in its order: under `joints:` in a side file, or with",
            "--joints 'left_arm_*,left_gripper' (names or patterns). The others are frozen at 0.",
            "Its limbs, each a row of joints from base to tip:",
            *rows,
        ]
    )
