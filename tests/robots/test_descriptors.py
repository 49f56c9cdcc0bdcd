"""The 12 features: the paper's example row, inheritance of contact, defaults."""

import math
from pathlib import Path

import numpy as np
import pytest

from morph_vla.robots.descriptors import NAMES, ContactDefaults, descriptors, limits
from morph_vla.robots.urdf import parse, read

EXAMPLE = [0, 1, 0, 0, 1, -2.9671, 2.9671, 6.90776, 1, 1, 0.1, 10.30895]
ARM = [f"panda_joint{number}" for number in range(1, 8)]


def two_joints(
    contacts: dict[str, str], limit: str = '<limit lower="-1" upper="2"/>', kind: str = "revolute"
):
    links = "".join(f'<link name="{name}">{contacts.get(name, "")}</link>' for name in "abc")
    joints = "".join(
        f'<joint name="{p}{c}" type="{kind}"><parent link="{p}"/><child link="{c}"/>'
        f'<axis xyz="0 3 4"/>{limit}</joint>'
        for p, c in ("ab", "bc")
    )
    return parse(f'<robot name="r">{links}{joints}</robot>'.encode(), "r.urdf")


def contact(friction: float, stiffness: float = 7.0, anchor: str = "") -> str:
    return (
        f'<contact>{anchor}<stiffness value="{stiffness}"/><damping value="11"/>'
        f'<lateral_friction value="{friction}"/><spinning_friction value="0.2"/></contact>'
    )


def test_the_example_row_of_the_paper_from_our_panda(root: Path):
    rows, findings = descriptors(read(root / "urdf_descriptors" / "panda.urdf"), ARM)
    for index in (0, 2, 4, 6):
        np.testing.assert_allclose(rows[index], EXAMPLE, rtol=1e-6)
    assert rows.dtype == np.float32
    assert not findings
    assert len(NAMES) == rows.shape[1] == 12


def test_the_example_row_of_the_paper_from_the_public_file(shared: Path):
    urdf = read(shared / "robots" / "panda_pybullet.urdf")
    rows, _ = descriptors(urdf, [*ARM, "panda_finger_joint1"])
    for index in (0, 2, 4, 6):
        np.testing.assert_allclose(rows[index], EXAMPLE, rtol=1e-6)
    np.testing.assert_allclose(rows[7, :7], [1, 0, 0, 1, 0, 0, 0.04], rtol=1e-6)


def test_contact_comes_from_the_child_link_then_the_first_in_the_file_then_the_defaults():
    own = two_joints({"a": contact(0.3), "b": contact(0.5, anchor="<friction_anchor/>"), "c": contact(0.7)})
    rows, _ = descriptors(own, ["ab", "bc"])
    np.testing.assert_allclose(rows[:, 9], [0.5, 0.7], rtol=1e-6)
    np.testing.assert_allclose(rows[:, 8], [1, 0])
    inherited = two_joints({"a": contact(0.3), "c": contact(0.7)})
    rows, _ = descriptors(inherited, ["ab", "bc"])
    np.testing.assert_allclose(rows[:, 9], [0.3, 0.7], rtol=1e-6)
    rows, findings = descriptors(two_joints({}), ["ab", "bc"], ContactDefaults(lateral_friction=0.9))
    np.testing.assert_allclose(rows[0, 7:], [math.log(1000), 1, 0.9, 0.1, math.log(30000)], rtol=1e-6)
    assert [str(finding) for finding in findings] == [
        "r.urdf:1: note: no <contact>; expected one with damping, lateral_friction, "
        "spinning_friction, stiffness; the defaults are used: damping 1000, lateral_friction 0.9, "
        "spinning_friction 0.1, stiffness 30000"
    ]


def test_a_value_without_a_logarithm_takes_the_default_and_is_reported():
    rows, findings = descriptors(two_joints({"a": contact(0.3, stiffness=0.0)}), ["ab"])
    np.testing.assert_allclose(rows[0, 11], math.log(30000), rtol=1e-6)
    assert [str(finding) for finding in findings] == [
        "r.urdf:1: note: contact stiffness is 0; expected stiffness above 0; the default 30000 is used"
    ]
    rows, findings = descriptors(two_joints({"a": "<contact><friction_anchor/></contact>"}), ["ab"])
    assert len(findings) == 4
    assert "<contact> has no spinning_friction; expected spinning_friction of 0 or more" in str(findings[2])


@pytest.mark.parametrize(
    ("kind", "limit", "expected"),
    [
        ("revolute", '<limit lower="-1" upper="2"/>', (-1.0, 2.0)),
        ("revolute", '<limit upper="2"/>', (0.0, 2.0)),
        ("revolute", '<limit lower="2" upper="-1"/>', (-math.pi, math.pi)),
        ("revolute", "", (-math.pi, math.pi)),
        ("continuous", '<limit lower="-1" upper="2"/>', (-math.pi, math.pi)),
        ("prismatic", "", (-1.0, 1.0)),
    ],
)
def test_limits_are_finite_whatever_the_file_says(kind: str, limit: str, expected: tuple[float, float]):
    urdf = two_joints({}, limit, kind)
    assert limits(urdf.joints[0]) == expected
    rows, _ = descriptors(urdf, ["ab"])
    np.testing.assert_allclose(
        rows[0, :7], [kind == "prismatic", kind != "prismatic", 0, 0.6, 0.8, *expected], rtol=1e-6
    )
