"""The report is one closed page: balanced, escaped, complete, its numbers those of `statistics`."""

import base64
import json
import re
from pathlib import Path

import pytest
from report_records import (
    Page,
    assert_closed,
    attention_over,
    demo,
    evaluation,
    of_tasks,
    several_of_tasks,
    written,
)

from morph_vla import report
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.report import charts, reading
from morph_vla.report.numbers import numbers
from morph_vla.report.words import bracket, percent, points
from morph_vla.results.comparison import compare
from morph_vla.results.record import Study, from_json, record_from_json

# --- the whole page


def test_a_demo_is_one_closed_page_with_every_part(tmp_path: Path):
    page = written(tmp_path, demo(tmp_path))
    assert_closed(page)
    assert re.findall(r"<h2>(.*?)</h2>", page.source) == [
        "Success",
        "How the trials ended",
        "The trained policy, episode by episode",
        "The untrained policy, episode by episode",
        "Training",
        "The body: panda",
        "Attention between joints",
        "How this was made",
    ]
    titles = [attributes["aria-label"] or "" for attributes in page.all("svg") if "aria-label" in attributes]
    expected = {"Success rate": 1, "Training: loss": 1, "Attention in layer": 3, "Where cube and bowl": 2}
    assert {begins: sum(title.startswith(begins) for title in titles) for begins in expected} == expected
    assert [image["alt"] for image in page.all("img")] == ["Joint graph of panda"]
    for words in (
        "750",
        "757",
        "43\u202f007",
        "350\u202f110",
        "2 cores",
        "morph-vla demo",
        "3 min 32 s",
        "3.12.1",
    ):
        assert words in page.words
    assert "Not in this record" not in page.words


def test_the_numbers_are_those_of_statistics(tmp_path: Path):
    record = demo(tmp_path)
    page = written(tmp_path, record)
    study = from_json(record)
    assert isinstance(study, Study)
    before, after = (evaluation.summary for evaluation in study.evaluations)
    first, last = study.evaluations
    difference = to_plain(compare(first, last))
    bounds = bracket(after.low, after.high)
    assert f"The trained policy succeeds in 9 of 11 trials: 81.8% {bounds}" in page.words
    for rates in map(to_plain, (before, after)):
        assert percent(rates["rate"]) in page.words
        assert bracket(rates["low"], rates["high"]) in page.words
        assert f"± {100 * rates['half_width']:.1f}" in page.words
    seconds = to_plain(after.time_to_success_s)
    assert f"{seconds['median']:.2f} s" in page.words
    assert f"[{seconds['low']:.2f}, {seconds['high']:.2f}] s" in page.words
    bounds = f"[{points(difference['low'])}, {points(difference['high'])}]"
    assert f"{points(difference['difference'])} percentage points, 95% interval {bounds}" in page.words
    assert "On the same 11 initial states: both 0, only trained 9, only untrained 1, neither 1" in page.words
    assert f"p\u00a0=\u00a0{difference['paired']['p_value']:.4f}" in page.words


def test_every_episode_is_there_once_and_opens_its_video(tmp_path: Path):
    page = written(tmp_path, demo(tmp_path))
    clips = {figure["id"]: figure for figure in page.all("figure", "clip")}
    for place, outcomes in enumerate(("fffffffsfff", "ssssfssesss")):
        cells = [a for a in page.all("a", "cell") if a["data-line"] == f"says-{place}"]
        assert [cell["href"] for cell in cells] == [f"#clip-{place}-{episode}" for episode in range(11)]
        names = {"s": "success", "f": "failure", "e": "error"}
        assert [(cell["class"] or "").split()[1] for cell in cells] == [names[letter] for letter in outcomes]
        assert all((cell["href"] or "")[1:] in clips for cell in cells)
    assert {"says-0", "says-1"} <= {attributes.get("id") for attributes in page.all("p")}
    assert len(page.all("video")) == len(clips) == 22
    assert all({"controls", "muted", "loop"} <= video.keys() for video in page.all("video"))
    open_at_once = [str(name) for name, figure in clips.items() if "extra" not in (figure["class"] or "")]
    assert sorted(open_at_once) == ["clip-0-0", "clip-0-1", "clip-0-7"] + [
        f"clip-1-{i}" for i in (0, 1, 2, 3, 4, 7)
    ]
    words = "Episode 4: failed, touched it, did not grasp it"
    first = next(video for video in page.all("video") if video["aria-label"] == words)
    assert base64.b64decode((first["src"] or "").partition("base64,")[2]) == b"not really a video" * 5


def test_ids_are_unique_and_labels_stand_on_every_picture(tmp_path: Path):
    page = written(tmp_path, demo(tmp_path))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for attributes in page.all("svg"):
        assert attributes.get("aria-label") or attributes.get("aria-hidden") == "true"
    assert all(attributes.get("alt") for attributes in page.all("img"))
    assert page.all("html") == [{"lang": "en"}]


def test_a_single_evaluation_needs_no_files(tmp_path: Path):
    page = written(tmp_path, evaluation("sfsfe"))
    assert_closed(page)
    assert "The trained policy succeeds in 2 of 5 trials" in page.words
    cells = page.all("button", "cell")
    assert [cell["data-says"] for cell in cells] == [
        "Episode 0: success after 3.1 s",
        "Episode 1: failed, not inside the target",
        "Episode 2: success after 3.4 s",
        "Episode 3: failed, not inside the target",
        "Episode 4: error, the engine's state is not finite",
    ]
    assert "Training" not in re.findall(r"<h2>(.*?)</h2>", page.source)


def test_several_evaluations_are_each_compared_with_the_first(tmp_path: Path):
    several = [evaluation("ffffs", "host"), evaluation("sfsfs", "mix"), evaluation("sssss", "mix")]
    several[1]["policy"]["step"] = 3  # which then tells the two apart
    page = written(tmp_path, {"schema": 1, "kind": "evaluation", "evaluations": several})
    assert_closed(page)
    assert "Policy “mix, step 7” succeeds in 5 of 5 trials" in page.words
    assert "mix, step 3 minus host" in page.words
    assert "mix, step 7 minus host" in page.words


def test_policies_of_one_name_are_told_apart_by_their_folders(tmp_path: Path):
    def labels(*folders: str, name: str = "1300") -> list[str]:
        plain = evaluation("sf", name)
        plain["policy"] = {"name": name, "step": 1300, "checkpoint": "1300"}
        records = [record_from_json(plain, tmp_path / folder) for folder in folders]
        return [shown.label for shown in reading.evaluations(records)]

    assert labels("a/eval") == ["step 1300"]
    assert labels("a/eval", "b/eval") == ["step 1300, a", "step 1300, b"]
    assert labels("runs", "runs/b", name="mix") == ["mix, step 1300", "mix, step 1300, b"]
    assert labels("a", "a") == ["step 1300 (1)", "step 1300 (2)"]


def test_several_tasks_have_rates_grids_and_a_map_each(tmp_path: Path):
    page = written(tmp_path, of_tasks("host", 300, can="sfsfs", cube="fesfsff"))
    assert_closed(page)
    assert "Tasks: “put the can there”, “put the cube there”." in page.words
    for words in ("60.0\u00a0±\u00a0", "28.6\u00a0±\u00a0", "41.7\u00a0±\u00a0", "44.3\u00a0±\u00a0"):
        assert words in page.words  # each task, all trials, their average
    assert list(re.findall(r"<h3>(\w+)", page.source))[:2] == ["can", "cube"]
    cells = page.all("button", "cell")
    assert [cell["data-line"] for cell in cells] == ["says-0-0"] * 5 + ["says-0-1"] * 7
    titles = [attributes.get("aria-label") or "" for attributes in page.all("svg")]
    assert sum(title.startswith("Where cube and bowl began") for title in titles) == 2
    assert any(title.startswith("Success rate of can with") for title in titles)
    assert any("How the trials ended. " in title and "inside 2" in title for title in titles)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_checkpoints_of_runs_make_a_learning_curve_with_bands(tmp_path: Path):
    page = written(tmp_path, several_of_tasks())
    assert_closed(page)
    assert "Learning curve" in re.findall(r"<h2>(.*?)</h2>", page.source)
    (title,) = [
        label
        for svg in page.all("svg")
        if (label := svg.get("aria-label") or "").startswith("Success rate on")
    ]
    assert title.endswith("at each run's last step: runs/host 50.0%, runs/mix 90.0%")
    assert (len(page.all("polygon", "band")), len(page.all("polyline", "run"))) == (2, 2)
    assert len(page.all("circle", "point")) == 4
    for words in ("host, step 300 minus host, step 100", "mix, step 300 minus host, step 100"):
        assert words in page.words
    # Of many evaluations, the last one's episodes stand open, the others are folded.
    assert page.source.count("10 episodes</summary>") == 3


def test_a_demos_two_policies_are_no_learning_curve(tmp_path: Path):
    before, after = evaluation("fff", "untrained"), evaluation("ssf")
    before["policy"]["step"] = 0
    page = written(tmp_path, {"schema": 1, "kind": "demo", "evaluations": [before, after]})
    assert "Learning curve" not in page.source


def test_videos_of_several_records_come_from_their_own_folders(tmp_path: Path):
    folders = [tmp_path / "a", tmp_path / "b"]
    records = [of_tasks(folder.name, 1, can="sf", cube="sf") for folder in folders]
    for folder, record in zip(folders, records, strict=True):
        for trial in record["trials"]:
            trial["video"] = f"{trial['task']}/videos/{trial['episode']:03d}.mp4"
            path = folder / str(trial["video"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"{folder.name} {trial['video']}".encode())
    read = [record_from_json(record, folder) for record, folder in zip(records, folders, strict=True)]
    page = Page(report.write(tmp_path, read, tmp_path / "deep/page.html"))
    assert_closed(page)
    held = {base64.b64decode((v["src"] or "").partition("base64,")[2]).decode() for v in page.all("video")}
    assert held == {
        f"{folder} {task}/videos/00{i}.mp4" for folder in "ab" for task in ("can", "cube") for i in (0, 1)
    }
    assert {a["href"] for a in page.all("a", "cell")} == {f"#{f['id']}" for f in page.all("figure", "clip")}
    records[1]["trials"][0]["video"] = "../a/can/videos/000.mp4"
    with pytest.raises(MorphVlaError, match="which is not inside its folder"):
        record_from_json(records[1], folders[1])


def test_other_suites_on_one_page_are_not_compared(tmp_path: Path):
    other = of_tasks("host", 100, can="sfs", cube="ffs")
    other["suite"] = {**other["suite"], "name": "so101"}
    whole = {"schema": 2, "kind": "evaluation", "evaluations": [of_tasks("host", 100, can="sss"), other]}
    page = written(tmp_path, whole)
    assert_closed(page)
    assert " minus " not in page.words


def test_an_evaluation_that_was_stopped_early_says_so(tmp_path: Path):
    record = evaluation("sfsfs")
    record["stopped"] = {"episodes": 5, "of": 300, "reason": "trained is better"}
    record["notes"] = ["a worker died & was replaced"]
    words = written(tmp_path, record).words
    assert "trained: a worker died & was replaced" in words
    assert "The trained policy was stopped after 5 of 300 episodes: trained is better." in words


def test_a_difference_over_what_both_have_says_so(tmp_path: Path):
    """As `compare` does: ten of forty and nine of ten, of which the first had ten in its first ten."""
    base, new = evaluation("s" * 10 + "f" * 30, "base"), evaluation("s" * 9 + "f", "new")
    new["stopped"] = {"episodes": 10, "of": 40, "reason": "base is better"}
    whole = {"schema": 1, "kind": "evaluation", "evaluations": [base, new]}
    words = written(tmp_path, whole).words
    assert "new minus base: −10.0 percentage points" in words
    assert "Over the 10 episodes that both have, because one was stopped early; after an early stop" in words
    assert "Note: base, new do not say the whole criterion," in words
    assert "(written before schema 3): whether these are the same is unknown" in words


def test_a_demos_numbers_are_those_of_its_page(tmp_path: Path):
    """With a base its last policy stands beside each of the others."""
    names = {"untrained": "f" * 11, "base": "s" * 3 + "f" * 8, "tuned": "s" * 10 + "f"}
    parts = [evaluation(letters, name) for name, letters in names.items()]
    whole = from_json({"schema": 1, "kind": "demo", "evaluations": parts}, tmp_path)
    assert isinstance(whole, Study)
    pairs = [(d.a, d.b) for d in numbers(whole).differences]
    assert pairs == [("untrained", "tuned"), ("base", "tuned")]
    words = written(tmp_path, {"schema": 1, "kind": "demo", "evaluations": parts}).words
    assert all(f"tuned minus {other}: " in words for other, _ in pairs)


def test_long_names_are_told_apart_by_their_ends():
    label = "pi05_droid_panda_three_tasks_mix_film_lora_r16_seed"
    short = [charts.shortened(f"{label}{seed}") for seed in (0, 1)]
    assert short[0] != short[1]
    assert {len(name) for name in short} == {40}
    assert short[0] == "pi05_droid_panda_th…mix_film_lora_r16_seed0"[:20] + "ix_film_lora_r16_seed0"[-20:]
    assert charts.shortened("x" * 40) == "x" * 40


def test_attention_over_an_episode_has_a_slider(tmp_path: Path):
    (tmp_path / "attention.json").write_text(json.dumps(attention_over(7)))
    page = written(tmp_path, {**evaluation("sfs"), "attention": "attention.json"})
    assert_closed(page)
    assert len(page.all("path", "closed")) == 1  # hatched where the masked layer's joints are no neighbours
    (slider,) = page.all("input")
    assert (slider["type"], slider["min"], slider["max"]) == ("range", "0", "6")
    (data,) = re.findall(r'<script type="application/json">(.*?)</script>', page.source)
    slides = json.loads(data)
    assert slides["words"][:2] == ["step 0, 0.0 s", "step 8, 0.5 s"]
    assert [len(step) for step in slides["shades"]] == [2] * 7
    assert slides["shades"][6][0] == "dgakndagq"  # in sixteenths of the largest, 0.5
    assert "At each time the policy was asked in one episode (episode 3)" in page.words


@pytest.mark.parametrize("steps", [None, [], [3], [{"layers": [[[1.0]]]}], [{"layers": 3}, {"layers": []}]])
def test_malformed_steps_leave_the_mean(tmp_path: Path, steps: object):
    (tmp_path / "attention.json").write_text(json.dumps({**attention_over(3), "steps": steps}))
    page = written(tmp_path, {**evaluation("sfs"), "attention": "attention.json"})
    assert_closed(page)
    assert "Attention between joints" in page.source
    assert page.all("input") == []
