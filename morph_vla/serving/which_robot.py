"""Which robot a checkpoint is to drive, and the sentence where nobody said."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.files import dropin
from morph_vla.robots import Robot

LOG = logging.getLogger(__name__)
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


def warn_of_joints(
    source: Path, known: Mapping[str, Mapping[str, Any]], robot: Robot, trained: Mapping[str, Any]
) -> None:
    """Say where a policy of joint values is to move an unseen robot of another number of joints."""
    counts = {len(each["joints"]) for each in known.values()}
    if trained.get("space", "joints") == "joints" and len(robot.joints) not in counts:
        names = _several([*known]) if len(known) > 1 else next(iter(known))
        LOG.warning(
            "%s was trained on %s and never on '%s', whose %d joints it is to move one by one; another robot "
            "may be meant",
            source, names, robot.name, len(robot.joints),
        )  # fmt: skip


def _several(names: Sequence[str]) -> str:
    """Robots by their names; many only by how many there are, and of whom they are relatives."""
    if len(names) <= FEW:
        return f"{len(names)} robots ({', '.join(names)})"
    whose = [each for each in dropin.available("robots") if all(n.startswith(f"{each}_") for n in names)]
    if whose:
        return f"{len(names)} relatives of {max(whose, key=len)}"
    return f"{len(names)} robots ({', '.join(names[:FEW])} and {len(names) - FEW} more)"
