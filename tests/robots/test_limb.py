"""The arm of a robot: its joints, its hand, and the side file that follows from them."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.robots import adding, limb, load
from morph_vla.robots.examine import examine_text
from morph_vla.robots.side import Attached, Gripper, Side
from morph_vla.robots.text import urdf_text
from morph_vla.robots.urdf import parse

LINK = '<link name="{}"/>'
JOINT = (
    '<joint name="{name}" type="{type}"><parent link="{parent}"/><child link="{child}"/>'
    '<origin xyz="{xyz}"/><axis xyz="{axis}"/>'
    '<limit lower="{low}" upper="0.05" effort="9" velocity="1"/></joint>'
)


def urdf(turning: int = 5, more: str = ""):
    """A chain of turning joints, 0.2 m apart along z; the last turns about that axis."""
    axes = ["0 0 1", *["0 1 0"] * (turning - 2), "0 0 1"]
    joints = [
        JOINT.format(
            name=f"j{i}",
            type="revolute",
            parent=f"l{i}",
            child=f"l{i + 1}",
            xyz="0 0 0.2",
            axis=axis,
            low=-2,
        )
        for i, axis in enumerate(axes)
    ]
    links = "".join(LINK.format(f"l{i}") for i in range(turning + 1))
    return parse(f'<robot name="r">{links}{"".join(joints)}{more}</robot>'.encode(), "r.urdf")


def sliding(name: str, child: str, axis: str, parent: str = "l5", low: float = 0.0) -> str:
    return LINK.format(child) + JOINT.format(
        name=name, type="prismatic", parent=parent, child=child, xyz="0 0 0.1", axis=axis, low=low
    )


def test_an_arm_without_a_hand_gets_a_gripper_on_its_mount():
    fixed = (
        '<link name="tool0"/><joint name="m" type="fixed"><parent link="l5"/><child link="tool0"/></joint>'
    )
    arm = limb.find(urdf(more=fixed))
    assert (arm.joints, arm.hand, arm.mount) == (("j0", "j1", "j2", "j3", "j4"), "none", "tool0")
    side = limb.propose(arm)
    assert side.gripper == Attached("parallel_jaw", "tool0", (0.0, 0.0, 1.0), round(0.08 * 0.8, 3))
    assert side.joints == arm.joints


def test_a_chain_of_many_joints_is_an_arm():
    assert len(limb.find(urdf(1500)).joints) == 1500


def test_a_robot_made_with_its_gripper_is_added_with_that(tmp_path: Path):
    text = urdf_text(urdf(more=sliding("a", "left", "0 1 0"))).encode()
    side = Side(gripper=Gripper("a", 0.05, 0.0), control_rate=7.0)
    added = adding.add(examine_text(text, side, Path("made.urdf")), folder=tmp_path)
    assert load(added.urdf).side == side
    without = adding.add(examine_text(text, Side(), Path("bare.urdf")), folder=tmp_path)
    assert "# gripper:" in without.side_file


def test_a_frame_beyond_the_last_link_is_the_mount_whatever_its_name():
    joint = '<joint name="{0}" type="fixed"><parent link="l5"/><child link="{0}"/><origin xyz="{1}"/></joint>'
    more = "".join(
        LINK.format(name) + joint.format(name, xyz) for name, xyz in (("l8", "0 0 .1"), ("eye", ".2 0 0"))
    )
    assert limb.find(urdf(more=more)).mount == "l8"


def test_sliding_fingers_are_used_and_open_where_they_are_apart():
    fingers = sliding("a", "left", "0 1 0") + sliding("b", "right", "0 1 0", low=-0.05)
    arm = limb.find(urdf(more=fingers))
    assert (arm.hand, arm.fingers) == ("parallel", ("a", "b"))
    side = limb.propose(arm)
    assert side.gripper == Gripper("a", open=0.05, closed=0.0)
    assert side.joints == (*arm.joints, "a")
    (follower,) = side.drives["a"]
    assert (follower.joint, follower.multiplier) == ("b", -1.0)  # the same axis: it goes the other way


def test_fingers_that_no_action_can_move_are_replaced(folder: Path):
    """Both limits alike; both driven by a gear; one by a joint of the arm."""
    still = sliding("a", "left", "0 1 0", low=0.05)
    gear = JOINT.format(
        name="gear", type="revolute", parent="l5", child="g", xyz="0 0 0", axis="0 0 1", low=0
    ) + LINK.format("g")
    geared = gear + "".join(following(name, "gear") for name in ("a", "b"))
    led = sliding("a", "a_link", "0 1 0") + following("b", "j4")
    for hand in (still, geared, led):
        arm = limb.find(urdf(more=hand))
        assert (arm.hand, arm.fingers, arm.joints) == ("other", (), ("j0", "j1", "j2", "j3", "j4"))
        source = folder / "hand.urdf"
        source.write_text(urdf_text(urdf(more=hand)))
        with adding.only_if_used(source, folder=folder / "to") as path:
            assert load(path).names[-1] == "parallel_jaw_joint"
        shutil.rmtree(folder / "to")


def following(name: str, leader: str) -> str:
    """A finger that mimics another joint."""
    text = sliding(name, f"{name}_link", "0 1 0")
    return text.replace("</joint>", f'<mimic joint="{leader}" multiplier="0.02"/></joint>')


def test_an_arm_whose_proposed_hand_does_not_fit_leaves_no_file(folder: Path):
    """A link of the name that our gripper's palm has."""
    source = folder / "taken.urdf"
    held = LINK.format("parallel_jaw") + (
        '<joint name="h" type="fixed"><parent link="l2"/><child link="parallel_jaw"/></joint>'
    )
    source.write_text(urdf_text(urdf(more=held)))
    with pytest.raises(MorphVlaError, match="parallel_jaw"):
        adding.add_arm(source, folder=folder / "to")
    assert not (folder / "to").exists()


def test_a_registered_arm_without_a_side_file_gets_one(folder: Path, monkeypatch):
    """`robots add`, then `suites new NAME`: what README says."""
    monkeypatch.setenv("MORPH_VLA_PATH", str(folder))
    source = folder / "mine.urdf"
    source.write_text(urdf_text(urdf()))
    copy = adding.add(adding.examine_new(source), folder=folder / "urdf_descriptors").urdf

    def refused() -> None:
        with adding.completed("mine") as path:
            assert load(path).names[-1] == "parallel_jaw_joint"
            raise KeyError

    with pytest.raises(KeyError):
        refused()
    assert copy.is_file(), "it was there before"
    assert not copy.with_suffix(".yaml").exists()
    with adding.completed("mine") as path:
        assert path == copy
    side = copy.with_suffix(".yaml").read_text()
    with adding.completed("mine") as path:
        assert path == "mine"
    assert copy.with_suffix(".yaml").read_text() == side
    with adding.completed("panda") as path:
        assert path == "panda"


@pytest.mark.parametrize("prefix", ["finger", "thumb"])
def test_a_hand_that_turns_is_replaced(prefix):
    joint = JOINT.format(
        name=f"{prefix}_1", type="revolute", parent="l5", child="f", xyz="0 0 0.1", axis="1 0 0", low=-1
    )
    arm = limb.find(urdf(more=LINK.format("f") + joint))
    assert (len(arm.joints), arm.hand) == (5, "other")
    assert isinstance(limb.propose(arm).gripper, Attached)


def limbs(turning: int, parent: str, *names: str) -> str:
    """Chains of so many turning joints each, side by side on one link."""
    text = ""
    for name in names:
        ends = [parent, *(f"{name}{i}" for i in range(turning))]
        for i, (above, below) in enumerate(itertools.pairwise(ends)):
            text += LINK.format(below) + JOINT.format(
                name=f"{name}{i}", type="revolute", parent=above, child=below,
                xyz="0 0.1 0", axis="0 1 0" if i % 2 else "1 0 0", low=-2,
            )  # fmt: skip
    return text


@pytest.mark.parametrize(("trunk", "first"), [(3, ("j0", "j1", "j2")), (5, ())])
def test_a_trunk_with_two_arms_is_none(trunk: int, first: tuple[str, ...]):
    """Of AgiBot's G2 five joints turn below both arms: they were taken for an arm, the arms for a hand."""
    arm = limb.find(urdf(trunk, limbs(7, f"l{trunk}", "left", "right")))
    assert arm.joints == (*first, *(f"left{i}" for i in range(7)))
    assert arm.hand == "none"


@pytest.mark.parametrize(("turning", "fingers"), [(5, 5), (7, 7)])
def test_fingers_of_many_joints_are_no_arms(turning: int, fingers: int):
    """A Shadow hand's thumb has 5, a finger of TIAGo's Hey5 has 7, some of which only bend along."""
    arm = limb.find(urdf(turning, limbs(fingers, f"l{turning}", "index", "middle")))
    assert arm.joints == tuple(f"j{i}" for i in range(turning))
    assert arm.hand == "other"


def test_too_few_joints_are_no_arm():
    with pytest.raises(
        MorphVlaError, match=r"^r.urdf: no arm: its longest limb has 3 turning joints; expected"
    ):
        limb.find(urdf(turning=3))


@pytest.mark.parametrize(("name", "joints"), [("panda", 7), ("so101", 5), ("aloha", 6)])
def test_shipped_robots(name, joints):
    robot = load(name)
    arm = limb.find(robot.urdf)
    assert len(arm.joints) == joints
    assert np.linalg.norm(arm.approach()) == pytest.approx(1.0)
    if name == "panda":
        assert limb.propose(arm).gripper == Gripper("panda_finger_joint1", open=0.04, closed=0.0)
        assert arm.in_link("panda_link7", arm.approach()) == (0.0, 0.0, 1.0)


def test_the_proposal_stands_in_the_side_file_to_fill_in(folder: Path):
    path = folder / "r.urdf"
    path.write_text(urdf_text(urdf()))
    text = adding.add(adding.examine_new(path), "mine", folder / "to").side_file
    assert (
        "# gripper: {attach: parallel_jaw, link: l5, approach: [0, 0, 1], opening: 0.064}  # one of ours"
        in text
    )
