"""The script that makes the base again: its stages' journal, its command, and packing alone."""

import json
import sys

import pytest

SCRIPT = "make_base"


def test_the_command_says_what_is_not_its_default(script):
    settings = script.Settings(("training.steps=3",), bodies=2, episodes=7)
    whole = "python scripts/make_base.py -o runs/nano --base runs/nano/base"
    assert script.Settings().command == whole
    assert settings.command.split() == [
        *whole.split()[:2], "training.steps=3", *whole.split()[2:], "--bodies", "2", "--episodes", "7",
    ]  # fmt: skip


def test_a_recipe_has_a_size_of_its_own(script):
    arms = script.Settings.of("pi05_arms")
    assert (arms.name, arms.of_sets, arms.itself) == ("pi05-arms", (24, 12, 6), 400)
    whole = "python scripts/make_base.py -o runs/arms --base runs/arms/base --recipe pi05_arms"
    assert arms.command == whole
    asked = script.Settings.of("pi05_arms", ["training.steps=3"], bodies=2, itself=0, tasks=None)
    assert (asked.bodies, asked.itself, asked.tasks) == (2, 0, arms.tasks)
    assert "training.steps=3" in asked.command
    assert asked.command.endswith("--recipe pi05_arms --bodies 2 --itself 0")
    assert script.Settings.of("pi05_nano") == script.Settings()


def test_the_side_of_the_hands_camera_is_said_where_it_is_not_the_default(script):
    """`hand` is that of the shipped base's bodies."""
    settings = script.Settings(camera_side="hand")
    assert settings.command.endswith("--base runs/nano/base --camera-side hand")
    assert settings.drawn("interpolation", 3, 2)[-2:] == ["--camera-side", "hand"]
    assert "--camera-side" not in script.Settings().drawn("interpolation", 3, 2)


def test_a_stage_that_is_interrupted_keeps_its_seconds(script, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MORPH_VLA_PATH", "")
    maker, clock = script.Maker(tmp_path, script.Settings()), iter(range(0, 1000, 7))
    monkeypatch.setattr(script.time, "monotonic", lambda: float(next(clock)))

    def stopped() -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        maker.stage("train", stopped)
    assert json.loads((tmp_path / "make_base.json").read_text())["train"] == {"made": "", "seconds": 7.0}
    script.Maker(tmp_path, script.Settings()).stage("train", lambda: "3 steps")
    assert maker.kept()["train"] == {"made": "3 steps", "seconds": 14.0}
    assert "train: 3 steps" in capsys.readouterr().out


def test_a_command_that_fails_ends_it(script, monkeypatch):
    monkeypatch.setattr(script.cli, "main", lambda line: 1)
    with pytest.raises(SystemExit):
        script.run("suites", "new", "panda")
    script.run("robots", "vary", "panda", allowed=(0, 1))


def test_packing_alone_takes_any_run_and_evaluations(script, made, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MORPH_VLA_PATH", "")
    records = [
        made.evaluated(tmp_path / name, made.sha256, name, successes)
        for name, successes in (("panda", 3), ("ur5e", 2))
    ]
    words = ["-o", tmp_path / "o", "--only", "pack", "--run", made.last]
    words += [word for place in records for word in ("--records", place)]
    monkeypatch.setattr(sys, "argv", ["make_base.py", *map(str, words), "--base", str(tmp_path / "base")])
    script.main()
    assert "7 files, " in capsys.readouterr().out
    card = (tmp_path / "base" / "README.md").read_text()
    assert "| ur5e, never trained on | droid_panda v3 | can | 2 of 5 | 40.0% [11.8, 76.9] |  |" in card
    assert f"| one like it is made by | `{script.Settings().command}` |" in card
    assert "--set interpolation --seed 3 --count 36 --suites cube_in_bowl,can_in_mug,banana_in_bin" in card
    monkeypatch.setattr(sys, "argv", ["make_base.py", "-o", str(tmp_path / "o"), "--only", "pack"])
    with pytest.raises(SystemExit, match=r"^error: .*train is no checkpoint"):
        script.main()
    assert (tmp_path / "o" / "make_base.json").exists()
