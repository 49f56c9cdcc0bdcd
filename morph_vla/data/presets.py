"""What datasets of a kind have in common: keys, units, cameras, actions.

A recipe's entry names a preset, and the entry's own keys win.

A preset says what a *dataset* holds; a robot's side file says what the robot's own units are. Where the two
differ (`unit`, `gripper`), values are brought to the robot's units as they are read, so that one robot's
datasets can be mixed and a trained policy is driven in one convention.
"""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np
from jaxtyping import Float

from morph_vla.data.actions import Kind
from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.robots.robot import Robot, with_side

Unit = Literal["robot", "radians", "degrees", "percent"]
Recorded = Literal["targets", "steps"]


@dataclasses.dataclass(frozen=True)
class Preset:
    """The keys of a recipe's dataset entry that it fills in."""

    about: str
    robot: str
    cameras: Mapping[str, str]  # the model's name -> the dataset's
    actions: Kind = "absolute"  # what is learnt
    state: tuple[str, ...] = ()  # the dataset's keys; none takes those of the robot's side file
    action: tuple[str, ...] = ()
    unit: Unit = (
        "robot"  # of the dataset's turning joints, scales of the side file or not; "robot": as it says
    )
    gripper: tuple[float, ...] = ()  # (open, closed) in the dataset; () as the side file says
    recorded: Recorded = "targets"  # "steps": action = the change in one step / `step`, the gripper a target
    step: float = (
        1.0  # [rad] (of a sliding joint [m]) that a recorded step of 1 stands for, whatever the unit
    )

    def __str__(self) -> str:
        """What it is about, then a line for each key that it fills in."""
        lines = [self.about]
        for key, value in list(vars(self).items())[1:]:
            if value not in ((), ""):
                values = value if isinstance(value, tuple) else (value,)
                items = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, Mapping) else values
                lines.append(f"  {key:<9} {', '.join(map(str, items))}")
        return "\n".join(lines)


_DROID = {"base_0_rgb": "exterior_image_1_left", "left_wrist_0_rgb": "wrist_image_left"}
_DEX1 = {"base_0_rgb": "cam_left_high"} | {
    f"{side}_wrist_0_rgb": f"cam_{side}_wrist" for side in ("left", "right")
}
_SO101 = {"base_0_rgb": "front", "left_wrist_0_rgb": "wrist"}
_DROID_STATE = ("joint_position", "gripper_position")

PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "droid": Preset(
            "DROID as openpi writes it, joint positions: radians, gripper 0 open to 1 closed, 15 Hz; "
            "deltas are learnt, the gripper absolute",
            "panda", _DROID, "delta", _DROID_STATE, ("actions",), "radians", (0.0, 1.0),
        ),
        "droid_velocity": Preset(
            "DROID with joint velocities: an action of 1 moves a joint by 0.2 rad in a step",
            "panda", _DROID, "delta", _DROID_STATE, ("actions",), "radians", (0.0, 1.0), "steps", 0.2,
        ),
        "g1_dex1": Preset(
            "Unitree G1 with Dex1 grippers: 16 values, radians, grippers in motor radians, 5.4 open, 30 Hz",
            "g1_dex1", _DEX1, unit="radians", gripper=(5.4, 0.0),
        ),
        "so101": Preset(
            "SO101 of LeRobot, the arm in degrees, the gripper 0 closed to 100 open, 30 Hz",
            "so101", _SO101, unit="degrees", gripper=(100.0, 0.0),
        ),
        "so101_percent": Preset(
            "SO101 recorded with use_degrees=false: the arm in -100 to 100 of each joint's range",
            "so101", _SO101, unit="percent", gripper=(100.0, 0.0),
        ),
    }
)  # fmt: skip


def find(name: str) -> Preset:
    """The preset of a name; raises ConfigError with the nearest one."""
    if name not in PRESETS:
        raise ConfigError(f"no preset '{name}'{nearest(name, PRESETS)} ({', '.join(PRESETS)})")
    return PRESETS[name]


def as_recorded(robot: Robot, unit: Unit, gripper: tuple[float, ...]) -> Robot:
    """The robot with a dataset's units and gripper values in place of its side file's.

    A `unit` is that of every turning joint, those with a scale in the side file too; percent is 0 halfway
    between a joint's limits, whatever its zero there.

    Raises MorphVlaError when that cannot be, such as percent of a joint without a range.
    """
    side = robot.side
    if unit != "robot":
        replaced = {joint.name for joint in robot.joints if joint.type != "prismatic"}
        scales = {name: scale for name, scale in side.scales.items() if name not in replaced}
        in_percent = replaced if unit == "percent" else ()
        zeros = {name: zero for name, zero in side.zeros.items() if name not in in_percent}
        side = dataclasses.replace(side, unit=unit, scales=scales, zeros=zeros)
    if gripper:
        ends = {"dataset_open": gripper[0], "dataset_closed": gripper[1]}
        grippers = tuple(dataclasses.replace(gripper_, **ends) for gripper_ in side.grippers.values())
        side = dataclasses.replace(side, gripper=grippers)
    recorded = with_side(robot, side)
    before, after = ([(joint.scale, joint.zero) for joint in r.joints] for r in (robot, recorded))
    return robot if before == after else recorded


def targets(
    recorded_robot: Robot,
    recorded: Recorded,
    step: float,
    state: Float[np.ndarray, "n s"],
    action: Float[np.ndarray, "n a"],
) -> Float[np.ndarray, "n a"]:
    """Absolute targets of what was recorded, in the dataset's units (`recorded_robot`, see `as_recorded`).

    Where those are steps, state + step * scale * action, with each joint's units of the dataset in one rad or
    m; grippers stay. Raises MorphVlaError when there are not as many values in the state as in the action.
    """
    if recorded == "targets":
        return action
    joints = recorded_robot.joints
    if state.shape != action.shape or action.shape[1] != len(joints):
        raise MorphVlaError(
            f"steps are added to the state, which has {state.shape[1]} values, an action has "
            f"{action.shape[1]} and robot '{recorded_robot.name}' {len(joints)} joints"
        )
    moving = np.array([not joint.is_gripper for joint in joints])
    return np.where(moving, state + sizes(recorded_robot, step).astype(action.dtype) * action, action)


def sizes(recorded_robot: Robot, step: float) -> Float[np.ndarray, "j"]:
    """A step of so many rad or m in the dataset's units, per joint."""
    return np.array([step * abs(joint.scale) for joint in recorded_robot.joints])


def brought(robot: Robot, recorded: Robot, values: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
    """Values in the units of a dataset (`recorded`, see `as_recorded`) in the robot's own.

    Values of another width than the joints' (a state of another kind) stay as they are.
    """
    if recorded is robot or values.shape[1] != len(robot.joints):
        return values
    return robot.to_dataset(recorded.to_native(values)).astype(values.dtype)
