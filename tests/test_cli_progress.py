"""Progress in a log and on a terminal, and what is said only in passing."""

import io
import logging

import pytest

from morph_vla.cli import progress


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
