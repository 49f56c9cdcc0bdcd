"""The table episode -> initial state of every suite shipped: the same for good, whatever reads it."""

import pytest

from morph_vla import robots
from morph_vla.suites import suite

# Of the first 300 rows. A change here makes published numbers incomparable: it raises the suite's `version`.
# `python tests/suites/test_tables.py` prints them as they are now.
GOLDEN = {
    "droid_panda:cube_in_bowl": "696b094a6d8999a66f18243fea079017989cb66f94b353e52442551137485cd4",
    "droid_panda:can_in_mug": "b9d988ba810bb8c554066c79673da90d0527e3407904388320e244ebd64ce08f",
    "droid_panda:banana_in_bin": "ef6fae94b3268df13909125e25b82b588db0ba91cf87d7ea9578f1e14e6c647d",
    "block_push": "99cf715b5254e7e2b4767f8480f03703a30b85dbe25780e12537c95459531c1c",
    "so101_pick_orange": "e042aa699d96c5341390447150ae90a5dc7b977e346ae4dce81f9214e2ce31c1",
    "g1_dex1_red_block": "f851a4d85edafa0584266fed1311576beb916c140bbf424628e3ef572077c3e6",
}


@pytest.fixture(params=GOLDEN)
def chosen(request):
    task = suite.load(request.param)
    return request.param, task, table_of(task)


def table_of(task: suite.Suite) -> tuple[suite.InitialState, ...]:
    return suite.initial_states(task, 300, len(robots.load(task.robot).joints))


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


def test_what_rests_on_a_containers_rim_is_outside(chosen):
    """The box ends below the centre of an object that lies or leans on top of the rim, whichever way."""
    task = chosen[1]
    held, target = (task.objects[name] for name in (task.success.object, task.success.target))
    rim = {"open_box": 2, "bowl": 1, "mug": 1}.get(target.shape)  # where `size` has the height
    if rim is None:
        pytest.skip("what lies on a plate's rim is on the plate")
    first, second, _ = held.size
    across = {"box": min(held.size), "cylinder": min(2 * first, second), "banana": second}  # at its thinnest
    assert task.success.high[2] < target.size[rim] + across[held.shape] / 2


if __name__ == "__main__":
    for name in GOLDEN:
        print(f'    "{name}": "{suite.fingerprint(table_of(suite.load(name)))}",')
