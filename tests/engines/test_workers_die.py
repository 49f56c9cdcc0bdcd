"""A simulation worker that dies costs only its episodes: begun anew once, then errors with the reason."""

import multiprocessing
import os
import signal
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.engines import by_name, workers
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.rollout import Settings, evaluate


class Killer:
    """Holds the arm still and kills a worker at the calls whose numbers it was given."""

    def __init__(self, *calls: int):
        panda = robots.load("panda")
        self.rest = panda.to_dataset(panda.rest).astype(np.float32)
        self.calls, self.asked = calls, 0

    def infer_batch(self, observations):
        self.asked += 1
        if self.asked in self.calls:
            workers = sorted(multiprocessing.active_children(), key=lambda child: child.pid or 0)
            victim = workers[0]
            assert victim.pid is not None
            os.kill(victim.pid, signal.SIGKILL)
            victim.join()
        return [{"actions": np.tile(self.rest, (8, 1))} for _ in observations]

    def infer(self, observation):
        return self.infer_batch([observation])[0]


def run(suite, policy, episodes=4, **settings) -> dict[str, Any]:
    """The record as it is written."""
    return evaluate(suite, policy, Settings(episodes, videos=0, **settings)).to_json()


@pytest.fixture(scope="module")
def unharmed(tiny_suite):
    return run(tiny_suite, Killer(), parallel=4, workers=2)


def bare(trials):
    return [{**trial, "begun_anew": False} for trial in trials]


@pytest.mark.slow
def test_the_episodes_of_a_dead_worker_are_begun_anew(tiny_suite, unharmed):
    record = run(tiny_suite, Killer(3), parallel=4, workers=2)
    assert bare(record["trials"]) == unharmed["trials"]
    anew = [trial["episode"] for trial in record["trials"] if trial["begun_anew"]]
    assert anew in ([0, 3], [1, 2])  # slots 0, 3 begin first; slot s lives in worker s % 2
    assert record["notes"] == [
        "a simulation worker died (exit code -9); this happens when memory runs out: try fewer parallel "
        f"environments; restarted in another worker: episodes {anew[0]}, {anew[1]}"
    ]
    assert unharmed["notes"] == []


@pytest.mark.slow
def test_a_worker_that_dies_again_leaves_errors_and_the_evaluation_goes_on(tiny_suite):
    class Twice(Killer):
        """Kills the worker whenever it is asked for episode 0's third chunk."""

        def infer_batch(self, observations):
            if any((seen["episode"], seen["step"]) == (0, 16) for seen in observations):
                self.calls = (self.asked + 1,)
            return super().infer_batch(observations)

    record = run(tiny_suite, Twice(), parallel=1, workers=1, episodes=1)
    assert record["trials"][0]["ended"] == "error"
    assert record["trials"][0]["error"].startswith("simulation: a simulation worker died (exit code -9)")
    assert record["trials"][0]["begun_anew"]
    assert record["summary"]["errors"] == record["summary"]["trials"] == 1


@pytest.mark.slow
def test_no_worker_left_ends_it_in_one_sentence(tiny_suite):
    with pytest.raises(
        MorphVlaError,
        match=r"^every simulation worker died twice; 2 episodes are left, finished ones are kept, and the "
        r"same command goes on; this happens when memory runs out: try fewer parallel environments$",
    ):
        run(tiny_suite, Killer(1, 2), parallel=1, workers=1, episodes=3)


UNGUARDED = """
import morph_vla

class Still:
    def infer(self, observation):
        return {"actions": observation["state"][None]}

morph_vla.evaluate(Still(), morph_vla.load_suite("droid_panda:cube_in_bowl"), episodes=1, videos=0)
"""


@pytest.mark.slow
def test_a_script_without_the_guard_is_told_of_it(tmp_path):
    """In the words of the child that imported it, then of the script: neither blames memory."""
    (tmp_path / "script.py").write_text(UNGUARDED)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    raised = "morph_vla.errors.MorphVlaError: "
    guard = (
        "a new process imports the program that started it, so a script evaluates below "
        '`if __name__ == "__main__":`'
    )
    assert [line for line in done.stderr.splitlines() if line.startswith(raised)] == [
        f"{raised}an evaluation began in a simulation worker: {guard}",
        f"{raised}a simulation worker ended before it was ready (exit code 1); its error is above; {guard}",
    ]
    assert (done.returncode, done.stdout) == (1, "")


def test_an_evaluation_does_not_begin_in_a_process_that_imports_its_program(
    monkeypatch, tiny_suite, tmp_path
):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(
        MorphVlaError, match=r"^an evaluation began in a simulation worker: a new process imp"
    ):
        evaluate(tiny_suite, Killer(), Settings(1), folder=tmp_path)
    assert not list(tmp_path.iterdir())  # what the parent keeps there is left alone


def test_a_worker_that_is_killed_before_it_began_is_not_told_of_the_guard(monkeypatch, tiny_suite):
    def killed(self):
        start(self)
        self.process.kill()

    start = workers._Worker.start
    monkeypatch.setattr(workers._Worker, "start", killed)
    with pytest.raises(
        MorphVlaError, match=r"^a simulation worker died \(exit code -9\); this happens when mem"
    ):
        by_name.pool(tiny_suite, 1, 1, "mujoco")
