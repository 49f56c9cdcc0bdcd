"""A suite whose task is done before it begins: every policy succeeds there, so the checks must say so."""

import pytest

from morph_vla.cli import main
from morph_vla.demonstrations import recording as record
from morph_vla.demonstrations.check import check
from morph_vla.errors import MorphVlaError
from morph_vla.suites import suite

EVERYWHERE = ["success.low=[-2,-2,-2]", "success.high=[2,2,2]"]
TASK = "droid_panda:cube_in_bowl"


def test_an_object_that_lies_where_it_belongs_passes_no_check():
    done = check(suite.load(TASK, EVERYWHERE), 3, workers=1)
    assert (done.successes, done.already, done.passed) == (3, [0, 1, 2], False)
    assert done.as_dict()["already_done"] == [0, 1, 2]
    assert "nothing to do: 3 (episodes 0, 1, 2); the object lies where it belongs" in str(done)


def test_the_command_says_so_and_fails(capsys):
    assert main(["suites", "check", TASK, *EVERYWHERE, "--episodes", "2", "--workers", "1"]) == 1
    assert "a policy that never moves succeeds" in capsys.readouterr().out


def test_an_object_that_has_to_be_carried_is_not_called_done():
    done = check(suite.load(TASK), 2, workers=1)
    assert (done.successes, done.already, done.passed) == (2, [], True)
    assert "nothing to do" not in str(done)


def test_nothing_is_recorded_of_it(tmp_path):
    with pytest.raises(MorphVlaError, match="nothing to do"):
        record.record(suite.load(TASK, ["cameras={}", *EVERYWHERE]), tmp_path / "data", 3, workers=1)
