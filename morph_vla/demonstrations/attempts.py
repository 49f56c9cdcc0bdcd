"""Attempts of the scripted expert, in one world or in many at once, in any engine.

Attempt i begins in row i of a table of initial states and draws its disturbance from the same number. What is
done in a world depends on what was measured there alone.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from morph_vla.demonstrations import beginnings
from morph_vla.demonstrations.experts import PickAndPlace, disturbed
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import Worlds, step_one
from morph_vla.engines.episode import Episodes, Status
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites.suite import initial_state

DEMONSTRATION = "demonstration"  # the table of initial states that recordings begin in
See = Callable[[np.ndarray], None]


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """One attempt that is recorded."""

    frames: list[dict[str, np.ndarray | str]]
    """Of LeRobot's names; `action` is the clean plan's, what was executed carries the disturbance."""
    failed_clause: str | None
    """None: it succeeded."""
    kind: str
    """How it began; see `beginnings`."""


def attempts(worlds: Worlds, numbers: Sequence[int]) -> list[Status]:
    """The expert from rows `numbers` of the evaluated table, in as many worlds at once, from rest."""
    _reset(worlds, numbers, "evaluation")
    return _follow(worlds, _expert(worlds), numbers, "rest")


def demonstration(worlds: Worlds, number: int, kind: str, see: See = lambda action: None) -> Status:
    """The expert in world 0, from row `number` of the demonstrations' table, begun as `kind` says.

    `see` is called before each control step with the clean plan's action (dataset units). Raises
    MorphVlaError where the physics diverges before the expert has begun.
    """
    _reset(worlds, [number], DEMONSTRATION)
    expert = _expert(worlds)
    for action in beginnings.lead_in(expert, worlds.sight(0), kind, number):
        step_one(worlds, 0, action)
    (status,) = _follow(worlds, expert, [number], kind, see)
    return status


def _reset(worlds: Worlds, numbers: Sequence[int], stream: str) -> None:
    joints = len(worlds.robot.joints)
    states = [initial_state(worlds.suite, number, joints, stream=stream) for number in numbers]
    worlds.reset(dict(enumerate(states)))


def _expert(worlds: Worlds) -> PickAndPlace:
    """The expert plans with MuJoCo's kinematics, whichever engine holds the worlds."""
    engine = worlds if isinstance(worlds, MujocoEngine) else MujocoEngine(worlds.robot, worlds.suite)
    return PickAndPlace(engine)


def _follow(
    worlds: Worlds, expert: PickAndPlace, numbers: Sequence[int], kind: str, see: See = lambda action: None
) -> list[Status]:
    """Plan from what is seen in each world, and execute the plans, disturbed, until they or the tasks end."""
    suite, episodes = worlds.suite, Episodes(worlds)
    sights = [worlds.sight(index) for index in range(len(numbers))]
    plans = [expert.follow(sight, beginnings.recorded_waypoints(expert, sight, kind)) for sight in sights]
    executed = [disturbed(plan, worlds, number) for plan, number in zip(plans, numbers, strict=True)]
    episodes.begin(range(len(plans)))
    # After a plan its last action is held for as long as the criterion takes.
    tail = criterion.dwell_steps(suite.success, suite.control_rate) + 3
    for step in range(suite.max_steps):
        actions = {}
        for index, (plan, rows) in enumerate(zip(plans, executed, strict=True)):
            if episodes.status[index].ended is None and step < len(rows) + tail:
                row = min(step, len(rows) - 1)
                see(plan.actions[row])
                actions[index] = rows[row]
        if not actions:
            break
        episodes.step(actions)
    return [episodes.status[index] for index in range(len(plans))]
