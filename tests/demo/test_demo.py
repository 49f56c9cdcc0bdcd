"""The demo's stages, its record and its last screen; training and evaluation are replaced."""

import json
import shlex

import pytest
from demo_records import made_up

from morph_vla import cli, process
from morph_vla.demo import ALONE, BASE, FROM_BASE, NO_BASE, job, words
from morph_vla.demo.settings import UNTRAINED_EPISODES
from morph_vla.results.record import Record, Study
from morph_vla.wording import span


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands until it is told."""
    now = [100.0]
    monkeypatch.setattr(job.time, "monotonic", lambda: now[0])
    return now


def test_seconds_as_a_person_says_them():
    assert [span(s) for s in (0.2, 59.4, 59.6, 753, 3905)] == [
        "0 s", "59 s", "1 min 00 s", "12 min 33 s", "1 h 05 min",
    ]  # fmt: skip


def test_a_stage_is_a_line_and_looking_up_costs_no_seconds(folder, clock):
    lines: list[str] = []
    stages = job._Clock(folder, lines.append)

    def work(there):
        def run():
            clock[0] += 67
            return job.Done(7, "kept 3 of 5\nand more", there)

        return run

    assert stages.measure("record", work(False)) == 7
    stages.measure("record", work(True))
    with pytest.raises(KeyboardInterrupt):
        stages.measure("train", interrupted(clock))
    assert "\n".join(lines).splitlines() == [
        "2/6  record     kept 3 of 5  (1 min 07 s)",
        "                and more",
        "2/6  record     already there: kept 3 of 5",
        "                and more",
    ]
    assert json.loads((folder / "seconds.json").read_text()) == {"record": 67.0, "train": 5.0}
    again = job._Clock(folder, lines.append)
    again.measure("train", work(False))
    assert again.seconds["train"] == 72.0  # both parts of an interrupted stage count


def interrupted(clock):
    def run():
        clock[0] += 5
        raise KeyboardInterrupt

    return run


def evaluation(name: str, won: int, count: int, step: int) -> Record:
    return made_up(name, step, {"cube_in_bowl": won}, episodes=count, suite="droid_panda")


def test_the_last_screen_has_the_table_the_difference_and_three_commands(folder):
    before, after = evaluation("untrained", 0, 7, 0), evaluation("trained", 5, 7, 2200)
    study = Study(evaluations=(before, after), seconds_by_stage={"record": 150.0, "train": 451.0})
    page, suite = folder / "x/report.html", "droid_panda:cube_in_bowl"
    lines = "\n".join(words.lines(study, page, suite, 7)).splitlines()
    assert lines[1].split("  ")[0] == "task"
    assert " ".join(lines[2].split()) == "cube_in_bowl 0 of 7 5 of 7 71.4% [35.9, 91.8] 4.0 s"
    assert lines[4].startswith("trained - untrained: +71.4 points [")
    assert lines[5] == "10 min 01 s: record 2 min 30 s, train 7 min 31 s"
    assert str(folder / "x/report.html") in lines[7]
    commands = [line.strip() for line in lines if line.startswith("  morph-vla ")]
    assert len(commands) == 3
    assert "checkpoints/2200 --suite droid_panda:cube_in_bowl --episodes 7:14 --noise 0 -o" in commands[0]


def replace_stages(folder, monkeypatch, facts):
    """The demo's stages, done in no time."""
    records = [evaluation("untrained", 0, 7, 0), evaluation("trained", 5, 7, 2200)]
    done = {
        "_robot": (facts, ()), "_record": {"episodes": 3}, "_train": {"steps": 2200},
        "_evaluate": records, "_attention": {"attention": "attention.json"},
        "_report": folder / "x/report.html",
    }  # fmt: skip
    for name, value in done.items():
        monkeypatch.setattr(job, name, lambda *_, value=value: job.Done(value, "made"))
    monkeypatch.setattr(process, "prepare", lambda: None)
    monkeypatch.setattr(job, "require_gl", lambda: None)


@pytest.mark.parametrize("asked", ["", "--json"])
def test_the_stages_make_one_record_and_one_answer(folder, run, monkeypatch, asked):
    replace_stages(folder, monkeypatch, {"name": "panda"})
    line = "demo training.seed=3 --suite droid_panda:cube_in_bowl --episodes 7 -o x"
    status, out, err = run(f"{line} {asked}")
    assert status == 0
    lines = [line for line in (err if asked else out).splitlines() if line[1:3] == "/6"]
    assert lines == [f"{n}/6  {stage:<9}  made  (0 s)" for n, stage in enumerate(job.STAGES, start=1)]
    study = json.loads((folder / "x/record.json").read_text())
    assert study["command"] == (
        "morph-vla demo training.seed=3 --suite droid_panda:cube_in_bowl --base none --attempts 750 "
        "--episodes 7 --untrained-episodes 5"
    )
    assert study["recording"] == {"episodes": 3, "seconds": 0.0}
    assert study["pictures"] == {"joint_graph": "joint_graph.png", "attention": "attention.json"}
    assert list(study["seconds_by_stage"]) == list(job.STAGES[:-1])
    assert study.keys().isdisjoint({"base", "scratch"})
    assert study["difference"]["paired"]["only_b"] == 5
    if asked:
        assert json.loads(out) == {"folder": "x", "report": "x/report.html", "record": "x/record.json"}
    else:
        assert "trained - untrained: +71.4 points" in out


def test_another_robot_is_said_to_the_recipe_and_in_the_command(folder):
    settings = job.Settings(robot=folder / "arm.urdf", attempts=30, episodes=2)
    assert job.of_robot({"name": "arm", "joints": [{}] * 7}, settings) == ["data.robot=arm"]
    wide = ["data.robot=arm", "model.action_dim=9", "model.morphology.max_joints=9"]
    assert job.of_robot({"name": "arm", "joints": [{}] * 9}, settings) == wide
    assert settings.command.startswith(f"morph-vla demo --robot {folder}/arm.urdf --base none --attempts 30")


def test_the_commands_that_are_proposed_are_understood(folder):
    trained = evaluation("trained", 5, 7, 2200)
    commands = list(words.next_commands(folder, "droid_panda", trained, 50))
    assert commands
    for command, why in commands:
        program, name, *rest = shlex.split(command)
        assert (program, bool(why)) == ("morph-vla", True)
        cli.build_parser(name).parse_args([name, *rest])


def test_after_another_robot_the_commands_say_which(folder, run, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_PATH", str(folder))
    replace_stages(folder, monkeypatch, {"name": "arm", "joints": [{}] * 9})
    status, out, _ = run("demo --robot downloads/arm.urdf --episodes 7 -o x")
    assert status == 0
    evaluated, trained, _ = (line.strip() for line in out.splitlines() if "morph-vla " in line[:40])
    assert evaluated.startswith("MORPH_VLA_PATH=x morph-vla eval x/train/checkpoints/2200 --suite arm ")
    assert trained == (
        "MORPH_VLA_PATH=x morph-vla train panda_demo data.robot=arm model.action_dim=9"
        " model.morphology.max_joints=9 data.dataset=x/dataset model.depth=6 -o x/deeper"
    )


def test_what_it_does_where_nothing_is_asked_for(folder):
    settings = job.Settings()
    assert (settings.source, settings.size, settings.rows) == (BASE, FROM_BASE, (FROM_BASE.episodes,) * 2)
    # A suite or an arm that is named is not what the base is known to be worth on.
    for named in (
        job.Settings(suite="droid_panda"),
        job.Settings(robot=folder / "arm.urdf"),
        job.Settings(base=NO_BASE),
    ):
        assert (named.source, named.has_base, named.size) == (NO_BASE, False, ALONE)
        assert named.rows == (UNTRAINED_EPISODES, ALONE.episodes)
    assert job.Settings(robot=folder / "arm.urdf", base=BASE).source == BASE
    assert job.Settings(attempts=31).size == FROM_BASE._replace(attempts=31)
    assert job.Settings(episodes=7, base=NO_BASE).size == ALONE._replace(episodes=7)


def test_the_untrained_policy_may_meet_fewer_states(run):
    assert job.Settings(base=NO_BASE, episodes=100).rows == (UNTRAINED_EPISODES, 100)
    assert job.Settings(base=NO_BASE, episodes=100, untrained_episodes=7).rows == (7, 100)
    assert job.Settings(base=NO_BASE, episodes=3).rows == (3, 3)
    assert run("demo --attempts 9")[1:] == ("", "error: --attempts must be at least 10, not 9\n")
    assert run("demo --untrained-episodes 0")[0] == 2


def test_the_command_and_the_library_have_the_same_defaults():
    asked = cli.build_parser("demo").parse_args(["demo"])
    assert {name: getattr(asked, name) for name in vars(job.Settings())} == {
        **vars(job.Settings()),
        "overrides": [],
    }
