"""Which robot a checkpoint is to drive, and the sentence where nobody said."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.files import dropin

FEW = 6
"""Robots that are named one by one"""


def which_robot(about: dict[str, Any], robot: str, source: str | Path) -> str:
    """The robot that is asked for, or the only one of a checkpoint, of which policy.json says `about`.

    Raises MorphVlaError where `source` was trained on several and none is named.
    """
    known = about["robots"]
    if not robot and len(known) > 1:
        unseen = all(trained.get("statistics") == "robot" for trained in known.values())
        whose = "any robot by its URDF" if unseen else "one of them"
        raise MorphVlaError(f"{source} was trained on {_several(list(known))}; name {whose} with --robot")
    return robot or next(iter(known))


def _several(names: Sequence[str]) -> str:
    """Robots by their names; many only by how many there are, and of whom they are relatives."""
    if len(names) <= FEW:
        return f"{len(names)} robots ({', '.join(names)})"
    whose = [each for each in dropin.available("robots") if all(n.startswith(f"{each}_") for n in names)]
    if whose:
        return f"{len(names)} relatives of {max(whose, key=len)}"
    return f"{len(names)} robots ({', '.join(names[:FEW])} and {len(names) - FEW} more)"
