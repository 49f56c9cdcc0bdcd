"""Robosuite's tasks without robosuite: their suites, what is refused, what a recording would hold."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from morph_vla.demonstrations import recording
from morph_vla.demonstrations import robosuite as experts
from morph_vla.engines.gymnasium import making, reading
from morph_vla.engines.gymnasium.making import Made
from morph_vla.engines.gymnasium.stage import Environments
from morph_vla.engines.robosuite import theirs, world
from morph_vla.engines.robosuite.vector import Scene
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.robots.geometry import POSE
from morph_vla.suites.environment import EnvironmentSuite, load_recordable, load_tasks
from morph_vla.suites.suite import InitialState

ARMS = tuple(theirs.ARMS)


@pytest.mark.parametrize("task", theirs.TASKS)
def test_a_suite_has_a_task_for_each_arm_and_says_what_is_repaired(root, task):
    path = root / f"docs/examples/robosuite_{task.lower()}.yaml"
    tasks = load_recordable(path)
    assert [each.task_name for each in tasks] == [arm.lower() for arm in ARMS]
    for each, arm in zip(tasks, ARMS, strict=True):
        assert isinstance(each, EnvironmentSuite)
        assert (each.id, each.kwargs, each.control_rate) == (task, {"arm": arm}, world.RATE)
        assert each.robot == ("panda" if arm == "Panda" else f"robosuite_{arm.lower()}")
        assert len(experts.layout(dataclasses.replace(each, robot="")).joints) == theirs.ARMS[arm] + 1
    text = (root / "docs/examples/robosuite_lift.yaml").read_text()
    assert all(word in text for word in ("multiccd", "Sawyer", "XArm7"))


@pytest.mark.usefixtures("pip_installs")
def test_a_missing_robosuite_is_one_sentence_that_says_how_to_install_it(example, monkeypatch):
    def absent(module: str, extra: str):
        raise MissingExtraError(f"'{module}' is not installed")

    monkeypatch.setattr(theirs, "require", absent)
    with pytest.raises(
        MissingExtraError, match=r"^robosuite is not installed: pip install 'morph-vla\[robosu"
    ):
        making.facts(example("lift.yaml:panda"))


@pytest.mark.parametrize(
    ("task", "arm", "sentence"),
    [
        (
            "Lifft",
            "Panda",
            r"^no task is called 'Lifft'; did you mean 'Lift'\?; there are Lift, Stack, PickPl",
        ),
        ("Lift", "sawyer", r"^no arm is called 'sawyer'; did you mean 'Sawyer'\?; there are Panda, Sawyer"),
    ],
)
def test_an_unknown_task_or_arm_is_named(task, arm, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        theirs.environment(task, arm, seed=0)


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        ({"arms": "Panda"}, r"^kwargs.arms: no such key; did you mean 'arm'\?$"),
        ({"arm": 7}, "^kwargs.arm: expected a name, got 7$"),
        ({"size": 0}, "^kwargs.size: expected a number of pixels, got 0$"),
    ],
)
def test_what_a_scene_cannot_be_is_named(kwargs, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        Scene.of(kwargs)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("id=Lifft", r"^no task is called 'Lifft'; did you mean 'Lift'\?; there are Lift, Stack, PickPl"),
        ("kwargs.arm=Pandda", r"^no arm is called 'Pandda'; did you mean 'Panda'\?; there are Panda, Saw"),
        (
            "state=[joints, hand]",
            r"state: a recording has one value for each action, \[joints, gripper\], not",
        ),
        (
            "images={front: render}",
            r"images.front: 'render' cannot be recorded \(expected one of agentview, ",
        ),
    ],
)
def test_what_cannot_be_recorded_is_one_sentence(example, change, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        recording.layout(example("lift.yaml:panda", change))


def test_an_arm_that_was_not_added_is_named_with_the_command_that_adds_it(example):
    words = r"^no robot 'robosuite_ur5e' .*; `morph-vla robots add robosuite:UR5e` makes it$"
    with pytest.raises(MorphVlaError, match=words):
        recording.layout(example("lift.yaml:ur5e"))
    with pytest.raises(MorphVlaError, match=r"^no robot 'ur5' \(the robots are .*\)$"):
        recording.layout(example("lift.yaml:ur5e", "robot=ur5"))


def test_only_robosuite_has_an_expert(example):
    with pytest.raises(
        MorphVlaError, match=r"of other simulators only robosuite has an expert, not 'gymnasi"
    ):
        experts.Expert(dataclasses.replace(example("lift.yaml:panda"), kind="gymnasium"))


def test_a_recording_without_cameras_has_the_poses_of_the_suite(example, root):
    named = tuple(f"cube {value}" for value in POSE)
    assert recording.layout(example("lift.yaml:panda")).poses == named
    (with_cameras,) = load_tasks(root / "docs/examples/robosuite_lift.yaml:panda")
    assert recording.layout(with_cameras).poses == ()
    stack = recording.layout(example("stack.yaml:panda")).poses
    assert (len(stack), stack[0], stack[7]) == (14, "object x", "target x")
    assert recording.layout(example("pickplacecan.yaml:panda")).poses == stack


class Point:
    """An environment that only counts its steps, and is seen when it is looked at."""

    num_envs: int = 1
    render_mode: str | None = None
    metadata: Mapping[str, object] = {}
    single_action_space: object = np.zeros(1)

    def __init__(self):
        self.steps, self.looks = 0, 0

    def reset(self, *, seed):
        self.steps = 0
        return np.zeros((1, 1)), {}

    def step(self, actions):
        self.steps += 1
        info = {"near": [self.steps % 2], "success": [0], "distance": [abs(3 - self.steps)]}
        return np.zeros((1, 1)), [0.0], [False], [False], info

    def view(self):
        self.looks += 1
        return np.full((4, 6, 3), self.steps, np.uint8)

    def render(self) -> Sequence[object]:
        return []

    def get_attr(self, name):
        return ()

    def set_attr(self, name, values):
        pass

    def close(self):
        pass


def test_views_are_rendered_when_a_policy_looks_and_what_decides_nothing_is_noted(example, monkeypatch):
    given = ["images={near: near}", "state=[observation]", "noted=[near]", "measured=[distance]"]
    suite, point = example("lift.yaml:panda", *given), Point()
    monkeypatch.setattr(
        "morph_vla.engines.gymnasium.stage.make",
        lambda *_: Made(point, reading.leaves, {"near": point.view}),
    )
    stage = Environments(suite, 1)
    stage.reset({0: InitialState(0, {}, ())})
    assert stage.status[0].error is None
    for _ in range(5):
        standing = stage.step({0: np.zeros(1)})[0]
    assert point.looks == 0
    assert stage.observe(0)["images/near"].max() == 5  # pyright: ignore[reportAttributeAccessIssue]
    assert (point.looks, standing.noted, standing.least) == (1, {"near": 3}, {"distance": 0.0})
