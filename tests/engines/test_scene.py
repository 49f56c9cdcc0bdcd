"""Scenes: shapes, the table's height, the tool's frame, and which limb and fingers do the task."""

import dataclasses
import importlib.util
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.robots import urdf
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.suite import InitialState, Placement, Suite, Table, initial_state, load

if importlib.util.find_spec("mujoco") is None:
    pytest.skip("the embedded engine needs the extra 'sim'", allow_module_level=True)

from morph_vla.engines.engine import step_one
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.engines.mujoco.scene import TOOL_SITE, mujoco, tool_axes
from morph_vla.suites.shapes import DISH_SIDES, FOOT, PLATE_LEAN, resting_height

THINGS = {
    "ball": ObjectSpec("sphere", (0.023, 0.0, 0.0), 0.07),
    "dish": ObjectSpec("plate", (0.07, 0.013, 0.005), 0.31),
    "tray": ObjectSpec("open_box", (0.17, 0.13, 0.05), 0.53, wall=0.007),
}
PLACES = {"ball": (0.5, -0.4), "dish": (0.3, -0.4), "tray": (0.7, -0.4)}


def furnished(**changes) -> Suite:
    suite = load("droid_panda:cube_in_bowl")
    places = {name: Placement((x, x), (y, y)) for name, (x, y) in PLACES.items()}
    objects, placement = {**suite.objects, **THINGS}, {**suite.placement, **places}
    return dataclasses.replace(suite, objects=objects, placement=placement, **changes)


@pytest.fixture(scope="module")
def scene():
    engine = MujocoEngine(robots.load("panda"), furnished())
    engine.reset({0: state_of(engine)})
    return engine


def test_mujoco_leaves_no_file_where_one_stands(tmp_path, monkeypatch, caplog):
    """What it warns of is logged; its own MUJOCO_LOG.TXT would lie in the current folder."""
    monkeypatch.chdir(tmp_path)
    mj = mujoco()
    model = mj.MjModel.from_xml_string(
        "<mujoco><worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    )
    data = mj.MjData(model)
    data.qvel[:] = 1e30
    mj.mj_step(model, data)
    assert not list(tmp_path.iterdir())
    assert caplog.messages
    assert caplog.messages[0].startswith("MuJoCo: Nan, Inf or huge value in QVEL")


def state_of(engine: MujocoEngine) -> InitialState:
    return initial_state(engine.suite, 3, len(engine.robot.joints))


def geoms(engine: MujocoEngine, body: str) -> dict[str, int]:
    model = engine.model
    return {
        model.geom(i).name: i for i in range(model.ngeom) if model.body(model.geom_bodyid[i]).name == body
    }


def test_shapes_have_the_masses_of_the_suite_and_stand_on_the_table(scene):
    for name, thing in THINGS.items():
        assert scene.model.body(name).mass[0] == pytest.approx(thing.mass)
        place = [*PLACES[name], resting_height(thing)]
        assert scene.data(0).body(name).xpos == pytest.approx(place, abs=2e-3)


def test_an_open_box_is_five_plates_and_open_above(scene):
    length, width, height = THINGS["tray"].size
    plates = geoms(scene, "tray")
    assert sorted(plates) == [f"tray/{side}" for side in ("back", "floor", "front", "left", "right")]
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for i in plates.values():
        half, middle = scene.model.geom_size[i], scene.model.geom_pos[i]
        assert 2 * half.min() == pytest.approx(THINGS["tray"].wall)
        low, high = np.minimum(low, middle - half), np.maximum(high, middle + half)
    assert low == pytest.approx([-length / 2, -width / 2, 0])
    assert high == pytest.approx([length / 2, width / 2, height])
    floor = plates["tray/floor"]
    assert scene.model.geom_pos[floor][2] + scene.model.geom_size[floor][2] == pytest.approx(0.007)


def test_a_plates_rim_leans_outwards_and_ends_at_its_height(scene):
    radius, height, wall = THINGS["dish"].size
    rim = [i for name, i in geoms(scene, "dish").items() if "wall" in name]
    assert len(rim) == DISH_SIDES
    for i in rim:
        matrix = np.zeros(9)
        scene._mj.mju_quat2Mat(matrix, scene.model.geom_quat[i])
        up = matrix.reshape(3, 3)[:, 2]
        middle, half = scene.model.geom_pos[i], scene.model.geom_size[i]
        assert up[2] == pytest.approx(math.cos(PLATE_LEAN))
        assert np.linalg.norm(middle + half[2] * up - [0, 0, height]) > radius
        assert (middle + half[2] * up)[2] == pytest.approx(height)
        foot = middle - half[2] * up
        assert foot[2] - half[0] * math.sin(PLATE_LEAN) == pytest.approx(FOOT)
        assert np.linalg.norm(foot[:2]) - half[0] / math.cos(PLATE_LEAN) < radius  # no gap to the floor
        assert 2 * half[0] == pytest.approx(wall)


def test_what_holds_something_stands_on_its_floor_alone(scene):
    scene.reset({0: state_of(scene)})
    pairs = [(contact.geom1, contact.geom2) for contact in scene.data(0).contact]
    touching = {scene.model.geom(geom).name for pair in pairs for geom in pair}
    assert "dish/floor" in touching
    assert not any("wall" in name for name in touching)


def test_a_ball_that_was_pushed_comes_to_rest(scene):
    scene.reset({0: state_of(scene)})
    ball = scene.data(0).joint("ball/free")
    ball.qvel[:] = [0.1, 0, 0, 0, 0, 0]
    hold = scene.state(0).astype(np.float64)
    for _ in range(60):
        step_one(scene, 0, hold)
    assert np.abs(ball.qvel).max() < 1e-3
    assert 0.001 < ball.qpos[0] - PLACES["ball"][0] < 0.1


@pytest.mark.parametrize(
    ("thing", "turn"),
    [
        (ObjectSpec("cylinder", (0.023, 0.09, 0.0), 0.12), [0.5, 0.5, 0.5, 0.5]),
        (ObjectSpec("banana", (0.16, 0.034, 0.0), 0.12), [1.0, 0.0, 0.0, 0.0]),
    ],
    ids=["can", "banana"],
)
def test_what_rolls_on_the_table_comes_to_rest_on_it(thing, turn):
    """A can on its side and a straight banana, knocked at 0.3 m/s."""
    suite = load("droid_panda:cube_in_bowl")
    objects, place = {**suite.objects, "roller": thing}, Placement((0.4, 0.4), (-0.5, -0.5))
    placement = {**suite.placement, "roller": place}
    suite = dataclasses.replace(suite, objects=objects, placement=placement)
    engine = MujocoEngine(robots.load("panda"), suite)
    engine.reset({0: state_of(engine)})
    free = engine.data(0).joint("roller/free")
    free.qpos[3:], free.qvel[:] = turn, [0.0, -0.3, 0.0, 0.0, 0.0, 0.0]
    hold = engine.state(0).astype(np.float64)
    for _ in range(60):
        step_one(engine, 0, hold)
    assert np.abs(free.qvel).max() < 5e-3
    assert free.qpos[1] < -0.51


@pytest.mark.parametrize("height", [-0.13, 0.07])
def test_a_table_stands_at_its_height(height):
    engine = MujocoEngine(robots.load("panda"), furnished(table=Table(height=height)))
    engine.reset({0: state_of(engine)})
    for name in PLACES:
        wanted = height + resting_height(THINGS[name])
        assert engine.data(0).body(name).xpos[2] == pytest.approx(wanted, abs=2e-3)


# ---------------------------------------------------------------------------------------- limbs and fingers


def test_a_robot_of_one_arm_is_all_limb(scene):
    assert scene.limb.all()


def test_one_arm_of_two_does_the_task_with_its_own_gripper():
    suite = load("g1_dex1_red_block")
    engine = MujocoEngine(robots.load(suite.robot), suite)
    names = np.array(engine.robot.names)
    assert all(name.startswith("right_") for name in names[engine.limb])
    assert all(name.startswith("left_") for name in names[~engine.limb])
    hold = np.asarray(engine.robot.to_dataset(engine.robot.rest)).copy()
    engine.reset({0: state_of(engine)})
    for gripper, opening in (("left_dex1_finger_joint_1", 1.0), ("right_dex1_finger_joint_1", 0.0)):
        hold[engine.robot.names.index(gripper)] = 0.0  # an idle hand may do what it likes
        for _ in range(31):
            reading = step_one(engine, 0, hold)
        assert reading.opening == pytest.approx(opening, abs=0.02)


def test_the_link_of_a_single_jaw_is_the_other_jaw():
    """A ball pressed from both sides is grasped, though one joint moves one jaw alone."""
    suite = load("so101_pick_orange")
    engine = MujocoEngine(robots.load(suite.robot), suite)
    engine.reset({0: state_of(engine)})
    free, row = engine.data(0).joint("orange/free"), engine.state(0).astype(np.float64)
    row[5] = 60.0
    for _ in range(13):
        step_one(engine, 0, row)
    row[5] = 15.0
    seen = []
    for _ in range(9):
        free.qpos[:3], free.qvel[:] = engine.data(0).site(TOOL_SITE).xpos, 0.0
        seen.append(step_one(engine, 0, row))
    assert seen[-1].touching
    assert seen[-1].grasping


def test_a_finger_that_follows_a_joint_nobody_drives_is_left_out_with_its_tie(tmp_path):
    """Of a pair of arms in one file, the other's hand: MuJoCo ties two joints, and then one is not there."""
    panda = robots.load("panda")
    text = panda.urdf_path.read_text()
    spare = "".join(
        f'<link name="spare_{name}"><inertial><mass value="0.1"/><inertia ixx="1e-4" ixy="0" ixz="0" '
        f'iyy="1e-4" iyz="0" izz="1e-4"/></inertial></link><joint name="spare_{name}_joint" type="prismatic">'
        f'<parent link="panda_link0"/><child link="spare_{name}"/><axis xyz="0 1 0"/>{follows}'
        '<limit lower="0" upper="0.04" effort="20" velocity="0.2"/></joint>'
        for name, follows in (("one", ""), ("other", '<mimic joint="spare_one_joint"/>'))
    )
    file = tmp_path / "panda.urdf"
    file.write_text(text.replace("</robot>", f"{spare}</robot>"))
    engine = MujocoEngine(robots.build(urdf.read(file), panda.side, file), furnished())
    names = [engine.model.joint(index).name for index in range(engine.model.njnt)]
    assert not [name for name in names if "spare" in name]
    assert engine.model.neq == 1  # the Panda's own second finger
    engine.close()


# ------------------------------------------------------------------------------------------ the tool's frame

AXES = [tuple(float(v) for v in row) for row in (*np.eye(3), *-np.eye(3))]
EXPERT = load("so101_pick_orange").expert
PAIRS = [(one, other) for one in AXES for other in AXES if abs(np.dot(one, other)) < 0.5]


@given(pair=st.sampled_from(PAIRS), stretch=st.floats(0.1, 10.0))
def test_the_tools_z_is_the_approach_and_its_y_the_grip(pair, stretch):
    approach, grip = pair
    long = tuple(stretch * value for value in approach)
    w, x, y, z = tool_axes(dataclasses.replace(EXPERT, approach=long, grip=grip), "here")
    turned = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    matrix = np.array(turned)
    assert matrix[:, 2] == pytest.approx(approach, abs=1e-9)
    assert matrix[:, 1] == pytest.approx(grip, abs=1e-9)
    assert np.linalg.det(matrix) == pytest.approx(1.0)
