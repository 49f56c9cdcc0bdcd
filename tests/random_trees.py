"""Random kinematic trees: branching, mimicking, fixed and in any document order."""

from hypothesis import strategies as st

from morph_vla.robots.records import Contact, Joint, Limit, Link, Mimic, Pose, Urdf

TYPES = ("revolute", "prismatic", "continuous", "fixed")
AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, -1.0), (3.0, 0.0, 4.0))
number = st.floats(-2, 2).map(lambda value: round(value, 3))


@st.composite
def trees(draw: st.DrawFn, least: int = 1) -> list[dict]:
    """Joints from link 0 to links 1..n in shuffled document order, at least one of which moves.

    Plain values: records made in here would be checked by beartype, whose sampling Hypothesis refuses in a
    strategy.
    """
    joints: list[dict] = []
    for index in range(draw(st.integers(least, 13))):
        kind = "revolute" if index == 0 else draw(st.sampled_from(TYPES))
        leaders = [joint["name"] for joint in joints if joint["type"] != "fixed" and not joint["mimic"]]
        follows = kind != "fixed" and leaders and draw(st.integers(0, 3)) == 0
        joints.append(
            {
                "name": f"j{index}",
                "type": kind,
                "parent": f"l{draw(st.integers(0, index))}",
                "child": f"l{index + 1}",
                "origin": (draw(st.tuples(*[number] * 3)), draw(st.tuples(*[number] * 3))),
                "axis": draw(st.sampled_from(AXES)),
                "lower": -draw(st.integers(1, 3)) * 1.0,
                "mimic": (draw(st.sampled_from(leaders)), draw(number.filter(bool)), draw(number))
                if follows
                else (),
            }
        )
    return list(draw(st.permutations(joints)))


def _mimic(leader: str = "", multiplier: float = 1.0, offset: float = 0.0) -> Mimic | None:
    return Mimic(leader, multiplier, offset, 1) if leader else None


def tree(spec: list[dict]) -> Urdf:
    """The records of a drawn tree. One link states contact; of several, the first in the file would count."""
    joints = [
        Joint(
            name=joint["name"],
            type=joint["type"],
            parent=joint["parent"],
            child=joint["child"],
            origin=Pose(*joint["origin"]),
            axis=joint["axis"],
            limit=Limit(joint["lower"], 1.0, 1.0, 1.0, 1),
            mimic=_mimic(*joint["mimic"]),
            damping=None,
            friction=None,
            soft_lower=None,
            soft_upper=None,
            line=1,
        )
        for joint in spec
    ]
    contact = Contact(True, 30000.0, 1000.0, 0.7, 0.1, 1)
    names = [f"l{index}" for index in range(len(spec) + 1)]
    links = [Link(name, None, (), (), contact if name == "l1" else None, 1) for name in names]
    return Urdf("tree", "tree.urdf", tuple(links), tuple(joints), (), (), ())
