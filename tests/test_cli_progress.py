"""Progress in a log, what is said only in passing, and the demo's lines and last screen."""

import io
import json
import logging

import pytest

from morph_vla import doctor
from morph_vla.cli import demo, demo_words, progress
from morph_vla.results.record import Record, Study, record_from_json


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is told."""
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_has_a_line_each_tenth_with_what_is_left(clock, capsys):
    with progress.Bar("recording", 70, "attempt") as bar:
        bar.at(0)
        for done in (1, 3, 7, 8, 35, 70):
            clock[0] += 10
            bar.at(done, kept=str(done))
    assert capsys.readouterr().err.splitlines() == [
        "recording  10%: 7 of 70 attempts, kept 7, 30 s, 4 min 30 s left",
        "recording  50%: 35 of 70 attempts, kept 35, 50 s, 50 s left",
        "recording 100%: 70 of 70 attempts, kept 70, 1 min 00 s",
    ]


def test_what_an_earlier_run_did_is_not_taken_for_pace(clock, capsys):
    with progress.Bar("recording", 100, "attempt") as bar:
        bar.at(59)
        clock[0] += 20
        bar.at(61)
    assert capsys.readouterr().err == "recording  61%: 61 of 100 attempts, 20 s, 6 min 30 s left\n"


def test_within_a_stage_a_bar_is_set_in_and_remarks_are_left_out(clock, capsys):
    logger = logging.getLogger("morph_vla.evaluation")
    with progress.listening():
        with progress.passing():
            logger.info("already there: %s", "it")
            logger.warning("the text is another")
            with progress.Bar("training", 10, "step") as bar:
                bar.at(10)
        logger.info("already there: %s", "that")
        logger.debug("nobody asked")
    logger.info("nobody listens")
    lines = ["warning: the text is another", "     training 100%: 10 of 10 steps, 0 s", "already there: that"]
    assert capsys.readouterr().err.splitlines() == lines


def test_tasks_have_a_bar_each_and_earlier_episodes_say_nothing_of_the_pace(clock, capsys):
    with progress.Bars("evaluating trained", "episode") as bars:
        for task in ("cube", "can"):
            bars.evaluated(task, 0, 20, 0)
            bars.evaluated(task, 12, 20, 3)  # eleven of them were there
            clock[0] += 10
            bars.evaluated(task, 14, 20, 4)
    assert capsys.readouterr().err.splitlines() == [
        f"evaluating trained, {task}  70%: 14 of 20 episodes, successes 4, 10 s, 30 s left"
        for task in ("cube", "can")
    ]


def test_training_is_one_bar_with_its_losses_and_its_pace(clock, capsys):
    from morph_vla.training.progress import Report

    def report(step, held_out, waiting, robots):
        return Report(step, 20, 0.5, held_out, 3e-4, 1.0, 32.0, robots, None, 1.0, {}, waiting)

    with progress.Bars("training", "step") as bars:
        bars.trained(report(2, None, 0.0, {"panda": 0.5}))
        clock[0] += 9
        bars.trained(report(11, 0.25, 0.13, {"panda": 0.5, "so101": 0.75}))
    assert capsys.readouterr().err == (
        "training  55%: 11 of 20 steps, loss 0.5000, lr 3.0e-04, samples/s 32, waiting for data 13%, "
        "panda 0.5000, so101 0.7500, held out 0.2500, 9 s, 9 s left\n"
    )


def test_a_terminal_has_a_bar_which_a_stage_takes_away(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    ends = []
    for stage in (False, True):
        screen = Terminal()
        monkeypatch.setattr(progress.sys, "stderr", screen)
        with progress.passing() if stage else progress.contextlib.nullcontext():
            progress.now("compiling the training step")
            with progress.Bar("training", 13, "step") as bar:
                bar.at(13, loss="0.5")
        assert "compiling the training step" in screen.getvalue()
        assert "13/13" in screen.getvalue() or stage
        ends.append(screen.getvalue()[-20:])
    assert ends[0].endswith("\n")
    assert not ends[1].endswith("\n")


def test_seconds_as_a_person_says_them():
    assert [progress.span(s) for s in (0.2, 59.4, 59.6, 753, 3905)] == [
        "0 s", "59 s", "1 min 00 s", "12 min 33 s", "1 h 05 min",
    ]  # fmt: skip


def test_a_stage_is_a_line_and_looking_up_costs_no_seconds(folder, clock):
    said: list[str] = []
    stages = demo._Clock(folder, said.append)

    def work(there):
        def run():
            clock[0] += 67
            return demo.Done(7, "kept 3 of 5\nand more", there)

        return run

    assert stages.measure("record", work(False)) == 7
    stages.measure("record", work(True))
    with pytest.raises(KeyboardInterrupt):
        stages.measure("train", interrupted(clock))
    assert "\n".join(said).splitlines() == [
        "2/6  record     kept 3 of 5  (1 min 07 s)",
        "                and more",
        "2/6  record     already there: kept 3 of 5",
        "                and more",
    ]
    assert json.loads((folder / "seconds.json").read_text()) == {"record": 67.0, "train": 5.0}
    again = demo._Clock(folder, said.append)
    again.measure("train", work(False))
    assert again.seconds["train"] == 72.0  # both parts of an interrupted stage count


def interrupted(clock):
    def run():
        clock[0] += 5
        raise KeyboardInterrupt

    return run


def evaluation(name, won, trials, step) -> Record:
    own = [
        {"episode": i, "task": "cube_in_bowl", "success": i < won, "time_s": 4.0 + i if i < won else None,
         "ended": "success" if i < won else "time", "error": None, "initial": {"cube": [0.1 * i, 0.0, 0.0]}}
        for i in range(trials)
    ]  # fmt: skip
    return record_from_json({
        "policy": {"name": name, "step": step, "sampler": {"steps": 10, "noise": 0.0}},
        "suite": {"name": "droid_panda", "version": 1, "seed": 7},
        "trials": own,
    })  # fmt: skip


def test_the_last_screen_has_the_table_the_difference_and_three_commands(folder):
    before, after = evaluation("untrained", 0, 7, 0), evaluation("trained", 5, 7, 2200)
    study = Study(evaluations=(before, after), seconds_by_stage={"record": 150.0, "train": 451.0})
    page, suite = folder / "x/report.html", "droid_panda:cube_in_bowl"
    lines = "\n".join(demo_words.lines(study, folder / "x", page, suite, 7)).splitlines()
    assert lines[1].split("  ")[0] == "task"
    assert " ".join(lines[2].split()) == "cube_in_bowl 0 of 7 5 of 7 71.4% [35.9, 91.8] 6.0 s"
    assert lines[4].startswith("trained - untrained: +71.4 points [")
    assert lines[5] == "10 min 01 s: record 2 min 30 s, train 7 min 31 s"
    assert str(folder / "x/report.html") in lines[7]
    commands = [line.strip() for line in lines if line.startswith("  morph-vla ")]
    assert len(commands) == 3
    assert "checkpoints/2200 --suite droid_panda:cube_in_bowl --episodes 7:14 --noise 0 -o" in commands[0]


@pytest.mark.parametrize("asked", ["", "--json"])
def test_the_stages_make_one_record_and_one_answer(folder, run, monkeypatch, asked):
    records = [evaluation("untrained", 0, 7, 0), evaluation("trained", 5, 7, 2200)]
    done = {
        "_robot": {"name": "panda"}, "_record": {"episodes": 3}, "_train": {"steps": 2200},
        "_evaluate": records, "_attention": {"attention": "attention.json"},
        "_report": folder / "x/report.html",
    }  # fmt: skip
    for name, value in done.items():
        monkeypatch.setattr(demo, name, lambda *_, value=value: demo.Done(value, "made"))
    monkeypatch.setattr(demo.process, "prepare", lambda: None)
    monkeypatch.setattr(doctor, "require_gl", lambda: None)
    line = "demo training.seed=3 --suite droid_panda:cube_in_bowl --episodes 7 -o x"
    status, out, err = run(f"{line} {asked}")
    assert status == 0
    lines = [line for line in (err if asked else out).splitlines() if line[1:3] == "/6"]
    assert lines == [f"{n}/6  {stage:<9}  made  (0 s)" for n, stage in enumerate(demo.STAGES, start=1)]
    study = json.loads((folder / "x/record.json").read_text())
    assert study["command"] == (
        "morph-vla demo training.seed=3 --suite droid_panda:cube_in_bowl --attempts 750 --episodes 7 "
        "--untrained-episodes 5"
    )
    assert study["recording"] == {"episodes": 3, "seconds": 0.0}
    assert study["pictures"] == {"joint_graph": "joint_graph.png", "attention": "attention.json"}
    assert list(study["seconds_by_stage"]) == list(demo.STAGES[:-1])
    assert study["difference"]["paired"]["only_b"] == 5
    if asked:
        page = str(folder / "x/report.html")
        assert json.loads(out) == {"folder": "x", "report": page, "record": "x/record.json"}
    else:
        assert "trained - untrained: +71.4 points" in out


def test_the_commands_that_are_proposed_are_understood(folder):
    import shlex

    from morph_vla import cli

    trained = evaluation("trained", 5, 7, 2200)
    for command, why in demo_words.next_commands(folder, "droid_panda", trained, 50):
        program, name, *rest = shlex.split(command)
        assert (program, bool(why)) == ("morph-vla", True)
        cli.build_parser(name).parse_args([name, *rest])


def test_the_untrained_policy_may_meet_fewer_states(folder, run, monkeypatch):
    import argparse

    monkeypatch.setattr(demo, "UNTRAINED_EPISODES", 20)
    asked = {None: 20, 7: 7}
    for given, wanted in asked.items():
        assert demo._untrained_rows(argparse.Namespace(episodes=100, untrained_episodes=given)) == wanted
    assert demo._untrained_rows(argparse.Namespace(episodes=5, untrained_episodes=None)) == 5
    assert run("demo --attempts 9")[1:] == ("", "error: --attempts must be at least 10, not 9\n")
    assert run("demo --untrained-episodes 0")[0] == 2
