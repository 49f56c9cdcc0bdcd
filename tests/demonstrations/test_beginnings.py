"""Where demonstrations begin: shares are met, lead-ins bring the robot there, experts go on from there."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.demonstrations import beginnings
from morph_vla.demonstrations.attempts import DEMONSTRATION, attempts
from morph_vla.demonstrations.experts import PickAndPlace
from morph_vla.demonstrations.recording import demonstrate
from morph_vla.engines.engine import step_one
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import ConfigError
from morph_vla.suites import suite
from morph_vla.suites.begin import BeginShares
from morph_vla.suites.suite import initial_state

KINDS = ("rest", "near", "low", "target", "anywhere", "miss", "slip", "carry")
ONLY = {kind: BeginShares(**{"rest": 0.0, kind: 1.0}) for kind in KINDS}


def engine_of(kind: str) -> MujocoEngine:
    cameras = [f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height")]
    chosen = suite.load("droid_panda:cube_in_bowl", cameras)
    expert = dataclasses.replace(chosen.expert, begin=ONLY[kind])
    return MujocoEngine(robots.load("panda"), dataclasses.replace(chosen, expert=expert))


def brought(kind: str, number: int) -> MujocoEngine:
    """A world after the lead-in of a demonstration."""
    engine = engine_of(kind)
    engine.reset({0: initial_state(engine.suite, number, 8, stream=DEMONSTRATION)})
    for action in beginnings.lead_in(PickAndPlace(engine), engine.sight(0), kind, number):
        step_one(engine, 0, action)
    return engine


@given(st.lists(st.floats(0.01, 1), min_size=8, max_size=8), st.integers(0, 10_000))
def test_any_run_of_numbers_meets_the_shares(shares, first):
    begin = BeginShares(*shares)
    drawn = [beginnings.kind_of(begin, number) for number in range(first, first + 211)]
    for kind, share in begin.kinds.items():
        assert abs(drawn.count(kind) - 211 * share) < 5


def test_a_kind_without_a_share_never_comes():
    begin = BeginShares(rest=0.7, near=0.3)
    assert {beginnings.kind_of(begin, number) for number in range(503)} == {"rest", "near"}
    assert {beginnings.kind_of(BeginShares(), number) for number in range(503)} == {"rest"}


@pytest.mark.slow
@pytest.mark.gl
@pytest.mark.parametrize("kind", KINDS)
def test_the_expert_goes_on_from_where_the_lead_in_ends(kind):
    engine = engine_of(kind)
    shown = [demonstrate(engine, number) for number in range(5)]
    assert sum(one.failed_clause is None for one in shown) >= 3  # a cube that rolled out of reach is dropped
    assert all(one.frames and one.kind == kind for one in shown)


@pytest.mark.gl
def test_a_demonstration_is_the_same_whenever_it_is_recorded():
    first, again = (demonstrate(engine_of("miss"), 3).frames for _ in range(2))
    assert len(first) == len(again)
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a["action"], b["action"])
        np.testing.assert_array_equal(a["observation.images.wrist"], b["observation.images.wrist"])


@pytest.mark.parametrize("number", range(5))
def test_near_ends_beside_and_above_the_object(number):
    engine = brought("near", number)
    offset = PickAndPlace(engine).tool(engine.sight(0)) - engine.sight(0).object_position
    assert np.abs(offset[:2]).max() < 0.07
    assert 0.03 < offset[2] < 0.18


@pytest.mark.parametrize("number", range(5))
def test_low_ends_at_the_objects_height_beside_it_and_the_expert_rises_first(number):
    engine = brought("low", number)
    expert, seen = PickAndPlace(engine), engine.sight(0)
    offset = expert.tool(seen) - seen.object_position
    assert 0.02 < np.hypot(*offset[:2]) < 0.18
    assert offset[2] < 0.05
    first = beginnings.recorded_waypoints(expert, seen, "low")[0].position
    assert first[2] > expert.tool(seen)[2] + 0.005
    np.testing.assert_allclose(first[:2], expert.tool(seen)[:2], atol=1e-6)


@pytest.mark.parametrize("number", range(5))
def test_target_ends_over_the_target_and_leaves_the_object_alone(number):
    engine = brought("target", number)
    before = initial_state(engine.suite, number, 8, stream=DEMONSTRATION).poses["cube"]
    offset = PickAndPlace(engine).tool(engine.sight(0)) - engine.sight(0).target_position
    assert np.abs(offset[:2]).max() < 0.07
    assert offset[2] > 0.12
    np.testing.assert_allclose(engine.sight(0).object_position[:2], before[:2], atol=1e-3)


@pytest.mark.parametrize("number", range(5))
def test_anywhere_ends_over_the_table_where_objects_are_placed(number):
    engine = brought("anywhere", number)
    x, y, z = PickAndPlace(engine).tool(engine.sight(0))
    assert 0.40 < x < 0.58
    assert -0.22 < y < 0.23
    assert z > 0.08


def test_miss_ends_low_with_the_gripper_closed_or_on_the_way_up():
    low = 0
    for number in range(5):
        engine = brought("miss", number)
        seen = engine.sight(0)
        low += PickAndPlace(engine).tool(seen)[2] < seen.object_position[2] + 0.04
        assert seen.opening < 0.6
    assert 0 < low < 5


def test_slip_ends_with_the_object_on_the_table_and_the_gripper_open():
    for number in range(5):
        engine = brought("slip", number)
        seen = engine.sight(0)
        assert seen.opening > 0.9
        assert 0 < seen.object_position[2] < 0.04


def test_carry_ends_with_the_object_in_the_hand_high_over_the_table():
    beside = 0
    for number in range(7):
        engine = brought("carry", number)
        seen = engine.sight(0)
        tool = PickAndPlace(engine).tool(seen)
        assert np.linalg.norm(tool - seen.object_position) < 0.03
        assert seen.object_position[2] > seen.target_position[2] + 0.12
        beside += np.abs((tool - seen.target_position)[:2]).max() < 0.09
    assert 1 <= beside < 7


@pytest.mark.slow
def test_shut_closes_the_gripper_in_its_share():
    shut = [brought("near", number).sight(0).opening < 0.1 for number in range(11)]
    assert 1 <= sum(shut) <= 8  # 0.35 of them


def test_only_demonstrations_begin_elsewhere():
    """What `suites check` tries is what is evaluated: from rest."""
    (rest,), (miss,) = (attempts(engine_of(kind), [3]) for kind in ("rest", "miss"))
    assert rest.progress == miss.progress
    np.testing.assert_array_equal(rest.reading.object_position, miss.reading.object_position)


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("expert.begin={near: -0.5}", "expert.begin.near: must be a share of at least 0, not -0.5"),
        ("expert.begin={rest: 0}", "expert.begin: every share is 0; give rest one, or another kind"),
        ("expert.begin={shut: 1.5}", "expert.begin.shut: must be at most 1, not 1.5"),
    ],
)
def test_shares_that_cannot_be_are_named(override, sentence):
    with pytest.raises(ConfigError) as error:
        suite.load("droid_panda:cube_in_bowl", [override])
    assert sentence in str(error.value)


def test_the_tally_reads_as_a_sentence():
    assert beginnings.tally({"rest": [201, 202], "near": [88, 90]}) == "rest 201 of 202, near 88 of 90"
