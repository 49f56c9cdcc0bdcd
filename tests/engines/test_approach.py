"""How near the tool came: what tells two policies apart of which neither touches anything."""

import dataclasses

import numpy as np
import pytest
from bowl import TABLE, run

from morph_vla import robots
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites import suite
from morph_vla.suites.suite import initial_state


def test_the_nearest_is_kept_and_what_is_not_measured_is_none():
    seen = [dataclasses.replace(TABLE, approach=metres) for metres in (0.3, 0.1, 0.2)]
    assert run(seen).nearest == 0.1
    assert run([TABLE, TABLE]).nearest is None
    assert run([TABLE, seen[0]]).nearest == 0.3


@pytest.mark.parametrize("changes", [[], ["expert.offset=[0.0, 0.0, 0.01]"]])
def test_it_is_from_the_frame_that_the_expert_drives(changes):
    task = suite.load("droid_panda:cube_in_bowl", ["cameras={}", "settle_seconds=0.1", *changes])
    engine = MujocoEngine(robots.load("panda"), task)
    engine.reset({0: initial_state(task, 3, 8)})
    data, measured = engine.data(0), engine.reading(0)
    body = data.body(task.expert.tool)
    tool = body.xpos + body.xmat.reshape(3, 3) @ np.asarray(task.expert.offset)
    assert measured.approach is not None
    np.testing.assert_allclose(measured.approach, np.linalg.norm(tool - measured.object_position), rtol=1e-6)
