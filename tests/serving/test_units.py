"""A policy asked in other units than it was trained in."""

import numpy as np
from stand_ins import PANDA, Wave, observation

from morph_vla import robots
from morph_vla.data import presets
from morph_vla.serving import units
from morph_vla.serving.units import affine_of

SO101 = robots.load("so101")


def test_a_percent_client_sees_the_same_motion():
    """LeIsaac's units: 100 is the upper limit of a joint; the gripper has 0 to 100 in both."""
    percent = presets.as_recorded(SO101, "percent", ())
    upper = SO101.to_dataset(SO101.upper).astype(np.float32)
    there = units.converted(upper, affine_of(SO101), affine_of(percent))
    np.testing.assert_allclose(there, np.full(6, 100.0), rtol=1e-5)
    assert there.dtype == np.float32
    np.testing.assert_allclose(units.converted(there, affine_of(percent), affine_of(SO101)), upper, rtol=1e-5)


def test_states_are_converted_on_the_way_in_and_actions_on_the_way_out():
    """A policy in radians that is asked in degrees answers the state it was asked at."""
    degrees = presets.as_recorded(PANDA, "degrees", ())
    seen = []

    class Still(Wave):
        def answer(self, asked):
            seen.append(asked["state"])
            return {"actions": asked["state"][None].repeat(3, 0), "policy_timing": {}}

    policy = units.of(Still(), affine_of(PANDA), affine_of(degrees))
    state = np.array([90, -45, 30, -60, 10, 5, 1, 0.5], np.float32)
    answer = policy.infer_batch([observation(state=state)])[0]
    np.testing.assert_allclose(seen[0][:2], [np.pi / 2, -np.pi / 4], rtol=1e-6)
    np.testing.assert_allclose(seen[0][7], 0.5, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(answer["actions"]), np.tile(state, (3, 1)), rtol=1e-5)
    assert answer["policy_timing"] == {}


def test_statistics_go_with_the_unit_also_where_a_joint_counts_the_other_way():
    here, there = [[1.0, 0.0], [1.0, 0.5]], [[180 / np.pi, 0.0], [-2.0, 0.0]]
    kept = {"mean": [0.5, 1.0], "std": [0.1, 0.3], "q01": [-1.0, 0.0], "q99": [1.0, 2.0], "count": 7}
    told = units.stats_in(kept, here, there)
    np.testing.assert_allclose(told["mean"], [28.648, -3.0], rtol=1e-4)
    np.testing.assert_allclose(told["std"], [5.7296, 0.6], rtol=1e-4)
    np.testing.assert_allclose(told["q01"], [-57.2958, -5.0], rtol=1e-4)
    np.testing.assert_allclose(told["q99"], [57.2958, -1.0], rtol=1e-4)
    assert told["count"] == 7
    assert units.stats_in(kept, here, here) == kept


def test_a_policy_in_its_own_units_is_asked_itself():
    policy = Wave()
    assert units.of(policy, affine_of(PANDA), affine_of(PANDA)) is policy


def test_what_is_still_to_be_executed_is_converted_too():
    class Echo(Wave):
        def infer_batch(self, observations):
            shown.extend(observations)
            return [{"actions": row["state"][None]} for row in observations]

    shown: list[dict] = []
    asked: dict = {"state": np.array([180.0], np.float32), "previous_actions": np.array([[90.0]], np.float32)}
    answer = units.InUnits(Echo(), [[1.0, 0.0]], [[180 / np.pi, 0.0]]).infer(asked)
    np.testing.assert_allclose(shown[0]["state"], [np.pi], rtol=1e-6)
    np.testing.assert_allclose(shown[0]["previous_actions"], [[np.pi / 2]], rtol=1e-6)
    np.testing.assert_allclose(answer["actions"], [[180]], rtol=1e-6)
