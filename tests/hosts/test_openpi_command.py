"""`python -m morph_vla.hosts.openpi` where there is no openpi: its words, and its recipes as data."""

import shlex
import subprocess
import sys
from typing import Any

import pytest

from morph_vla import robots
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.hosts.openpi import __main__ as command
from morph_vla.hosts.openpi import recipes

FULL_ACTIONS = 32
NAMES = ["pi05_morph_debug", "pi05_morph_droid", "pi05_morph_g1", "pi05_morph_so101"]


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_fits_its_robot_and_the_model(name):
    recipe = recipes.load(name)
    joints = len(robots.load(recipe.robot).joints)
    recipe.morphology.check(recipe.horizon, FULL_ACTIONS)
    assert joints <= recipe.morphology.max_joints
    assert 0 < recipe.grippers < joints
    assert len(set(filter(None, recipe.cameras))) == len([name for name in recipe.cameras if name])
    assert (recipe.data == "lerobot") == any(recipe.cameras)


def test_names_are_listed_with_what_they_are_for(capsys):
    assert command.main(["list"]) == 0
    listed = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _ in listed] == NAMES
    assert listed[0][1].startswith("Panda, a small model from random weights")


def test_a_reader_that_has_seen_enough_is_no_error():
    line = f"{shlex.quote(sys.executable)} -m morph_vla.hosts.openpi list | true; exit ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_an_editor_leaves_is_no_configuration(folder, capsys):
    place = folder / "configs" / "openpi"
    (place / "a_folder.yaml").mkdir(parents=True)
    (place / ".#mine.yaml").symlink_to("nobody@nowhere.1")
    (place / "._mine.yaml").write_bytes(b"\x00\x05\x16\x07\xff")
    assert command.main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES


@pytest.mark.parametrize("key", ["horizon", "steps", "batch", "grippers"])
def test_numbers_that_train_nothing_are_refused(key):
    least = 0 if key == "grippers" else 1
    numbers: dict[str, Any] = {key: least - 1}
    with pytest.raises(ConfigError, match=f"^{key}: expected at least {least}, got {least - 1}$"):
        recipes.Recipe("so101", "fake", **numbers)


def test_a_file_dropped_in_is_a_configuration(folder):
    place = folder / "configs" / "openpi"
    place.mkdir(parents=True)
    (place / "mine.yaml").write_text("robot: so101\ndata: lerobot\ncameras: [front, null, null]\n")
    (place / "pi05_morph_g1.yaml").write_text("robot: g1_dex1\ndata: lerobot\ngripper: 2\n")
    assert sorted(recipes.available()) == sorted([*NAMES, "mine"])
    assert recipes.load("mine") == recipes.Recipe("so101", "lerobot", cameras=("front", None, None))
    with pytest.raises(ConfigError, match=r"cameras: name at least one of the dataset's for openpi's three"):
        recipes.Recipe("so101", "lerobot")
    with pytest.raises(ConfigError, match=r"yaml:3: gripper: no such key; did you mean 'grippers'\?$"):
        recipes.load("pi05_morph_g1")  # the current folder's comes before the one that is shipped


def test_a_wrong_name_names_the_nearest():
    with pytest.raises(
        MorphVlaError, match=r"^no configuration 'pi05_morph_drod'; did you mean 'pi05_morph_droid'\?"
    ):
        recipes.check_name("pi05_morph_drod", NAMES)
    recipes.check_name("pi05_morph_g1", NAMES)


def test_a_wrong_verb_names_the_nearest(capsys):
    assert command.main(["trian"]) == 2
    assert capsys.readouterr().err == (
        "error: no verb 'trian'; did you mean 'train'? (train, serve, norm-stats, list)\n"
    )


@pytest.mark.parametrize("words", [["train", "pi05_morph_debug"], ["serve"], ["norm-stats"]])
def test_without_openpi_one_sentence_says_how_to_get_it(words, capsys, monkeypatch):
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: None)
    assert command.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "error: openpi cannot be imported: check out github.com/Physical-Intelligence/openpi"
    )
    assert error.count("\n") == 1
    assert "PYTHONPATH" in error


def test_the_empty_package_of_that_name_is_no_openpi(monkeypatch):
    def find_spec(name):
        raise ModuleNotFoundError("No module named 'openpi.training'", name="openpi.training")

    monkeypatch.setattr(command.importlib.util, "find_spec", find_spec)
    with pytest.raises(MorphVlaError, match=r"^openpi cannot be imported"):
        command.find_scripts()


def test_an_installed_copy_has_no_scripts(tmp_path, monkeypatch):
    from types import SimpleNamespace

    origin = str(tmp_path / "site" / "openpi" / "training" / "config.py")
    monkeypatch.setattr(command.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=origin))
    with pytest.raises(MorphVlaError, match=r"^openpi's scripts are not at .*scripts; use a checkout"):
        command.find_scripts()


def test_help_names_every_verb(capsys):
    for words in ([], ["--help"]):
        assert command.main(words) == 0
        usage = capsys.readouterr().out
        assert all(f"\n  {verb} " in usage for verb in [*command.SCRIPTS, "list"])


@pytest.mark.parametrize("words", [["--data.repo-id", "me/mine"], ["--data.repo_id=me/mine"]])
def test_a_dataset_is_named_to_scripts_that_have_no_such_option(words):
    """Its statistics are found by its name; everything else is openpi's to read."""
    others = ["--config-name", "a", "--max-frames", "3"]
    assert command.dataset_of([*others[:2], *words, *others[2:]]) == ("me/mine", others)
    assert command.dataset_of(others) == ("", others)
    with pytest.raises(MorphVlaError, match=r"^--data.repo-id expects a dataset's name, such as me/mine$"):
        command.dataset_of([*others, "--data.repo-id"])


@pytest.mark.parametrize(
    "word",
    [
        "--model.morphology.bias", "--model.morphology.no_film", "--data.robot=so101", "--data.grippers",
        "--model.discrete-state-input", "--model.no-discrete-state-input", "--model.no_discrete_state_input",
        "--model.max-token-len=48", "--data.assets.asset-id",
    ],
)  # fmt: skip
def test_a_training_is_not_told_what_serving_would_not_know(word):
    """A body changes no parameter's shape: the wrong one would be served without a word."""
    option = word.partition("=")[0]
    sentence = f"^{option}: serve would not know of it and answer as pi05_morph_droid's file says; copy that"
    with pytest.raises(MorphVlaError, match=sentence):
        command.check_options("pi05_morph_droid", ["--exp-name", "first", word, "full"])
    command.check_options("pi05_morph_droid", ["--data.repo-id", "me/mine", "--batch-size", "8"])


def test_statistics_that_a_training_would_not_read_are_not_computed(monkeypatch, tmp_path, capsys):
    (tmp_path / "compute_norm_stats.py").touch()
    monkeypatch.setattr(command, "find_scripts", lambda: tmp_path)
    assert command.main(["norm-stats", "--config-name", "pi05_morph_droid"]) == 2
    assert capsys.readouterr().err.startswith(
        "error: pi05_morph_droid: its statistics are those of gs://openpi-assets/checkpoints/pi05_base/"
        "assets, and a training would not read others; train right away, or name data: lerobot"
    )


def test_fake_data_have_no_dataset():
    with pytest.raises(ConfigError, match=r"^repo_id: has no effect with data: fake; leave it out$"):
        recipes.Recipe("panda", "fake", repo_id="me/mine")


@pytest.mark.parametrize(
    ("verb", "words", "name"),
    [
        ("train", ["a", "--exp-name", "b"], "a"),
        ("train", ["--help"], None),
        ("serve", ["policy:checkpoint", "--policy.config", "a"], "a"),
        ("serve", ["policy:checkpoint", "--policy.config=a"], "a"),
        ("serve", ["--env", "DROID"], None),
        ("norm-stats", ["--config-name", "a"], "a"),
    ],
)
def test_the_configuration_in_the_words(verb, words, name):
    assert command.config_name(verb, words) == name
