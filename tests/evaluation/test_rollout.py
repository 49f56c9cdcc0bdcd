"""Rollouts: every episode of the table is started, counted and judged, whatever runs beside it."""

import dataclasses
import hashlib
import json
import threading

import numpy as np
import pytest
from policies import Wave

from morph_vla import robots
from morph_vla.engines.engine import actions_of
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.evaluation.rollout import Settings
from morph_vla.evaluation.video import VideoWriter
from morph_vla.files.plain import to_plain
from morph_vla.results import identity, statistics
from morph_vla.results.record import record_from_json, write
from morph_vla.suites.suite import resolved

JOINTS = 8


class Moody(Wave):
    """Fails on episode 1, answers nonsense on episode 2."""

    def infer(self, observation):
        if observation["episode"] == 1:
            raise RuntimeError("out of ideas")
        if observation["episode"] == 2:
            return {"actions": np.full((5, JOINTS), np.nan)}
        return super().infer(observation)

    def infer_batch(self, observations):
        return [self.infer(o) for o in observations]


def evaluate(suite, policy, settings, **more) -> dict:
    """The record as it is written, its files named relative to its folder."""
    return rollout.evaluate(suite, policy, settings, **more).to_json()


def run(suite, policy, episodes, **settings):
    return evaluate(suite, policy, Settings(episodes, workers=1, videos=0, **settings))


@pytest.fixture(scope="module")
def alone(tiny_suite):
    return run(tiny_suite, Wave(), 3, parallel=1)


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_environments(tiny_suite, alone):
    together = run(tiny_suite, Wave(), 3, parallel=3)
    assert together["trials"] == alone["trials"]


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "groups"), [(1, 1), (2, 2), (2, 3)])
def test_results_do_not_depend_on_workers_or_on_who_takes_turns(tiny_suite, alone, workers, groups):
    settings = Settings(3, parallel=3, workers=workers, groups=groups, videos=0)
    assert evaluate(tiny_suite, Wave(), settings)["trials"] == alone["trials"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"answer_seconds": 0.0}, "timeout must be above 0 seconds, not 0"),
        ({"parallel": 0}, "parallel must be at least 1, not 0"),
        ({"open_loop": 0}, "open-loop must be at least 1, not 0"),
    ],
)
def test_settings_that_measure_nothing_are_refused(tiny_suite, change, words):
    with pytest.raises(MorphVlaError, match=f"^{words}$"):
        evaluate(tiny_suite, Wave(), Settings(1, **change))


def test_the_record_says_what_was_run(tiny_suite, alone):
    assert alone["schema"] == 3
    assert alone["kind"] == "evaluation"
    assert alone["suite"]["tasks"]["cube_in_bowl"]["initial_states_sha256"]
    own = alone["suite"]["tasks"]["cube_in_bowl"]
    assert own["resolved"] == resolved(tiny_suite)
    assert own["resolved_sha256"] == identity.digest(own["resolved"])
    panda = robots.load("panda")
    assert alone["suite"]["urdf_sha256"] == hashlib.sha256(panda.urdf_path.read_bytes()).hexdigest()
    assert alone["suite"]["side_sha256"] == panda.side_sha256
    assert alone["overrides"] == []
    assert set(alone["suite"]["variation"].values()) == {0}
    assert alone["engine"]["name"] == "mujoco"
    assert alone["summary"] == to_plain(statistics.summarise(record_from_json(alone).trials))
    assert [t["episode"] for t in alone["trials"]] == [0, 1, 2]
    assert all(t["steps"] == tiny_suite.max_steps and t["ended"] == "time" for t in alone["trials"])
    assert all(t["failed_clause"] == "reached" for t in alone["trials"])
    json.dumps(alone)


@pytest.mark.parametrize(("rate", "actions"), [(15.0, 8), (30.0, 16), (20.0, 11), (0.5, 1)])
def test_a_policy_is_asked_as_often_in_time_at_any_control_rate(rate, actions):
    assert rollout.open_loop_at(rate) == actions


def test_a_policy_is_asked_every_open_loop_steps(tiny_suite):
    policy = Wave()
    run(tiny_suite, policy, 1, parallel=1, open_loop=4)
    assert policy.asked == [(0, step) for step in range(0, tiny_suite.max_steps, 4)]


def test_an_error_is_that_episodes_own_and_counted(tiny_suite):
    record = run(tiny_suite, Moody(), 4, parallel=4)
    ended = [t["ended"] for t in record["trials"]]
    assert ended == ["time", "error", "error", "time"]
    assert record["trials"][1]["error"] == "policy: RuntimeError: out of ideas"
    assert "40 values that are not finite" in record["trials"][2]["error"]
    assert record["summary"]["trials"] == 4
    assert record["summary"]["errors"] == 2


@pytest.mark.slow
def test_an_interrupted_evaluation_goes_on(tiny_suite, alone, tmp_path, caplog):
    class Stop(Exception):
        pass

    def stop(done, _total, _won):
        if done == 2:
            raise Stop

    settings, about = (
        Settings(3, parallel=1, workers=1, videos=1),
        {"name": "wave", "checkpoint": None, "step": 1},
    )
    with pytest.raises(Stop):
        evaluate(tiny_suite, Wave(), settings, about=about, folder=tmp_path, progress=stop)
    with (tmp_path / "trials.jsonl").open("a") as out:
        out.write('{"episode": 2, "succ')  # cut short by a crash
    policy = Wave()
    record = evaluate(tiny_suite, policy, settings, about=about, folder=tmp_path)
    assert {episode for episode, _ in policy.asked} == {2}
    bare = [{**t, "video": None} for t in record["trials"]]
    assert bare == alone["trials"]
    assert (tmp_path / record["trials"][0]["video"]).stat().st_size > 500

    another = Wave()
    other = {**about, "step": 2}
    evaluate(tiny_suite, another, settings, about=other, folder=tmp_path)
    assert {episode for episode, _ in another.asked} == {0, 1, 2}
    assert caplog.messages == [
        f"{tmp_path} held another evaluation (policy.step: 1 there, 2 here); it is kept in "
        f"{tmp_path / 'earlier-1'}"
    ]
    assert (tmp_path / "earlier-1" / record["trials"][0]["video"]).stat().st_size > 500


@pytest.mark.slow
def test_an_evaluation_that_goes_on_took_the_time_of_all_its_sessions(tiny_suite, tmp_path):
    """Of more rows; of fewer, which are all there, nobody knows it."""
    settings = Settings(2, parallel=1, workers=1, videos=0)
    first = rollout.evaluate(tiny_suite, Wave(), settings, folder=tmp_path)
    write(dataclasses.replace(first, wall_s=1000.0, timing={"policy_s": 500.0}), tmp_path / "record.json")
    more = dataclasses.replace(settings, episodes=3)
    record = rollout.evaluate(tiny_suite, Wave(), more, folder=tmp_path)
    assert record.wall_s is not None
    assert 1000.0 < record.wall_s < 1000.0 + 600.0
    assert 500.0 <= record.timing["policy_s"] < 1000.0
    fewer = rollout.evaluate(tiny_suite, Wave(), dataclasses.replace(settings, episodes=1), folder=tmp_path)
    assert (len(fewer.trials), fewer.wall_s, fewer.timing) == (1, None, {})


@pytest.mark.slow
def test_the_library_says_through_its_log_that_a_folder_held_another_evaluation(tiny_suite, tmp_path, caplog):
    looser = dataclasses.replace(
        tiny_suite, success=dataclasses.replace(tiny_suite.success, dwell_seconds=0.05)
    )
    settings = Settings(1, parallel=1, workers=1, videos=0)
    evaluate(tiny_suite, Wave(), settings, folder=tmp_path)
    policy = Wave()
    evaluate(looser, policy, settings, folder=tmp_path, overrides=["success.dwell_seconds=0.05"])
    assert {episode for episode, _ in policy.asked} == {0}
    assert "(success.dwell_seconds: 0.5 there, 0.05 here)" in caplog.text
    again = Wave()
    record = evaluate(looser, again, settings, folder=tmp_path, overrides=["success.dwell_seconds=0.05"])
    assert again.asked == []
    assert record["overrides"] == ["success.dwell_seconds=0.05"]


@pytest.mark.slow
def test_a_policy_that_hangs_costs_its_episode_and_the_same_command_goes_on(tiny_suite, alone, tmp_path):
    gate = threading.Event()

    class Hangs(Wave):
        def infer(self, observation):
            if observation["episode"] == 1:
                gate.wait(30)
            return super().infer(observation)

    about = {"name": "wave", "checkpoint": None, "step": 1}
    settings = Settings(3, parallel=1, workers=1, videos=0, answer_seconds=1.0)
    try:
        with pytest.raises(MorphVlaError, match=r"^the policy is stuck: .* the same command goes on"):
            evaluate(tiny_suite, Hangs(), settings, about=about, folder=tmp_path)
    finally:
        gate.set()
    policy = Wave()
    record = evaluate(tiny_suite, policy, settings, about=about, folder=tmp_path)
    assert {episode for episode, _ in policy.asked} == {2}
    assert [trial["ended"] for trial in record["trials"]] == ["time", "error", "time"]
    assert record["trials"][1]["error"] == "policy: no answer within 1 s"
    assert record["trials"][0] == alone["trials"][0]
    assert record["trials"][2] == alone["trials"][2]


def test_a_video_plays_back_frame_by_frame(tmp_path):
    import av

    frames = [np.full((25, 31, 3), value, np.uint8) for value in (0, 80, 160, 240)]
    writer = VideoWriter(tmp_path / "clip.mp4", 15.0)
    for frame in frames:
        writer.add(frame)
    writer.finish()
    with av.open(str(tmp_path / "clip.mp4")) as container:
        shown = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    assert [frame.shape for frame in shown] == [(24, 30, 3)] * 4
    assert all(abs(float(s.mean()) - float(f.mean())) < 6 for s, f in zip(shown, frames, strict=True))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"action": 1}, r"has no 'actions' \(got \['action'\]\)"),
        (None, r"has no 'actions' \(got NoneType\)"),
        ({"actions": np.zeros(8)}, r"have shape \(8,\); expected \(horizon, 8\)"),
        ({"actions": np.zeros((5, 7))}, r"have shape \(5, 7\); expected \(horizon, 8\)"),
        ({"actions": np.full((2, 8), np.inf)}, "hold 16 values that are not finite"),
    ],
)
def test_answers_are_checked_in_words(answer, words):
    with pytest.raises(MorphVlaError, match=words):
        actions_of(answer, JOINTS)


def test_wider_answers_are_cut_to_the_robot():
    assert actions_of({"actions": np.arange(64.0).reshape(2, 32)}, JOINTS).shape == (2, JOINTS)


def test_a_worker_that_cannot_start_says_why(tiny_suite):
    broken = dataclasses.replace(
        tiny_suite, cameras={"wrist": dataclasses.replace(tiny_suite.cameras["wrist"], link="panda_elbow")}
    )
    with pytest.raises(MorphVlaError, match="camera 'wrist': the robot has no link 'panda_elbow'"):
        run(broken, Wave(), 1, parallel=1)
