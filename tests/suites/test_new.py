"""A suite from the kinematics of an arm."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.relatives import vary
from morph_vla.relatives.draft import Changes
from morph_vla.robots.records import Joint, Limit, Link, Pose
from morph_vla.robots.side import Attached, Side
from morph_vla.suites import mounts, new, workspace
from morph_vla.suites.suite import initial_states, load_tasks
from morph_vla.suites.templates import GROUPS, TEMPLATES


@pytest.fixture(scope="module")
def panda() -> new.Plan:
    return new.plan(robots.load("panda"))


@pytest.fixture(scope="module")
def bare() -> robots.Robot:
    """The Panda without its hand."""
    panda = robots.load("panda")
    gripper = Attached("parallel_jaw", "panda_link8", opening=0.06)
    return robots.build(panda.urdf, Side(joints=panda.names[:7], gripper=gripper), Path("bare.urdf"))


@pytest.mark.slow
def test_the_tool_of_the_panda_is_between_its_fingers(panda):
    tool = panda.tool
    assert (tool.link, tool.opening) == ("panda_hand", pytest.approx(0.08))
    # The file has a frame there.
    assert tool.link_from_frame[:3, 3] == pytest.approx([0.0, 0.0, 0.105], abs=1e-3)
    assert np.abs(tool.link_from_frame[:3, 1]) == pytest.approx([0, 1, 0])
    assert 0.9 < panda.scale <= 1.1


def test_every_place_of_the_field_is_reached_from_the_rest_pose(panda):
    robot, field = panda.robot, panda.field
    chain = new.reach.chain(robot, panda.names, panda.tool.link, panda.tool.link_from_frame)
    rng = np.random.default_rng(11)
    places = np.stack(
        [
            field.ahead + field.depth * rng.uniform(-1, 1, 17),
            field.width * rng.uniform(-1, 1, 17),
        ],
        axis=1,
    )
    for height in (new.LOW, new.HIGH):
        targets = workspace._targets(places, height * panda.scale, field.heading)
        values, placed, pointing = chain.solve(targets, np.tile(field.rest, (17, 1)), panda.spins)
        assert placed.all()
        assert pointing.all()
        assert (chain.margin(values) > 0).all()
    pose, *_ = chain.forward(field.rest[None])
    assert pose[0, :3, 2] == pytest.approx([0, 0, -1], abs=0.03)  # it begins pointing down


@pytest.mark.parametrize("heading", workspace.HEADINGS)
def test_ranges_turn_with_the_heading(heading):
    field = workspace.Field(workspace.ROOT, heading, 0.5, 0.1, 0.2, np.zeros(1), flipped=False, margin=0.1)
    x, y = field.ranges((-1.0, 1.0), (-1.0, -0.5))
    corners = [np.array([ahead, aside]) for ahead in (0.4, 0.6) for aside in (-0.2, -0.1)]
    turn = np.array([[np.cos(heading), -np.sin(heading)], [np.sin(heading), np.cos(heading)]])
    turned = np.array([turn @ corner for corner in corners])
    assert [x, y] == [
        pytest.approx((low, high), abs=1e-9)
        for low, high in zip(turned.min(axis=0), turned.max(axis=0), strict=True)
    ]


def test_a_servo_stays_below_its_effort_limit_for_a_control_step(panda):
    for joint in panda.robot.joints[:7]:
        servo = panda.servos.of(joint.name, False)
        assert servo.stiffness * new.FASTEST / panda.rate <= new.EFFORT * (joint.effort or 0) + 1e-9
        assert servo.damping**2 >= 4 * servo.stiffness * servo.armature  # never less than critical
    gripper = panda.servos.gripper
    assert gripper.stiffness * 0.02 <= 20.0 + 1e-9  # on a cube of half the opening


def test_the_suite_is_read_back_with_every_task_and_its_states(panda, folder: Path):
    path = folder / "mine.yaml"
    path.write_text(new.text("mine", panda, new.chosen(["pick_and_place", "stack", "push"], panda)))
    tasks = load_tasks(path)
    assert [task.task_name for task in tasks] == [*GROUPS["pick_and_place"], "stack", "push"]
    for task in tasks:
        template = TEMPLATES[task.task_name]
        assert task.task == template.text
        assert task.robot == "panda"
        held = task.objects[task.success.object]
        assert held.size == pytest.approx([panda.scale * v for v in template.object[1].size], rel=1e-3)
        assert 2 * panda.grip >= 4 * 9.81 * held.mass * 0.999  # the fingers hold it
        assert len(initial_states(task, 50, 8)) == 50  # raises where objects have no room
    (alone,) = load_tasks(_written(panda, ["stack"], folder / "alone.yaml"))
    assert alone.task_name == ""


def _written(plan: new.Plan, tasks: list[str], path: Path) -> Path:
    path.write_text(new.text(path.stem, plan, tasks))
    return path


@pytest.mark.slow
def test_a_gripper_of_ours_makes_everything_smaller(bare):
    plan = new.plan(bare)
    assert plan.tool.link == new.TCP
    assert plan.tool.opening == pytest.approx(0.06)
    assert plan.scale == pytest.approx(0.75, abs=0.01)


def test_an_arm_that_cannot_is_told_why():
    panda, so101, hand = (robots.load(name) for name in ("panda", "so101", "inspire_hand"))
    bare = robots.build(panda.urdf, Side(joints=panda.names[:7]), Path("bare.urdf"))
    with pytest.raises(MorphVlaError, match=r"^bare: no gripper: say in its side file which joint closes"):
        new.plan(bare)
    arm_alone = replace(
        panda.urdf,
        joints=tuple(joint for joint in panda.urdf.joints if joint.name in panda.names[:7]),
        links=tuple(link for link in panda.urdf.links if link.name in {f"panda_link{i}" for i in range(8)}),
    )
    alone = robots.build(arm_alone, Side(joints=panda.names[:7]), Path("alone.urdf"))
    ours = r"`gripper: \{attach: parallel_jaw, link: panda_link7, approach: \[[-\d., ]+\], opening: [\d.]+\}`"
    with pytest.raises(
        MorphVlaError, match=rf"^alone: no gripper: .* one of ours \({ours}\); without a side"
    ):
        new.plan(alone)
    turns = (
        r"^so101: the gripper's joint 'gripper' turns, and a URDF does not say where it takes hold; copy so"
    )
    with pytest.raises(MorphVlaError, match=turns):
        new.plan(so101)
    root = next(link for link in hand.urdf.below if link not in hand.urdf.above)
    fixed = robots.build(hand.urdf, Side(gripper=Attached("parallel_jaw", root)), Path("hand.urdf"))
    with pytest.raises(
        MorphVlaError, match=r"^hand: 0 joints that turn carry its gripper; expected at least 4"
    ):
        new.plan(fixed)


def lifted(panda: robots.Robot, velocity: float = 0.1) -> robots.Robot:
    """The Panda on a lift that stands at 0.3 m, with the lift among its joints."""
    column = Joint(
        "lift", "prismatic", "floor", "panda_link0", Pose((0.0, 0.0, -0.3)), (0.0, 0.0, 1.0),
        Limit(0.0, 0.6, 900.0, velocity, 1), None, None, None, None, None, 1,
    )  # fmt: skip
    floor = Link("floor", None, (), (), None, 1)
    urdf = replace(panda.urdf, joints=(column, *panda.urdf.joints), links=(floor, *panda.urdf.links))
    side = replace(panda.side, joints=("lift", *panda.names), rest=(0.3, *panda.rest.tolist()), names=())
    return robots.build(urdf, side, Path("lifted.urdf"))


def test_a_lift_stands_still_and_slows_nobody():
    """It is no hinge: the plan is that of the arm where the lift has it."""
    panda = robots.load("panda")
    alone, plan = new.plan(panda), new.plan(lifted(panda))
    assert plan.names == alone.names == panda.names[:7]
    np.testing.assert_allclose(plan.field.rest, alone.field.rest, atol=1e-6)
    assert plan.scale == pytest.approx(alone.scale)
    assert new._expert(plan)["speed"] == pytest.approx(new._expert(alone)["speed"])
    start = new._common(plan)["start"]
    assert isinstance(start, dict)
    assert "lift" not in start
    # It carries all of the arm: a servo of its own, in N/m.
    servo = plan.servos.joints["lift"]
    links = new.bodies.filled(plan.robot).links
    masses = sum(link.inertial.mass or 0.0 for link in links if link.inertial and link.name != "floor")
    assert servo.stiffness == pytest.approx(new.STIFFNESS**2 * masses, rel=0.01)


def on_a_torso(aside: float = 0.0) -> robots.Robot:
    """The Panda 1.2 m above its root, so many metres to the left of it."""
    panda = robots.load("panda")
    on_a_lift = lifted(panda)
    joints = tuple(
        replace(joint, origin=Pose((0.0, aside, 0.6))) if joint.name == "lift" else joint
        for joint in on_a_lift.urdf.joints
    )
    side = replace(on_a_lift.side, rest=(0.6, *panda.rest.tolist()))
    return robots.build(replace(on_a_lift.urdf, joints=joints), side, Path("tall.urdf"))


@pytest.mark.slow
def test_an_arm_on_a_torso_gets_a_table_before_it(panda):
    plan = new.plan(on_a_torso(aside=0.31))
    x, y, top = plan.field.origin
    # A Panda's length is 0.87 m: its second joint is 0.33 m above where it stands.
    assert (x, y) == pytest.approx((0.0, 0.31))
    assert top == pytest.approx(1.2 + 0.333 - 0.4 * plan.size, abs=0.3)
    assert plan.scale == pytest.approx(panda.scale)
    common = new._common(plan)
    table, cameras = common["table"], common["cameras"]
    assert isinstance(table, dict)
    assert isinstance(cameras, dict)
    assert table["height"] == top
    assert table["center"][0] - table["size"][0] / 2 > 0.1  # not through the torso
    assert table["center"][1] == pytest.approx(0.31)
    assert cameras["exterior"]["position"][2] > top + 0.5
    # Whatever lies on it, lies on it.
    for name, template in TEMPLATES.items():
        placement = new._task(template, plan)["placement"]
        assert isinstance(placement, dict)
        for thing, pose in placement.items():
            for axis, middle, size in zip("xy", table["center"], table["size"], strict=False):
                assert middle - size / 2 < min(pose[axis]), (name, thing)
                assert max(pose[axis]) < middle + size / 2, (name, thing)


@pytest.mark.slow
def test_a_table_may_be_asked_for_at_a_height():
    robot = robots.load("panda")
    plan = new.plan(robot, table=-0.15)
    assert plan.field.origin == pytest.approx([0.0, 0.0, -0.15])
    chain = new.reach.chain(robot, plan.names, plan.tool.link, plan.tool.link_from_frame)
    pose, *_ = chain.forward(plan.field.rest[None])
    assert pose[0, 2, 3] == pytest.approx(-0.15 + new.HIGH * plan.scale, abs=0.01)
    words = (
        r"^panda: no place to work on a table: it does not reach 0\.44 m over a table 2\.00 m above its base$"
    )
    with pytest.raises(MorphVlaError, match=words):
        new.plan(robot, table=2.0)


@pytest.mark.slow
def test_a_weak_joint_a_narrow_gripper_and_a_short_reach_are_said(bare, monkeypatch):
    weak = [replace(joint, effort=0.01) if "4" in joint.name else joint for joint in bare.joints]
    with pytest.raises(
        MorphVlaError, match=r"^bare: joint 'panda_joint4' is too weak: 0.01 N m for [0-9.]+ kg"
    ):
        new.plan(replace(bare, joints=tuple(weak)))
    monkeypatch.setattr(new, "SMALLEST", 0.9)
    with pytest.raises(
        MorphVlaError, match=r"^bare: its gripper is too narrow: it opens by 60 mm, and the smallest"
    ):
        new.plan(bare)


def test_a_task_that_is_not_there_or_not_for_five_joints(panda):
    with pytest.raises(MorphVlaError, match=r"^no task 'stak'; did you mean 'stack'"):
        new.chosen(["stak"], panda)
    five = replace(panda, names=panda.names[:5])
    assert new.chosen(["pick_and_place"], five) == ("can_in_mug", "orange_on_plate")
    with pytest.raises(
        MorphVlaError, match=r"^panda: task 'stack' needs 6 joints, to turn the gripper to the object;"
    ):
        new.chosen(["stack"], five)


@pytest.mark.parametrize("ends", [(0.0, 0.0312347), (-0.0312347, 0.0), (-1.0, 1.0)])
def test_where_joints_begin_is_written_inside_their_limits(panda, ends):
    """To five digits 0.0312347 is beyond itself."""
    robot = panda.robot
    known = robot.urdf.by_name["panda_finger_joint1"]
    limit = replace(known.limit, lower=ends[0], upper=ends[1])
    joints = tuple(replace(other, limit=limit) if other is known else other for other in robot.urdf.joints)
    other = robots.build(replace(robot.urdf, joints=joints), Side(), Path("other.urdf"))
    for value in ends:
        (written,) = new._within({"panda_finger_joint1": value}, other).values()
        (line,) = new.yaml_text.lines({"start": written})
        assert ends[0] <= float(line.removeprefix("start: ")) <= ends[1]
        assert abs(written - value) < 1e-4 * abs(value) + 1e-9


@pytest.mark.parametrize("turn", [0.0, 0.3, np.pi / 2, np.pi - 0.3, np.pi, -2.0])
@pytest.mark.parametrize("heading", workspace.HEADINGS)
def test_a_hands_camera_is_on_the_side_that_the_arm_reaches_to(turn, heading):
    """A hand that points down, turned about z in any way: its frame's x axis never looks back to the base."""
    cos, sin = np.cos(heading + turn), np.sin(heading + turn)
    root_from_palm = np.array([[cos, sin, 0, 0.4], [sin, -cos, 0, 0], [0, 0, -1, 0.3], [0, 0, 0, 1]])
    frame = mounts.facing(np.eye(4), root_from_palm, heading)
    ahead = np.array([np.cos(heading), np.sin(heading), 0.0])
    assert ahead @ root_from_palm[:3, :3] @ frame[:3, 0] == pytest.approx(abs(np.cos(turn)), abs=1e-9)
    assert np.array_equal(frame[:, 2:], np.eye(4)[:, 2:])  # it points where it pointed


def test_a_mirrored_arms_camera_is_where_the_arms_own_is(panda, folder: Path):
    """And with the hand's own axes it is on the other side, as in the bodies that docs/evidence measured."""
    mirrored = vary.drawn(panda.robot, Changes(mirror=True), "panda_vary0_000").robot
    sides = {}
    for robot in (panda.robot, mirrored):
        for side in ("ahead", "hand"):
            plan = new.plan(robot, camera_side=side)
            path = _written(plan, ["stack"], folder / f"{robot.name}_{side}.yaml")
            (suite,) = load_tasks(path)
            assert ("side that the arm reaches to" in path.read_text()) == (side == "ahead")
            root_from_palm = robot.forward_kinematics(new._begun(robot, plan.names, plan.field))[
                plan.tool.palm
            ]
            camera = suite.cameras["wrist"]
            seen = root_from_palm @ np.array([*camera.position, 1.0]) - root_from_palm @ np.array(
                [*plan.tool.palm_from_frame[:3, 3], 1.0]
            )
            sides[robot.name, side] = float(seen[0])
    assert sides["panda", "ahead"] > 0.05
    assert sides[mirrored.name, "ahead"] > 0.05
    assert sides["panda", "hand"] * sides[mirrored.name, "hand"] < 0
