"""Choosing action joints: patterns, limbs, and what to do about more than a model takes."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.robots import choose
from morph_vla.robots.urdf import parse


def joint(name: str, parent: str, child: str) -> str:
    return (
        f'<joint name="{name}" type="revolute"><parent link="{parent}"/><child link="{child}"/>'
        '<axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="1" velocity="1"/></joint>'
    )


def fingers(count: int, length: int) -> str:
    """A wrist of two joints that carries `count` fingers of `length` joints."""
    joints = [joint("wrist_1", "base", "forearm"), joint("wrist_2", "forearm", "palm")]
    for finger in range(count):
        links = ["palm", *(f"f{finger}_{i}" for i in range(length))]
        joints += [joint(f"finger{finger}_{i}", links[i], links[i + 1]) for i in range(length)]
    links = {"base", "forearm", "palm", *(f"f{f}_{i}" for f in range(count) for i in range(length))}
    declared = "".join(f"<link name={name!r}/>" for name in sorted(links))
    return f'<robot name="hand">{declared}{"".join(joints)}</robot>'


def test_patterns_choose_in_their_order_and_each_name_once():
    names = ("a_1", "a_2", "b_1", "grip[0]")
    assert choose.match(names, ["b_*", "a_2", "*"]) == ("b_1", "a_2", "a_1", "grip[0]")
    assert choose.match(names, ["grip[0]"]) == ("grip[0]",)  # a name is itself before it is a pattern
    with pytest.raises(
        MorphVlaError, match=r"no joint 'b_11' to choose; did you mean 'b_1'\? \(a_1, a_2, b_1,"
    ):
        choose.match(names, ["b_11"])


@given(st.permutations(["wrist_1", "wrist_2", *(f"finger{f}_{i}" for f in range(3) for i in range(5))]))
def test_limbs_part_the_joints_into_rows_from_base_to_tip(order):
    urdf = parse(fingers(3, 5).encode())
    rows = choose.limbs(urdf, tuple(order))
    assert sorted(sum(rows, ())) == sorted(order)
    wrist = ("wrist_1", "wrist_2")
    assert set(rows) == {wrist, *(tuple(f"finger{f}_{i}" for i in range(5)) for f in range(3))}


def test_limbs_of_frozen_joints_are_joined():
    urdf = parse(fingers(3, 5).encode())
    assert choose.limbs(urdf, ("finger1_0", "finger1_3", "wrist_2")) == (
        ("wrist_2", "finger1_0", "finger1_3"),
    )


def test_too_many_joints_are_explained_and_can_be_chosen(tmp_path: Path):
    path = tmp_path / "hand.urdf"
    path.write_text(fingers(7, 5))
    robot = robots.load(path)
    text = choose.too_many(robot.urdf, robot.names)
    assert text.startswith(
        "hand.urdf has 37 action joints, and a model of 32 action values cannot drive them all."
    )
    assert "under `joints:` in a side file, or with\n--joints" in text
    assert "    2  wrist_1 ... wrist_2\n    5  finger0_0 ... finger0_4\n" in text
    chosen = robots.load(path, joints=["wrist_*", "finger[0-5]_*"])
    assert len(chosen.joints) == 32
    assert choose.too_many(chosen.urdf, chosen.names) == ""
    assert choose.too_many(chosen.urdf, chosen.names, limit=31)


def test_patterns_keep_the_order_of_the_side_file(tmp_path: Path):
    path = tmp_path / "hand.urdf"
    path.write_text(fingers(1, 3))
    path.with_suffix(".yaml").write_text("joints: [finger0_2, finger0_0, finger0_1]\n")
    assert robots.load(path, joints=["finger*"]).names == ("finger0_2", "finger0_0", "finger0_1")
    assert robots.load(path, joints=["wrist_2", "finger*"]).names[0] == "wrist_2"
