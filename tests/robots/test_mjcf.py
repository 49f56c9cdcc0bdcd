"""A robot of a compiled MuJoCo model: it moves as in MuJoCo, and what a URDF cannot hold is told."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla.errors import MorphVlaError
from morph_vla.robots import mjcf
from morph_vla.robots.adding import examine_model
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.text import urdf_text
from morph_vla.robots.urdf import parse

mujoco = pytest.importorskip("mujoco")


def compiled(body: str, rest: str = ""):
    text = f'<mujoco model="r"><compiler angle="radian"/><worldbody>{body}</worldbody>{rest}</mujoco>'
    return mujoco.MjModel.from_xml_string(text)


def numbers(count: int, size: float = 1.0):
    return st.lists(st.floats(-size, size, width=16), min_size=count, max_size=count)


def words(values) -> str:
    return " ".join(map(str, values))


@st.composite
def trees(draw):
    """A tree of bodies with up to two joints each, their refs and places, and equalities in a row."""
    count = draw(st.integers(1, 6))
    below: list[list[int]] = [[] for _ in range(count + 1)]
    for index in range(1, count + 1):
        below[draw(st.integers(0, index - 1))].append(index)
    names: list[str] = []

    def joint(name: str) -> str:
        names.append(name)
        axis = draw(numbers(3).filter(lambda v: np.linalg.norm(v) > 0.1))
        at = words(draw(numbers(3))) if draw(st.booleans()) else "0 0 0"
        slide = ' type="slide"' if draw(st.booleans()) else ""
        return f'<joint name="{name}" axis="{words(axis)}" pos="{at}" ref="{draw(numbers(1))[0]}"{slide}/>'

    def body(index: int) -> str:
        quat = draw(numbers(4).filter(lambda v: np.linalg.norm(v) > 0.1))
        place = f'pos="{words(draw(numbers(3)))}" quat="{words(quat)}"'
        joints = "".join(joint(f"j{index}{k}") for k in range(draw(st.integers(0, 2)) or (index == 1)))
        inside = "".join(map(body, below[index]))
        return f'<body name="b{index}" {place}>{joints}<geom size="0.1"/>{inside}</body>'

    world = "".join(map(body, below[0]))
    laws = [(*pair, *draw(numbers(2))) for pair in pairwise(sorted(names)) if draw(st.booleans())]
    equalities = "".join(
        f'<joint joint1="{follower}" joint2="{leader}" polycoef="{start} {slope} 0 0 0"/>'
        for leader, follower, start, slope in laws
    )
    return compiled(world, f"<equality>{equalities}</equality>"), sorted(names), laws


@settings(max_examples=60)
@given(trees(), st.integers(0, 2**31))
def test_it_moves_as_in_mujoco(tree, seed: int):
    model, names, laws = tree
    values = dict(zip(names, np.random.default_rng(seed).normal(size=len(names)), strict=True))
    ref = {name: model.qpos0[model.joint(name).qposadr[0]] for name in names}
    for leader, follower, start, slope in laws:  # leaders come first
        values[follower] = ref[follower] + start + slope * (values[leader] - ref[leader])
    data = mujoco.MjData(model)
    for name, value in values.items():
        data.qpos[model.joint(name).qposadr] = value
    mujoco.mj_kinematics(model, data)
    urdf = parse(urdf_text(mjcf.records(model, "r.xml")).encode())
    free = {name: value for name, value in values.items() if urdf.by_name[name].mimic is None}
    assert len(free) == len(names) - len(laws)
    poses = link_poses(urdf, free)
    root = next(name for name in poses if name not in urdf.above)
    for body in range(1, model.nbody):
        there = data.body(body)
        if there.name in poses:  # a body on the world may be no part of the robot
            pose = np.eye(4)
            pose[:3, :3], pose[:3, 3] = there.xmat.reshape(3, 3), there.xpos
            base = np.eye(4)
            base[:3, :3], base[:3, 3] = data.body(root).xmat.reshape(3, 3), data.body(root).xpos
            np.testing.assert_allclose(base @ poses[there.name], pose, atol=1e-9)
    assert {link.name for link in urdf.links} >= {model.body(model.jnt_bodyid[0]).name}


ARM = """<geom type="plane" size="1 1 1"/>
<body name="r0_base" pos="1 2 3"><geom name="g" type="box" size="0.1 0.2 0.3" rgba="1 0 0 1"/>
  <body name="r0_upper" pos="0 0 0.5">
    <joint name="r0_a" axis="0 1 0" range="-1 2" damping="3" frictionloss="0.25"/>
    <geom type="capsule" size="0.05 0.2" group="3"/>
    <body name="tool" pos="0 0 0.4">
      <joint name="b" type="slide" axis="0 0 2"/><joint name="c" axis="1 0 0" actuatorfrcrange="-7 5"/>
      <inertial pos="0.1 0.2 0.3" mass="2" diaginertia="0.3 0.2 0.1" quat="0 1 0 0"/>
    </body>
  </body>
</body>"""
ACTUATORS = """<actuator><motor joint="r0_a" gear="20" ctrlrange="-2 2"/>
<position joint="b" gear="2" forcerange="-3 4"/><position joint="c" forcerange="-99 99"/></actuator>
<keyframe><key qpos="0.5 0.25 9"/></keyframe>"""


def test_limits_inertias_efforts_and_shapes():
    urdf = mjcf.records(compiled(ARM, ACTUATORS), "arm.xml", strip=["r0_"])
    assert [link.name for link in urdf.links] == ["base", "upper", "tool", "tool_0"]
    a, b, c = (urdf.by_name[name] for name in "abc")
    assert (a.type, b.type, c.type) == ("revolute", "prismatic", "continuous")
    assert a.limit is not None
    assert c.limit is not None
    assert (a.limit.lower, a.limit.upper, a.limit.effort, a.limit.velocity) == (-1, 2, 40, None)
    assert (b.limit, b.axis, c.limit.effort) == (None, (0, 0, 1), 7)
    assert (a.damping, a.friction) == (3, 0.25)
    tool = urdf.links[2].inertial
    assert tool is not None
    assert (tool.mass, tool.origin.xyz, tool.inertia) == (2, (0.1, 0.2, 0.3), (0.3, 0, 0, 0.2, 0, 0.1))
    (box,), (unseen,) = urdf.links[0].visuals, urdf.links[1].collisions
    assert (box.geometry.kind, box.geometry.size, box.rgba) == (
        "box",
        pytest.approx((0.2, 0.4, 0.6)),
        (1, 0, 0, 1),
    )
    assert (unseen.geometry.kind, unseen.geometry.size) == ("capsule", (0.05, 0.4))
    assert urdf.links[1].visuals == ()


def test_a_base_can_be_chosen_and_what_is_not_below_it_is_left_out():
    model = compiled(ARM + '<body name="ball"><freejoint/><geom size="1"/></body>')
    assert mjcf.records(model, "arm.xml").links[0].name == "r0_base"
    urdf = mjcf.records(model, "arm.xml", root="r0_upper")
    assert [joint.name for joint in urdf.joints] == ["b", "c"]
    (problem,) = [str(finding) for finding in urdf.problems if finding.code == "root-joint"]
    assert problem == (
        "arm.xml: warning: joint 'r0_a' moves the base 'r0_upper' itself; expected a base that stands still; "
        "it is left out: the base is fixed"
    )
    two = compiled(ARM.replace("r0_", "r1_").replace("tool", "t").replace('name="b"', 'name="x"')
                   .replace('name="c"', 'name="y"').replace('name="g"', "") + ARM)  # fmt: skip
    assert mjcf.records(two, "two.xml").links[0].name == "world"
    assert mjcf.records(two, "two.xml", root="r1_base").links[0].name == "r1_base"


def test_the_first_keyframe_is_the_rest_pose_but_for_full_turns():
    robot = examine_model(compiled(ARM, ACTUATORS), "arm.xml", "arm").loaded()
    assert robot.names == ("r0_a", "b", "c")
    assert robot.rest.tolist() == [0.5, 0.25, pytest.approx(9 - 2 * np.pi)]
    assert robot.side.source == "arm.xml, an MJCF file"
    still = examine_model(compiled(ARM), "arm.xml", "arm").loaded()
    assert still.rest.tolist() == [0, 0, 0]


def test_what_mjcf_lacks_and_a_urdf_cannot_hold_is_told():
    body = """<body><joint name="a" range="0 1"/><geom size="0.1"/><geom type="ellipsoid" size="0.1 0.1 0.2"/>
    <body name="x"><joint name="b" type="ball"/><geom size="0.1"/></body>
    <body name="y"><joint name="c"/><geom size="0.1"/><body><joint name="d"/><geom size="0.1"/></body></body>
    </body>"""
    equalities = """<equality><connect body1="x" body2="y" anchor="0 0 0"/>
    <joint joint1="c" joint2="a" polycoef="0 1 0.5 0 0"/><joint joint1="d" polycoef="0.25"/>
    <joint joint1="a" joint2="c" active="false"/></equality>"""
    examination = examine_model(compiled(body, equalities), "r.xml", "r")
    told = "\n".join(map(str, (*examination.findings, *examination.loaded().findings)))
    assert "r.xml: warning: joint 'b' is ball; expected a hinge or a slide; it is frozen where" in told
    assert "r.xml: warning: the equality of joint c and a; expected one linear law for a joint and" in told
    assert "r.xml: warning: the equality of joint d; expected" in told
    assert "r.xml: warning: 1 connect or weld equality; expected a tree; the loop stays open" in told
    assert "r.xml: note: 1 shape that a URDF does not know; expected box, cylinder, sphere" in told
    assert "joint 'a': <limit> has no effort; expected effort=...; none is known" in told
    assert "joint 'a': <limit> has no velocity; expected velocity=...; none is known" in told
    assert "no <contact>; expected one with damping, " in told
    assert all(joint.mimic is None for joint in examination.urdf.joints)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"root": "r0_bse"}, "arm.xml: no body 'r0_bse'; did you mean 'r0_base'?"),
        ({"strip": ["r1_"]}, "arm.xml: no name of a body or a joint begins with 'r1_'"),
        ({"strip": ["r0_a", "r0_"]}, None),
    ],
)
def test_roots_and_prefixes_that_are_not_there(options, words):
    if words is None:
        names = mjcf.records(compiled(ARM), "arm.xml", **options).by_name
        assert "r0_a" in names, "a name that is the prefix itself keeps it"
        return
    with pytest.raises(MorphVlaError, match="^" + words.replace("?", r"\?") + "$"):
        mjcf.records(compiled(ARM), "arm.xml", **options)


def test_names_that_are_one_without_their_prefixes_and_models_that_do_not_move():
    body = '<body name="l_a"><joint name="x"/><geom size="1"/></body><body name="r_a"><geom size="1"/></body>'
    with pytest.raises(MorphVlaError, match=r"^r\.xml: without the prefixes, several bodies are called 'a'$"):
        mjcf.records(compiled(body), "r.xml", strip=["l_", "r_"])
    with pytest.raises(
        MorphVlaError, match=r"^r\.xml: no hinge and no slide joint; expected a robot that mov"
    ):
        mjcf.records(compiled('<body><freejoint/><geom size="1"/></body>'), "r.xml")
