"""Poses of objects in another simulator's suite: what a policy without cameras is shown instead of images."""

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'gymnasium'")

from tiny_environment import RATE
from tiny_suites import GYMNASIUM, VECTORIZED, Right, evaluate, steps_to_goal

from morph_vla.errors import MorphVlaError
from morph_vla.suites.environment import resolved

pytestmark = pytest.mark.slow

POSES = ("kwargs={poses: true}", "poses={goal: thing.pose}")


class Blind(Right):
    """Looks through no camera."""

    def __init__(self):
        super().__init__()
        self.cameras: dict[str, str] = {}


@pytest.mark.parametrize("kind", [GYMNASIUM, pytest.param(VECTORIZED, marks=pytest.mark.slow)])
def test_who_looks_through_no_camera_is_shown_poses_on_the_same_rows(load, kind):
    suite = load(kind, *POSES)
    looking, blind = Right(), Blind()
    records_of = [evaluate(policy, suite) for policy in (looking, blind)]
    assert [t.success for t in records_of[0].trials] == [t.success for t in records_of[1].trials]
    (first,), (second,) = (record.suite.tasks.values() for record in records_of)
    assert (first.resolved_sha256, first.initial_states_sha256) == (
        second.resolved_sha256,
        second.initial_states_sha256,
    )
    assert all("images/front" in seen and "environment_state" not in seen for seen in looking.asked)
    for seen in blind.asked:
        assert set(seen) == {"state", "environment_state", "prompt", "robot", "episode", "step", "connection"}
        goal = steps_to_goal(int(seen["episode"])) or -1
        # q and -q are one turn; it is shown with w >= 0.
        np.testing.assert_allclose(seen["environment_state"], [goal, 0, 0, 0.8, 0, 0, -0.6], atol=1e-7)
        assert seen["environment_state"].dtype == np.float32
    assert suite.pose_names == tuple(f"goal {value}" for value in ("x", "y", "z", "qw", "qx", "qy", "qz"))
    # Where a suite names no poses, it is shown what everyone is.
    other = Blind()
    evaluate(other, load(kind), episodes=1)
    assert "images/front" in other.asked[0]


@pytest.mark.parametrize(
    ("poses", "sentence"),
    [
        ("{goal: thing.poze}", r"no 'thing.poze'; did you mean 'thing.pose'\?"),
        (
            "{goal: agent_pos}",
            r"'agent_pos' is no pose: expected 7 finite values \(x, y, z, qw, qx, qy, qz\)",
        ),
    ],
)
def test_what_is_no_pose_is_said_before_the_first_episode(load, poses, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        evaluate(Blind(), load(GYMNASIUM, "kwargs={poses: true}", f"poses={poses}"))


def test_a_policy_that_was_trained_on_other_poses_is_refused(load):
    class Trained(Blind):
        robot_name = "tiny"
        image_size = 16
        trained = {"control_rate": RATE, "joints": ["a", "b"], "environment": ["cup x", "cup y"]}

    for overrides, shown in ((POSES, "goal x, goal y, goal z, goal qw"), ((), r"none \(`poses`\)")):
        words = rf"environment state: the suite shows {shown}.*, the policy was trained with cup x, cup y"
        with pytest.raises(MorphVlaError, match=words):
            evaluate(Trained(), load(GYMNASIUM, *overrides))


def test_poses_that_no_suite_names_leave_what_it_is_as_it_was(load):
    assert "poses" not in resolved(load(GYMNASIUM))
    assert resolved(load(GYMNASIUM, *POSES))["poses"] == {"goal": "thing.pose"}
