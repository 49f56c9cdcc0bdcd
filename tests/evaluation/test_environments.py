"""Other simulators' environments: the same record, journal and pairing, from their own verdict."""

import contextlib
import dataclasses
import json
from importlib.util import find_spec
from types import SimpleNamespace as Space

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the extra 'gymnasium'")

from tiny_environment import LIMIT, RATE
from tiny_suites import GYMNASIUM, LEROBOT, ROWS, VECTORIZED, Right, evaluate, steps_to_goal

import morph_vla
from morph_vla.engines.gymnasium import reading
from morph_vla.engines.gymnasium.probe import probe
from morph_vla.engines.gymnasium.reading import Transition
from morph_vla.engines.gymnasium.stage import Environments, Standing, judged
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.evaluation import benchmark
from morph_vla.results import record as records
from morph_vla.results.merging import merge
from morph_vla.suites import suite as suites
from morph_vla.suites.environment import ActionMap, Signal, load_tasks
from morph_vla.suites.suite import InitialState

pytestmark = pytest.mark.slow


@pytest.fixture(params=["gymnasium", "vectorized", pytest.param("lerobot", marks=pytest.mark.slow)])
def text(request):
    if request.param == "lerobot" and not find_spec("lerobot"):
        pytest.skip("LeRobot is not installed")
    return {"gymnasium": GYMNASIUM, "vectorized": VECTORIZED, "lerobot": LEROBOT}[request.param]


def test_rows_succeed_as_their_seeds_say(text, load, tmp_path):
    policy = Right()
    record = evaluate(policy, load(text), folder=tmp_path / "out")
    expected = [steps_to_goal(row) if 0 < steps_to_goal(row) <= LIMIT else None for row in range(ROWS)]
    assert [trial.time_s for trial in record.trials] == [steps and steps / RATE for steps in expected]
    assert [trial.success for trial in record.trials] == [steps is not None for steps in expected]
    assert [trial.steps for trial in record.trials] == [steps or LIMIT for steps in expected]
    assert [trial.reward for trial in record.trials] == [float(steps is not None) for steps in expected]
    assert {trial.ended for trial in record.trials} == {"success", "time"}
    assert record.summary.failed_clauses == {"never_successful": expected.count(None)}
    assert record.summary.low is not None
    assert record.engine is not None
    assert record.engine.others["environment"] == load(text).id
    seen = policy.asked[0]
    assert set(seen) == {"images/front" if text != LEROBOT else "images/image", "state", "prompt", "robot",
                         "episode", "step", "connection"}  # fmt: skip
    assert seen["state"].tolist() == [0, steps_to_goal(seen["episode"]) or -1]
    assert seen["state"].dtype == np.float32
    assert seen["prompt"] == "walk to the goal"
    again = records.read(tmp_path / "out")
    assert again.trials == record.trials
    assert evaluate(policy, load(text), folder=tmp_path / "out") == again  # it is there already


def test_an_interrupted_evaluation_goes_on_with_the_rows_that_are_left(load, tmp_path):
    task, first, second = load(GYMNASIUM), Right(), Right()
    evaluate(first, task, episodes=3, folder=tmp_path / "out", videos=1)
    assert (tmp_path / "out/videos/000.mp4").is_file() == bool(find_spec("av"))
    record = evaluate(second, task, folder=tmp_path / "out")
    assert {seen["episode"] for seen in first.asked} == {0, 1, 2}
    assert {seen["episode"] for seen in second.asked} == set(range(3, ROWS))
    assert [trial.success for trial in record.trials] == [
        trial.success for trial in evaluate(Right(), task, parallel=1).trials
    ]


def test_two_policies_are_compared_row_by_row(load):
    task = load(VECTORIZED)
    difference = morph_vla.compare(evaluate(Right(-1.0), task), evaluate(Right(), task))
    assert difference.paired is not None
    assert (difference.paired.only_a, difference.paired.only_b) == (1, 6)
    other = evaluate(Right(), load(VECTORIZED, "kwargs={ends: false}"))
    trials = [dataclasses.replace(trial, first_seen="else") for trial in other.trials]
    unpaired = morph_vla.compare(other, dataclasses.replace(other, trials=tuple(trials)))
    assert (unpaired.paired, unpaired.difference) == (None, 0)
    assert unpaired.reason == "the initial states differ, first in episode 0 of task 'tiny'"
    refused = morph_vla.compare(evaluate(Right(), task), other)
    assert refused.difference is None
    assert "kwargs.ends: none and false" in str(refused.reason)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        ("raise", "the environment raised RuntimeError: the solver gave up"),
        ("nan", "the environment's step 1: its reward is nan, expected a finite number"),
    ],
)
def test_an_error_in_an_episode_is_a_trial_that_failed(load, fault, sentence):
    record = evaluate(Right(), load(GYMNASIUM, f"kwargs={{fault: {fault}}}", "seed=101"), parallel=2)
    ended = {trial.episode: trial.error for trial in record.trials if trial.ended == "error"}
    bad = {row for row in range(ROWS) if (101 + row) % 3 == 0}
    assert ended == dict.fromkeys(bad, f"simulation: {sentence}")
    assert record.summary.errors == len(bad)
    assert any(trial.success and trial.episode > min(bad) for trial in record.trials)  # it went on


def test_an_error_in_a_shared_environment_is_one_of_all_its_episodes(load):
    record = evaluate(Right(), load(VECTORIZED, "kwargs={fault: raise}", "seed=100"), parallel=4)
    errors = [trial.error for trial in record.trials]
    assert errors[3] == "simulation: the environment of 4 episodes raised RuntimeError: the solver gave up"
    assert errors[5] == "simulation: the environment of 3 episodes raised RuntimeError: the solver gave up"
    assert errors[6] is None  # it had ended


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["id=Tinny-v0"], "is unknown|no environment is registered as 'Tinny-v0'"),
        (["id=tinny_environment:Tiny-v0"], "'tinny_environment:Tiny-v0' is unknown: No module named 'tinny"),
        (["success.info=is_succes"], r"info has no 'is_succes'; did you mean 'is_success'\?; its keys"),
        (["kwargs={fault: silent}"], "info has no 'is_success'; it is empty"),
        (["kwargs={fault: reset}"], "could not be reset: RuntimeError: no such scene"),
        (["state=[agent_poss]"], r"no 'agent_poss'; did you mean 'agent_pos'\?; its keys are agent_pos, pix"),
        (["images.front=agent_pos"], r"'agent_pos' is no image: expected uint8 \[height, width, 3\], got"),
        (["images.front=render"], "it renders nothing: set render_mode: rgb_array under kwargs"),
        (["actions.scale=[1, 2]"], "actions.scale: 2 values, the environment takes 1"),
        (["kwargs={colour: red}", "id=CartPole-v1"], "unexpected keyword argument 'colour'"),
        (["id=CartPole-v1"], "it takes actions of Discrete"),
        (["kwargs={whole: true}"], "it takes actions of int64, and a policy's numbers are no whole"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_before_the_first_episode(load, overrides, sentence):
    policy = Right()
    with pytest.raises(MorphVlaError, match=sentence):
        evaluate(policy, load(GYMNASIUM, *overrides))
    assert not policy.asked


def test_an_episode_that_cannot_be_filmed_is_still_one(load, tmp_path, caplog):
    kwargs = "kwargs={render_mode: rgb_array, fault: render}"
    for kind in (GYMNASIUM, VECTORIZED):
        folder = tmp_path / str(len(kind))
        record = evaluate(Right(), load(kind, kwargs), folder=folder, videos=2, episodes=4, workers=1)
        assert [trial.error for trial in record.trials] == [None] * 4
        assert not list(folder.rglob("*.mp4"))
    assert "an episode is not filmed: no OpenGL here" in caplog.messages


def test_what_raises_while_it_is_looked_at_is_a_finding(load):
    kwargs = "kwargs={render_mode: rgb_array, fault: render}"
    finding = probe(load(GYMNASIUM, kwargs, "images={a: render}")).findings[0]
    assert (finding.code, finding.severity) == ("observation", "error")
    assert finding.found == "RuntimeError: no OpenGL here"


@pytest.mark.parametrize(
    ("text", "parallel", "bad"),
    [(GYMNASIUM, 2, {1, 4}), (VECTORIZED, 1, {1, 4}), (VECTORIZED, 4, {0, 1, 2, 3})],
    ids=["alone", "vectorized", "together"],
)
def test_an_episode_that_cannot_be_seen_is_an_error_and_the_next_row_is_played(load, text, parallel, bad):
    """Rows 1 and 4 break what renders them, for good: a new environment renders the next ones.

    One vector environment renders all of its places, or none.
    """
    kwargs = "kwargs={render_mode: rgb_array, fault: render once}"
    task = load(text, "images={front: render}", kwargs, "seed=101", "episodes=4")
    record = evaluate(Right(), task, parallel=parallel, episodes=7 if parallel < 4 else 4)
    errors = {trial.episode: trial.error for trial in record.trials if trial.error}
    assert errors == dict.fromkeys(bad, "simulation: RuntimeError: no OpenGL here")


def test_a_vector_environment_that_broke_is_made_anew(load):
    """Row 1 breaks what renders both places; rows 2 and 3 have another."""
    kwargs = "kwargs={render_mode: rgb_array, fault: render once}"
    task = load(VECTORIZED, "images={front: render}", kwargs, "seed=101")
    with contextlib.closing(Environments(task, 2)) as stage:
        stage.reset({place: InitialState(place, {}, ()) for place in (0, 1)})
        with pytest.raises(RuntimeError, match="no OpenGL here"):
            stage.observe(0)
        stage.reset({place: InitialState(2 + place, {}, ()) for place in (0, 1)})
        assert np.shape(stage.observe(0)["images/front"]) == (6, 8, 3)


def test_every_environment_of_a_suite_is_made_with_the_same_values(load):
    """The tiny one takes out of its keys what it has read."""
    task = load(GYMNASIUM, "kwargs={conf: {offset: 3}}")
    policy = Right()
    record = evaluate(policy, task)
    seen = {asked["episode"]: asked["state"][1] for asked in policy.asked if asked["step"] == 0}
    assert seen == {row: steps_to_goal(row + 3) or -1 for row in range(ROWS)}
    assert task.kwargs == {"conf": {"offset": 3}}
    resolved = record.suite.tasks["tiny"].resolved
    assert resolved is not None
    assert resolved["kwargs"] == {"conf": {"offset": 3}}


def test_rows_that_depend_on_their_company_are_found(load):
    task = load(VECTORIZED, "id=tiny_environment:Company-v0")
    (finding,) = [finding for finding in probe(task).findings if finding.code == "rows"]
    assert finding.severity == "warning"
    assert finding.found.startswith(
        "row 1 begins otherwise beside row 0 than alone ('agent_pos'): a row's state depends on those that"
    )
    assert not [finding for finding in probe(load(VECTORIZED)).findings if finding.code == "rows"]


def test_things_in_a_tuple_have_their_numbers_as_keys(load):
    task = load(GYMNASIUM, "id=tiny_environment:Pair-v0", "state=['0']", "images={front: '1'}")
    policy = Right()
    evaluate(policy, task, episodes=2)
    assert [asked["state"].tolist() for asked in policy.asked if asked["step"] == 0] == [
        [0, steps_to_goal(row) or -1] for row in range(2)
    ]
    assert policy.asked[0]["images/front"].shape == (6, 8, 3)


def test_texts_of_a_batch_are_no_tuple_of_things():
    """gymnasium batches them as a tuple, one an episode."""
    space = Space(spaces={"at": Space(), "text": Space(), "two": Space(spaces=(Space(), Space()))})
    batch = {"at": np.zeros((2, 3)), "text": ("left", "right"), "two": (np.ones((2, 1)), np.ones((2, 5)))}
    shapes = {key: value.shape for key, value in reading.leaves(batch, space).items()}
    assert shapes == {"at": (2, 3), "text": (2,), "two.0": (2, 1), "two.1": (2, 5)}


@pytest.mark.parametrize(("key", "value"), [("text", "'no'"), ("none", "None")])
def test_what_is_no_number_is_a_sentence(load, key, value):
    (finding,) = [
        finding
        for finding in probe(load(GYMNASIUM, f"success.info={key}")).findings
        if finding.code == "step"
    ]
    assert finding.found == (
        f"the environment's step 1: info's '{key}' is {value}, expected a number of each episode"
    )


def test_the_length_that_a_suite_gives_an_environment_is_the_environments(load):
    for most in (5, -1):  # -1 leaves it out
        task = load(GYMNASIUM, f"kwargs={{max_episode_steps: {most}}}")
        assert not [finding for finding in probe(task).findings if finding.code == "time-limit"]
    (finding,) = [finding for finding in probe(load(GYMNASIUM)).findings if finding.code == "time-limit"]
    assert finding.found == "episode_seconds: 5 steps, the environment ends an episode after 9"


def test_actions_that_are_mapped_are_not_gone_on_from(load):
    """A policy would be told the environment's values as its own."""
    policy = Right()
    policy.real_time = True
    sentence = (
        "tiny: its `actions` make other values of an answer, and with --real-time a policy is told its own"
    )
    with pytest.raises(MorphVlaError, match=f"^{sentence}; leave --real-time out$"):
        evaluate(policy, load(GYMNASIUM, "actions={scale: [2.0]}"), open_loop=1, real_time=True)
    assert evaluate(policy, load(GYMNASIUM), open_loop=1, real_time=True, episodes=2).trials


def test_more_rows_than_the_suite_says_are_the_same_evaluation(load, tmp_path):
    suite, policy = load(GYMNASIUM, "episodes=3"), Right()
    evaluate(policy, suite, folder=tmp_path, episodes=3)
    policy.asked.clear()
    record = evaluate(policy, suite, folder=tmp_path, episodes=5)
    assert len(record.trials) == 5
    assert {seen["episode"] for seen in policy.asked} == {3, 4}
    assert not list(tmp_path.glob("earlier-*"))
    parts = [evaluate(policy, suite, first=first, episodes=2) for first in (0, 2)]
    assert len(merge({"a": parts[0], "b": parts[1]}).trials) == 4


def test_tasks_that_one_record_cannot_hold_are_refused_before_the_first_episode(tmp_path):
    path, policy = tmp_path / "two.yaml", Right()
    path.write_text(f"{GYMNASIUM}tasks:\n  one: {{}}\n  other: {{seed: 7}}\n")
    words = r"^these tasks are not parts of one evaluation: suite.seed: 100 and 7; evaluate them one by one"
    with pytest.raises(MorphVlaError, match=words):
        evaluate(policy, load_tasks(path))
    assert policy.asked == []


def test_every_task_of_a_file_is_tried(run, folder):
    (folder / "two.yaml").write_text(f"{GYMNASIUM}tasks:\n  one: {{}}\n  other: {{state: [nothing]}}\n")
    status, out, _ = run("suites check two.yaml")
    assert status == 1
    assert "two:one:\n" in out
    assert "two:other:\n" in out
    assert "its observation has no 'nothing'" in out.partition("two:other:")[2]


def test_actions_of_another_width_are_refused_or_chosen(load):
    record = evaluate(Right(width=3), load(GYMNASIUM), episodes=1)
    assert record.trials[0].error == (
        "policy: the policy's actions have shape (2, 3); expected (horizon, 1), one column for each value of "
        "the environment, or actions.columns to say which are meant"
    )
    assert evaluate(Right(width=3), load(GYMNASIUM, "actions.columns=[2]"), episodes=2).summary.errors == 0
    given, low, high = ActionMap((2, 0), (2.0, 0.5), (0.0, 1.0)), np.array([-1.0, -9]), np.array([1.0, 9])
    answer = {"actions": [[4.0, 7.0, 0.25], [2.0, 7.0, 3.0]]}
    assert reading.actions(answer, given, low, high).tolist() == [[0.5, 3.0], [1.0, 2.0]]
    free = dataclasses.replace(given, clip=False)
    assert reading.actions(answer, free, low, high).tolist() == [[0.5, 3.0], [6.0, 2.0]]
    with pytest.raises(MorphVlaError, match=r"shape \(2, 3\); actions.columns asks for column 3$"):
        reading.actions(answer, ActionMap((3, 0)), low, high)
    with pytest.raises(MorphVlaError, match=r"hold 1 values that are not finite$"):
        reading.actions({"actions": [[np.nan, 0.0]]}, ActionMap(), low, high)


def test_success_must_hold_without_a_break_and_an_end_leaves_nothing_to_hold():
    def play(signals: str, hold: int, most: int = 7) -> Standing:
        standing = Standing()
        for letter in signals:
            if standing.ended:
                break
            change = Transition(1.0, letter in "ET", letter == "L", letter in "xE")
            standing = judged(standing, change, hold, most)
        return standing

    assert [play(".x.xx", hold).ended for hold in (1, 2, 3)] == ["success", "success", None]
    assert [play(".x.xx", hold).steps for hold in (1, 2, 3)] == [2, 5, 5]
    assert (play("..E", 3).ended, play("..T", 1).ended) == ("success", "terminated")
    assert (play("..L", 1).ended, play("x......", 2).ended) == ("time", "time")
    assert play("x.xx.", 9).longest == 2
    assert play("x.xx.", 9).reward == 5.0


def test_what_is_seen_first_is_told_apart_but_for_how_it_was_rendered():
    seen = {"at": np.array([[1.0, -0.0], [1.0, 0.1]]), "look": np.array([[3], [4]], np.uint8)}
    assert reading.fingerprint(seen, 0) != reading.fingerprint(seen, 1)
    alike = {"at": np.array([[1.0000001, 0.0]]), "look": np.array([[9]], np.uint8)}
    assert reading.fingerprint(seen, 0) == reading.fingerprint(alike, 0)
    pictures = {"look": seen["look"]}
    assert reading.fingerprint(pictures, 0) != reading.fingerprint(pictures, 1)


def test_each_signal_means_what_it_says():
    info = {"won": np.array([0, 1]), "_won": np.array([True, True]), "deep": {"won": np.array([1.0, 0.0])}}
    step: reading.Step = np.array([0.2, 0.9]), np.array([True, False]), np.array([False, False]), info

    def success(signal: Signal) -> list[bool]:
        return [reading.transition(signal, step, index).success for index in (0, 1)]

    assert success(Signal("won")) == [False, True]
    assert success(Signal("deep.won")) == [True, False]
    assert success(Signal(reward=0.9)) == [False, True]
    assert success(Signal(terminated=True)) == [True, False]
    # An environment that was reset at once keeps the last info of the episode that ended.
    ended = {"final_info": {"won": np.array([1, 0]), "_won": np.array([True, False])}, **info}
    assert reading.transition(Signal("won"), (*step[:3], ended), 0).success
    assert reading.transition(Signal("won"), (*step[:3], ended), 1).success
    with pytest.raises(
        MorphVlaError, match=r"^info's 'won' is nan, expected a finite number of each episode$"
    ):
        reading.transition(Signal("won"), (*step[:3], {"won": np.array([np.nan, 1])}), 0)
    with pytest.raises(
        MorphVlaError, match=r"^info's 'won' has the shape \(2, 2\): not one number of each episo"
    ):
        reading.transition(Signal("won"), (*step[:3], {"won": np.array([[0, 1], [0, 0]])}), 1)


def test_the_check_lists_what_there_is_and_what_is_odd(load):
    found = probe(load(GYMNASIUM, "control_rate=10"))
    assert (found.states, found.cameras, found.low.tolist()) == (2, ("front",), [-1.0])
    lines = [(finding.severity, finding.found) for finding in found.findings]
    assert ("warning", "control_rate: 10 Hz, the environment's own rate is 5 Hz") in lines
    assert ("warning", "episode_seconds: 10 steps, the environment ends an episode after 9") in lines
    assert ("note", "its observation has agent_pos float64 [2], pixels uint8 [6, 8, 3]") in lines
    assert ("note", "it takes 1 action values in [-1, 1]") in lines


@pytest.mark.parametrize("odd", ["control_rate=10", "actions.columns=[2, 3]", "state=[nothing]"])
def test_the_check_finds_the_same_in_other_words(load, reword, odd):
    before = probe(load(GYMNASIUM, odd))
    reword()
    after = probe(load(GYMNASIUM, odd))
    assert [finding.identity for finding in after.findings] == [f.identity for f in before.findings]
    assert (after.cameras, after.states) == (before.cameras, before.states)
    assert before.findings
    assert all(x.found != y.found for x, y in zip(before.findings, after.findings, strict=True))


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["success={}"], "success: expected exactly one of info, reward and terminated, got 0"),
        (["success.reward=1"], "success: expected exactly one of info, reward and terminated, got 2"),
        (["success.hold_seconds=1"], "success.hold_seconds: must be at least 0 and below episode_seconds, n"),
        (["success={reward: .nan}"], "success.reward: must be a finite number, not nan"),
        (["actions.scale=[.inf]"], "actions.scale: must be a finite number, not inf"),
        (["state=[]", "images={}"], "state, images: a policy would see nothing"),
        (["control_rate=0"], "control_rate: must be above 0, not 0"),
        (["actions.columns=[-1]"], "actions.columns: counted from 0, not -1"),
        (["actions={columns: [0, 1], scale: [1]}"], r"actions: columns, scale and offset have \[1, 2\] val"),
        (["vectorized=true", "row_attribute=row"], "row_attribute: a vector environment"),
        (["kind=gymnasum"], "kind: expected 'gymnasium', 'lerobot' or 'robosuite', got \"gymnasum\"; did y"),
        (["kind=robosuite", "vectorized=true"], "vectorized: each of robosuite's worlds has one episode"),
        (["kind=robosuite", "row_attribute=row"], "row_attribute: each of robosuite's worlds has one epi"),
        (["kind=robosuite"], "control_rate: robosuite's worlds run at 20 Hz, not 5"),
        (["kind=robosuite", "robot=panda", "kwargs={arm: Sawyer}"], r"robot: 'panda' is not the arm of kwar"),
        (["kind=robosuite", "robot=robosuite_iiwa"], r"'robosuite_iiwa' is .*\(Panda\); expected robosu"),
        (["kind=lerobot", "poses={cup: cup}"], "poses: LeRobot's environments are seen through cameras; g"),
        (["robott=panda"], "robott: no such key; did you mean 'robot'"),
    ],
)  # fmt: skip
def test_wrong_values_of_a_file_are_named(load, overrides, sentence):
    with pytest.raises(ConfigError, match=sentence):
        load(GYMNASIUM, *overrides)


def test_it_is_no_suite_to_record_from_and_has_its_own_simulator(load, tmp_path):
    task = load(GYMNASIUM)
    with pytest.raises(
        ConfigError, match=r"a suite of kind 'gymnasium' is another simulator's: `morph-vla ev"
    ):
        suites.load_tasks(tmp_path / "tiny.yaml")
    with pytest.raises(
        MorphVlaError, match=r"^suite 'tiny' brings its own simulator: leave out --engine isaac"
    ):
        benchmark.of(task, "isaaclab")


def test_rows_may_be_numbers_that_the_environment_is_given(load):
    with contextlib.closing(Environments(load(GYMNASIUM, "row_attribute=start"), 1)) as stage:
        for row in (3, 5):
            stage.reset({0: InitialState(row, {}, ())})
            assert stage.vector.get_attr("start") == (row,)
    with pytest.raises(MorphVlaError, match=r"the environment has no attribute 'strat' \(row_attribute\)"):
        evaluate(Right(), load(GYMNASIUM, "row_attribute=strat"), episodes=1)


def test_a_suite_of_several_tasks_and_the_command_line(run, folder):
    tasks = "\ntasks:\n  near: {seed: 101}\n  far: {seed: 102, task: farther}\n"
    (folder / "eval").mkdir()
    (folder / "eval/tiny.yaml").write_text(f"# a walk\n{GYMNASIUM}{tasks}")
    assert [task.label for task in load_tasks("tiny")] == ["tiny:near", "tiny:far"]
    status, out, _ = run("suites list")
    assert (status, "a walk" in out) == (0, True)
    status, out, _ = run("suites show tiny:far --json")
    assert (status, json.loads(out)["far"]["task"]) == (0, "farther")
    status, _, err = run("suites check tiny:near --episodes 3")
    assert status == 2
    assert "is tried for a moment, by no expert: --episodes would change nothing; leave it out" in err
    status, out, _ = run("suites check tiny:near")
    assert (status, "it takes 1 action values" in out) == (0, True)
    status, out, _ = run("suites check tiny:near success.info=won")
    assert (status, "error: the environment's step 1: info has no 'won'" in out) == (1, True)
    status, _, err = run("eval --suite tiny -o out")
    assert (status, "what is evaluated? a checkpoint's folder, or --policy" in err) == (2, True)
    status, _, err = run("eval --policy lerobott:x --suite tiny -o out")
    expected = "--policy expects ws://HOST:PORT, lerobot:FOLDER or expert, not 'lerobott:x'"
    assert (status, expected in err) == (2, True)
