"""A policy and a suite that do not fit are told apart before the first episode, with both sides."""

import copy
import dataclasses
import re
import types

import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import evaluate as module
from morph_vla.evaluation import fit, simulated
from morph_vla.findings import errors
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.suites.suite import Camera

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def real(tiny_run) -> CheckpointPolicy:
    return CheckpointPolicy(tiny_run.checkpoint, batch=3)


@pytest.fixture
def policy(real):
    """What the tiny policy says of itself, free to be changed."""
    return types.SimpleNamespace(
        robot_name=real.robot_name,
        trained=copy.deepcopy(real.trained),
        cameras=dict(real.cameras),
        image_size=real.image_size,
    )


def mismatches(policy, suite) -> list[str]:
    """What refuses the suite, in sentences."""
    return [fit.sentence(finding) for finding in errors(fit.check(policy, suite))]


def doubts(policy, suite) -> list[str]:
    return [fit.sentence(finding) for finding in fit.check(policy, suite) if finding.severity == "warning"]


def only(sentences: list[str]) -> str:
    assert len(sentences) == 1, sentences
    return sentences[0]


@pytest.mark.long
def test_a_checkpoint_fits_the_suite_it_was_recorded_in(real, tiny_suite):
    assert mismatches(real, tiny_suite) == []
    assert doubts(real, tiny_suite) == []


def test_a_checkpoint_says_what_it_was_trained_with(real, tiny_suite):
    panda = robots.load("panda")
    assert real.trained["tasks"] == [tiny_suite.task]
    assert real.trained["sizes"] == {"exterior": [24, 24], "wrist": [24, 24]}
    assert real.trained["limits"] == [[joint.lower, joint.upper] for joint in panda.joints]
    assert len(real.trained["affine"]) == len(real.trained["units"]) == 8


def test_a_camera_on_the_other_side_of_the_hand_is_a_doubt(policy, tiny_suite):
    assert {name: len(views) for name, views in policy.trained["views"].items()} == {
        "exterior": 1,
        "wrist": 1,
    }
    wrist = tiny_suite.cameras["wrist"]
    x, *rest = wrist.position
    moved = dataclasses.replace(wrist, position=(-x, *rest), look_at=(-wrist.look_at[0], *wrist.look_at[1:]))
    suite = dataclasses.replace(tiny_suite, cameras={**tiny_suite.cameras, "wrist": moved})
    assert re.fullmatch(
        r"camera 'wrist': the suite has it \d+ degrees round what it looks at, from where it was nearest in "
        r"training: it sees another side than the policy learnt to act on",
        only(doubts(policy, suite)),
    )
    strangers = types.SimpleNamespace(**vars(policy))
    for damaged in ([], {"wrist": 3}, {"wrist": [[1.0, "up", 0.0], [1.0], None]}):
        strangers.trained = {**policy.trained, "views": damaged}
        assert doubts(strangers, suite) == []  # nothing is known
    nearer = dataclasses.replace(wrist, position=tuple(0.9 * value for value in wrist.position))
    suite = dataclasses.replace(tiny_suite, cameras={**tiny_suite.cameras, "wrist": nearer})
    assert doubts(policy, suite) == []


def test_an_older_checkpoint_is_not_asked_what_it_cannot_say(policy, tiny_suite):
    for key in ("views", "tasks", "sizes", "limits", "units", "affine", "urdf_sha256"):
        del policy.trained[key]
    assert mismatches(policy, tiny_suite) == []
    assert doubts(policy, tiny_suite) == []
    policy.image_size = 96
    words = (
        "camera '{}': the suite's frames are 24 x 24 pixels, the policy looks at 96: it does not say what "
        "size it was trained on"
    )
    assert doubts(policy, tiny_suite) == [words.format(name) for name in ("exterior", "wrist")]


def test_robot_and_rate(policy, tiny_suite):
    other = dataclasses.replace(tiny_suite, robot="so101", control_rate=30.0)
    assert mismatches(policy, other) == [
        "robot: the suite has 'so101', the policy drives 'panda'",
        "control rate: the suite runs at 30 Hz, the policy was trained at 15 Hz",
    ]
    assert doubts(policy, other) == []
    policy.robot_name = "arms/panda.urdf"  # a recipe may name it by its file
    assert mismatches(policy, tiny_suite) == []


def test_joints_in_another_order(policy, tiny_suite):
    names = policy.trained["joints"]
    policy.trained["joints"] = [names[1], names[0], *names[2:]]
    findings = only(mismatches(policy, tiny_suite))
    assert findings.startswith("joints: the suite's robot has panda_joint1, panda_joint2, ")
    assert "the policy was trained with panda_joint2, panda_joint1, " in findings


def test_limits_and_units_joint_by_joint(policy, tiny_suite):
    policy.trained["limits"][2] = [-1.5, 1.5]
    policy.trained["affine"][0] = [57.29578, 0.0]
    first, second = mismatches(policy, tiny_suite)
    assert first == (
        "units (scale, zero) of joint 'panda_joint1': the suite's robot has (1, 0), the policy was trained "
        "with (57.2958, 0)"
    )
    assert second.startswith("limits [rad or m] of joint 'panda_joint3': the suite's robot has (-2.")
    assert second.endswith("the policy was trained with (-1.5, 1.5)")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"actions": "deltas"},
            "actions: the suite takes absolute joint targets, the policy was trained on 'deltas' ones; "
            "did you mean 'delta'? (absolute, delta, velocity)",
        ),
        (
            {"relative": [True] * 7},
            "actions: the suite takes absolute joint targets, the policy says for 7 values whether they are "
            "relative, and has 8 joints",
        ),
        (
            {"action_stats": {}},
            "normalisation: the suite's robot has 8 joints, the policy's statistics of actions have 0 and 0 "
            "values (q01 and q99)",
        ),
        (
            {"state_stats": {"q01": [0.0] * 6, "q99": [1.0] * 6}},
            "normalisation: the suite's robot has 8 joints, the policy's statistics of states have 6 and 6 "
            "values (q01 and q99)",
        ),
        (
            {"action_stats": {"q01": [0.0] * 8, "q99": [float("nan")] * 8}},
            "normalisation: the suite's robot has 8 joints, the policy's statistics of actions hold values "
            "that are not finite",
        ),
    ],
)
def test_actions_and_their_normalisation(policy, tiny_suite, change, words):
    policy.trained |= change
    assert only(mismatches(policy, tiny_suite)) == words


def sized(suite, width: int, height: int):
    camera: Camera = dataclasses.replace(suite.cameras["wrist"], width=width, height=height)
    return dataclasses.replace(suite, cameras={**suite.cameras, "wrist": camera})


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ((24, 24), ""),
        ((96, 96), ""),  # more pixels are scaled down
        ((32, 24), "the suite's frames are 32 x 24 pixels, the policy was trained on 24 x 24: another shape"),
        (
            (23, 23),
            "the suite's frames are 23 x 23 pixels, the policy was trained on 24 x 24: the policy looks at "
            "24, and would see less than in training",
        ),
    ],
)
def test_the_size_of_frames(policy, tiny_suite, size, words):
    findings = mismatches(policy, sized(tiny_suite, *size))
    assert (words in only(findings)) if words else findings == []


def test_frames_larger_than_the_model_looks_at_need_no_more_than_that(policy, tiny_suite):
    policy.trained["sizes"]["wrist"] = [480, 480]
    assert mismatches(policy, tiny_suite) == []  # 24 x 24, all that the model sees of 480 x 480


def test_a_camera_that_is_not_there(policy, tiny_suite):
    other = dataclasses.replace(tiny_suite, cameras={"wrist": tiny_suite.cameras["wrist"]})
    assert only(mismatches(policy, other)) == "camera: the suite has wrist, the policy needs 'exterior'"


def test_a_text_that_was_not_trained_is_a_doubt(policy, tiny_suite):
    other = dataclasses.replace(tiny_suite, task="put the cube into the bowl")
    assert mismatches(policy, other) == []
    assert only(doubts(policy, other)) == (
        "text: the suite says 'put the cube into the bowl', the policy was trained with "
        "'put the cube in the bowl'; did you mean 'put the cube in the bowl'?"
    )


def test_a_start_outside_the_trained_range_is_a_doubt(policy, tiny_suite):
    policy.trained["state_stats"]["q01"][1] = 3.0
    policy.trained["state_stats"]["q99"][1] = 4.0
    findings = only(doubts(policy, tiny_suite))
    assert findings == "start: episodes begin at panda_joint2 -0.6283, the policy was trained on 3 to 4"


def test_a_start_is_the_suites_own(policy, tiny_suite):
    """The suite's `start` is where episodes begin, not the robot's rest."""
    bent = dataclasses.replace(tiny_suite, start={"panda_joint2": -0.5})
    policy.trained["state_stats"]["q01"][1], policy.trained["state_stats"]["q99"][1] = -0.55, -0.45
    assert mismatches(policy, bent) == doubts(policy, bent) == []
    assert only(doubts(policy, tiny_suite)).startswith("start: episodes begin at panda_joint2 -0.6283, ")


def test_a_urdf_that_changed_without_its_joints_is_a_doubt(policy, tiny_suite):
    policy.trained["urdf_sha256"] = "12" * 32
    assert "the URDF of 'panda' has changed since training (sha256 " in only(doubts(policy, tiny_suite))


def test_what_is_done_about_a_finding_does_not_depend_on_its_words(policy, tiny_suite, monkeypatch, reword):
    policy.trained |= {"actions": "deltas", "relative": [True] * 7, "action_stats": {}, "tasks": ["another"]}
    policy.trained["limits"][2] = [-1.5, 1.5]
    policy.trained["sizes"]["wrist"] = [24, 48]
    before = fit.check(policy, tiny_suite)
    reword()
    after = fit.check(policy, tiny_suite)
    assert [finding.identity for finding in after] == [finding.identity for finding in before]
    assert [(finding.severity, finding.code) for finding in after] == [
        ("error", "limits"), ("error", "statistics"), ("error", "actions"), ("error", "actions"),
        ("error", "frame-size"), ("warning", "task-text"),
    ]  # fmt: skip
    assert not {fit.sentence(finding) for finding in after} & {fit.sentence(finding) for finding in before}
    policy.infer = lambda _: pytest.fail("it was asked")
    monkeypatch.setattr(simulated, "require_gl", lambda: None)
    with pytest.raises(MorphVlaError):
        module.evaluate(policy, tiny_suite)
