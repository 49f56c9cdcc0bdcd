"""`eval`, `merge`, `compare` and `report` by the command line, on a checkpoint that was really trained."""

import json

import pytest

TINY = " ".join(f"cameras.{name}.{side}=24" for name in ("exterior", "wrist") for side in ("width", "height"))
SHORT = f"{TINY} episode_seconds=0.8 settle_seconds=0.1"
QUICK = "--suite droid_panda:cube_in_bowl --workers 1 --parallel 2 --videos 1"


@pytest.fixture
def evaluated(run, folder, tiny_run):
    """Folders `a`, rows 0 and 1 of a task, and `b`, rows 2 and 3; what the second printed."""
    begin = f"eval {tiny_run.checkpoint} {SHORT} {QUICK}"
    assert run(f"{begin} --episodes 2 -o a")[0] == 0
    status, out, _ = run(f"{begin} --episodes 2:4 -o b --against a")
    assert status == 0
    return out


@pytest.mark.slow
def test_halves_of_an_evaluation_become_one_record_and_one_page(run, folder, evaluated):
    """Two checkpoints' worth of commands, as docs/evaluation.md has them."""
    assert "B - A: +0.0 points" in evaluated
    assert "not paired: the episodes differ: 2 only in a, 2 only in b" in evaluated
    second = json.loads((folder / "b/record.json").read_text())
    assert (second["rows"], [t["episode"] for t in second["trials"]]) == ([2, 4], [2, 3])
    assert "--episodes 2:4 -o b" in second["command"]
    status, out, _ = run("merge b a -o c")
    assert (status, out.splitlines()[-1]) == (0, "c/record.json, from 2 parts, with 2 videos")
    whole = json.loads((folder / "c/record.json").read_text())
    assert [trial["episode"] for trial in whole["trials"]] == [0, 1, 2, 3]
    assert all((folder / "c" / t["video"]).is_file() for t in whole["trials"] if t["video"])
    status, out, _ = run("compare c c --sequential")
    assert out.startswith("undecided after 4 episodes of 4: B - A between ")
    assert run("report c a -o page.html") == (0, "page.html\n", "")
    assert (folder / "page.html").read_text().count("data:video/mp4") == 3


@pytest.mark.slow
def test_what_has_none_of_the_rows_cannot_be_decided_against(run, folder, tiny_run, evaluated):
    begin = f"eval {tiny_run.checkpoint} {SHORT} {QUICK} --episodes 2:4 -o d"
    status, _, err = run(f"{begin} --against a --stop-when-decided")
    assert status == 2
    assert err.splitlines()[-1] == (
        "error: the record to decide against has no episode of task 'cube_in_bowl' from row 2 on"
    )


@pytest.mark.slow
def test_another_criterion_is_never_already_there(run, folder, tiny_run):
    given, rest = f"eval {tiny_run.checkpoint} {SHORT}", f"{QUICK} --episodes 1 --videos 0 -o a"
    begin, loose = f"{given} {rest}", f"{given} success.dwell_seconds=0.1 success.max_speed=9 {rest}"
    assert run(begin)[0] == 0
    assert "already there: a/record.json" in run(begin)[2]
    status, _, err = run(loose)
    assert status == 0
    assert "already there" not in err
    assert (
        "warning: a held another evaluation (success.dwell_seconds: 0.5 there, 0.1 here; success.max_speed: "
        "0.02 there, 9.0 here); it is kept in a/earlier-1\n"
    ) in err
    record = json.loads((folder / "a/record.json").read_text())
    assert record["overrides"][-2:] == ["success.dwell_seconds=0.1", "success.max_speed=9"]
    assert record["policy"]["batch"] == 10
    assert "already there: a/record.json" in run(loose)[2]
    assert run("compare a a/earlier-1")[0] == 2


@pytest.mark.slow
def test_other_actions_an_answer_are_another_evaluation(run, folder, evaluated):
    other = json.loads((folder / "b/record.json").read_text())
    (folder / "b/record.json").write_text(json.dumps({**other, "open_loop": 3}))
    (folder / "b/trials.jsonl").unlink()
    assert run("merge a b -o c")[2] == (
        "error: a and b are not parts of one evaluation: open_loop: 8 in a, 3 in b\n"
    )


@pytest.mark.slow
def test_the_sampler_is_in_the_record_and_in_its_command(run, folder, tiny_run):
    begin = f"eval {tiny_run.checkpoint} {SHORT} {QUICK} --episodes 1 --videos 0"
    assert run(f"{begin} -o a")[0] == 0
    assert run(f"{begin} --noise 0 --sampler-steps 3 -o b")[0] == 0
    first, second = (json.loads((folder / name / "record.json").read_text()) for name in "ab")
    assert first["policy"]["sampler"] == {"steps": 10, "noise": 1.0}
    assert "--noise" not in first["command"]
    assert second["policy"]["sampler"] == {"steps": 3, "noise": 0.0}
    assert " --noise 0 --sampler-steps 3 --suite " in second["command"]


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--noise=-1", "--noise must be a finite number of at least 0, not -1"),
        ("--noise nan", "--noise must be a finite number of at least 0, not nan"),
        ("--noise inf", "--noise must be a finite number of at least 0, not inf"),
        ("--sampler-steps 0", "--sampler-steps must be at least 1, not 0"),
    ],
)
def test_a_sampler_that_cannot_be_is_refused(run, folder, option, words):
    assert run(f"eval nowhere --suite droid_panda -o a {option}")[::2] == (2, f"error: {words}\n")


@pytest.mark.parametrize("policy", ["ws://localhost:1", "lerobot:here", "expert"])
def test_a_sampler_of_a_policy_elsewhere_is_refused(run, folder, policy):
    begin = f"eval --policy {policy} --suite droid_panda -o a"
    assert run(f"{begin} --sampler-steps 3 --noise 0.5")[::2] == (
        2,
        f"error: --noise 0.5 --sampler-steps 3 has no effect on --policy {policy}: a checkpoint's sampler "
        "is set where it is loaded (here, or by `morph-vla serve`); leave it out\n",
    )
