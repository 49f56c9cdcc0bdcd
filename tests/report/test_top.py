"""The page's top, its times and its rules: videos beside the number, when it succeeds, what counts."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from report_records import attention_over, demo, evaluation, of_tasks, shown, summary
from test_page import assert_closed, written

from morph_vla.report import charts, episodes, making, rates
from morph_vla.report.episodes import Clips
from morph_vla.results.record import suite_from_json
from morph_vla.results.trial import Trial


def test_a_success_and_a_failure_play_beside_the_number_and_nowhere_else(tmp_path: Path):
    page = written(tmp_path, demo(tmp_path))
    assert_closed(page)
    head = page.source.partition("<header")[2].partition("</header>")[0]
    assert re.findall(r'id="(clip-[-0-9]+)"', head) == ["clip-1-0", "clip-1-4"]
    assert head.count(" autoplay") == 2 == page.source.count(" autoplay")
    assert "It succeeds. " in head
    assert "Of the 2 that failed: 1 touched it, did not grasp it; 1 ended in an error." in head


def test_without_videos_the_top_is_words_alone(tmp_path: Path):
    page = written(tmp_path, evaluation("sfs"))
    assert page.all("header") == [{}]
    assert "The one that failed: not inside the target." in page.words


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        ("sss", None),
        ("sfs", "The one that failed: not inside the target."),
        ("fsfs", "All 2 that failed: touched it, did not grasp it."),
        ("fffse", "Of the 4 that failed: 2 touched it, did not grasp it; 1 not inside the target; 1 ended in "
                  "an error."),
        ("see", "All 2 that failed: ended in an error."),
    ],
)  # fmt: skip
def test_why_the_others_failed(outcomes: str, words: str | None):
    assert episodes.why(summary(outcomes)) == words


def test_videos_on_top_are_of_the_last_evaluation_and_of_each_outcome(tmp_path: Path):
    record = {"schema": 1, "kind": "demo",
              "evaluations": [evaluation("fs", "untrained"), evaluation("sssff")]}  # fmt: skip
    evaluations = shown(record)
    path = tmp_path / "x.mp4"
    everything = {(place, "", i): path for place, many in ((0, 2), (1, 5)) for i in range(many)}

    def chosen(files: dict) -> dict[str, str]:
        on_top = episodes.on_top(episodes.listed(evaluations, Clips(files)))
        return {words: episode.anchor for words, episode in on_top.items()}

    assert chosen(everything) == {"It succeeds. ": "clip-1-0", "It fails. ": "clip-1-3"}
    few = {key: path for key in everything if key != (1, "", 0) and key[2] < 3}
    assert chosen(few) == {"It succeeds. ": "clip-1-1"}
    assert chosen({}) == {}


def test_the_failure_on_top_is_of_the_commonest_clause_and_the_success_of_its_task():
    evaluations = shown(of_tasks("host", 1, can="sfsff", cube="sffff"))  # grasped 3, inside 4
    path = Path("x.mp4")

    def chosen(*keys: tuple[str, int]) -> dict[str, str]:
        listed = episodes.listed(evaluations, Clips({(0, *key): path for key in keys}))
        return {words: episode.words for words, episode in episodes.on_top(listed).items()}

    assert chosen(("can", 0), ("can", 4), ("cube", 0), ("cube", 3)) == {
        "It succeeds (cube). ": "Episode 0: success after 3.1 s",
        "It fails (cube). ": "Episode 3: failed, not inside the target",
    }
    assert list(chosen(("can", 0), ("cube", 3))) == ["It succeeds (can). ", "It fails (cube). "]


def test_what_was_noted_of_a_trial_is_said_by_its_name(tmp_path: Path):
    record = evaluation("sff")
    record["trials"][0] |= {"pushed_in": True, "dropped": False, "touched": True}
    record["trials"][1] |= {"dropped": True, "begun_anew": True}
    page = written(tmp_path, record)
    assert [cell["data-says"] for cell in page.all("button", "cell")] == [
        "Episode 0: success after 3.1 s; pushed in",
        "Episode 1: failed, not inside the target; dropped; begun anew",
        "Episode 2: failed, touched it, did not grasp it",
    ]
    cells = dict(re.findall(r'<th scope="row">(noted: .*?)</th><td>(.*?)</td>', page.source))
    assert cells == {"noted: pushed in": "1", "noted: dropped": "1", "noted: begun anew": "1"}


@dataclass(frozen=True, kw_only=True)
class LaterTrial(Trial):
    target_dragged: float | None = None


def test_a_fact_that_this_page_does_not_know_is_named():
    trial = LaterTrial(episode=3, success=False, target_dragged=0.07, failed_clause="wobbled_off")
    assert episodes.noted(trial) == ["target dragged 0.07"]
    assert episodes.noted(replace(trial, target_dragged=0.001)) == []
    assert episodes.Episode(trial, "a", None, False).words == (
        "Episode 3: failed, wobbled off; target dragged 0.07"
    )


def test_a_poster_beside_a_video_is_in_the_page(tmp_path: Path):
    record = demo(tmp_path)
    (tmp_path / "videos/000.jpg").write_bytes(b"a still")
    page = written(tmp_path, record)
    assert_closed(page)
    posters = [video["poster"] for video in page.all("video") if "poster" in video]
    assert posters == ["data:image/jpeg;base64,YSBzdGlsbA=="] * 2  # episode 0 of both policies


def test_the_video_of_the_episode_stands_beside_its_attention(tmp_path: Path):
    record = demo(tmp_path)
    content = attention_over(5)
    content["episode"] = {"task_key": "", "episode": 3, "task": "put it there", "ended": "success"}
    (tmp_path / "attention.json").write_text(json.dumps(content))
    page = written(tmp_path, record)
    (along,) = [video for video in page.all("video") if "data-of" in video]
    assert along["data-of"] == "clip-1-3"
    assert "src" not in along
    assert "It moves with the slider." in page.words
    content["episode"]["episode"] = 99
    (tmp_path / "attention.json").write_text(json.dumps(content))
    assert not [video for video in written(tmp_path, record).all("video") if "data-of" in video]


def test_a_map_of_attention_is_full_at_its_own_layers_largest(tmp_path: Path):
    content = attention_over(3)
    content["steps"] = [
        {**step, "layers": [step["layers"][0], [[0.01 * v for v in row] for row in step["layers"][1]]]}
        for step in content["steps"]
    ]
    (tmp_path / "attention.json").write_text(json.dumps(content))
    page = written(tmp_path, {**evaluation("sfs"), "attention": "attention.json"})
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page.source)
    shades = json.loads(data)["shades"]
    assert shades[2][0] == shades[2][1]
    assert "full: 0.5" in page.words
    assert "full: 0.005" in page.words


def test_success_against_time_steps_at_each_success():
    (trained,) = shown(evaluation("sfses"))
    assert charts.success_times(trained) == pytest.approx([3.1, 3.44, 3.78])
    chart = charts.success_by_time([trained])
    assert chart is not None
    assert "trained: 60.0%, the last after 3.8 s" in chart
    (line,) = re.findall(r'points="([^"]+)" class="run', chart)
    heights = [float(point.partition(",")[2]) for point in line.split()]
    assert len(heights) == 2 + 2 * 3
    assert heights == sorted(heights, reverse=True)  # a share that has succeeded never falls
    assert charts.success_by_time(shown(evaluation("fff"))) is None
    untimed = evaluation("sfs")
    untimed["trials"][2]["time_s"] = None  # it would seem to have failed
    assert charts.success_by_time(shown(untimed)) is None


def test_an_episodes_whole_time_is_on_the_axis():
    record = of_tasks("host", 3, can="sf")
    for task in record["suite"]["tasks"].values():
        task["episode_seconds"] = 30
    chart = charts.success_by_time(shown(record))
    assert chart is not None
    assert ">30<" in chart


def test_a_lopsided_interval_is_written_out(tmp_path: Path):
    page = written(tmp_path, of_tasks("host", 1, can="fff", cube="sf"))
    assert "0.0\u00a0[0.0,\u00a056.1]" in page.words
    assert "50.0\u00a0±\u00a040.5" in page.words
    assert rates.rate(None) == "not measured"


def test_the_criterion_and_how_the_policy_was_asked_are_on_the_page(tmp_path: Path):
    record = of_tasks("host", 3, can="sf")
    whole = {"success": {"max_speed": 0.02, "max_spin": 0.3, "min_opening": 0.6, "dwell_seconds": 0.5}}
    target = {"name": "mug", "low": [-0.035, -0.035, 0.02], "high": [0.035, 0.035, 0.075]}
    record["suite"]["tasks"]["can"] |= {"target": target, "episode_seconds": 30, "resolved": whole}
    record |= {"open_loop": 8, "overrides": ["objects.can.mass=0.3"]}
    record["policy"]["sampler"] = {"steps": 10, "noise": 0.0}
    words = " ".join(written(tmp_path, record).words.split())
    for wanted in (
        "What counts as a success",
        "slower than 0.02 m/s",
        "all of it for 0.5 s without a break",
        "−3.5..3.5, −3.5..3.5, 2..7.5",
        "actions executed per answer 8",
        "sampler 10 steps, noise times 0",
        "changes to the suite objects.can.mass=0.3",
    ):
        assert wanted in words


def test_clauses_that_this_page_does_not_know_are_named(tmp_path: Path):
    record = of_tasks("host", 3, can="sff")
    box = {"object": "can", "target": "mug", "low": [-0.1, -0.1, 0], "high": [0.1, 0.1, 0.1]}
    criterion = {**box, "max_speed": 0.02, "min_upright": 0.9, "max_moved": None}
    criterion |= {"in_order": True, "anyhow": False, "max_bumps": 0}
    record["suite"]["tasks"]["can"]["resolved"] = {"success": criterion}
    record["trials"][1]["failed_clause"] = "upright"
    record["trials"][2]["failed_clause"] = "wobbled_off"
    words = " ".join(written(tmp_path, record).words.split())
    clauses = "the target tilted by at most 26°, slower than 0.02 m/s, in order, max bumps 0. task target"
    assert f"inside the box around the target, {clauses}" in words
    assert "Of the 2 that failed: 1 inside, the target not upright; 1 wobbled off." in words
    assert "failed: wobbled off 1" in words


def test_a_record_without_clauses_places_robot_and_criterion_is_a_shorter_page(tmp_path: Path):
    trials = [{"task": "push", "episode": i, "success": i % 2 == 0, "steps": 7} for i in range(5)]
    record = {"schema": 3, "kind": "evaluation", "trials": trials, "policy": {"name": "theirs"}}
    record["engine"] = {"name": "gymnasium", "version": "1.2", "backend": "egl"}
    record["suite"] = {"name": "gym", "tasks": {"push": {"task": "push it.", "episode_seconds": 8}}}
    page = written(tmp_path, record)
    assert_closed(page)
    headings = re.findall(r"<h[23]>(.*?)</h[23]>", page.source)
    assert headings == [
        "Success",
        "Policy “theirs”, episode by episode",
        "How this was made",
        "Suite",
        "Evaluation",
    ]
    words = " ".join(page.words.split())
    assert "Task: “push it”." in words
    assert "engine: backend egl" in words
    assert "task text episode push push it. 8 s" in words
    assert "Episode 1: failed" in [cell["data-says"] for cell in page.all("button", "cell")]
    for absent in ("not recorded", "Not in this record", "None", "that failed"):
        assert absent not in words


@pytest.mark.parametrize("task", [{}, {"target": 3}, {"target": {"low": [0, 0], "high": [1, 1]}}, None])
def test_a_criterion_that_is_not_in_the_record_is_left_out(task: object):
    assert making.criterion(suite_from_json({"tasks": {"can": task}})) is None


def test_other_samplers_are_named_by_their_policy():
    first, second = evaluation("sf", "untrained"), evaluation("sf")
    for plain, noise in ((first, 0.0), (second, 1.0)):
        plain["policy"]["sampler"] = {"steps": 10, "noise": noise}
        plain["open_loop"] = 8
    evaluations = shown({"schema": 1, "kind": "demo", "evaluations": [first, second]})
    assert making.asked(evaluations) == [
        ("actions executed per answer", "8"),
        ("sampler, untrained", "10 steps, noise times 0"),
        ("sampler, trained", "10 steps, noise times 1"),
    ]
    assert making.asked(shown(evaluation("sf"))) == []


def test_a_recording_says_no_folder_and_no_time_that_was_not_taken(tmp_path: Path):
    record = {**demo(tmp_path), "recording": {"dataset": "dataset", "seconds": 0.0, "frames": 43007}}
    box = written(tmp_path, record).source.partition("<h3>Recording</h3>")[2].partition("</dl>")[0]
    assert re.findall(r"<dt>(.*?)</dt>", box) == ["frames"]


def test_the_first_policys_episodes_are_folded(tmp_path: Path):
    source = written(tmp_path, demo(tmp_path)).source
    folded = source.partition("The untrained policy, episode by episode</h2>")[2]
    assert folded.startswith("<details")
    assert not source.partition("The trained policy, episode by episode</h2>")[2].startswith("<details")


def test_conditions_that_differ_are_named_beside_the_difference(tmp_path: Path):
    first, second = evaluation("sf", "untrained"), evaluation("ss")
    for plain, noise in ((first, 1.0), (second, 0.0)):
        plain["policy"]["sampler"] = {"steps": 10, "noise": noise}
    words = written(tmp_path, {"schema": 1, "kind": "demo", "evaluations": [first, second]}).words
    assert "Conditions that differ: sampler.noise: 1.0 and 0.0. " in words


def test_a_base_is_shown_beside_the_same_steps_from_scratch(tmp_path: Path):
    record = demo(tmp_path)
    outcomes = {"zero-shot": "fffffffsfff", "scratch": "ffsffffffff", "fine-tuned": "ssssfssesss"}
    record["evaluations"] = [evaluation(letters, name) for name, letters in outcomes.items()]
    record["base"] = {"source": "a <base>", "robots": 23, "unseen": True}
    record["scratch"] = {"steps": 420, "seconds": 154.0}
    page = written(tmp_path, record)
    assert_closed(page)
    assert "The fine-tuned policy succeeds in 9 of 11 trials" in page.words
    for words in (
        "The zero-shot policy in 1 of 11", "The policy from scratch in 1 of 11",
        "a <base> as it is, trained on 23 robots; panda is not among them",
        "420 steps from random weights, in 2 min 34 s", "420 steps from a <base>, in 2 min 36 s",
        "fine-tuned minus zero-shot: +72.7 percentage points",
        "fine-tuned minus scratch: +72.7 percentage points",
    ):  # fmt: skip
        assert words in page.words
    assert "scratch minus zero-shot" not in page.words
    bars = [svg["aria-label"] or "" for svg in page.all("svg") if "aria-label" in svg]
    (rates_of,) = [title for title in bars if title.startswith("Success rate")]
    assert all(f"{name} " in rates_of for name in outcomes)
