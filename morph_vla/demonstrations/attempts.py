"""Attempts of the scripted expert, in one world or in many at once, in any engine.

Attempt i begins in row i of a table of initial states and draws its disturbance from the same number. What is
done in a world depends on what was measured there alone.
"""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Float

from morph_vla.demonstrations import beginnings
from morph_vla.demonstrations.experts import Expert, PickAndPlace, Plan, disturbed
from morph_vla.demonstrations.push import Push
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import Diverged, Worlds, step_one
from morph_vla.engines.episode import UNSETTLED, Episodes, Status
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites.suite import Suite, initial_state

DEMONSTRATION = "demonstration"  # the table of initial states that recordings begin in
ALREADY = "nothing to do"  # the object lay where it belongs: such an attempt shows nothing
EXPERTS = {"pick_and_place": PickAndPlace, "push": Push}
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
    mode: str = ""
    """With several objects, in which order they came into which targets."""


def failed_clause(status: Status, suite: Suite) -> str | None:
    """The clause at which an attempt of the expert failed; ALREADY where it had nothing to do."""
    if criterion.already(status.progress):
        return ALREADY
    return criterion.failed_clause(status.progress, status.reading, suite.success)


def attempts(worlds: Worlds, numbers: Sequence[int]) -> list[Status]:
    """The expert from rows `numbers` of the evaluated table, in as many worlds at once, from rest."""
    _reset(worlds, numbers, "evaluation")
    return _follow(worlds, expert_of(worlds), numbers, "rest")


def demonstration(worlds: Worlds, number: int, kind: str, see: See = lambda action: None) -> Status:
    """The expert in world 0, from row `number` of the demonstrations' table, begun as `kind` says.

    `see` is called before each control step with the clean plan's action (dataset units). Raises Diverged
    where the physics diverges before the expert has begun.
    """
    _reset(worlds, [number], DEMONSTRATION)
    if not np.isfinite(worlds.state(0)).all():
        raise Diverged(UNSETTLED)
    expert = expert_of(worlds)
    for action in beginnings.lead_in(expert, expert.aimed(worlds.sight(0), number), kind, number):
        step_one(worlds, 0, action)
    (status,) = _follow(worlds, expert, [number], kind, see)
    return status


def _reset(worlds: Worlds, numbers: Sequence[int], stream: str) -> None:
    joints = len(worlds.robot.joints)
    states = [initial_state(worlds.suite, number, joints, stream=stream) for number in numbers]
    worlds.reset(dict(enumerate(states)))


def expert_of(worlds: Worlds) -> Expert:
    """The suite's expert. It plans with MuJoCo's kinematics, whichever engine holds the worlds."""
    engine = worlds if isinstance(worlds, MujocoEngine) else MujocoEngine(worlds.robot, worlds.suite)
    return EXPERTS[worlds.suite.expert.kind](engine)


@dataclasses.dataclass(frozen=True)
class _Way:
    """What is done in a world from control step `begun` on: a plan, and what is executed of it."""

    plan: Plan
    rows: Float[np.ndarray, "t j"]
    begun: int = 0
    retry: int = 0


def _follow(
    worlds: Worlds, expert: Expert, numbers: Sequence[int], kind: str, see: See = lambda action: None
) -> list[Status]:
    """Plan from what is seen in each world, and execute the plans, disturbed, until they or the tasks end.

    Where a plan is over and the task is not done, the expert may try again; where there are several objects,
    it goes on with the next one at once.
    """
    suite, episodes = worlds.suite, Episodes(worlds)
    episodes.begin(range(len(numbers)))
    ways: dict[int, _Way] = {}
    for index, number in enumerate(numbers):
        if episodes.status[index].ended is None:
            sight = expert.aimed(worlds.sight(index), number)
            plan = expert.follow(sight, beginnings.recorded_waypoints(expert, sight, kind))
            ways[index] = _Way(plan, disturbed(plan, worlds, number))
    # After a plan its last action is held for as long as the criterion takes.
    tail = criterion.dwell_steps(suite.success, suite.control_rate) + 3
    for step in range(suite.max_steps):
        actions = {}
        for index, number in enumerate(numbers):
            if episodes.status[index].ended is not None:
                continue
            over = ways[index].begun + len(ways[index].rows)
            if step == over + tail or (step == over and suite.success.also):
                ways[index] = _again(worlds, expert, index, number, ways[index], step)
            way = ways[index]
            if step < way.begun + len(way.rows) + tail:
                row = min(step - way.begun, len(way.rows) - 1)
                see(way.plan.actions[row])
                actions[index] = way.rows[row]
        if not actions:
            break
        episodes.step(actions)
    return [episodes.status[index] for index in range(len(numbers))]


def _again(worlds: Worlds, expert: Expert, index: int, number: int, way: _Way, step: int) -> _Way:
    """What follows a `way` that is over at a control step: another one, or the same, which stays over."""
    seen = expert.aimed(worlds.sight(index), number)
    if not (more := expert.again(seen)):
        return way
    plan, retry = expert.follow(seen, more), way.retry + 1
    return _Way(plan, disturbed(plan, worlds, number, retry), step, retry)
