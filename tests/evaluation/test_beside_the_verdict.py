"""What decides nothing fails nothing; an environment's own words and ends are kept apart from the answer."""

import re

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'gymnasium'")

from tiny_suites import GYMNASIUM, ROWS, VECTORIZED, Right, evaluate, steps_to_goal

from morph_vla import robots
from morph_vla.demonstrations import check as checking
from morph_vla.engines.gymnasium import probe as probing
from morph_vla.engines.gymnasium.probe import probe
from morph_vla.errors import ConfigError
from morph_vla.evaluation.simulated import Simulated
from morph_vla.suites import on_robot
from morph_vla.suites import suite as suites
from morph_vla.suites.environment import load_tasks


def ends(record) -> list[bool]:
    return [trial.success for trial in record.trials]


@pytest.mark.parametrize("text", [GYMNASIUM, VECTORIZED], ids=["alone", "together"])
def test_what_is_noted_or_measured_fails_no_episode(load, text):
    """A distance is infinite in the first step, a signal there in the second alone."""
    plain = evaluate(Right(), load(text))
    beside = load(text, "kwargs={fault: sometimes}", "noted=[slip]", "measured=[dist]")
    record = evaluate(Right(), beside)
    assert [trial.error for trial in record.trials] == [None] * ROWS
    assert ends(record) == ends(plain)
    assert True in ends(record)


def test_a_key_that_is_noted_and_never_there_is_told_by_the_check(load):
    suite = load(GYMNASIUM, "kwargs={fault: sometimes}", "noted=[slop]", "measured=[dist]")
    lines = [(finding.severity, finding.found) for finding in probe(suite).findings]
    (slop,) = (text for severity, text in lines if severity == "warning" and "'slop'" in text)
    assert re.match(r"the environment's|info has no 'slop'; did you mean 'slip'\?|info has no 'slop'", slop)
    assert slop.endswith("; there it does not hold, and is not measured")


def test_episodes_of_a_shared_environment_end_one_by_one_where_its_user_resets_it(load):
    """In each of Gymnasium's modes."""
    results = [
        ends(
            evaluate(
                Right(),
                load(VECTORIZED, f"kwargs={{vector_kwargs: {{autoreset_mode: {mode}}}}}"),
                parallel=ROWS,
            )
        )
        for mode in ("Disabled", "NextStep", "SameStep")
    ]
    assert results[0] == results[1] == results[2]
    assert results[0] == [0 < steps_to_goal(row) <= 5 for row in range(ROWS)]


def test_what_an_environment_prints_is_no_part_of_the_answer(load, capsys):
    suite = load(GYMNASIUM, "kwargs={fault: prints}")
    probe(suite)
    evaluate(Right(), suite)
    out, err = capsys.readouterr()
    assert out == ""
    assert "RESETTING" in err
    assert "STEPPING" in err


def test_rows_that_are_padded_with_nan_begin_alike():
    padded = {"a": np.array([[1.0, np.nan]]), "b": np.array([[1, 2]])}
    assert probing._differing(padded, {key: value.copy() for key, value in padded.items()}) is None
    assert probing._differing(padded, {**padded, "a": np.array([[1.0, 0.0]])}) == "a"


@pytest.mark.parametrize(
    "name", ["..", "a/b", "/elsewhere/deep", "a\\b", "a:b", ".hidden", "earlier-1", "a\nb"]
)
def test_a_tasks_name_names_a_folder_of_the_evaluation_and_no_other(tmp_path, name):
    path = tmp_path / "tiny.yaml"
    path.write_text(
        GYMNASIUM + "tasks:\n  one: {seed: 100}\n  " + repr(name).replace("'", '"') + ": {seed: 101}\n"
    )
    words = (
        r"tiny\.yaml: tasks: a task is called '.*'; expected a name without '/', '\\', ':', a dot or 'earl"
    )
    with pytest.raises(ConfigError, match=words):
        load_tasks(path)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            "start={panda_joint4: 99}",
            r"start\.panda_joint4: 99 is outside the joint's limits \[-3\.1416, 0\]",
        ),
        (
            "actuators.joints={panda_joint9: {stiffness: 1, damping: 1, armature: 0.1}}",
            "moves no joint 'panda_joint9'; did you mean",
        ),
        (
            "expert.tool=panda_hnd",
            "expert.tool: robot 'panda' has no link 'panda_hnd'; did you mean 'panda_hand'",
        ),
    ],
)
def test_a_suite_of_another_robot_is_refused_before_the_first_episode(override, words):
    """It was a record of 0%, or of a model that nobody asked for."""
    (suite,) = suites.load_tasks("droid_panda:cube_in_bowl", [override])
    for check in (Simulated(suite).check, lambda: checking.check(suite, 1)):
        with pytest.raises(ConfigError, match=words):
            check()
    assert list(on_robot.problems(suite, robots.load("panda")))


def test_a_camera_that_looks_at_itself_is_refused():
    eye = "cameras.exterior.look_at=[1, 2, 3]", "cameras.exterior.position=[1, 2, 3]"
    with pytest.raises(
        ConfigError, match=r"cameras\.exterior: it looks at the place where it is; look_at must be"
    ):
        suites.load_tasks("droid_panda:cube_in_bowl", eye)
