"""Attempts of the scripted expert, in one world or in many at once, in any engine.

Attempt i begins in row i of a table of initial states and draws its disturbance from the same number. What is
done in a world depends on what was measured there alone: `demonstration` is told one world's readings.
"""

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.engines import success as criterion
from morph_vla.engines.success import Progress, Reading
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import Suite, initial_state

DEMONSTRATION = "demonstration"  # the table of initial states that recordings begin in
See = Callable[[np.ndarray], None]
Outcome = tuple[Progress, Reading]


def demonstration(
    suite: Suite,
    planned: Float[np.ndarray, "t j"],
    executed: Float[np.ndarray, "t j"],
    reading: Reading,
    see: See = lambda action: None,
) -> Generator[Float[np.ndarray, "j"], Reading, Outcome]:
    """Yield what is executed, be sent what was measured, until the task or its time is done.

    `see` is called before each control step with the clean plan's action (dataset units).
    """
    tail = criterion.dwell_steps(suite.success, suite.control_rate) + 3
    progress = criterion.begin(reading)
    for step in range(min(len(executed) + tail, suite.max_steps)):
        row = min(step, len(executed) - 1)
        see(planned[row])
        reading = yield executed[row]
        progress = criterion.update(progress, reading, suite.success, suite.control_rate)
        if progress.success_step is not None:
            break
    return progress, reading


def attempt(engine: Any, number: int, stream: str, see: See = lambda action: None) -> Outcome:
    """The expert in world 0 of a MuJoCo engine, from row `number` of the table `stream`: how it ended.

    A demonstration begins as the suite's `expert.begin` says (`begins`), every other attempt at rest.
    """
    from morph_vla.demonstrations import preludes as begins
    from morph_vla.demonstrations.experts import PickAndPlace, disturbed

    engine.reset(0, initial_state(engine.suite, number, len(engine.robot.joints), stream=stream))
    expert, kind = PickAndPlace(engine), "rest"
    if stream == DEMONSTRATION:
        kind = begins.kind_of(engine.suite.expert.begin, number)
        drawn = begins.generator(engine.suite, number)
        for action in begins.prelude(expert, engine.sight(0), kind, drawn):
            engine.step(0, action)
    seen = engine.sight(0)
    plan = expert.follow(seen, begins.stations(expert, seen, kind))
    executed = disturbed(plan, engine, number)
    going = demonstration(engine.suite, plan.actions, executed, engine.reading(0), see)
    action = next(going)
    while True:
        try:
            action = going.send(engine.step(0, action))
        except StopIteration as ended:
            return ended.value


def attempts(worlds: Any, numbers: Sequence[int], stream: str) -> list[Outcome | MorphVlaError]:
    """The expert in as many worlds at once as there are `numbers`, at most `worlds.count`.

    An attempt whose physics diverges gives the error in place of its outcome.
    """
    from morph_vla.demonstrations.experts import PickAndPlace, disturbed
    from morph_vla.engines.mujoco.engine import MujocoEngine

    suite, robot = worlds.suite, worlds.robot
    joints = len(robot.joints)
    worlds.reset({i: initial_state(suite, n, joints, stream=stream) for i, n in enumerate(numbers)})
    expert = PickAndPlace(MujocoEngine(robot, suite))
    going, actions = {}, {}
    for index, number in enumerate(numbers):
        plan = expert.plan_for(worlds.sight(index))
        executed = disturbed(plan, worlds, number)
        going[index] = demonstration(suite, plan.actions, executed, worlds.reading(index))
        actions[index] = next(going[index])
    found: dict[int, Outcome | MorphVlaError] = {}
    while actions:
        for index, reading in worlds.step(actions).items():
            if isinstance(reading, MorphVlaError):
                found[index] = reading
                del actions[index]
                continue
            try:
                actions[index] = going[index].send(reading)
            except StopIteration as ended:
                found[index] = ended.value
                del actions[index]
    return [found[index] for index in range(len(numbers))]
