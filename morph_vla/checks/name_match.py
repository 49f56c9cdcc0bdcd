"""Which value of a dataset's feature is which joint, told by names.

People spell one joint in many ways: `left_shoulder_pitch_joint`, `kLeftShoulderPitch`, `shoulder_pan.pos`.
Two names are the same when their words are, apart from words that say nothing (`joint`, `pos`, ...); they are
near when they share their numbers and sides and their letters are much alike.
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from morph_vla.robots.robot import Robot

_EMPTY = {
    "joint", "jnt", "j", "pos", "position", "positions", "k", "motor", "main", "q", "qpos", "action", "state",
}  # fmt: skip
HAND = {"gripper", "finger", "hand", "jaw", "claw"}
"""Words for what opens and closes."""
_SIDES = {"left": "left", "l": "left", "right": "right", "r": "right"}
NEAR = 0.75
"""Likeness (difflib's ratio, 0..1) from which two names are taken for one joint."""

MAX_NAMES = 1000
"""More are not compared: every name is compared with every joint's."""


@dataclass(frozen=True)
class Match:
    """The places of a robot's joints among a feature's values."""

    columns: tuple[int, ...] | None
    """joint -> value; None when the feature cannot be played on this robot"""
    by_name: tuple[int | None, ...]
    """joint -> the value whose name is nearest; None for a joint that no name is near"""
    named: bool
    """Whether the dataset names its values: `motor_0, motor_1, ...` names nothing"""

    @property
    def known(self) -> bool:
        """Every joint was found by its name."""
        return bool(self.by_name) and None not in self.by_name

    @property
    def in_order(self) -> bool:
        """No name says that a value belongs to another joint than the one in its place."""
        return all(place in (None, joint) for joint, place in enumerate(self.by_name))


def match(robot: Robot, names: Sequence[str], width: int) -> Match:
    """Places for the robot's joints among `width` values called `names` (empty for nameless ones).

    By name when every joint's name is found among them, else by place when there are as many values as
    joints, else not at all.
    """
    count = len(robot.joints)
    named = len(names) == width <= MAX_NAMES and not _numbered(_of_arms(robot, names))
    by_name = nearest_places(robot, names) if named else (None,) * count
    columns: tuple[int, ...] | None = None
    if count and None not in by_name:
        columns = tuple(place for place in by_name if place is not None)
    elif width == count:
        columns = tuple(range(count))
    return Match(columns, by_name, named)


def nearest_places(robot: Robot, names: Sequence[str]) -> tuple[int | None, ...]:
    """For every joint the place of the nearest name, each place once; None where none is near.

    The side file's `names` go first: what they spell out is not guessed at.
    """
    of_joints, of_values = _spellings(robot.names, names), _spellings(names, robot.names)
    side = robot.side.names if len(robot.side.names) == len(robot.joints) else ()
    scored = []
    for joint, item in enumerate(robot.joints):
        for place, name in enumerate(names):
            score = max(map(likeness, of_joints[joint], of_values[place]))
            if side:
                score = max(score, likeness(words(side[joint]), words(name)), 2.0 * (side[joint] == name))
            if item.is_gripper:
                score = max(score, _as_gripper(item.name, name))
            if score >= NEAR:
                scored.append((-score, abs(joint - place), joint, place))
    places: list[int | None] = [None] * len(robot.joints)
    for _, _, joint, place in sorted(scored):
        if places[joint] is None and place not in places:
            places[joint] = place
    return tuple(places)


def likeness(first: Sequence[str], second: Sequence[str]) -> float:
    """Of two names' words: 1 for the same, 0 for other numbers or another side, else how alike they are."""
    if first == second:
        return 1.0
    if _marks(first) != _marks(second):
        return 0.0
    ratio = difflib.SequenceMatcher(None, " ".join(first), " ".join(second), autojunk=False).ratio()
    return min(ratio, 0.98)


def side(name: str) -> frozenset[str]:
    """Left, right, or neither."""
    return frozenset(_marks(words(name))[1])


def other_sides(joints: Sequence[str], names: Sequence[str]) -> list[int]:
    """The places in which one name is of the left and the other of the right."""
    sides = ([_marks(words(name))[1] for name in each] for each in (joints, names))
    return [
        place for place, pair in enumerate(zip(*sides, strict=False)) if set.isdisjoint(*pair) and all(pair)
    ]


def _spellings(names: Sequence[str], others: Sequence[str]) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    """The words of every name, and those without what all names carry, such as the robot's name.

    A side that all carry is left out only where the others know no sides: a left arm is no right one.
    """
    spelled = [words(name) for name in names]
    common = set.intersection(*map(set, spelled)) if len(spelled) > 1 else set()
    if any(_marks(words(name))[1] for name in others):
        common -= {"left", "right"}
    return [(item, tuple(word for word in item if word not in common) or item) for item in spelled]


def words(name: str) -> tuple[str, ...]:
    """The words of a name that say something, in lower case: `kLeftElbow.pos` is left, elbow."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])", " ", name)
    parts = [word.casefold() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]
    parts = [(word.lstrip("0") or "0") if word.isdecimal() else _SIDES.get(word, word) for word in parts]
    return tuple(word for word in parts if word not in _EMPTY) or tuple(parts)


def _marks(name_words: Sequence[str]) -> tuple[list[str], set[str]]:
    """What tells joints of one kind apart: their numbers and their side."""
    return [word for word in name_words if word.isdecimal()], {"left", "right"} & set(name_words)


def _as_gripper(joint: str, other: str) -> float:
    """A gripper's value is called after the gripper, seldom after the joint."""
    two = set(words(other))
    alone = bool(two & HAND) and two <= HAND | {"left", "right"}  # `kLeftHandPinky` is one finger of several
    return 0.9 if alone and _marks(words(joint))[1] == {"left", "right"} & two else 0.0


def _of_arms(robot: Robot, names: Sequence[str]) -> list[str]:
    """The names but those of a hand alone, where the robot has a hand or no joint: `gripper.pos`."""
    hands = [joint.is_gripper or bool(HAND & {*words(joint.name)}) for joint in robot.joints]
    hands += [True] * (len(names) - len(hands))
    return [name for name, hand in zip(names, hands, strict=False) if not (hand and {*words(name)} <= HAND)]


def _numbered(names: Sequence[str]) -> bool:
    """One word and the place: motor_0, motor_1, ..."""
    parts = [re.fullmatch(r"(.*?)([0-9]{1,9})([^0-9]*)", name) for name in names]
    stems = {(m[1], m[3]) for m in parts if m}
    numbers = [int(m[2]) for m in parts if m]
    stem = next(iter(stems))[0].casefold().strip("_. ") if len(stems) == 1 else ""
    if len(numbers) != len(names) or len(names) < 2 or len(stems) != 1:
        return False
    from_zero, from_one = (numbers == list(range(start, start + len(names))) for start in (0, 1))
    empty = stem in ("", "motor", "motors", "dim", "value", "state", "action", "qpos", "q", "index")
    return (empty and (from_zero or from_one)) or (stem == "joint" and from_zero)
