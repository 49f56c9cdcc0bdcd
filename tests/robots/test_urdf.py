"""The reader: what the file says, and the traps met in public files, one text of ours for each."""

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.findings import errors
from morph_vla.robots.judgement import judge
from morph_vla.robots.urdf import parse, read

ARM = """<robot name="arm">
  <link name="base"/>
  <link name="tip"/>
  <joint name="hinge" type="revolute">
    <parent link="base"/>
    <child link="tip"/>
    <origin xyz="0 0 0.5" rpy="0 0 0"/>
    <axis xyz="0 0 1"/>
    <limit lower="-1" upper="1" effort="5" velocity="2"/>
  </joint>
</robot>
"""


def sentences(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode()
    return "\n".join(str(finding) for finding in judge(parse(data, "arm.urdf")))


def test_keeps_what_the_file_says():
    text = """<robot name="r">
  <material name="red"><color rgba="1 0 0 1"/></material>
  <link name="base">
    <inertial><origin xyz="1 2 3"/><mass value="5"/>
      <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial>
    <visual><origin rpy="0 0 1"/><geometry><box size="1 2 3"/></geometry><material name="red"/></visual>
    <collision><geometry><cylinder radius="0.5" length="2"/></geometry></collision>
    <contact><friction_anchor/><stiffness value="7"/></contact>
  </link>
  <link name="tip"><visual><geometry><mesh filename="tip.stl" scale="2 2 2"/></geometry></visual></link>
  <joint name="slide" type="prismatic">
    <parent link="base"/><child link="tip"/><axis xyz="0 -1 0"/>
    <limit lower="0" upper="0.1" effort="3" velocity="0.2"/>
    <dynamics damping="0.3" friction="0.1"/><mimic joint="other" multiplier="-2"/>
    <safety_controller soft_lower_limit="0.01" soft_upper_limit="0.09"/>
  </joint>
</robot>"""
    urdf = parse(text.encode())
    base, tip = urdf.links
    assert urdf.name == "r"
    assert not urdf.problems
    assert base.inertial
    assert (base.inertial.mass, base.inertial.origin.xyz) == (5.0, (1.0, 2.0, 3.0))
    assert base.visuals[0].geometry.size == (1.0, 2.0, 3.0)
    assert base.visuals[0].rgba == (1.0, 0.0, 0.0, 1.0)
    assert base.collisions[0].geometry.size == (0.5, 2.0)
    assert base.contact
    assert (base.contact.friction_anchor, base.contact.stiffness, base.contact.damping) == (True, 7.0, None)
    assert (tip.visuals[0].geometry.mesh, tip.visuals[0].geometry.size) == ("tip.stl", (2.0, 2.0, 2.0))
    (joint,) = urdf.joints
    assert (joint.parent, joint.child, joint.axis, joint.line) == ("base", "tip", (0.0, -1.0, 0.0), 11)
    assert joint.limit
    assert (joint.limit.upper, joint.limit.effort) == (0.1, 3.0)
    assert joint.mimic
    assert (joint.mimic.joint, joint.mimic.multiplier, joint.mimic.offset) == ("other", -2.0, 0.0)
    assert (joint.damping, joint.friction, joint.soft_lower, joint.soft_upper) == (0.3, 0.1, 0.01, 0.09)


def test_a_clean_file_has_no_warning():
    assert all(finding.severity == "note" for finding in judge(parse(ARM.encode())))


def test_only_children_of_the_robot_are_joints():
    extra = """<transmission name="t"><joint name="hinge"><hardware/></joint></transmission>
  <gazebo><joint name="x" type="revolute"/></gazebo>
  <!-- <joint name="old" type="fixed"/> -->
</robot>"""
    text = ARM.replace("</robot>", extra)
    assert len(parse(text.encode()).joints) == 1
    for where in ("<transmission>", "<gazebo>", "comments"):
        assert f"1 <joint> inside {where}; expected joints as children of <robot>; they are not" in sentences(
            text
        )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (
            'lower="-1"',
            'lower="-1.57."',
            "arm.urdf:9: error: joint 'hinge': limit lower is '-1.57.'; expected one number; "
            "the file cannot be used",
        ),
        ('lower="-1"', 'lower="nan"', "limit lower is 'nan'; expected one number"),
        ('lower="-1"', 'lower="1_0"', "limit lower is '1_0'; expected one number"),
        (
            'lower="-1"',
            'lower="-1e999"',
            "limit lower is '-1e999'; expected a number of at most 1.79769e+308",
        ),
        ('rpy="0 0 0"', 'rpy="0 0"', "origin rpy is '0 0'; expected 3 numbers"),
        (
            'rpy="0 0 0"',
            'rpy="0 0 0 7"',
            "warning: joint 'hinge': origin rpy holds 4 numbers, '0 0 0 7'; expected 3; the first 3 are used",
        ),
        (
            'xyz="0 0 0.5"',
            'xyz="${length}"',
            "error: joint 'hinge': origin xyz is '${length}'; expected numbers: run xacro first, which",
        ),
        ('xyz="0 0 0.5"', 'xyz="$(optenv X 0 0 0)"', "the value counts as left out"),
        ('<robot name="arm">', '<robot name="arm" xmlns="urn:x">', "a namespace on the root, 'urn:x'"),
        ("</robot>", "<xacro:leg/></robot>", "the prefix 'xacro:' is bound to no namespace"),
        ("</robot>", "<xacro:leg/></robot>", "1 <xacro:leg>; expected none: run xacro"),
        ("</robot>", "</robot><gazebo/>", "text after the end of the description (junk after document"),
        ("</robot>", "</robot>\0", "text after the end of the description"),
        ("</robot>", "", "error: text that is not XML (no element found)"),
        ("<robot", "\n\n<?xml version='1.0'?><robot", "arm.urdf:3: warning: white space before the XML"),
        ("robot", "gazebo", "the outermost element is <gazebo>; expected <robot>; nothing is read"),
    ],
)
def test_each_trap_is_named(before: str, after: str, words: str):
    assert words in sentences(ARM.replace(before, after))


def test_white_space_before_the_declaration_keeps_the_lines():
    urdf = parse(b"\n\n<?xml version='1.0'?>\n" + ARM.encode())
    assert urdf.joints[0].line == 7


def test_names_beyond_ascii_and_with_spaces_are_kept():
    text = ARM.replace("hinge", "große Achse")
    assert parse(text.encode()).joints[0].name == "große Achse"
    assert "1 name with white space, such as 'große Achse'" in sentences(text)
    assert "1 name with letters beyond ASCII, such as 'große Achse'" in sentences(text)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "text that is not XML (no element found)"),
        (b"\x00\x01\x02", "text that is not XML"),
        (b"<robot name='\xff'/>", "text that is not XML (not well-formed (invalid token))"),
        (b"<?xml version='1.0' encoding='klingon'?><robot/>", "error"),
        (b"<!DOCTYPE r [<!ENTITY a 'b'>]><robot>&a;</robot>", "a document type or entity declaration"),
        (b"<!DOCTYPE r SYSTEM 'file:///etc/passwd'><robot/>", "a document type or entity declaration"),
        (b"<robot>" + b"<a>" * 5000, "elements nested more than 64 deep"),
        (b"<robot>" + b"<a/>" * 60_000 + b"</robot>", "more than 50000 elements"),
        (b"<robot name='" + b"a" * (17 << 20) + b"'/>", "more than 16 MiB"),
    ],
)
def test_hostile_files_are_only_data(data: bytes, words: str):
    urdf = parse(data, "bad.urdf")
    assert words in "\n".join(str(finding) for finding in urdf.problems)
    assert errors(judge(urdf))


def test_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(MorphVlaError, match=r"none\.urdf: cannot be read: No such file"):
        read(tmp_path / "none.urdf")
