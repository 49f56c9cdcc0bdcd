"""An option that is none, as users of openpi and LeRobot type it; a verb's own examples."""

from pathlib import Path

import pytest

from morph_vla.cli import build_parser


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            "train x --steps 10",
            "no option --steps; a recipe's values are written without dashes: training.steps=10",
        ),
        ("train x --data.dataset=/d -o X", "a recipe's values are written without dashes: data.dataset=/d"),
        ("train x --data.datset=/d -o X", "a recipe's values are written without dashes: data.dataset=/d"),
        ("train x --num-train-steps=5 -o X", "without dashes: training.steps=5"),
        ("train x --batch_size=8 -o X", "without dashes: training.batch=8"),
        ("train x --dataset.repo_id=a/b -o X", "without dashes: data.dataset=a/b"),
        ("train x --policy.type=act -o X", "are written without dashes, for example training.steps=200"),
        ("train x --steps -o X", "without dashes: training.steps=..."),
        ("train x --output_dir X", "no option --output_dir; did you mean '--output'?"),
        ("train x --overwrit", "no option --overwrit; did you mean '--overwrite'?"),
        (
            "recipes show x --seed 3",
            "no option --seed; a recipe's values are written without dashes: training.seed=3",
        ),
        ("recipes check x --training.stpes 3", "without dashes: training.steps=3"),
        ("eval x --seed 3", "no option --seed; a suite's values are written without dashes: seed=3"),
        ("eval x --robot aloha", "no option --robot; the robot is the suite's: give a suite of aloha"),
        ("eval x --num-episodes 3", "no option --num-episodes; did you mean '--episodes'?"),
        ("record x --fps 3", "a suite's values are written without dashes, for example seed=7"),
        ("robots add x --folder y", "no option --folder; did you mean '--to'?"),
        ("robots show x --quiet", "no option --quiet (see morph-vla robots show --help)"),
    ],
)
def test_an_option_of_other_trainers_names_the_key_that_it_means(run, line, sentence):
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_changes_may_stand_behind_options(run):
    parsed = build_parser("train").parse_args(["train", "x", "a=1", "-o", "X", "seed=3"])
    assert parsed.overrides == ["a=1", "seed=3"]
    _, _, err = run("train x -o X seed=3 huh")
    assert "unrecognized arguments: seed=3 huh" in err


def test_a_run_that_goes_on_is_not_changed_without_its_recipe(run, tiny_run):
    _, _, err = run(f"train --resume -o {tiny_run.folder} training.seed=3")
    assert err == "error: name the recipe that is changed, before training.seed=3\n"


def test_a_verb_shows_its_own_examples(run):
    _, out, _ = run("robots add --help")
    examples = out.partition("examples:\n")[2].splitlines()
    assert len(examples) == 3
    assert all(line.startswith("  morph-vla robots add ") for line in examples)
    assert len(run("robots --help")[1].partition("examples:\n")[2].splitlines()) > 3


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("record x --output=~/demos", "output"),
        ("train x --output=~/demos", "output"),
        ("report ~/demos", "folders"),
        ("stats x --output=~/demos", "output"),
        ("robots add x --to=~/demos", "to"),
        ("robots draw x --output=~/demos", "output"),
        ("suites new x --output=~/demos", "output"),
        ("eval x --suite y -o z --against=~/demos", "against"),
        ("merge ~/demos -o x", "parts"),
    ],
)
def test_a_tilde_is_the_home_folder_where_the_shell_leaves_it(monkeypatch, tmp_path, line, name):
    monkeypatch.setenv("HOME", str(tmp_path))
    words = line.split()
    given = getattr(build_parser(words[0]).parse_args(words), name)
    assert given in (tmp_path / "demos", [tmp_path / "demos"])


def test_a_folder_to_search_may_be_in_the_home_folder(run, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine").mkdir()
    assert run("robots list --folder=~/mine")[0] == 0
    assert run("robots list --folder=~/none")[2] == "error: no such folder: ~/none\n"
    assert not Path("~").exists()
