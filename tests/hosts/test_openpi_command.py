"""`python -m morph_vla.hosts.openpi` where there is no openpi: its words, and its recipes as data."""

import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.hosts.openpi import __main__ as command
from morph_vla.hosts.openpi import recipes

FULL_ACTIONS = 32
NAMES = [recipe.name for recipe in recipes.RECIPES]


@pytest.mark.parametrize("recipe", recipes.RECIPES, ids=lambda recipe: recipe.name)
def test_every_recipe_fits_its_robot_and_the_model(recipe):
    joints = len(robots.load(recipe.robot).joints)
    recipe.morphology.check(recipe.horizon, FULL_ACTIONS)
    assert joints <= recipe.morphology.max_joints
    assert 0 < recipe.grippers < joints
    assert len(set(filter(None, recipe.cameras))) == len([name for name in recipe.cameras if name])
    assert (recipe.data == "lerobot") == any(recipe.cameras)


def test_names_are_unique_and_listed(capsys):
    assert len(set(NAMES)) == len(NAMES)
    assert command.main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES


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
    said = capsys.readouterr().err
    assert said.startswith(
        "error: openpi cannot be imported: check out github.com/Physical-Intelligence/openpi"
    )
    assert said.count("\n") == 1
    assert "PYTHONPATH" in said


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
        said = capsys.readouterr().out
        assert all(f"\n  {verb} " in said for verb in [*command.SCRIPTS, "list"])


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
