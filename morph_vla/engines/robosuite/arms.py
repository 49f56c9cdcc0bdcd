"""An arm of robosuite as a robot: its compiled model, read by `robots.mjcf`, and its hand as one value.

The ends of the hand are measured in the simulator, which says how each kind of fingers moves. Of several
joints one stands for the hand; those that no equality ties to it stay where they are.
"""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from morph_vla.engines.robosuite.world import RATE, World
from morph_vla.robots import mjcf
from morph_vla.robots.descriptors import limits
from morph_vla.robots.examine import Examination, examine_text
from morph_vla.robots.geometry import Transform, pose
from morph_vla.robots.records import Urdf
from morph_vla.robots.robot import action_order
from morph_vla.robots.side import Gripper, Side, ToolFrame
from morph_vla.robots.text import urdf_text

BASE, PREFIXES = "robot0_base", ("robot0_", "gripper0_right_")
SHUT_STEPS = 40  # control steps in which every hand shuts


def examined(arm: str) -> Examination:
    """The robot of one of robosuite's arms, with the hand it has there: `robosuite_sawyer`.

    An action is that of the engine: the arm's joints [rad], then the hand, 0 open .. 1 shut. Raises
    MorphVlaError for an unknown arm, MissingExtraError without robosuite.
    """
    with contextlib.closing(World("Lift", arm)) as world:
        world.reset(0)
        body, link_from_tool = world.tool()
        opened = mjcf.values(world.model, world.data.qpos, PREFIXES)
        for _ in range(SHUT_STEPS):
            world.step(np.append(world.q(), 1.0))
        shut = mjcf.values(world.model, world.data.qpos, PREFIXES)
        urdf = mjcf.records(world.model, f"robosuite's {arm}", BASE, PREFIXES)
        joints, rest = world.joints, world.rest
    gripper = _gripper(urdf, [name for name in action_order(urdf) if name not in joints], opened, shut)
    side = Side(
        joints=(*joints, gripper.joint),
        gripper=gripper,
        tools={gripper.joint: _tool(body, link_from_tool)},
        rest=(*rest.tolist(), gripper.open),
        control_rate=RATE,
        source=f"robosuite 1.5.2, the compiled model of its {arm}; the hand's ends as simulated",
        licence="MIT",
    )
    path = Path(f"robosuite_{arm.lower()}.urdf")
    return examine_text(urdf_text(urdf).encode(), side, path, (), urdf.problems)


def _tool(body: str, link_from_tool: Transform) -> ToolFrame:
    """Where the hand takes hold, to a micrometre and a microradian."""
    link = next((body.removeprefix(prefix) for prefix in PREFIXES if body.startswith(prefix)), body)
    x, y, z = (round(value, 6) + 0.0 for value in pose(link_from_tool).xyz)
    roll, pitch, yaw = (round(value, 6) + 0.0 for value in pose(link_from_tool).rpy)
    return ToolFrame(link, (x, y, z), (roll, pitch, yaw))


def _gripper(urdf: Urdf, names: Sequence[str], opened: dict[str, float], shut: dict[str, float]) -> Gripper:
    """The joint that moves the furthest between the two, the first of equals; its ends within its limits.

    Where a joint leads others, it is one of those.
    """
    leaders = {joint.mimic.joint for joint in urdf.joints if joint.mimic}
    names = [name for name in names if name in leaders] or names
    ways = [round(abs(shut[name] - opened[name]), 2) for name in names]
    name = names[ways.index(max(ways))]
    low, high = limits(urdf.by_name[name])
    first, last = (min(max(round(values[name], 4), low), high) for values in (opened, shut))
    return Gripper(name, first, last)
