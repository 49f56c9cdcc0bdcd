"""A suite whose task is done before it begins: every policy succeeds there, so the checks must say so."""

from morph_vla import robots
from morph_vla.cli import main
from morph_vla.demonstrations import recording
from morph_vla.demonstrations.check import check
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.suites import suite

EVERYWHERE = ["success.low=[-2,-2,-2]", "success.high=[2,2,2]"]
TASK = "droid_panda:cube_in_bowl"


def test_an_object_that_lies_where_it_belongs_passes_no_check():
    done = check(suite.load(TASK, EVERYWHERE), 3, workers=1)
    assert (done.successes, done.failed) == (0, {"nothing to do": [0, 1, 2]})
    assert "failed at 'nothing to do': 3 (episodes 0, 1, 2)\n  the object lies where it belongs" in str(done)


def test_the_command_says_so_and_fails(capsys):
    assert main(["suites", "check", TASK, *EVERYWHERE, "--episodes", "2", "--workers", "1"]) == 1
    assert "a policy that never moves succeeds" in capsys.readouterr().out


def test_an_object_that_has_to_be_carried_is_not_called_done():
    done = check(suite.load(TASK), 2, workers=1)
    assert (done.successes, done.failed) == (2, {})
    assert "never moves" not in str(done)


def test_nothing_is_recorded_of_it():
    engine = MujocoEngine(robots.load("panda"), suite.load(TASK, ["cameras={}", *EVERYWHERE]))
    shown = recording.demonstrate(engine, 0)
    engine.close()
    assert shown.failed_clause == "nothing to do"
