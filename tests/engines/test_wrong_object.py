"""Only the suite's own object counts: another one in the target is ignored."""

import dataclasses

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines import success as criterion
from morph_vla.engines.episode import Episodes
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites.suite import InitialState


@pytest.fixture(scope="module")
def engine(tiny_suite):
    """The demo's scene with a second cube of the same size and colour."""
    suite = dataclasses.replace(
        tiny_suite,
        objects={**tiny_suite.objects, "decoy": tiny_suite.objects["cube"]},
        placement={**tiny_suite.placement, "decoy": tiny_suite.placement["cube"]},
    )
    made = MujocoEngine(robots.load(suite.robot), suite)
    yield made
    made.close()


def outcome(engine: MujocoEngine, **across: float) -> tuple[criterion.Progress, str | None]:
    """One second with the gripper open and away; objects by where they lie [m], the bowl stands at 0.15."""
    poses = {name: (0.5, y, 0.0) for name, y in {**across, "bowl": 0.15}.items()}
    engine.reset({0: InitialState(0, poses, (0.0,) * 8)})
    suite, robot = engine.suite, engine.robot
    opened = robot.to_dataset(np.asarray(robot.rest, float))
    opened[-1] = robot.to_dataset(np.array([j.opened if j.is_gripper else 0.0 for j in robot.joints]))[-1]
    episodes = Episodes(engine)
    episodes.begin([0])
    for _ in range(round(suite.control_rate)):
        episodes.step({0: opened})
    progress, reading = episodes.status[0].progress, episodes.status[0].reading
    return progress, criterion.failed_clause(progress, reading, suite.success)


def test_the_wrong_object_in_the_target_is_no_success(engine):
    progress, clause = outcome(engine, decoy=0.15, cube=-0.15)
    assert progress.success_step is None
    assert progress.longest["inside"] == 0  # not inside for a single step
    assert clause == "reached"


def test_the_right_object_there_is_one(engine):
    """The same script with the two exchanged: what the test above could have missed."""
    progress, clause = outcome(engine, cube=0.15, decoy=-0.15)
    assert progress.success_step is not None
    assert clause is None


def test_the_right_object_is_one_whatever_else_lies_there(engine):
    """The text asks for one object and forbids no other: docs/evaluation.md says so."""
    progress, clause = outcome(engine, cube=0.125, decoy=0.175)
    assert engine.pose(0, "decoy")[0] == pytest.approx(engine.pose(0, "bowl")[0], abs=0.05)
    assert progress.success_step is not None
    assert clause is None
