"""Whether about/policy.json of a checkpoint says what a policy needs: it may be a stranger's."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from morph_vla.data.actions import Kind
from morph_vla.data.space import Space
from morph_vla.data.stats import from_plain

OF_A_ROBOT = (  # what is said of each
    "joints", "control_rate", "actions", "relative", "cameras", "state_stats", "action_stats"
)  # fmt: skip


def check(known: Any) -> None:
    """Raise ValueError, or KeyError for what is missing, where what policy.json holds is no policy's.

    Statistics of another width would be stretched over the joints, an unknown kind of actions be taken for
    velocities, and a robot would move by either.
    """
    robots = _mapping(known, "robots")
    if not robots:
        raise ValueError("no robot")
    for name in robots:
        _check_robot(_mapping(robots, name), str(name))
    if type(known["step"]) is not int:
        raise ValueError("step is no number of steps")
    if known.get("tokenizer") is not None:
        _require(_mapping(known, "tokenizer"), ("name", "sha256", "vocab"), "tokenizer")


def _check_robot(known: Mapping[str, Any], name: str) -> None:
    _require(known, OF_A_ROBOT, name)
    if known["actions"] not in get_args(Kind):
        raise ValueError(f"{name}: actions are {known['actions']!r}; expected {', '.join(get_args(Kind))}")
    rate = known["control_rate"]
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate < math.inf:
        raise ValueError(f"{name}: control_rate is no number of steps per second")
    joints, relative = known["joints"], known["relative"]
    if not isinstance(joints, list) or not joints or not all(isinstance(joint, str) for joint in joints):
        raise ValueError(f"{name}: joints are no list of names")
    if not isinstance(relative, list) or not all(isinstance(value, bool) for value in relative):
        raise ValueError(f"{name}: relative is no list of true and false")
    if not all(isinstance(camera, str) for camera in _mapping(known, "cameras").values()):
        raise ValueError(f"{name}: cameras are no names by names")
    if known.get("space", "joints") == "joints" and len(relative) != len(joints):
        raise ValueError(f"{name}: relative is of {len(relative)} values, for {len(joints)} joints")
    widths: dict[str, int] = dict.fromkeys(("state_stats", "action_stats"), len(relative))
    _check_units(known, name, len(joints))
    poses = known.get("environment") or []
    if not isinstance(poses, list) or not all(isinstance(value, str) for value in poses):
        raise ValueError(f"{name}: environment is no list of names")
    if poses and known.get("environment_stats"):  # who needs either says which one lacks
        widths["environment_stats"] = len(poses)
    for key, width in widths.items():
        if len(_stats(known, key, name).q01) != width:
            raise ValueError(f"{name}: {key} are not of {width} values")


def _check_units(known: Mapping[str, Any], name: str, joints: int) -> None:
    """What turns a joint's value into the robot's own, and the space, where they are said."""
    for key in ("affine", "limits"):
        if key in known and not _are_pairs(known[key], joints):
            raise ValueError(f"{name}: {key} are no two finite numbers of each of {joints} joints")
    if not all(low <= high for low, high in known.get("limits", ())):
        raise ValueError(f"{name}: limits have a lower one above its upper one")
    if not all(scale for scale, _ in known.get("affine", ())):
        raise ValueError(f"{name}: affine has a scale of 0, in which no value says where a joint is")
    units = known.get("units", [])
    if not isinstance(units, list) or not all(isinstance(unit, str) for unit in units):
        raise ValueError(f"{name}: units are no list of texts")
    if known.get("space", "joints") not in get_args(Space):
        raise ValueError(f"{name}: space is {known['space']!r}; expected {', '.join(get_args(Space))}")


def _are_pairs(values: Any, count: int) -> bool:
    """Whether they are `count` pairs of finite numbers."""
    if not isinstance(values, list | tuple) or len(values) != count:
        return False
    pairs = [pair for pair in values if isinstance(pair, list | tuple) and len(pair) == 2]
    numbers = [value for pair in pairs for value in pair]
    are_numbers = all(type(value) in (int, float) and math.isfinite(value) for value in numbers)
    return len(pairs) == count and are_numbers


def _stats(known: Mapping[str, Any], key: str, name: str) -> Any:
    try:
        return from_plain(_mapping(known, key))
    except KeyError as error:
        raise ValueError(f"{name}: {key} have no {error}") from error
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: {key} are no statistics ({error})") from error


def _require(known: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    missing = [key for key in keys if key not in known]
    if missing:
        raise ValueError(f"{where}: no {missing[0]}")


def _mapping(known: Any, key: str) -> Mapping[str, Any]:
    value = known[key]
    if not isinstance(value, dict):
        raise ValueError(f"{key} is no table of keys")
    return value
