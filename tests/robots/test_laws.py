"""Laws that hold for every kinematic tree: branching, mimicking, fixed and in any document order."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from morph_vla.findings import errors
from morph_vla.robots import graph
from morph_vla.robots.descriptors import descriptors
from morph_vla.robots.judgement import judge
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.records import Contact, Joint, Limit, Link, Mimic, Pose, Urdf
from morph_vla.robots.robot import action_order

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


def matrices(urdf: Urdf, chosen: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    return graph.distances(urdf, chosen), descriptors(urdf, chosen)[0]


@given(trees(), st.randoms(use_true_random=False))
def test_relabelling_joints_permutes_distances_and_descriptors(spec, random):
    urdf = tree(spec)
    chosen = action_order(urdf)
    order = list(range(len(chosen)))
    random.shuffle(order)
    steps, features = matrices(urdf, chosen)
    shuffled_steps, shuffled_features = matrices(urdf, tuple(chosen[i] for i in order))
    np.testing.assert_array_equal(shuffled_steps, steps[np.ix_(order, order)])
    np.testing.assert_array_equal(shuffled_features, features[order])


@given(trees(), st.randoms(use_true_random=False))
def test_document_order_does_not_matter(spec, random):
    urdf = tree(spec)
    joints, links = list(urdf.joints), list(urdf.links)
    random.shuffle(joints)
    random.shuffle(links)
    other = replace(urdf, joints=tuple(joints), links=tuple(links))
    assert action_order(other) == action_order(urdf)
    chosen = action_order(urdf)
    for mine, theirs in zip(matrices(urdf, chosen), matrices(other, chosen), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@given(trees(), st.tuples(number, number, number))
def test_moving_the_base_changes_no_distance(spec, xyz):
    urdf = tree(spec)
    chosen = action_order(urdf)
    moved = tuple(replace(j, origin=Pose(xyz, xyz)) if j.parent == "l0" else j for j in urdf.joints)
    steps = graph.distances(urdf, chosen)
    np.testing.assert_array_equal(graph.distances(replace(urdf, joints=moved), chosen), steps)
    # Standing on another body is no step either: a new root, and a fixed joint to the old one.
    mount = replace(urdf.joints[0], name="mount", type="fixed", parent="world", child="l0", mimic=None)
    on_world = replace(
        urdf, joints=(mount, *urdf.joints), links=(Link("world", None, (), (), None, 1), *urdf.links)
    )
    np.testing.assert_array_equal(graph.distances(on_world, chosen), steps)


@given(trees())
def test_distances_are_a_metric_and_neighbours_are_one_step_apart(spec):
    urdf = tree(spec)
    chosen = action_order(urdf)
    steps = graph.distances(urdf, chosen)
    near = graph.adjacency(steps)
    np.testing.assert_array_equal(steps, steps.T)
    np.testing.assert_array_equal(steps == 0, np.eye(len(chosen), dtype=bool))
    assert (steps[:, :, None] <= steps[:, None, :] + steps.T[None]).all()
    np.testing.assert_array_equal(near, steps <= 1)
    assert steps.max() < graph.UNREACHABLE  # one tree, one part


@given(trees())
def test_neighbours_share_a_rigid_body(spec):
    """The definition, checked pair by pair on another road: walk frozen joints from one joint's links."""
    urdf = tree(spec)
    chosen = action_order(urdf)
    frozen = [joint for joint in urdf.joints if joint.name not in chosen]
    by_name = {joint.name: joint for joint in urdf.joints}

    def reach(name: str) -> set[str]:
        links = {by_name[name].parent, by_name[name].child}
        for _ in frozen:
            for joint in frozen:
                if {joint.parent, joint.child} & links:
                    links |= {joint.parent, joint.child}
        return links

    near = graph.adjacency(graph.distances(urdf, chosen))
    for i, first in enumerate(chosen):
        for j, second in enumerate(chosen):
            assert near[i, j] == bool(reach(first) & reach(second))


@given(trees(least=2))
def test_freezing_a_leaf_leaves_the_rest_unchanged(spec):
    urdf = tree(spec)
    chosen = action_order(urdf)
    parents = {joint.parent for joint in urdf.joints}
    leaves = [joint.name for joint in urdf.joints if joint.child not in parents and joint.name in chosen]
    if not leaves or len(chosen) < 2:
        return
    kept = [index for index, name in enumerate(chosen) if name != leaves[0]]
    steps, features = matrices(urdf, chosen)
    fewer_steps, fewer_features = matrices(urdf, tuple(chosen[index] for index in kept))
    np.testing.assert_array_equal(fewer_steps, steps[np.ix_(kept, kept)])
    np.testing.assert_array_equal(fewer_features, features[kept])


@given(trees())
def test_parts_that_nothing_joins_have_a_distance_of_their_own(spec):
    urdf = tree(spec)
    chosen = action_order(urdf)
    twins = tuple(
        replace(
            j,
            name=f"twin_{j.name}",
            parent=f"twin_{j.parent}",
            child=f"twin_{j.child}",
            mimic=replace(j.mimic, joint=f"twin_{j.mimic.joint}") if j.mimic else None,
        )
        for j in urdf.joints
    )
    both = replace(urdf, joints=urdf.joints + twins)
    steps = graph.distances(both, chosen + tuple(f"twin_{name}" for name in chosen))
    count = len(chosen)
    np.testing.assert_array_equal(steps[:count, :count], graph.distances(urdf, chosen))
    np.testing.assert_array_equal(steps[count:, count:], steps[:count, :count])
    assert (steps[:count, count:] == graph.UNREACHABLE).all()


@given(trees())
def test_a_tree_is_a_usable_robot_and_its_poses_are_rigid(spec):
    urdf = tree(spec)
    assert not errors(judge(urdf))
    poses = link_poses(urdf, dict.fromkeys(action_order(urdf), 0.7))
    assert len(poses) == len(urdf.links)
    for pose in poses.values():
        np.testing.assert_allclose(pose[:3, :3] @ pose[:3, :3].T, np.eye(3), atol=1e-9)
        np.testing.assert_allclose(np.linalg.det(pose[:3, :3]), 1.0, atol=1e-9)


def test_a_chain_of_five_is_the_matrix_of_the_docstring():
    joints = tuple(
        Joint(f"j{i}", "revolute", f"l{i}", f"l{i + 1}", Pose(), None, None, None, None, None, None, None, 1)
        for i in range(5)
    )
    steps = graph.distances(Urdf("c", "c", (), joints, (), (), ()), [joint.name for joint in joints])
    np.testing.assert_array_equal(steps, _drawn(graph.distances))
    np.testing.assert_array_equal(graph.adjacency(steps), _drawn(graph.adjacency).astype(bool))


def _drawn(function) -> np.ndarray:
    lines = (function.__doc__ or "").splitlines()
    return np.array([line.split() for line in lines if line.strip()[:1].isdigit()], dtype=int)
