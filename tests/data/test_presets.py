"""Presets, and values in a dataset's units brought to the robot's."""

import dataclasses

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.data import presets
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.recipes import recipe as config
from morph_vla.robots.robot import with_side


@pytest.mark.parametrize("name", presets.PRESETS)
def test_each_preset_fits_its_robot(name):
    preset = presets.find(name)
    robot = robots.load(preset.robot)
    reports = presets.as_recorded(robot, preset.unit, preset.gripper)
    assert reports.names == robot.names
    assert set(preset.cameras) <= {"base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb"}
    assert preset.cameras
    if name != "so101_percent":  # the side file says the same
        assert reports is robot


def test_a_preset_that_is_not_there():
    with pytest.raises(
        ConfigError, match=r"^no preset 'driod'; did you mean 'droid'\? \(droid, droid_velocity, "
    ):
        presets.find("driod")


def test_percent_becomes_the_robots_degrees_and_back_again():
    robot = robots.load("so101")
    reports = presets.as_recorded(robot, "percent", (1.0, 0.0))
    ends = np.array([[-100.0] * 5 + [0.0], [100.0] * 5 + [1.0]])
    result = presets.brought(robot, reports, ends)
    np.testing.assert_allclose(
        result[:, :5], np.degrees(np.stack([robot.lower, robot.upper])[:, :5]), rtol=1e-9
    )
    np.testing.assert_allclose(result[:, 5], [0, 100], atol=1e-9)
    np.testing.assert_allclose(presets.brought(reports, robot, result), ends, atol=1e-9)
    other = np.ones((3, 7), np.float32)
    assert presets.brought(robot, reports, other) is other


def test_steps_become_targets_and_the_gripper_stays():
    robot = robots.load("panda")
    state, action = np.full((2, 8), 0.5), np.tile([[1.0], [-2.0]], (1, 8))
    np.testing.assert_array_equal(presets.targets(robot, "targets", 0.2, state, action), action)
    result = presets.targets(robot, "steps", 0.2, state, action)
    np.testing.assert_allclose(result[:, :7], np.tile([[0.7], [0.1]], (1, 7)))
    np.testing.assert_array_equal(result[:, 7], [1, -2])
    with pytest.raises(
        MorphVlaError,
        match=r"^steps are added to the state, which has 5 values, an action has 8 and robot 'panda' 8 j",
    ):
        presets.targets(robot, "steps", 0.2, np.ones((2, 5)), action)


def test_a_datasets_unit_replaces_the_scales_of_turning_joints():
    given = robots.load("panda")
    hand = {"panda_finger_joint1": 1000.0}
    side = dataclasses.replace(given.side, scales={"panda_joint1": 57.3, **hand}, gripper=(), zeros={})
    recorded = presets.as_recorded(with_side(given, side), "radians", ())
    assert [joint.scale for joint in recorded.joints] == [1.0] * 7 + [1000.0]
    assert presets.as_recorded(with_side(given, side), "robot", ()).joints[0].scale == 57.3


def test_percent_replaces_the_zeros_of_turning_joints():
    given = robots.load("so101")
    robot = with_side(given, dataclasses.replace(given.side, zeros={"shoulder_pan": 0.1}))
    recorded = presets.as_recorded(robot, "percent", ())
    middle = [(joint.lower + joint.upper) / 2 for joint in robot.joints]
    np.testing.assert_allclose(recorded.to_native(np.zeros(6))[:5], middle[:5])
    assert presets.as_recorded(robot, "radians", ()).joints[0].zero == 0.1


@pytest.mark.parametrize("unit", ["degrees", "percent"])
def test_a_step_is_in_radians_whatever_the_unit(unit):
    robot = robots.load("so101")
    recorded = presets.as_recorded(robot, unit, ())
    start = np.full((1, 6), 10.0)
    state = recorded.to_dataset(robot.to_native(start))
    action = np.array([[1.0, -1.0, 0.5, 0.0, 1.0, 20.0]])
    result = recorded.to_native(presets.targets(recorded, "steps", 0.2, state, action))
    moved = result - robot.to_native(start)
    np.testing.assert_allclose(moved[0, :5], [0.2, -0.2, 0.1, 0.0, 0.2], atol=1e-12)
    np.testing.assert_allclose(recorded.to_dataset(result)[0, 5], 20.0)


# ---------------------------------------------------------------------------------------------- in a recipe


def entry(*overrides: str) -> config.Dataset:
    return config.load("pi05_droid", overrides).data.sources[0]


def test_an_entry_is_filled_in_and_its_own_keys_win():
    whole = entry()
    assert (whole.robot, whole.actions, whole.step) == ("panda", "delta", 1.0)
    assert whole.state == ("joint_position", "gripper_position")
    assert whole.cameras == {"base_0_rgb": "exterior_image_1_left", "left_wrist_0_rgb": "wrist_image_left"}
    other = entry("data.actions=absolute", "data.cameras={}", "data.robot=so101", "data.state=[]")
    assert (other.actions, other.cameras, other.robot, other.state) == ("absolute", {}, "so101", ())
    assert other.action == ("actions",)


def test_without_a_preset_nothing_changes():
    alone = config.Dataset("here", "panda")
    assert (alone.cameras, alone.actions, alone.state, alone.unit, alone.gripper) == (
        {},
        "absolute",
        (),
        "robot",
        (),
    )


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("data.preset=driod", r"data: no preset 'driod'; did you mean 'droid'\?"),
        ("data.gripper=[3]", r"data: gripper is \[3\.0\]; expected the dataset's values \[open, closed\]"),
        (
            "data.gripper=[3, 3]",
            r"data: gripper is \[3\.0, 3\.0\]; expected the dataset's values \[open, closed\]",
        ),
        ("data.step=0", r"data: step is 0; expected more than 0 rad"),
        ("data.unit=degree", r"data\.unit: .*'degrees'.*did you mean 'degrees'\?"),
        (
            "data.datasets=[{dataset: a}]",
            r"data\.datasets\.0: robot is missing; expected dataset and robot, or a preset that has one",
        ),
    ],
)
def test_what_an_entry_cannot_have(override, sentence):
    with pytest.raises(ConfigError, match=sentence):
        entry(override)


@pytest.mark.slow
def test_recipes_show_prints_the_resolved_entry(run):
    status, out, _ = run("recipes show pi05_droid_so101")
    assert status == 0
    assert "# with its presets filled in:\ndata.datasets.0:\n  dataset: data/droid\n  robot: panda\n" in out
    assert "    base_0_rgb: exterior_image_1_left\n" in out
    _, out, _ = run("recipes show panda_demo")
    assert "presets filled in" not in out


def test_the_presets_are_listed(run):
    import json

    status, out, _ = run("recipes presets")
    assert status == 0
    assert "so101_percent: SO101 recorded with use_degrees=false" in out
    assert "  cameras   base_0_rgb: front, left_wrist_0_rgb: wrist\n" in out
    _, out, _ = run("recipes presets --json")
    assert json.loads(out)["droid_velocity"]["step"] == 0.2


def test_recorded_steps_are_added_as_the_dataset_counts_them():
    """A joint that counts the other way has steps of its own sign already."""
    given = robots.load("panda")
    side = dataclasses.replace(given.side, signs={"panda_joint1": -1}, scales={"panda_joint1": 57.3})
    moved = presets.targets(with_side(given, side), "steps", 0.2, np.zeros((1, 8)), np.ones((1, 8)))
    assert moved[0, 0] == pytest.approx(0.2 * 57.3)
