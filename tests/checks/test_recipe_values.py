"""Recipes held against what was recorded: units, ranges, kinds of actions, grasps."""

import dataclasses

import numpy as np
import pytest
from recipe_checks import (
    BOTH,
    check_sentences,
    episodes,
    once,
)

from morph_vla import robots
from morph_vla.checks import recipe_values
from morph_vla.data import presets
from morph_vla.data.layout import Rows


def test_values_that_are_not_finite(write):
    given = episodes()
    given[3]["action"][4, 2] = np.nan
    given[4]["action"][1, 0] = np.inf
    root = write(given=given)
    assert once(
        check_sentences(root),
        f"error: {root}: episode 3, frame 4: 'action' has 2 values not finite in 2 episodes, the first "
        r"is value 2 \('elbow_flex\.pos'\); training refuses it: repair the frames, or leave them "
        "out with `episodes`",
    )
    assert not check_sentences(root, "data.episodes=[0, 1, 2]", "data.held_out=0.0")


def test_units_that_are_not_the_robots(write):
    lines = check_sentences(write(given=episodes(np.pi / 180)))
    assert any("radians" in text and text.startswith("warning: ") for text in lines), lines


def test_values_that_hardly_move(write):
    given = episodes()
    for episode in given:
        for name in BOTH:
            episode[name][:, 4] = 3.0
    root = write(given=given)
    assert once(
        check_sentences(root),
        rf"warning: {root}: action: 'wrist_roll\.pos' hardly moves; q99 - q01 is below 0\.01 and is "
        r"widened to that \(data\.degenerate\)",
    )


def test_values_that_hardly_move_are_refused_where_the_recipe_says_so(write):
    given = episodes()
    for episode in given:
        episode["action"][:, 4] = 3.0
    (line,) = [
        text for text in check_sentences(write(given=given), "data.degenerate=refuse") if "degenerate" in text
    ]
    assert line.startswith("error: ")
    assert "hardly moves; q99 - q01 is below 0.01, and data.degenerate is refuse" in line


def test_statistics_that_are_not_there(write, tmp_path):
    root = write()
    assert once(
        check_sentences(root, f"data.statistics={tmp_path}/no"),
        rf"error: data\.statistics: {tmp_path}/no is neither a checkpoint of ours nor a .*",
    )
    assert once(
        check_sentences(root, "data.statistics=dataset", "data.actions=delta"),
        r"error: data\.statistics: a dataset's own statistics are of absolute values, and delta ones .*",
    )


def test_statistics_of_a_body_are_there(write):
    root = write()
    assert not [text for text in check_sentences(root, "data.statistics=robot") if "statistics" in text]
    assert once(
        check_sentences(root, "data.statistics=robot", "data.actions=velocity"),
        r"error: data\.statistics: robot knows no range of velocities .*",
    )


@pytest.mark.parametrize(
    ("kind", "severity"), [("absolute", "warning"), ("delta", "error"), ("velocity", "error")]
)
@pytest.mark.parametrize(("scale", "called"), [(1, "differences from the state"), (30, "velocities")])
def test_recorded_differences_and_velocities(write, kind, severity, scale, called):
    given = episodes()
    for episode in given:
        state = episode["observation.state"]
        episode["action"][:-1, :5] = scale * np.diff(state, axis=0)[:, :5]
        episode["action"][-1, :5] = 0
    root = write(given=given)
    assert once(
        check_sentences(root, f"data.actions={kind}"),
        f"{severity}: {root}: the recorded actions look like {called}, and {kind} ones are learnt from "
        "absolute targets; .*",
    )


def droid(action):
    """Five episodes of a Panda in DROID's keys: the action is a function of the state and its steps."""
    results = []
    for number in range(5):
        phase = 0.2 * np.arange(23)[:, None] + np.arange(7) + number
        state = np.array([0.2, -0.6, 0.1, -2.2, 0.2, 2.2, 0.3]) + 0.15 * np.sin(phase)
        steps = np.diff(state, axis=0, append=state[-1:])
        gripper = 0.5 + 0.4 * np.cos(phase[:, :1])
        results.append(
            {
                "joint_position": state,
                "gripper_position": gripper,
                "actions": np.concatenate([action(state, steps), gripper], axis=1),
            }
        )
    return results


VELOCITIES = droid(lambda state, steps: steps / 0.2)
POSITIONS = droid(lambda state, steps: state + 0.8 * steps)


@pytest.mark.parametrize(
    ("given", "preset", "sentence"),
    [
        (POSITIONS, "droid", None),
        (VELOCITIES, "droid_velocity", None),
        (
            VELOCITIES,
            "droid",
            r"the recorded actions look like DROID's velocities \(preset: droid_velocity, 0\.2 rad a step\), "
            "and delta ones are learnt from absolute targets; .*",
        ),
        (
            POSITIONS,
            "droid_velocity",
            r"the recorded actions look like joint positions, not like steps of 0\.2 rad; leave "
            r"`recorded: steps` out \(preset: droid for DROID\)",
        ),
    ],
)
def test_droids_positions_and_velocities_are_told_apart(given, preset, sentence):
    robot, names = robots.load("panda"), ("joint_position", "gripper_position")
    of_episode = [len(episode["actions"]) for episode in given]
    state = np.concatenate([np.concatenate([episode[name] for name in names], axis=1) for episode in given])
    action = np.concatenate([episode["actions"] for episode in given])
    index, count = np.repeat(np.arange(len(given)), of_episode), np.arange(len(action))
    rows = Rows((), count, count, {}, index, count, None, None)
    entry = presets.find(preset)
    targets = presets.targets(robot, entry.recorded, entry.step, state, action)
    recorded = recipe_values.Recorded(robot, "here", {}, action, state, rows, 15.0)
    findings = [*recipe_values.kinds(dataclasses.replace(recorded, action=targets), "delta")]
    if entry.recorded == "steps":
        findings += recipe_values.positions(recorded, entry.step)
    if sentence is None:
        assert not findings
    else:
        assert once([str(finding) for finding in findings], f"error: here: {sentence}")


def test_steps_of_a_dataset_in_degrees_are_told_from_positions():
    robot = presets.as_recorded(robots.load("panda"), "degrees", (0.0, 1.0))
    count = np.arange(60)
    native = robot.rest + 0.2 * np.sin(0.2 * count[:, None] + np.arange(8))
    native[:, 7] = 0.02
    state = robot.to_dataset(native)
    action = np.diff(native, axis=0, append=native[-1:]) / 0.2
    rows = Rows((), count, count, {}, np.zeros(60, int), count, None, None)
    recorded = recipe_values.Recorded(robot, "here", {}, action, state, rows, 15.0)
    assert not [*recipe_values.positions(recorded, 0.2)]
    (finding,) = recipe_values.kinds(recorded, "delta")
    assert "look like DROID's velocities" in finding.found
    positions = dataclasses.replace(recorded, action=state + 0.8 * np.diff(state, axis=0, append=state[-1:]))
    (finding,) = recipe_values.positions(positions, 0.2)
    assert finding.code == "not-steps"


@pytest.mark.parametrize("actions", ["absolute", "delta"])
def test_a_state_is_one_value_a_joint(write, actions):
    assert once(
        check_sentences(write(), f"data.actions={actions}", "data.state=[observation.state, action]"),
        r"error: data\.state: a state has 12 values, robot 'so101' has 6 joints; name keys with `state` that "
        "have one value a joint",
    )


def test_rows_before_a_grasp_of_a_set_that_grasps(write):
    closing = episodes()
    for episode in closing:
        episode["action"][:, 5] = np.linspace(90, 10, len(episode["action"]))
    assert not [
        text for text in check_sentences(write(given=closing), "data.phases={grasp: 0.5}") if "phases" in text
    ]


def test_rows_before_a_grasp_where_nothing_is_grasped(write):
    still = episodes()
    for episode in still:
        episode["action"][:, 5] = 90  # open
    lines = check_sentences(write(given=still), "data.phases={grasp: 0.5}")
    assert once(lines, r"error: data\.phases: .*: no row lies before a grasp; leave it out")


def test_a_held_out_share_that_leaves_nothing(write):
    root = write()
    assert once(
        check_sentences(root, "data.held_out=0.999"),
        r"error: data\.held_out: data: 0\.999 of 5 episodes is 5; no episode is left to train on: lower "
        "it, or record more",
    )
    assert once(
        check_sentences(root, "data.held_out=0.001"),
        r"warning: data\.held_out: data: 0\.001 of 5 episodes is 0; this dataset will have no held-out "
        "loss: raise it to have one",
    )


def test_a_hands_frame_that_spins_is_said():
    """Of two arms that face each other the mean of the tools lies on the root's axis."""
    turn, episode = np.radians([170.0, -175, -100, 3, 4, 100]), np.array([0, 0, 0, 0, 1, 1])
    (finding,) = recipe_values.turning("demos", turn, episode)
    assert str(finding) == (
        "warning: demos: in data.space hand the frame turns by up to 103 degrees between two frames "
        "(3 of 4 steps); its tools lie about the root's axis, as those of arms face to face: choose "
        "data.space: tool"
    )
    assert list(recipe_values.turning("demos", np.radians([170.0, -175, 3]), np.array([0, 0, 1]))) == []
