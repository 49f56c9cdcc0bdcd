"""Relatives that are tried: drawn again where they fail, under names of their own, and never tried twice."""

import json
from pathlib import Path

import pytest

from morph_vla import robots
from morph_vla.errors import ConfigError, MissingExtraError
from morph_vla.relatives import trials, vary
from morph_vla.relatives.draft import Changes, Relative
from morph_vla.relatives.trials import Trial
from morph_vla.suites.suite import load

pytestmark = pytest.mark.slow

CHANGES = Changes(limits=((0.7, 1.0),))


def settled(refusals: int) -> tuple[list[Relative], tuple[Trial, ...]]:
    """What was tried by one who refuses so many bodies, and the trials."""
    tried: list[Relative] = []

    def attempt(relative: Relative) -> Trial:
        tried.append(relative)
        refused = "the expert fails" if len(tried) <= refusals else ""
        return Trial(relative.robot.name, relative.digest, ("stack",), 20, (), refused)

    return tried, trials.settle(robots.load("panda"), CHANGES, "panda_vary0_000", attempt)


@pytest.mark.parametrize("refusals", [0, 2])
def test_a_body_that_is_refused_is_drawn_again_and_has_a_name_of_its_own(refusals: int):
    tried, done = settled(refusals)
    assert [trial.name for trial in done] == [f"panda_vary0_000{letter}" for letter in ("", "b", "c")][
        : refusals + 1
    ]
    assert [bool(trial.refused) for trial in done] == [True] * refusals + [False]
    for relative in tried:
        assert vary.drawn(robots.load("panda"), CHANGES, relative.robot.name).digest == relative.digest
    assert len({relative.digest for relative in tried}) == len(tried)


def test_draws_end(monkeypatch):
    monkeypatch.setattr(trials, "AGAIN", ("", "b", "c"))
    _, done = settled(100)
    assert [trial.name[-1] for trial in done] == ["0", "b", "c"]
    assert str(done[-1]) == "panda_vary0_000c is not kept: the expert fails"


def test_what_this_machine_lacks_is_no_verdict_on_a_body(tmp_path: Path, monkeypatch):
    """It would be kept, and another body would get the name for good."""
    bodies = pytest.importorskip("morph_vla.demonstrations.bodies")

    def make(*_, **__):
        raise MissingExtraError("'mujoco' is not installed; install the extra 'sim'")

    monkeypatch.setattr(bodies.new_suite, "make", make)
    (relative,), _ = settled(0)
    job = bodies.Job("panda", (), CHANGES, tmp_path, ("cube_in_bowl",), 2)
    with pytest.raises(MissingExtraError, match=r"^'mujoco' is not installed; install the extra 'sim'$"):
        bodies._tried(job, relative)
    assert not [*tmp_path.glob("*.urdf")]


def test_a_relative_of_an_arm_on_the_ground_works_at_its_base(tmp_path: Path):
    """One that needs another table is drawn again, as when the grids of docs/evidence were run."""
    bodies = pytest.importorskip("morph_vla.demonstrations.bodies")
    job = bodies.Job("panda", (), vary.named_set("composition"), tmp_path, ("cube_in_bowl",), 1)
    name = "panda_composition11_001"
    ((high, level),) = bodies.settle(job, [name], 1, lambda _: None).values()
    words = "no place to work on a table: it cannot point its gripper straight down"
    assert high.refused == f"{name}: {words}"
    assert (level.name, level.refused) == (f"{name}b", "")


def test_what_was_tried_is_read_as_it_was_written(tmp_path: Path):
    assert trials.read(tmp_path) == {}
    done = {trial.name: trial for trial in settled(1)[1]}
    trials.write(tmp_path, done)
    assert trials.read(tmp_path) == done
    older = {"name": "panda_vary0_000", "digest": "d" * 64, "tasks": ["stack"], "states": 20}
    (tmp_path / trials.FILE).write_text(json.dumps({"trials": [older]}))
    assert trials.read(tmp_path)["panda_vary0_000"].camera_side == "hand"  # as all were then
    (tmp_path / trials.FILE).write_text('{"trials": [{"name": 3}]}')
    words = r"suites\.json: trials\.0\.name: .*; expected what `morph-vla robots vary --suites` writes$"
    with pytest.raises(ConfigError, match=words):
        trials.read(tmp_path)
    (tmp_path / trials.FILE).write_text("[")
    with pytest.raises(ConfigError, match=r"suites\.json: the file: "):
        trials.read(tmp_path)


def test_a_folder_of_many_trials_can_be_gone_on_with(tmp_path: Path, monkeypatch):
    many = [Trial(f"panda_vary0_{number}", "d" * 64, ("stack",), 20, (19,)) for number in range(3000)]
    trials.write(tmp_path, {trial.name: trial for trial in many})
    assert len(trials.read(tmp_path)) == 3000
    monkeypatch.setattr(trials, "MAX_BYTES", 1 << 10)
    with pytest.raises(ConfigError, match=r"suites\.json: larger than 0 MiB$"):
        trials.read(tmp_path)


def test_the_command_writes_a_suite_for_each_body_once(run, folder):
    line = "robots vary panda --set interpolation --seed 1 --suites --trials 2 --workers 1"
    status, out, _ = run(line)
    assert status == 0
    name = "panda_interpolation1_000"
    assert out.splitlines()[0].split() == ["robot", "joints", "reach", "[m]", "expert", "changes"]
    assert "2 of 2" in out
    home, suite = Path("panda_relatives"), Path(f"panda_relatives/eval/{name}.yaml")
    assert load(name, (), [home]).robot == name
    assert load(name, (), [home]).task == "put the cube in the bowl"
    (trial,) = trials.read(home).values()
    assert (trial.name, trial.tasks, trial.states, trial.successes) == (name, ("cube_in_bowl",), 2, (2,))
    kept, suite_text = suite.stat().st_mtime_ns, suite.read_bytes()
    assert run(line)[:2] == (status, out)
    assert suite.stat().st_mtime_ns == kept
    status, _, err = run(f"{line} --count 2 --trials 3")
    assert (status, suite.read_bytes()) == (2, suite_text)
    tried = f"{name} was tried with --suites cube_in_bowl --trials 2 --camera-side ahead"
    assert f"error: {home}: {tried}; choose another folder" in err
    status, _, err = run(f"{line} --camera-side hand")  # another suite for the same body
    assert (status, suite.read_bytes()) == (2, suite_text)
    assert f"error: {home}: {tried}; choose another folder" in err


def test_a_body_that_cannot_have_a_suite_is_told_and_leaves_nothing(run, folder):
    """Three joints are too few for every draw."""
    status, out, _ = run("robots vary panda --remove 4 --suites orange_on_plate --trials 1 --workers 1")
    assert status == 1
    words = "is not kept: panda_vary0_000h: 3 joints that turn carry its gripper; expected at least 4"
    assert f"panda_vary0_000h {words}" in out
    left = {path.name for path in Path("panda_relatives").iterdir()}
    assert left == {"relatives.json", "sheet.png", "suites.json", trials.LOCK}
    assert len(trials.read(Path("panda_relatives"))) == len(trials.AGAIN)
