"""`morph-vla compare`, `merge` and `report`, and what `eval` says beside an earlier evaluation."""

import argparse
import dataclasses
import json

import pytest

from morph_vla.results.record import read


def an_evaluation(successes: int, trials: int, name: str = "trained") -> dict:
    """A record of that many trials, the first ones successful."""
    return {
        "schema": 1,
        "kind": "evaluation",
        "suite": {"name": "cube", "version": 1, "seed": 3, "robot": "panda", "task": "t"},
        "policy": {"name": name, "checkpoint": None, "step": 5},
        "trials": [
            {
                "episode": i,
                "success": i < successes,
                "time_s": 2.5 if i < successes else None,
                "ended": "success" if i < successes else "time",
                "error": None,
                "steps": 7,
                "failed_clause": None if i < successes else "reached",
                "initial": {"cube": [0.5, 0.1 * i, 0.0]},
            }
            for i in range(trials)
        ],
    }


def test_compare_prints_the_difference_with_its_interval(run, folder):
    for name, successes in (("a", 3), ("b", 11)):
        (folder / name).mkdir()
        (folder / name / "record.json").write_text(json.dumps(an_evaluation(successes, 13, name)))
    status, out, _ = run("compare a b/record.json")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].split() == ["policy", "all", "trials", "95%", "trials", "errors"]
    assert lines[1].split() == ["A", "a,", "step", "5", "23.1", "±", "21.0", "[8.2,", "50.3]", "13", "0"]
    assert lines[3:6] == ["A: a", "B: b/record.json", ""]
    assert lines[6].startswith("B - A: +61.5 points, 95% interval [+")
    assert lines[6].endswith(
        "(Tango 1998, paired); same initial states: both 3, only A 0, only B 8, neither 2; exact McNemar "
        "p = 0.0078"
    )
    answer = json.loads(run("compare a b --json")[1])
    (difference,) = answer["differences"]
    assert difference["low"] < difference["difference"] < difference["high"]
    assert [row["letter"] for row in answer["evaluations"]] == ["A", "B"]
    assert answer["curves"] == []


def test_compare_takes_several_tasks_and_several_records(run, folder):
    for name, shift in (("a", 0), ("b", 3), ("c", 5)):
        record = an_evaluation(0, 0, name) | {"engine": {"name": "mujoco", "version": f"4.{shift}.0"}}
        parts = ((task, an_evaluation(won + shift, 13)) for task, won in (("can", 2), ("cube", 7)))
        record["trials"] = [{**trial, "task": task} for task, part in parts for trial in part["trials"]]
        record["policy"] = {"name": name, "checkpoint": f"runs/x/checkpoints/{shift}", "step": shift}
        (folder / f"{name}.json").write_text(json.dumps(record))
    status, out, _ = run("compare a.json b.json c.json --plot curve.svg")
    assert status == 0
    head = ["policy", "all", "trials", "95%", "average", "can", "cube", "trials", "errors"]
    assert out.splitlines()[0].split() == head
    assert "engines: A mujoco 4.0.0, B mujoco 4.3.0, C mujoco 4.5.0" in out
    assert [line.split(":")[0] for line in out.splitlines() if " points, " in line] == [
        *("B - A", "  can", "  cube"),
        *("C - A", "  can", "  cube"),
    ]
    assert (folder / "curve.svg").stat().st_size > 3000
    answer = json.loads(run("compare a.json b.json c.json --json")[1])
    assert answer["evaluations"][2]["summary"]["tasks"]["cube"]["successes"] == 12
    (panel,) = answer["curves"]
    assert [point["step"] for point in panel["runs"][0]["points"]] == [0, 3, 5]


def whole_evaluation(folder, name: str, successes: int, trials: int, *overrides: str, **changes) -> None:
    """A record of schema 3 at `folder/name`, with its whole suite and its policy's sampler."""
    from morph_vla.evaluation import simulated
    from morph_vla.suites import suite

    facts = simulated.suite_facts(suite.load("droid_panda:cube_in_bowl", overrides), ()).to_json()
    policy = {"name": name, "step": 5, "sampler": {"steps": 10, "noise": 1.0}}
    result = {
        **an_evaluation(successes, trials),
        "schema": 3,
        "suite": facts,
        "policy": policy,
        "open_loop": 8,
    }
    (folder / name).write_text(json.dumps({**result, **changes}))


def test_compare_refuses_another_criterion_and_names_other_conditions(run, folder):
    whole_evaluation(folder, "a", 3, 5)
    whole_evaluation(folder, "b", 3, 5, "success.dwell_seconds=0.05")
    assert run("compare a b") == (
        2,
        "",
        "error: a and b: what is measured differs: success.dwell_seconds: 0.5 and 0.05; success rates of "
        "different tasks are neither compared nor pooled\n",
    )
    mean = {"name": "mean", "step": 5, "sampler": {"steps": 10, "noise": 0.0}}
    lights = [f"cameras.exterior.{key}=64" for key in ("width", "height", "fovy")]
    whole_evaluation(folder, "c", 4, 5, *lights, "variation.light=0.5", policy=mean, open_loop=16)
    status, out, _ = run("compare a c")
    assert (status, out.splitlines()[-1]) == (
        0,
        "  conditions differ (A and B): variation.light: 0.0 and 0.5; cameras.exterior.fovy: 38.0 and 64.0; "
        "cameras.exterior.width: 96 and 64; cameras.exterior.height: 96 and 64; sampler.noise: 1.0 and 0.0; "
        "and 1 more",
    )
    assert len(json.loads(run("compare a c --json")[1])["differences"][0]["conditions"]) == 6


def test_eval_against_another_criterion_is_refused_before_anything_runs(run, folder):
    whole_evaluation(folder, "a", 3, 5)
    rest = "--suite droid_panda:cube_in_bowl --against a -o b"
    assert run(f"eval nowhere success.dwell_seconds=0.05 {rest}")[::2] == (
        2,
        "error: a and this evaluation: what is measured differs: success.dwell_seconds: 0.5 and 0.05; "
        "success rates of different tasks are neither compared nor pooled\n",
    )
    assert run(f"eval nowhere {rest}")[2] == "error: nowhere: no such folder\n"


def test_compare_says_once_what_old_records_do_not_say(run, folder):
    whole_evaluation(folder, "a", 3, 5)
    for name in "bc":
        suite = {"name": "droid_panda", "version": 4, "seed": 20264, "robot": "panda"}
        (folder / name).write_text(json.dumps({**an_evaluation(4, 5), "suite": suite}))
    status, out, _ = run("compare a b c")
    assert (status, out.count("note: ")) == (0, 1)
    assert out.splitlines()[-1].startswith("note: B, C do not say the whole criterion, objects, servos, came")


STOPPED = {"reason": "decided: the earlier one is better (from episode 3 on)", "episodes": 3, "of": 7}


def test_compare_pairs_a_stopped_record_on_the_common_rows_and_says_so(run, folder):
    whole_evaluation(folder, "a", 5, 7)
    whole_evaluation(folder, "b", 1, 3, stopped=STOPPED)
    status, out, _ = run("compare a b")
    assert status == 0
    assert f"B was stopped after 3 of 7 episodes: {STOPPED['reason']}" in out.splitlines()
    assert "; same initial states: both 1, only A 2, only B 0, neither 0;" in out
    assert out.splitlines()[-1] == (
        "  over the 3 episodes that both have, because one was stopped early; after an early stop the "
        "interval is biased towards the decision"
    )


def test_eval_says_the_decision_of_an_early_stop_and_no_interval(folder, capsys):
    from morph_vla.cli import eval as command

    for name, successes, trials, more in (("a", 5, 7, {}), ("b", 1, 3, {"stopped": STOPPED})):
        whole_evaluation(folder, name, successes, trials, **more)
    against, record = (read(folder / name) for name in "ab")
    arguments = argparse.Namespace(output=folder / "b", against=folder / "a", json=False)
    command.show(record, arguments, against)
    assert capsys.readouterr().out.splitlines() == [
        f"b: stopped after 3 of 7 episodes: {STOPPED['reason']}",
        "1 of 3 succeeded so far; after an early stop the decision counts, not the rate",
        str(folder / "b/record.json"),
        "the same command without --stop-when-decided runs the rest",
    ]
    arguments.json = True
    command.show(record, arguments, against)
    assert json.loads(capsys.readouterr().out)["stopped"] == STOPPED
    arguments.json = False
    command.show(dataclasses.replace(record, stopped=None), arguments, against)
    out = capsys.readouterr().out
    assert out.startswith("b: 1 of 3 succeeded, 33.3% [")
    assert "95% interval [" in out


def test_compare_refuses_other_suites_and_one_record(run, folder):
    (folder / "a").write_text(json.dumps(an_evaluation(3, 5)))
    other = an_evaluation(3, 5)
    other["suite"]["version"] = 2
    (folder / "b").write_text(json.dumps(other))
    assert run("compare a b")[2] == (
        "error: a and b: the versions of the suite differ: 1 and 2; success rates of different tasks are "
        "neither compared nor pooled\n"
    )
    assert run("compare a")[2] == "error: compare takes 2 to 26 evaluations, got 1\n"
    assert run("compare a a a --sequential")[2] == "error: --sequential takes two evaluations, got 3\n"
    sentence = "error: --sequential draws no picture: --plot would change nothing; leave it out\n"
    assert run("compare a b --sequential --plot x.svg")[2] == sentence


def test_compare_decides_while_evaluations_run(run, folder):
    for name, episodes in (("a", 19), ("b", 23)):
        (folder / name).mkdir()
        trials = an_evaluation(0 if name == "a" else 23, episodes)["trials"]
        lines = [{"evaluation": "x", "record": {"rows": [0, 53]}}, *trials]
        (folder / name / "trials.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    status, out, _ = run("compare a b --sequential")
    assert status == 0
    assert out.splitlines() == [
        "decided: B (b) is better (from episode 11 on; the chance of a wrong decision is at most 5%, however "
        "often one looks)",
        "19 episodes in the table's order: both 0, only A 0, only B 19, neither 0",
    ]
    answer = json.loads(run("compare a b --sequential --json")[1])
    assert (answer["decision"], answer["of"], answer["tasks"]) == ("b", 53, {})
    assert run("compare a a --sequential --margin 40")[1].startswith("no difference of 40 points can be exp")
    for margin in ("0", "200"):
        status, _, err = run(f"compare a b --sequential --margin {margin}")
        assert (status, err) == (2, f"error: --margin must be between 0 and 100 points, got {margin}\n")


def test_merge_makes_one_record_of_two_halves(run, folder):
    whole = an_evaluation(7, 13)
    for name, rows in (("a", slice(0, 7)), ("b", slice(5, 13))):
        (folder / name).mkdir()
        (folder / name / "record.json").write_text(json.dumps(whole | {"trials": whole["trials"][rows]}))
    status, out, _ = run("merge b a -o c")
    assert status == 0
    assert out.splitlines() == [
        "trained: 7 of 13 succeeded, 53.8% [29.1, 76.8] (95% Wilson), median 2.5 s to success",
        "note: b, a do not say the whole criterion, objects, servos, cameras and sampler (written before "
        "schema 3): whether these are the same is unknown",
        "c/record.json, from 2 parts, with 0 videos",
    ]
    written = json.loads((folder / "c/record.json").read_text())["trials"]
    assert [{key: trial[key] for key in whole["trials"][0]} for trial in written] == whole["trials"]
    assert run("merge a b -o c")[2] == (
        "error: c/record.json exists already; choose a folder without a record\n"
    )
    assert run("merge a a -o d")[2] == "error: one part is given twice\n"
    (folder / "e").mkdir()
    (folder / "e/trials.jsonl").write_text("")
    assert run("merge a b -o e")[2] == "error: e holds an evaluation of its own; choose another folder\n"
    (folder / "b/record.json").write_text(json.dumps(whole | {"open_loop": 4}))
    assert "open_loop: none in a, 4 in b" in run("merge a b -o d")[2]
    assert not (folder / "d").exists()


def test_compare_says_why_episodes_are_not_paired(run, folder):
    for name, trials in (("a", 5), ("b", 7)):
        (folder / name).write_text(json.dumps(an_evaluation(3, trials)))
    assert (
        run("compare a b")[1]
        .splitlines()[-3]
        .endswith("(Newcombe 1998, method 10); not paired: the episodes differ: 0 only in a, 2 only in b")
    )
    (folder / "a").write_text(json.dumps(an_evaluation(0, 0)))
    out = run("compare a b")[1].splitlines()
    assert out[-1] == "B - A: not compared: one of the two has no trials"
    assert "not measured" in out[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "no such folder or file: it; a record is written by `morph-vla eval` and `morph-vla demo`"),
        ("{", "it:1: not JSON: Expecting property name enclosed in double quotes"),
        ("[]", "it: not a record: expected kind 'evaluation' or 'demo'"),
        ('{"schema": 1, "kind": "demo"}', "it: the demo's record holds no evaluation yet"),
        (
            b"\xff",
            "it: cannot be read: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte",
        ),
    ],
)
def test_the_words_for_what_is_no_record(run, folder, text, sentence):
    if text is not None:
        (folder / "it").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert run("compare it it") == (2, "", f"error: {sentence}\n")


def test_a_folder_without_a_record(run, folder):
    (folder / "empty").mkdir()
    status, _, err = run("report empty")
    assert status == 2
    assert err == (
        "error: empty holds no record.json; a record is written by `morph-vla eval` and `morph-vla demo`\n"
    )


def test_a_demo_is_compared_by_its_last_evaluation(folder):
    demo = {"schema": 1, "kind": "demo", "evaluations": [an_evaluation(1, 3), an_evaluation(2, 3, "after")]}
    (folder / "record.json").write_text(json.dumps(demo))
    assert read(folder).policy.name == "after"


def test_report_writes_one_page_and_prints_its_path(run, folder):
    pytest.importorskip("morph_vla.report")
    (folder / "record.json").write_text(json.dumps(an_evaluation(5, 7)))
    status, out, err = run(f"report {folder}")
    assert (status, err) == (0, "")
    assert out == f"{folder / 'report.html'}\n"
    assert "<html" in (folder / "report.html").read_text()
    answer = json.loads(run(f"report {folder} --json")[1])
    assert answer["report"] == str(folder / "report.html")
    assert answer["evaluations"][0]["summary"]["successes"] == 5


@pytest.mark.parametrize("place", ["record.json", "page", "pages.html"])
def test_a_page_never_replaces_a_record_and_is_no_folder(run, folder, place):
    (folder / "pages.html").mkdir()
    (folder / "record.json").write_text(json.dumps(an_evaluation(5, 7)))
    before = (folder / "record.json").read_bytes()
    status, _, err = run(f"report {folder} -o {folder / place}")
    assert (status, err) == (2, f"error: -o {folder / place}: a page is a file NAME.html\n")
    assert (folder / "record.json").read_bytes() == before


def test_report_makes_one_page_of_several_records(run, folder):
    for name, successes in (("a", 3), ("b", 11)):
        (folder / name).mkdir()
        (folder / name / "record.json").write_text(json.dumps(an_evaluation(successes, 13, name)))
    assert run("report a b -o both.html") == (0, "both.html\n", "")
    page = (folder / "both.html").read_text()
    assert "b minus a: +61.5 percentage points" in page
    assert not (folder / "a/report.html").exists()
    answer = json.loads(run("report a b -o both.html --json")[1])
    assert [row["label"] for row in answer["evaluations"]] == ["a", "b"]
    assert [(row["a"], row["b"]) for row in answer["differences"]] == [("a", "b")]
    assert answer["differences"][0]["paired"]["only_b"] == 8


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--episodes 0", "--episodes must be at least 1, not 0"),
        ("--episodes 7:7", "--episodes 7:7 is empty: A:B begins with A and ends before B"),
        ("--episodes half", "--episodes expects a number or A:B, for example 150:300, not 'half'"),
        ("--episodes ²", "--episodes expects a number or A:B, for example 150:300, not '²'"),
        ("--episodes 99999999999", "--episodes 99999999999: no more than 1,000,000 rows are drawn"),
        ("--episodes 5:1000001", "--episodes 5:1000001: no more than 1,000,000 rows are drawn"),
        ("--episodes 1:2:3", "--episodes expects a number or A:B, for example 150:300, not '1:2:3'"),
        (
            "--stop-when-decided",
            "--stop-when-decided needs --against RECORD, the evaluation to compare with",
        ),
    ],
)
def test_eval_says_which_rows_it_takes_and_what_it_stops_against(run, words, sentence):
    assert run(f"eval there --suite droid_panda -o out {words}") == (2, "", f"error: {sentence}\n")
