"""The judge: every problem at once, each a sentence with its line."""

import pytest

from morph_vla import robots
from morph_vla.findings import Line, errors
from morph_vla.robots.judgement import judge
from morph_vla.robots.urdf import parse


def joint(name: str, parent: str, child: str, kind: str = "revolute", more: str | None = None) -> str:
    limits = '<axis xyz="0 0 1"/><limit lower="-1" upper="1" effort="1" velocity="1"/>'
    more = (limits if kind in ("revolute", "prismatic") else "") if more is None else more
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{more}</joint>\n'
    )


def robot(*parts: str, links: str = "abc") -> str:
    named = "".join(f'<link name="{name}"/>\n' for name in links)
    return f'<robot name="r">\n{named}{"".join(parts)}</robot>'


def sentences(text: str) -> list[str]:
    return [str(finding) for finding in judge(parse(text.encode(), "r.urdf"))]


LIMITED = '<axis xyz="0 0 1"/><limit lower="{}" upper="{}" effort="1" velocity="1"/>'
AXIS = '<axis xyz="0 0 1"/>'
AB = joint("x", "a", "b")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (robot(AB, joint("x", "b", "c")), "error: a second joint 'x' (the first is on line 5)"),
        (robot(AB, joint("y", "b", "c"), links="abcc"), "error: a second link 'c' (the first is on line 4)"),
        (robot(joint("", "a", "b")), "error: a joint without a name"),
        (
            robot(AB, joint("y", "c", "b")),
            "error: link 'b' is the child of 'x' and of 'y'; expected one parent",
        ),
        (robot(AB, joint("y", "b", "a")), "error: the links 'b', 'a' form a loop; expected a tree"),
        (robot(joint("x", "a", "a")), "error: joint 'x' connects link 'a' to itself"),
        (
            robot('<joint name="x" type="fixed"/>'),
            "error: joint 'x' has no parent link; expected <parent link",
        ),
        (
            robot(joint("x", "a", "b", "revolut")),
            "error: joint 'x' has the type 'revolut'; did you mean 'revolute'?; expected one of fixed",
        ),
        (
            robot(joint("x", "a", "b", "spherical")),
            "error: joint 'x' has the type 'spherical'; expected one of",
        ),
        (
            robot(joint("x", "a", "b", "floating")),
            "warning: joint 'x' is floating; expected revolute, continuous",
        ),
        (
            robot(joint("x", "base_lnk", "b"), '<link name="base_link"/>'),
            "warning: joint 'x': parent link 'base_lnk' is not declared; did you mean 'base_link'?",
        ),
        (
            robot(AB),
            "warning: 2 links without a parent: 'a', 'c'; expected one root; they are separate parts",
        ),
        (
            robot(joint("x", "a", "b", more=LIMITED.format(-1, 1).removeprefix(AXIS))),
            "warning: joint 'x' has no <axis>; expected an axis; the format's default 1 0 0 is used",
        ),
        (
            robot(joint("x", "a", "b", more='<axis xyz="0 0 0"/>')),
            "error: joint 'x': axis is 0 0 0; expected a direction",
        ),
        (
            robot(joint("x", "a", "b", more='<axis xyz="0 0 2"/>')),
            "warning: joint 'x': axis 0 0 2 has the length 2; expected a unit vector; it is scaled",
        ),
        (
            robot(joint("x", "a", "b", more=AXIS)),
            "joint 'x' has no <limit>; expected lower and upper; -pi to pi",
        ),
        (
            robot(joint("x", "a", "b", "prismatic", AXIS)),
            "joint 'x' has no <limit>; expected lower and upper; -1 to 1 [m] is assumed",
        ),
        (
            robot(joint("x", "a", "b", more=LIMITED.format(1, -1))),
            "warning: joint 'x': lower 1 is above upper -1; expected lower < upper (in PyBullet this",
        ),
        (
            robot(joint("x", "a", "b", more=LIMITED.format(0, 0))),
            "warning: joint 'x': lower and upper are both 0; expected lower < upper; it counts as movable",
        ),
        (
            robot(joint("x", "a", "b", more=LIMITED.format(-90, 90))),
            "warning: joint 'x': limits -90 to 90 are more than two turns each way; expected radians",
        ),
        (
            robot(joint("x", "a", "b", "prismatic", LIMITED.format(0, 40))),
            "warning: joint 'x': limits 0 to 40; expected metres; are these millimetres?",
        ),
        (
            robot(joint("x", "a", "b", "continuous", LIMITED.format(-2, 2))),
            "note: joint 'x' is continuous and has the limits -2 to 2; expected none: it turns without end",
        ),
        (
            robot(joint("x", "a", "b", more=AXIS + '<limit upper="1"/>')),
            "warning: joint 'x': <limit> has no lower; expected lower=...; the format's default 0 is used",
        ),
        (
            robot(AB, joint("y", "b", "c", more=LIMITED.format(-1, 1) + '<mimic joint="z"/>')),
            "warning: joint 'y' mimics 'z', which does not exist; expected a joint of this file; it is",
        ),
        (
            robot(joint("x", "a", "b", "fixed"), joint("y", "b", "c", more=AXIS + '<mimic joint="x"/>')),
            "warning: joint 'y' mimics 'x', which is fixed; expected a joint that moves",
        ),
        (
            robot(AB, joint("y", "b", "c", "fixed", '<mimic joint="x"/>')),
            "warning: joint 'y' is fixed and mimics 'x'; expected a joint that moves; it stays fixed",
        ),
        (
            robot(AB, joint("y", "b", "c", more=AXIS + '<mimic joint="x" multiplier="-0.5"/>')),
            "note: joint 'y' mimics 'x' with the multiplier -0.5; a positive one is usual; it moves",
        ),
        (
            robot(joint("x", "a", "b", more=AXIS + '<mimic joint="x"/>')),
            "error: the joints 'x' mimic each other; expected a chain that ends at a joint of its own",
        ),
        (
            '<robot name="r"><link name="a"><inertial><mass value="-1"/></inertial></link></robot>',
            "warning: link 'a': its mass is -1 kg; expected more than 0; graph and kinematics do not",
        ),
        (
            '<robot name="r"><link name="a"><inertial><mass value="1"/><inertia ixx="1" ixy="0" ixz="0"'
            ' iyy="1" iyz="0" izz="5"/></inertial></link></robot>',
            "warning: link 'a': no rigid body can have its inertia tensor; expected principal moments a, b",
        ),
        (
            '<robot><link name="a"/></robot>',
            "warning: the robot has no name; expected <robot name=...>; the file's",
        ),
        ('<robot name="r"/>', "error: no <link> and no <joint> in <robot>; expected a robot"),
        (robot("<loop_joint/>"), "warning: 1 <loop_joint>; expected a tree; the loop stays open"),
        (
            robot('<drake:joint xmlns:drake="urn:d"/>'),
            "warning: 1 <drake:joint>; expected <joint>; it is not read",
        ),
    ],
)
def test_each_problem_is_a_sentence(text: str, words: str):
    assert any(words in sentence for sentence in sentences(text)), "\n".join(sentences(text))


def test_every_problem_is_returned_at_once_in_the_order_of_the_lines():
    text = robot(
        joint("x", "a", "b", "spherical"),
        joint("y", "b", "c", "screw"),
        joint("y", "a", "d", more='<axis xyz="0 0 0"/>'),
    )
    findings = judge(parse(text.encode(), "r.urdf"))
    assert len(errors(findings)) == 4
    lines = [finding.where.line for finding in findings if isinstance(finding.where, Line)]
    assert len(lines) == len(findings)
    assert lines == sorted(lines)


def test_a_chain_of_mimics_is_followed_and_a_loop_of_them_refused():
    mimic = LIMITED.format(-1, 1) + '<mimic joint="{}"/>'
    chain = robot(
        AB, joint("y", "b", "c", more=mimic.format("x")), joint("z", "c", "d", more=mimic.format("y"))
    )
    assert any("note: joint 'z' mimics 'y', which mimics 'x'" in sentence for sentence in sentences(chain))
    assert not errors(judge(parse(chain.encode())))
    loop = chain.replace('<joint name="x"', '<joint name="w"').replace('mimic joint="x"', 'mimic joint="z"')
    assert any("the joints 'y', 'z' mimic each other" in sentence for sentence in sentences(loop))


def test_the_function_is_what_the_package_gives_whatever_has_been_imported():
    robots.load("panda")
    assert callable(robots.judge)
    assert robots.judge(robots.parse(b"")) == judge(robots.parse(b""))
