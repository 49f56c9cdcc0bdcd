import dataclasses
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.suites.suite import (
    Placement,
    Suite,
    fingerprint,
    initial_state,
    initial_states,
    load,
    load_tasks,
)

NAME = "droid_panda:cube_in_bowl"
JOINTS = 7  # a prime; the table is the same whatever the robot


@pytest.fixture(scope="module")
def suite() -> Suite:
    return load(NAME)


def problems(*overrides: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(NAME, overrides)
    prefix = r"^(.*droid_panda\.yaml: tasks\.cube_in_bowl|override '[^']*'): "
    return [re.sub(prefix, "", line) for line in str(caught.value).split("\n")]


# ------------------------------------------------------------------------------------------------- the file


def test_the_shipped_suite_is_the_papers_task(suite):
    assert (suite.name, suite.task_name, suite.label) == ("droid_panda", "cube_in_bowl", NAME)
    assert suite.path.name == "droid_panda.yaml"
    assert suite.task == "put the cube in the bowl"
    assert suite.robot in robots.available()
    assert (suite.control_rate, suite.physics_steps, suite.max_steps) == (15.0, 16, 450)
    assert set(suite.cameras) == {"exterior", "wrist"}


def test_an_override_changes_one_setting_and_no_other():
    changed = load(NAME, ["success.dwell_seconds=0.7", "physics_rate=165"])
    assert (changed.success.dwell_seconds, changed.physics_steps) == (0.7, 11)
    back = dataclasses.replace(
        changed, physics_rate=240.0, success=dataclasses.replace(changed.success, dwell_seconds=0.5)
    )
    assert back == load(NAME)


def test_an_unknown_suite_names_the_nearest():
    with pytest.raises(MorphVlaError, match="did you mean 'droid_panda'"):
        load("droid_pandas")
    with pytest.raises(ConfigError, match=r"no task 'cube_in_bowel'; did you mean 'cube_in_bowl'\? \(its"):
        load("droid_panda:cube_in_bowel")


def test_an_unknown_key_names_the_nearest():
    assert problems("success.max_spede=0.1") == ["success.max_spede: no such key; did you mean 'max_speed'?"]


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("physics_rate=151", "physics_rate: 151.0 is not a multiple of control_rate 15.0"),
        ("physics_rate=7", "physics_rate: 7.0 is not a multiple of control_rate 15.0"),
        ("success.object=cub", "success.object: no object is called 'cub'; did you mean 'cube'?"),
        ("success.target=bowls", "success.target: no object is called 'bowls'; did you mean 'bowl'?"),
        ("success.target=pan", "success.target: no object is called 'pan'"),
        ("placement.cube.x=[0.5, 0.4]", "placement.cube.x: lower end 0.5 is above upper end 0.4"),
        ("placement.bowl.yaw=[1, -1]", "placement.bowl.yaw: lower end 1.0 is above upper end -1.0"),
        ("episodes=0", "episodes: must be above 0, not 0"),
        ("expert.hover=1e300", "expert.hover: must lie within 1e+06, not 1e+300"),
        ("table.height=-2e6", "table.height: must lie within 1e+06, not -2e+06"),
        ("objects.cube.mass=0", "objects.cube: mass and sizes must be above 0"),
        ("objects.bowl.size=[0.075, 0.055, 0.0]", "objects.bowl: mass and sizes must be above 0"),
        (
            "objects.cube={shape: sphere, size: [-1, 0, 0], mass: 1}",
            "objects.cube: mass and sizes must be above 0",
        ),
        (
            "expert.opened=1",
            "expert: opened and closed: shares of the gripper's range, 0 <= opened < closed <= 1, "
            "not 1.0 and 1.0",
        ),
        ("success.dwell_seconds=30", "success.dwell_seconds: must be shorter than episode_seconds"),
        ("success.min_upright=1.1", "success.min_upright: must be a cosine, -1 to 1, not 1.1"),
        ("success.max_moved=0", "success.max_moved: must be above 0, not 0"),
        ("success.min_opening=60", "success.min_opening: is a share of the gripper's range, 0 to 1, not 60"),
        ("success.max_speed=-1", "success.max_speed: must be above 0, not -1"),
        ("success.dwell_seconds=-1", "success.dwell_seconds: must be at least 0, not -1"),
        ("episode_seconds=.inf", "episode_seconds: must be a finite number, not inf"),
        ("physics_rate=.inf", "physics_rate: must be a finite number, not inf"),
        ("placement.cube.x=[.nan, 1]", "placement.cube.x: must be a finite number, not nan"),
        ("actuators.arm.damping=-50", "actuators.arm.damping: must be at least 0, not -50"),
        (
            "cameras.wrist.width=0",
            "cameras.wrist: fovy must lie in (0, 180) degrees, a side have 1 to 4096 pixels",
        ),
        (
            "cameras.wrist.width=100000",
            "cameras.wrist: fovy must lie in (0, 180) degrees, a side have 1 to 4096 pixels",
        ),
        ("table.size=[1.8, 0, 0.1]", "table.size: must be above 0, not 1.8, 0, 0.1"),
        ("objects.cube.friction=-1", "objects.cube: frictions must be at least 0"),
        (
            "objects.bowl.size=[0.075, 0.004, 0.003]",
            "objects.bowl: its walls of 0.003 m leave no room in a height of 0.004 m",
        ),
        (
            "objects.bowl={shape: open_box, size: [0.1, 0.1, 0.05], mass: 1, wall: 0.05}",
            "objects.bowl: its walls of 0.05 m leave no room in a height of 0.05 m",
        ),
        ("seed=-1", "seed: must be at least 0, not -1"),
        ("settle_seconds=-1", "settle_seconds: must be at least 0, not -1"),
        ("expert.speed=0", "expert.speed: must be above 0, not 0"),
        ("expert.orientation_cost=-1", "expert.orientation_cost: must be at least 0, not -1"),
        ("expert.hover=-0.2", "expert.hover: must be at least 0, not -0.2"),
        ("expert.grasp_seconds=-0.4", "expert.grasp_seconds: must be at least 0, not -0.4"),
        ("placement.cube.x=[-1e308,1e308]", "placement.cube.x: must lie within 1000, not -1e+308 to 1e+308"),
        (
            "cameras={a/b: {position: [1, 0, 1], look_at: [0, 0, 0], fovy: 40, width: 32, height: 32}}",
            "cameras.a/b: expected a name without '/', which a dataset's features have",
        ),
        ("distractors.lemon.mass=0", "distractors.lemon: mass and sizes must be above 0"),
        (
            "success.low=[-0.06, 0.06, 0.0]",
            "success: low (-0.06, 0.06, 0.0) must be below high (0.06, 0.06, 0.06) on every axis",
        ),
    ],
)
def test_each_contradiction_has_its_sentence(override, sentence):
    assert problems(override) == [sentence]


@pytest.mark.parametrize("name", ["table", "world", "floor", "robot", "mark/0"])
def test_an_object_is_called_otherwise_than_what_a_scene_has(name):
    place = "{x: [0.4, 0.5], y: [0.0, 0.1]}"
    assert problems(
        f"objects={{cube: {{shape: sphere, size: [0.02, 0, 0], mass: 1}}, {name}: "
        "{shape: area, size: [0.1, 0.1, 0.001], mass: 1}}",
        f"placement={{cube: {place}, {name}: {place}}}",
        f"success.target={name}",
    ) == [
        f"objects.{name}: expected a name without '/', and none of table, world, floor, robot, which a scene "
        "has"
    ]


def test_placements_and_objects_must_match():
    place = "{x: [0.4, 0.5], y: [0.0, 0.1]}"
    assert problems(f"placement={{cube: {place}, bwol: {place}}}") == [
        "placement.bwol: no object is called 'bwol'; did you mean 'bowl'?",
        "placement: object 'bowl' has no placement",
    ]


def test_an_episode_has_a_control_step():
    words = "episode_seconds: 0.01 s at 15 Hz is not one control step"
    assert problems("control_rate=15", "episode_seconds=0.01", "success.dwell_seconds=0") == [words]


def test_every_problem_is_named_at_once():
    assert problems("control_rate=0", "episode_seconds=-1") == [
        "physics_rate: 240.0 is not a multiple of control_rate 0.0",
        "episode_seconds: must be above 0, not -1.0",
        "control_rate: must be above 0, not 0.0",
        "success.dwell_seconds: must be shorter than episode_seconds",
    ]


# ---------------------------------------------------------------------------------------- the initial states


def test_the_table_is_a_pure_function_of_the_episodes_number(suite):
    table = initial_states(suite, 13, JOINTS)
    assert initial_states(suite, 5, JOINTS) == table[:5]
    assert tuple(initial_state(suite, i, JOINTS) for i in reversed(range(13))) == table[::-1]
    assert [state.episode for state in table] == list(range(13))


def test_it_does_not_depend_on_numpys_global_state(suite):
    before = initial_state(suite, 3, JOINTS)
    np.random.seed(17)  # noqa: NPY002 - what a program around us may do
    assert initial_state(suite, 3, JOINTS) == before


@pytest.mark.parametrize(
    "change", [{"seed": 7}, {"version": 5}, {"name": "another"}], ids=lambda change: next(iter(change))
)
def test_seed_version_and_name_each_make_another_table(suite, change):
    other = dataclasses.replace(suite, **change)
    for one, two in zip(initial_states(suite, 5, JOINTS), initial_states(other, 5, JOINTS), strict=True):
        assert one.poses["cube"] != two.poses["cube"]
        assert one.arm != two.arm


def test_a_file_in_a_folder_with_a_colon_is_a_file(tmp_path):
    """Folders are often called by the time of day."""
    folder = tmp_path / "run 12:30"
    folder.mkdir()
    content = load(NAME).path.read_bytes()
    for name in ("mine.yaml", "odd:name.yaml"):
        (folder / name).write_bytes(content)
        assert next(each.label for each in load_tasks(folder / name)).endswith(":cube_in_bowl")
        assert load(f"{folder / name}:cube_in_bowl").path == folder / name


def test_settings_that_are_no_identity_leave_the_table_alone(suite):
    other = dataclasses.replace(suite, episodes=3, episode_seconds=5.0, task="another text", cameras={})
    assert initial_states(other, 5, JOINTS) == initial_states(suite, 5, JOINTS)


def test_no_recorded_state_is_ever_evaluated(suite):
    evaluated = {state.poses["cube"] for state in initial_states(suite, 101, JOINTS)}
    recorded = {s.poses["cube"] for s in initial_states(suite, 101, JOINTS, stream="demonstration")}
    assert len(evaluated) == len(recorded) == 101
    assert not evaluated & recorded


@settings(max_examples=25)
@given(episode=st.integers(0, 10**9), distance=st.floats(0.0, 0.3), seed=st.integers(0, 2**31))
def test_objects_lie_in_their_ranges_and_apart(episode, distance, seed):
    suite = dataclasses.replace(load(NAME), min_distance=distance, seed=seed)
    state = initial_state(suite, episode, JOINTS)
    assert list(state.poses) == ["cube", "bowl"]
    for name, pose in state.poses.items():
        place = suite.placement[name]
        for value, (low, high) in zip(pose, (place.x, place.y, place.yaw), strict=True):
            assert low <= value <= high
    cube, bowl = (np.array(state.poses[name][:2]) for name in ("cube", "bowl"))
    assert np.linalg.norm(cube - bowl) >= distance


def test_the_arm_starts_about_its_rest_pose(suite):
    arms = np.array([state.arm for state in initial_states(suite, 211, JOINTS)])
    assert arms.shape == (211, JOINTS)
    assert abs(arms.std() - suite.start_noise) < 0.1 * suite.start_noise
    assert abs(arms.mean()) < 0.1 * suite.start_noise
    still = dataclasses.replace(suite, start_noise=0.0)
    assert not np.any(initial_state(still, 0, JOINTS).arm)


def test_a_distance_that_leaves_no_room_is_said(suite):
    crowded = dataclasses.replace(suite, min_distance=2.0)
    with pytest.raises(ConfigError, match=r"min_distance 2\.0 leaves no room: 10,000 draws in the ranges"):
        initial_state(crowded, 0, JOINTS)


def test_the_fingerprint_is_that_of_the_states(suite):
    table = initial_states(suite, 5, JOINTS)
    assert re.fullmatch("[0-9a-f]{64}", fingerprint(table))
    assert fingerprint(table) == fingerprint(initial_states(suite, 5, JOINTS))
    turned = dataclasses.replace(table[0], poses=dict(reversed(table[0].poses.items())))
    assert fingerprint([turned, *table[1:]]) == fingerprint(table)
    x, y, yaw = table[0].poses["cube"]
    moved = dataclasses.replace(
        table[0], poses={**table[0].poses, "cube": (x, y, np.nextafter(yaw, 9).item())}
    )
    others = [table[:4], table[::-1], [moved, *table[1:]], initial_states(suite, 5, JOINTS + 4)]
    assert len({fingerprint(table), *map(fingerprint, others)}) == 5


def test_the_draw_itself_does_not_change(suite):
    """A change here makes every earlier evaluation incomparable: the suites' versions must be raised."""
    fixed = dataclasses.replace(
        suite,
        name="fixed",
        task_name="",
        version=3,
        seed=11,
        min_distance=0.15,
        start_noise=0.03,
        placement={
            "cube": Placement((0.4, 0.6), (-0.2, 0.0), (-0.5, 0.5)),
            "bowl": Placement((0.3, 0.5), (0.1, 0.2)),
        },
    )
    state = initial_state(fixed, 5, 3)
    cube = (0.5440675361348303, -0.09724078501175935, 0.16507993053513226)
    assert state.poses["cube"] == pytest.approx(cube, abs=1e-12)
    assert state.poses["bowl"] == pytest.approx((0.47569478944517446, 0.15647576409585173, 0.0), abs=1e-12)
    assert state.arm == pytest.approx((-0.010383913450, 0.085446216691, 0.017038191501), abs=1e-9)


# ------------------------------------------------------------------------------------------------- the tasks


def test_a_file_of_several_tasks_is_asked_for_one():
    tasks = load_tasks("droid_panda")
    assert [task.label for task in tasks] == [
        "droid_panda:cube_in_bowl", "droid_panda:can_in_mug", "droid_panda:banana_in_bin"
    ]  # fmt: skip
    assert [load(task.label) for task in tasks] == list(tasks)
    assert load_tasks("droid_panda:can_in_mug") == (tasks[1],)
    assert len({initial_state(task, 3, JOINTS).arm for task in tasks}) == len(tasks)
    with pytest.raises(
        ConfigError, match=r"'droid_panda' has 3 tasks; say which: droid_panda:cube_in_bowl, dro"
    ):
        load("droid_panda")
    with pytest.raises(ConfigError, match=r"no task 'x' \(it holds a single one, without a name\)"):
        load("so101_pick_orange:x")


def test_an_override_reaches_every_task():
    assert {task.expert.noise for task in load_tasks("droid_panda", ["expert.noise=0.5"])} == {0.5}


def test_a_single_joint_may_have_a_servo_of_its_own(suite):
    servos = suite.actuators
    assert servos.of("panda_joint6", False) == servos.joints["panda_joint6"] != servos.arm
    assert servos.of("panda_joint1", False) == servos.arm
    assert servos.of("panda_finger_joint1", True) == servos.gripper
