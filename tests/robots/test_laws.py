"""Laws that hold for every kinematic tree: branching, mimicking, fixed and in any document order."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_trees import number, tree, trees

from morph_vla.findings import errors
from morph_vla.robots import graph
from morph_vla.robots.descriptors import descriptors
from morph_vla.robots.judgement import judge
from morph_vla.robots.kinematics import link_poses
from morph_vla.robots.records import Joint, Link, Pose, Urdf
from morph_vla.robots.robot import action_order


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
