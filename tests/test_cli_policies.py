"""Which policy and which robot a command asks, in the words of its refusals."""

import json
from pathlib import Path

import pytest
from policies import known_robot

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.serving.which_robot import warn_of_joints, which_robot
from morph_vla.training.checkpoint import about


def checkpoint(folder: Path, names: list[str], statistics: str) -> Path:
    robots = {name: known_robot(statistics=statistics) for name in names}
    (folder / "about").mkdir(parents=True)
    (folder / "about/policy.json").write_text(json.dumps({"robots": robots, "step": 3}))
    return folder


@pytest.mark.parametrize("command", ["serve", "eval"])
def test_a_checkpoint_that_is_not_there(run, folder, command):
    more = "--suite droid_panda -o x" if command == "eval" else ""
    assert run(f"{command} nowhere {more}")[2] == "error: nowhere: no such folder\n"
    (folder / "empty").mkdir()
    words = "error: empty: no checkpoint here (about/policy.json is missing)"
    assert words in run(f"{command} empty {more}")[2]


@pytest.mark.slow
def test_what_a_checkpoint_says_itself_is_not_asked_for(run):
    for option in ("--recipe panda_demo", "--statistics stats.json"):
        assert run(f"eval pi05-nano --suite droid_panda -o x {option}")[2] == (
            "error: pi05-nano says itself how it was trained: --recipe and --statistics are for checkpoints "
            "of openpi and LeRobot; leave them out\n"
        )
    assert run("eval pi05-nano --suite droid_panda -o x --preset droid")[2] == (
        "error: pi05-nano says itself what it is shown: --preset is for a server, and for checkpoints of "
        "openpi and LeRobot; leave it out\n"
    )


RELATIVES = [f"panda_v_{number}" for number in range(36)]


@pytest.mark.parametrize(
    ("names", "statistics", "sentence"),
    [
        (["panda", "so101"], "own", "2 robots (panda, so101); name one of them with --robot"),
        (RELATIVES, "robot", "36 relatives of panda; name any robot by its URDF with --robot"),
        (list("abcdefgh"), "own", "8 robots (a, b, c, d, e, f and 2 more); name one of them with --robot"),
    ],
)
def test_which_robot_is_one_sentence(tmp_path, names, statistics, sentence):
    known = about(checkpoint(tmp_path / "7", names, statistics))
    with pytest.raises(MorphVlaError) as refused:
        which_robot(known, "", "there")
    assert str(refused.value) == f"there was trained on {sentence}"
    assert which_robot(known, names[1], "there") == names[1]


def test_one_robot_needs_no_name(tmp_path):
    assert which_robot(about(checkpoint(tmp_path / "7", ["panda"], "own")), "", "there") == "panda"


def test_the_shipped_base_asks_for_a_robot(run):
    assert run("serve pi05-nano")[::2] == (
        2,
        "error: pi05-nano was trained on 36 relatives of panda; name any robot by its URDF with --robot\n",
    )


@pytest.mark.parametrize(
    ("space", "name", "warns"),
    [("joints", "so101", True), ("joints", "panda", False), ("tool", "so101", False)],
)
def test_another_robot_by_mistake_is_said(caplog, space, name, warns):
    """A policy of eight joint values moves six others without a word where it may move any robot."""
    known = {"a": known_robot(statistics="robot")}
    known["a"]["joints"] = [f"j{number}" for number in range(8)]
    warn_of_joints(Path("runs/7"), known, robots.load(name), {"space": space})
    words = "runs/7 was trained on a and never on 'so101', whose 6 joints it is to move one by one"
    assert (words in caplog.text) == warns
    assert bool(caplog.text) == warns
