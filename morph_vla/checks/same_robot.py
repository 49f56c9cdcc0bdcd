"""Whether the name that a dataset has for its robot means one of ours: `so101_follower` is an SO101."""

import re
from collections.abc import Iterable

# Other names of one kinematics, in LeRobot's datasets and openpi's.
ALSO = {"so100": "so101", "franka": "panda", "droid": "panda", "emika": "panda"}
EMPTY = {
    "follower", "leader", "robot", "arm", "arms", "single", "dual", "bi", "bimanual", "left", "right", "sim",
    "real", "gripper", "hand", "my", "unknown", "custom", "unitree",
}  # fmt: skip
"""Words that do not say which robot it is"""


def same(one: str, other: str) -> bool:
    """Whether two names may mean one robot: they share a word that says which."""
    return bool(_words(one) & _words(other))


def known(name: str, robots: Iterable[str]) -> str:
    """The shortest of the names of `robots` that may mean the robot `name`; "" where none may."""
    return min((robot for robot in robots if same(name, robot)), key=len, default="")


def says_which(name: str) -> bool:
    """Whether a name says which robot it is of."""
    return bool(_words(name))


def _words(name: str) -> set[str]:
    words = [word for word in re.split(r"[^a-z0-9]+", name.casefold()) if len(word) > 1]
    return {ALSO.get(word, word) for word in words if not word.isdecimal()} - EMPTY
