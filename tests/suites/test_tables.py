"""The table episode -> initial state of every suite shipped: the same for good, whatever reads it."""

import pytest

from morph_vla import robots
from morph_vla.suites import suite

# Of the first 300 rows. A change here makes published numbers incomparable: it raises the suite's `version`.
GOLDEN = {
    "droid_panda:cube_in_bowl": "f68d569a0d7679d43e16b9264aeee1d9ac74d21111256e30be34e01fa03f5a63",
    "droid_panda:can_in_mug": "52d22c6dec03a692c20f3bd0b05fb126ca7d1afa5091dbd0c1a911384d93868f",
    "droid_panda:banana_in_bin": "1458f585af88378c9429d99891dc441a504b59ccac65c724088431f453798f2c",
    "so101_pick_orange": "adf4c4dc21e47cedad1aeb41eb31c0564c25129b078d8459a7b4f4bd3afaad1d",
    "g1_dex1_red_block": "46fe1c2564282a315bb5d851c82b48371e16ac7bc7ce50fd1731f0c5f855190a",
}


@pytest.fixture(params=GOLDEN)
def chosen(request):
    found = suite.load(request.param)
    return request.param, found, suite.initial_states(found, 300, len(robots.load(found.robot).joints))


def test_every_suite_shipped_is_here(root):
    shipped = [task.label for file in (root / "eval").glob("*.yaml") for task in suite.load_tasks(file)]
    assert sorted(shipped) == sorted(GOLDEN)


def test_the_table_is_the_one_that_was_published(chosen):
    name, _, table = chosen
    assert suite.fingerprint(table) == GOLDEN[name]


def test_every_suite_has_300_episodes(chosen):
    assert chosen[1].episodes == 300


def test_no_episode_begins_with_the_task_done(chosen):
    """Neither inside the target's box, nor beside it by less than the box is wide."""
    _, found, table = chosen
    goal = found.success
    for state in table:
        gap = [state.poses[goal.object][axis] - state.poses[goal.target][axis] for axis in (0, 1)]
        assert any(not goal.low[axis] <= gap[axis] <= goal.high[axis] for axis in (0, 1))
