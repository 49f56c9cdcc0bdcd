"""The table episode -> initial state of every suite shipped: the same for good, whatever reads it."""

import pytest

from morph_vla import robots
from morph_vla.suites import suite

# Of the first 300 rows. A change here makes published numbers incomparable: it raises the suite's `version`.
# `python tests/suites/test_tables.py` prints them as they are now.
GOLDEN = {
    "droid_panda:cube_in_bowl": "377c784a85ea16ca1d83440678bd201229b20f325e47fd210b392f8a590a6651",
    "droid_panda:can_in_mug": "6f5443d1528347c3f06b130a55035cdafbaa5ffb314af608c47001b64de46646",
    "droid_panda:banana_in_bin": "157f87a4b98e9e292e5c49502c85f0056c0caccec749e5ac38d28afe5aa091e0",
    "so101_pick_orange": "94db2baed84dd6d6fd9e2f9a291a456faa1838e14b3ae4ba675f898bf6c2a04e",
    "g1_dex1_red_block": "9a09e15171802598cf7c9078deaa68ee087d2559d758a5b9d48266d6248c8130",
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
