"""What an evaluation is: its whole suite, whatever the order of keys, and nothing that no policy meets."""

import dataclasses
import json

import pytest

from morph_vla.evaluation import simulated
from morph_vla.results import identity
from morph_vla.results.identity import Difference
from morph_vla.results.record import Record, record_from_json
from morph_vla.suites import suite
from morph_vla.suites.suite import resolved

TASK = "droid_panda:cube_in_bowl"


def plain(*overrides: str, task: str = TASK, **changes) -> dict:
    """The first facts of an evaluation, as they stand in a file."""
    chosen = suite.load(task, overrides)
    facts = {
        "schema": 3,
        "kind": "evaluation",
        "suite": simulated.suite_facts(chosen, ()).to_json(),
        "policy": {"name": "trained", "sha256": "ab", "sampler": {"steps": 10, "noise": 1.0}},
        "engine": {"name": "mujoco", "version": "3.1"},
        "open_loop": 8,
        "trials": [],
    }
    return json.loads(json.dumps({**facts, **changes}))


def record(*overrides: str, task: str = TASK, **changes) -> Record:
    return record_from_json(plain(*overrides, task=task, **changes))


def of_schema_2(*overrides: str) -> Record:
    """The same as it was written before: with few of the suite's facts, and without the sampler."""
    facts = plain(*overrides, schema=2, policy={"name": "trained", "sha256": "ab"})
    for task in facts["suite"]["tasks"].values():
        del task["resolved"], task["resolved_sha256"]
    return record_from_json(facts)


MET = [  # an override, the fact's name, whether it is what is measured
    ("success.dwell_seconds=0.05", "success.dwell_seconds", True),
    ("success.max_speed=9", "success.max_speed", True),
    ("success.max_spin=99", "success.max_spin", True),
    ("success.min_opening=0", "success.min_opening", True),
    ("success.high=[0.06, 0.06, 0.07]", "success.high", True),
    ("objects.cube.mass=2.0", "objects.cube.mass", True),
    ("objects.bowl.friction=0.3", "objects.bowl.friction", True),
    ("episode_seconds=12", "episode_seconds", True),
    ("control_rate=20", "control_rate", True),
    ("task=put it there", "task", True),
    ("expert.tool=panda_hand", "expert.tool", True),
    ("objects.cube.color=[0, 0, 0]", "objects.cube.color", False),
    ("actuators.gripper.stiffness=10", "actuators.gripper.stiffness", False),
    ("cameras.wrist.fovy=60", "cameras.wrist.fovy", False),
    ("physics_rate=480", "physics_rate", False),
    ("settle_seconds=0.7", "settle_seconds", False),
    ("table.color=[0, 0, 0]", "table.color", False),
    ("variation.light=0.5", "variation.light", False),
    ("placement.cube.yaw=[0, 0]", "placement.cube.yaw", False),
]


@pytest.mark.parametrize(("override", "key", "is_measured"), MET, ids=[case[1] for case in MET])
def test_whatever_a_policy_meets_is_part_of_the_identity_and_is_named(override, key, is_measured):
    first, other = record(), record(override)
    assert identity.of_evaluation(first) != identity.of_evaluation(other)
    assert [difference.key for difference in identity.differences(first, other)] == [key]
    measured, conditions = identity.measured(first, other), identity.conditions(first, other)
    assert [difference.key for difference in measured] == [key] * is_measured
    assert [difference.key for difference in conditions] == [key] * (not is_measured)


@pytest.mark.parametrize(
    "override", ["episodes=7", "expert.speed=0.3", "expert.noise=0", "distractors.lemon.mass=3"]
)
def test_what_no_policy_meets_is_not_part_of_it(override):
    assert resolved(suite.load(TASK, [override])) == resolved(suite.load(TASK))


def test_where_the_file_lies_and_the_order_of_keys_change_nothing(tmp_path):
    chosen = suite.load(TASK)
    moved = dataclasses.replace(chosen, path=tmp_path, objects=dict(reversed(chosen.objects.items())))
    whole = resolved(moved)
    objects = whole["objects"]
    assert isinstance(objects, dict)
    assert list(objects) == ["bowl", "cube"]
    assert identity.digest(whole) == identity.digest(resolved(chosen))


def test_overrides_that_change_nothing_and_more_rows_are_the_same_evaluation():
    same = record("success.dwell_seconds=0.5", overrides=["success.dwell_seconds=0.5"], rows=[0, 7])
    assert identity.of_evaluation(record()) == identity.of_evaluation(same)
    assert identity.differences(record(), same) == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"open_loop": 16}, "open_loop: 8 there, 16 here"),
        ({"engine": {"name": "isaaclab", "version": "3.1"}}, "engine.name: mujoco there, isaaclab here"),
        (
            {"policy": {"name": "trained", "sha256": "ab", "sampler": {"steps": 10, "noise": 0.0}}},
            "policy.sampler.noise: 1.0 there, 0.0 here",
        ),
        (
            {"policy": {"name": "trained", "sha256": "cd", "sampler": {"steps": 10, "noise": 1.0}}},
            "policy.sha256: ab there, cd here",
        ),
    ],
)
def test_policy_sampler_engine_and_actions_an_answer_are_part_of_it(changes, words):
    first, other = record(), record(**changes)
    assert identity.of_evaluation(first) != identity.of_evaluation(other)
    assert identity.listed(identity.differences(first, other), "there", "here") == words


def test_sides_swap_and_three_differences_are_named_with_what_is_measured_first():
    first = record()
    other = record("physics_rate=480", "success.max_spin=7", "settle_seconds=0.7", "objects.cube.mass=2")
    differing = identity.differences(first, other)
    assert [(difference.key, difference.b, difference.a) for difference in differing] == [
        tuple(o) for o in identity.differences(other, first)
    ]
    assert identity.listed(differing) == (
        "objects.cube.mass: 0.1 and 2.0; success.max_spin: 0.3 and 7.0; physics_rate: 240.0 and 480.0; "
        "and 1 more"
    )


def test_a_distractor_is_a_condition_named_once():
    differing = identity.conditions(record(), record("variation.distractors=2"))
    assert [difference.words() for difference in differing] == [
        "variation.distractors: 0 and 2", 'distractors: [] and ["lemon", "tin"]'
    ]  # fmt: skip
    heavy = record("variation.distractors=1", "distractors.lemon.mass=3")
    light = record("variation.distractors=1")
    assert identity.measured(light, heavy) == []
    assert identity.conditions(light, heavy) == [Difference("objects.lemon.mass", 0.08, 3.0)]


def test_of_several_tasks_what_differs_in_all_is_named_once_and_else_with_its_task():
    def whole(*overrides, dwell_of_the_can: float | None = None) -> Record:
        parts = [plain(*overrides, task=f"droid_panda:{name}") for name in ("cube_in_bowl", "can_in_mug")]
        tasks = {key: facts for part in parts for key, facts in part["suite"]["tasks"].items()}
        if dwell_of_the_can:
            tasks["can_in_mug"]["resolved"]["success"]["dwell_seconds"] = dwell_of_the_can
        return record_from_json({**parts[0], "suite": {**parts[0]["suite"], "tasks": tasks}})

    shorter = "success.dwell_seconds=0.05"
    assert [difference.key for difference in identity.differences(whole(), whole(shorter))] == [
        "success.dwell_seconds"
    ]
    differing = identity.measured(whole(), whole(shorter, dwell_of_the_can=0.7))
    assert [difference.words() for difference in differing] == [
        "cube_in_bowl: success.dwell_seconds: 0.5 and 0.05", "can_in_mug: success.dwell_seconds: 0.5 and 0.7"
    ]  # fmt: skip


@pytest.mark.slow
def test_of_records_of_schema_2_only_what_both_say_is_compared():
    old, new = of_schema_2(), record()
    assert (identity.is_whole(old), identity.is_whole(new)) == (False, True)
    assert identity.measured(old, new) == identity.conditions(old, new) == []
    assert identity.measured(old, record("success.dwell_seconds=0.05")) == []  # it cannot be known
    for override, key in (
        ("success.high=[0.06, 0.06, 0.07]", "success.high"),
        ("episode_seconds=12", "episode_seconds"),
        ("control_rate=20", "control_rate"),
    ):
        assert [difference.key for difference in identity.measured(old, record(override))] == [key]
        assert [difference.key for difference in identity.measured(old, of_schema_2(override))] == [key]
    assert [
        difference.key for difference in identity.conditions(old, of_schema_2("variation.light=0.5"))
    ] == ["variation.light"]
