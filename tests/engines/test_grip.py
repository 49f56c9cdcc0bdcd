"""What is held stays where it was grasped: the stiffer the contacts, the less MuJoCo lets it creep."""

import importlib.util

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines import hands
from morph_vla.engines.engine import step_one
from morph_vla.suites.suite import initial_state, load

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp")):
    pytest.skip("the scripted expert needs the extra 'sim'", allow_module_level=True)

from morph_vla.demonstrations.experts import PickAndPlace
from morph_vla.engines.mujoco.engine import MujocoEngine

LIFTED = 0.03  # [m]


def creep(name: str, contact_seconds: float | None = None) -> float:
    """How far [m] the object moves in the expert's hand on its way from the lift to the target."""
    suite = load(name)
    engine = MujocoEngine(robots.load(suite.robot), suite)
    if contact_seconds is not None:
        engine.model.geom_solref[:, 0] = contact_seconds
    expert = PickAndPlace(engine)
    engine.reset({0: initial_state(suite, 0, len(engine.robot.joints))})
    gripper = np.flatnonzero(hands.grippers(engine.robot))
    rest, closed, held = engine.sight(0).object_position[2], None, []
    for action in expert.plan(0).actions:
        step_one(engine, 0, action)
        seen = engine.sight(0)
        if closed is None and seen.object_position[2] > rest + LIFTED:
            closed = action[gripper]
        if closed is not None and np.array_equal(action[gripper], closed):
            from_tool = seen.object_position - expert.tool(seen)
            held.append(expert._base_from_tool().rotation().as_matrix().T @ from_tool)
    engine.close()
    assert len(held) > 10
    return float(np.linalg.norm(held[-1] - held[0]))


@pytest.mark.parametrize("name", ["droid_panda:can_in_mug", "g1_dex1_red_block"])
def test_a_held_object_creeps_by_less_than_four_millimetres(name):
    creep_m = creep(name)
    assert creep_m < 0.004
    assert creep(name, contact_seconds=0.02) > 1.5 * creep_m


def test_contacts_are_as_stiff_as_the_physics_rate_can_follow():
    suite = load("droid_panda:can_in_mug")
    engine = MujocoEngine(robots.load("panda"), suite)
    # MuJoCo takes no time constant below two of its steps.
    assert suite.contact_seconds > 2 * engine.model.opt.timestep
    assert engine.model.geom_solref[:, 0] == pytest.approx(suite.contact_seconds)
    engine.close()
