"""A pool in this process, engines by name, experts in many worlds at once, and objects for Isaac Lab."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.suites.suite import initial_states, load

if not all(importlib.util.find_spec(module) for module in ("mujoco", "mink", "daqp")):
    pytest.skip("worlds and their expert need the extra 'sim'", allow_module_level=True)

from morph_vla.demonstrations.attempts import attempts
from morph_vla.engines import by_name as engines
from morph_vla.engines.episode import Episodes, Status
from morph_vla.engines.isaaclab.assets import boxed, frozen_urdf
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.engines.mujoco.scene import build_spec, mujoco
from morph_vla.engines.pool import Begin, Execute, LocalPool
from morph_vla.robots import bodies
from morph_vla.robots.geometry import matrix_of, quaternion_of
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.side import side_text
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.shapes import composed, parts, principal

SIZES = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]


@pytest.fixture(scope="module")
def suite():
    return load("droid_panda:cube_in_bowl", [*SIZES, "episode_seconds=1", "settle_seconds=0.1"])


@pytest.fixture(scope="module")
def trio(suite):
    return MujocoEngine(robots.load("panda"), suite, 3)


@pytest.mark.gl
def test_worlds_that_are_told_together_answer_as_each_would_alone(suite, trio):
    states, rest = initial_states(suite, 3, 8), trio.robot.to_dataset(trio.robot.rest)
    rows = [np.stack([rest + 0.01 * (step + world) for step in range(5)]) for world in range(3)]
    with LocalPool(Episodes(trio)) as pool:

        def run(messages):
            pool.send(messages)
            return pool.receive(messages)

        begun = run({slot: Begin(states[slot], film=slot == 1) for slot in (0, 1, 2)})
        gone = run({slot: Execute(rows[slot]) for slot in (0, 2)})
        last = [run({1: Execute(rows[1])})[1] for _ in range(4)][2:]
    assert [len(begun[slot].frames) for slot in range(3)] == [0, 1, 0]
    for slot, answer in gone.items():
        alone = LocalPool(Episodes(MujocoEngine(trio.robot, suite, 1)))
        alone.send({0: Begin(states[slot])})
        alone.send({0: Execute(rows[slot])})
        same = alone.receive([0])[0]
        assert isinstance(same.status, Status)
        assert isinstance(answer.status, Status)
        assert same.status.progress == answer.status.progress
        assert same.observation is not None
        assert answer.observation is not None
        for key, value in same.observation.items():
            assert np.array_equal(value, answer.observation[key])
    assert [answer.observation for answer in last] == [
        None,
        None,
    ]  # 15 control steps are its second
    assert [answer.status.steps for answer in last] == [15, 15]
    assert [len(answer.frames) for answer in last] == [5, 0]  # what is told after the end is ignored
    assert last[0].status.ended == "time"
    assert pool.spent["physics_s"] > 0


def test_a_pool_in_this_process_refuses_what_it_cannot_do(suite, trio):
    pool = LocalPool(Episodes(trio))
    state = initial_states(suite, 1, 8)[0]
    with pytest.raises(
        MorphVlaError,
        match=r"^worlds that step together begin their episodes together, and some",
    ):
        pool.send({0: Begin(state), 1: Execute(np.zeros((2, 8)))})
    with pytest.raises(MorphVlaError, match=r"not of \[2, 5\] actions: lower --open-loop to 2$"):
        pool.send({0: Execute(np.zeros((5, 8))), 1: Execute(np.zeros((2, 8)))})


def test_the_expert_does_the_same_in_many_worlds_at_once():
    suite = load("droid_panda:cube_in_bowl", SIZES)
    engine = MujocoEngine(robots.load("panda"), suite, 3)
    together = attempts(engine, [4, 0, 7])
    assert [status.ended for status in together] == ["success"] * 3
    for number, status in zip([4, 0, 7], together, strict=True):
        (alone,) = attempts(MujocoEngine(engine.robot, suite, 1), [number])
        assert status.progress == alone.progress
        assert np.array_equal(status.reading.object_position, alone.reading.object_position)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("mujocco", r"^no engine is called 'mujocco'; did you mean 'mujoco'\?; there are mujoco, isaaclab$"),
        (
            "isaaclab,cuda",
            r"^engine isaaclab: an option is KEY=VALUE, such as device=cuda:0, not 'cuda'$",
        ),
        ("mujoco,device=cpu", r"^engine mujoco has no options, not device$"),
    ],
)
def test_an_engine_that_is_none_is_said(text, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        engines.check(text)


SHAPES = [
    ObjectSpec("box", (0.03, 0.05, 0.07), 0.3),
    ObjectSpec("cylinder", (0.03, 0.11, 0.0), 0.2),
    ObjectSpec("sphere", (0.023, 0.0, 0.0), 0.1),
    ObjectSpec("bowl", (0.075, 0.055, 0.006), 0.6),
    ObjectSpec("plate", (0.055, 0.012, 0.004), 0.4),
    ObjectSpec("mug", (0.045, 0.075, 0.006), 0.5),
    ObjectSpec("banana", (0.16, 0.034, 0.025), 0.12),
    ObjectSpec("open_box", (0.24, 0.19, 0.08), 0.9),
]


@pytest.mark.parametrize("thing", SHAPES, ids=lambda thing: thing.shape)
def test_mass_centre_and_inertia_are_those_mujoco_finds(suite, thing):
    import dataclasses

    other = dataclasses.replace(suite, objects={**suite.objects, "cube": thing})
    model = build_spec(robots.load("panda"), other).compile()
    body = model.body("cube")
    mass, centre, matrix = composed(parts(thing))
    moments, turn = principal(matrix)
    assert mass == pytest.approx(body.mass[0])
    assert centre == pytest.approx(body.ipos, abs=1e-9)
    assert sorted(moments) == pytest.approx(sorted(body.inertia), rel=1e-6)
    axes = matrix_of(turn)
    assert axes @ np.diag(moments) @ axes.T == pytest.approx(matrix, abs=1e-12)


def test_boxes_that_stand_for_a_cylinder_have_its_mass_height_and_area():
    radius, height = 0.03, 0.11
    made = boxed(parts(ObjectSpec("cylinder", (radius, height, 0.0), 0.2)))
    assert {part.kind for part in made} == {"box"}
    assert sum(part.mass for part in made) == pytest.approx(0.2)
    assert {part.size[2] for part in made} == {height}
    along = np.random.default_rng(0).uniform(-1.2 * radius, 1.2 * radius, (20_000, 2))
    inside = np.zeros(len(along), dtype=bool)
    for part in made:
        turned = along @ matrix_of(part.quaternion)[:2, :2]
        inside |= (np.abs(turned) <= np.asarray(part.size[:2]) / 2).all(axis=1)
    area = inside.mean() * (2.4 * radius) ** 2
    assert area == pytest.approx(np.pi * radius**2, rel=0.02)
    other = parts(ObjectSpec("sphere", (0.02, 0.0, 0.0), 0.1))
    assert boxed(other) == list(other)


def test_joints_that_no_action_drives_are_fixed_in_the_urdf_that_is_converted():
    robot = robots.load("g1_dex1")
    mj = mujoco()
    model = mj.MjSpec.from_string(frozen_urdf(robot)).compile()
    assert {model.joint(i).name for i in range(model.njnt)} == {name for name, *_ in robot.drives()}


def test_a_joint_that_follows_none_that_is_driven_stands_where_kinematics_have_it(tmp_path):
    flap = (
        '<link name="flap"/><joint name="f" type="revolute"><parent link="panda_link0"/><child link="flap"/>'
        '<origin xyz="0 0.1 0" rpy="0.3 0 0"/><axis xyz="0 1 0"/><mimic joint="nobody" offset="0.7"/>'
        '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>'
    )
    urdf, side = robots.load("panda").files
    (tmp_path / "arm.urdf").write_text(urdf.read_text().replace("</robot>", flap))
    (tmp_path / "arm.yaml").write_text(side.read_text())
    robot, mj = robots.load(tmp_path / "arm.urdf"), mujoco()
    expected = quaternion_of(link_poses(robot.urdf, {})["flap"][:3, :3])
    for text in (frozen_urdf(robot), bodies.scene_text(robot)):
        spec = mj.MjSpec.from_string(text)
        spec.compiler.fusestatic = False
        model = spec.compile()
        data = mj.MjData(model)
        mj.mj_kinematics(model, data)
        found = data.body("flap").xquat
        assert abs(found @ np.array(expected)) == pytest.approx(1.0, abs=1e-9)


def test_a_joint_stands_where_its_side_file_says_in_every_simulator(tmp_path):
    panda, mj = robots.load("panda"), mujoco()
    (tmp_path / "arm.urdf").write_bytes(panda.urdf_path.read_bytes())
    side = replace(
        panda.side, joints=panda.names[1:], rest=tuple(panda.rest[1:]), stands={panda.names[0]: 0.6}
    )
    (tmp_path / "arm.yaml").write_text(side_text(side))
    robot = robots.load(tmp_path / "arm.urdf")
    native = np.append(0.6, robot.rest)
    expected = quaternion_of(panda.forward_kinematics(native)["panda_link7"][:3, :3])
    for text in (frozen_urdf(robot), bodies.scene_text(robot)):
        spec = mj.MjSpec.from_string(text)
        spec.compiler.fusestatic = False
        model = spec.compile()
        data = mj.MjData(model)
        for name, value in robot.positions(robot.rest).items():
            data.joint(name).qpos = value
        mj.mj_kinematics(model, data)
        assert panda.names[0] not in {model.joint(i).name for i in range(model.njnt)}
        assert abs(data.body("panda_link7").xquat @ np.array(expected)) == pytest.approx(1.0, abs=1e-9)


def test_a_gripper_of_ours_is_in_the_urdf_that_is_converted(tmp_path):
    panda = robots.load("panda")
    side = tmp_path / "arm.yaml"
    side.write_text(
        "joints: [panda_joint1, panda_joint2, panda_joint4, parallel_jaw_joint]\n"
        "gripper: {attach: parallel_jaw, link: panda_link8, opening: 0.06}\n"
    )
    (tmp_path / "arm.urdf").write_bytes(panda.urdf_path.read_bytes())
    robot = robots.load(tmp_path / "arm.urdf")
    assert "parallel_jaw_joint" not in robot.urdf_path.read_text()
    model = mujoco().MjSpec.from_string(frozen_urdf(robot)).compile()
    driven = {name for name, *_ in robot.drives()}
    assert {model.joint(i).name for i in range(model.njnt)} == driven > {"parallel_jaw_joint"}
