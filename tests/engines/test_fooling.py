"""Attempts to fool the criterion, with physics.

Each is judged rightly here, and otherwise by a criterion that is fooled: the script can tell the two apart.
"""

import contextlib
import dataclasses
import functools
import importlib.util
import math
from collections.abc import Callable

import numpy as np
import pytest
from bowl import UPRIGHT, about

from morph_vla import robots
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import step_one
from morph_vla.robots.geometry import Quaternion
from morph_vla.suites.suite import initial_state, load

if importlib.util.find_spec("mujoco") is None:
    pytest.skip("the embedded engine needs the extra 'sim'", allow_module_level=True)

from morph_vla.engines.episode import Episodes
from morph_vla.engines.mujoco.engine import MujocoEngine

AsRead = Callable[[criterion.Reading], criterion.Reading]


@pytest.fixture(scope="module")
def worlds():
    """Suite's label -> its engine, made once."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def made(label: str) -> MujocoEngine:
            suite = load(label)
            engine = MujocoEngine(robots.load(suite.robot), suite)
            return stack.enter_context(contextlib.closing(engine))

        yield made


def opened(engine: MujocoEngine) -> np.ndarray:
    """The rest pose with open hands, dataset units."""
    joints = zip(engine.robot.rest, engine.robot.joints, strict=True)
    native = [rest if joint.opened is None else joint.opened for rest, joint in joints]
    return np.asarray(engine.robot.to_dataset(np.asarray(native, dtype=np.float64)), dtype=np.float64)


def put(engine: MujocoEngine, name: str, place, turn: Quaternion = UPRIGHT, velocity=(0.0, 0.0, 0.0)) -> None:
    free = engine.data(0).joint(f"{name}/free")
    free.qpos[:], free.qvel[:] = [*place, *turn], [*velocity, 0.0, 0.0, 0.0]


def lie(engine: MujocoEngine, seconds: float = 2.0) -> list[criterion.Reading]:
    """What is measured while the robot stands still with open hands."""
    steps = round(seconds * engine.suite.control_rate)
    return [engine.reading(0), *(step_one(engine, 0, opened(engine)) for _ in range(steps))]


def failed(
    engine: MujocoEngine, readings, as_read: AsRead = lambda reading: reading, **changes
) -> str | None:
    """The clause at which an episode of these readings failed, under the suite's criterion with `changes`."""
    success = dataclasses.replace(engine.suite.success, **changes)
    readings = [as_read(reading) for reading in readings]
    progress = criterion.begin(readings[0], engine.suite.table.height)
    progress = dataclasses.replace(progress, reached=True, grasped=True, lifted=True)
    for reading in readings[1:]:
        progress = criterion.update(progress, reading, success, engine.suite.control_rate)
    return criterion.failed_clause(progress, readings[-1], success)


def in_the_bases_axes(reading: criterion.Reading) -> criterion.Reading:
    """The mistake: a target's place without its orientation."""
    return dataclasses.replace(reading, target_quaternion=UPRIGHT)


def start(engine: MujocoEngine) -> np.ndarray:
    """Reset, and where the target stands."""
    engine.reset({0: initial_state(engine.suite, 2, len(engine.robot.joints))})
    return engine.pose(0, engine.suite.success.target)[0]


def test_a_bowl_upside_down_with_the_cube_on_top(worlds):
    engine = worlds("droid_panda:cube_in_bowl")
    x, y, _ = start(engine)
    put(engine, "bowl", (x, y, 0.056), about((1.0, 0.0, 0.0), math.pi))
    put(engine, "cube", (x, y, 0.08))
    readings = lie(engine)
    assert readings[-1].object_position[2] > 0.06  # it lies on the bowl's floor, which is on top
    assert failed(engine, readings) == "inside"
    assert failed(engine, readings, low=(-0.06, -0.06, -0.06)) == "upright"
    assert failed(engine, readings, in_the_bases_axes, min_upright=None) is None


def test_a_block_in_a_box_on_its_side(worlds):
    engine = worlds("g1_dex1_red_block")
    x, y, z = start(engine)
    put(engine, "box", (x, y, z + 0.08), about((1.0, 0.0, 0.0), math.pi / 2))  # its mouth towards -y
    put(engine, "block", (x, y - 0.037, z + 0.04))
    readings = lie(engine)
    assert failed(engine, readings) in ("inside", "upright")
    assert failed(engine, readings, min_upright=None, low=(-0.07, -0.07, 0.02)) is None


@pytest.mark.parametrize("side", [-1, 1])
def test_a_banana_in_a_bin_that_was_turned_by_a_quarter(worlds, side):
    engine = worlds("droid_panda:banana_in_bin")
    x, y, z = start(engine)
    put(engine, "bin", (x, y, z), about((0.0, 0.0, 1.0), math.pi / 2))
    put(engine, "banana", (x, y + 0.083 * side, z + 0.03), about((0.0, 0.0, 1.0), math.pi * (side > 0)))
    readings = lie(engine)
    low, high = (-0.105, -0.077, 0.005), (0.105, 0.077, 0.06)  # wider along x than along y
    assert abs(readings[-1].object_position[1] - y) > 0.077
    assert failed(engine, readings, low=low, high=high) is None
    assert failed(engine, readings, in_the_bases_axes, low=low, high=high) == "inside"


def test_a_can_that_lies_across_the_mug(worlds):
    engine = worlds("droid_panda:can_in_mug")
    x, y, z = start(engine)
    put(engine, "can", (x, y, z + 0.1), about((1.0, 0.0, 0.0), math.pi / 2))
    readings = lie(engine)
    above = readings[-1].object_position[2] - readings[-1].target_position[2]
    assert above > engine.suite.success.high[2] + 0.003
    assert failed(engine, readings) == "inside"
    assert failed(engine, readings, high=(0.035, 0.035, 0.11)) is None


@pytest.mark.parametrize("link", ["panda_link6", "panda_link7", "panda_hand"])
def test_an_object_that_a_link_holds_in_the_target(worlds, link):
    """The hand is open and no finger touches the cube, but it has not been let go of."""
    engine = worlds("droid_panda:cube_in_bowl")
    start(engine)
    model, data = engine.model, engine.data(0)
    place = data.geom_xpos[np.flatnonzero(model.geom_bodyid == model.body(link).id)[0]]
    put(engine, "cube", place)
    put(engine, "bowl", place - [0.0, 0.0, 0.03])
    data.joint(f"{engine.robot.names[-1]}").qpos[:] = engine.robot.joints[-1].opened
    engine._mj.mj_forward(model, data)
    readings = [engine.reading(0)] * 17
    assert failed(engine, readings) == "released"
    let_go = dataclasses.replace(readings[0], touching=False)  # the mistake: only fingers can hold
    assert failed(engine, [let_go] * 17) is None


def test_a_target_that_was_dragged(worlds):
    engine = worlds("droid_panda:cube_in_bowl")
    x, y, z = start(engine)
    before = engine.reading(0)
    put(engine, "bowl", (x - 0.11, y, z))
    put(engine, "cube", (x - 0.11, y, z + 0.03))
    readings = [before, *lie(engine)[1:]]
    assert failed(engine, readings) is None
    assert failed(engine, readings, max_moved=0.1) == "in_place"
    assert failed(engine, readings, max_moved=0.13) is None
    assert criterion.dragged(criterion.begin(before, 0.0), readings[-1])


def test_an_object_that_is_thrown_off_the_table_ends_the_episode(worlds):
    engine = worlds("droid_panda:can_in_mug")
    start(engine)
    table = engine.suite.table
    put(engine, "can", (table.center[0] + table.size[0] / 2 + 0.05, 0.0, 0.1), velocity=(1.0, 0.0, 0.0))
    episodes, hold = Episodes(engine), opened(engine)
    episodes.begin([0])
    for _ in range(engine.suite.max_steps):
        episodes.step({0: hold})
    status = episodes.status[0]
    assert status.ended == "lost"
    assert criterion.failed_clause(status.progress, status.reading, engine.suite.success) == "lost"
    assert status.progress.steps < engine.suite.control_rate / 2  # the rest of 30 s is saved
    assert -0.5 < status.reading.object_position[2] < -criterion.BELOW


@pytest.mark.parametrize(
    "label",
    [
        "droid_panda:cube_in_bowl",
        "droid_panda:can_in_mug",
        "droid_panda:banana_in_bin",
        "so101_pick_orange",
        "g1_dex1_red_block",
    ],
)
def test_scenes_are_settled_when_an_episode_begins(worlds, label):
    """Nothing sinks, rolls or slides before the robot has moved: no event is the scene's own."""
    engine = worlds(label)
    start(engine)
    hold = engine.state(0).astype(np.float64)
    before = engine.reading(0)
    readings = [step_one(engine, 0, hold) for _ in range(round(engine.suite.control_rate))]
    for reading in readings:
        assert reading.object_position == pytest.approx(before.object_position, abs=1e-3)
        assert reading.target_position == pytest.approx(before.target_position, abs=1e-3)
        assert reading.speed < engine.suite.success.max_speed
        assert not reading.touching
