"""Where dropped-in files are searched: the order of folders, names, and the words for what is not there."""

import os
from pathlib import Path

import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.files import dropin


def test_a_home_that_nobody_knows_is_said_and_passed_over(monkeypatch):
    with pytest.raises(
        MorphVlaError, match=r"^~nosuchuser/x: nobody knows the home folder '~nosuchuser'; write"
    ):
        dropin.find("robots", "~nosuchuser/x")
    monkeypatch.setenv("MORPH_VLA_PATH", "~nosuchuser/robots")
    assert "panda" in dropin.available("robots")


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A current directory, a project of somebody's own, and a folder of loose files."""
    for name in ("here/configs", "project/configs", "loose"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_the_first_of_a_name_wins_in_the_order_of_the_house(places, monkeypatch, root):
    for folder in ("here/configs", "project/configs", "loose"):
        (places / folder / "mine.yaml").write_text("name: x\n")
    assert dropin.search_path("recipes") == (places / "here/configs", root / "configs")
    monkeypatch.setenv("MORPH_VLA_PATH", os.pathsep.join([str(places / "project"), "/nowhere"]))
    assert dropin.available("recipes")["mine"] == places / "project/configs/mine.yaml"
    assert dropin.available("recipes", [places / "loose"])["mine"] == places / "loose/mine.yaml"
    result = dropin.search_path("recipes", [places / "loose"])
    assert result == (places / "loose", places / "project/configs", places / "here/configs", root / "configs")


def test_a_folder_is_searched_once_and_hidden_files_are_not_registered(places):
    (places / "here/configs/b.yaml").write_text("")
    (places / "here/configs/a.yaml").write_text("")
    (places / "here/configs/.#a.yaml").write_text("")
    (places / "here/configs/c.yml").write_text("")
    (places / "here/configs/d.yaml").mkdir()
    folder = places / "here/configs"
    assert dropin.search_path("recipes", [folder, folder, places / "here"])[:1] == (folder,)
    ours = [name for name, path in dropin.available("recipes").items() if path.parent == folder]
    assert ours == ["a", "b"]


def test_a_robots_side_file_is_no_suite_and_no_recipe(places):
    """`robots vary` and others put all three into one folder."""
    for name in ("arm.urdf", "arm.yaml", "other.yaml"):
        (places / "loose" / name).write_text("")
    (places / "here/configs/arm.yaml").write_text("")
    assert dropin.available("recipes", [places / "loose"])["arm"] == places / "here/configs/arm.yaml"
    assert dropin.available("suites", [places / "loose"]).keys() >= {"other"}
    assert "arm" not in dropin.available("suites", [places / "loose"])
    assert dropin.find("robots", "arm", [places / "loose"]) == places / "loose/arm.urdf"


def test_the_shipped_folders_are_found_from_anywhere(places):
    assert "panda" in dropin.available("robots")
    assert dropin.find("robots", "panda").name == "panda.urdf"


def test_a_path_to_a_file_is_as_good_as_a_name(places):
    path = places / "loose/mine.yaml"
    path.write_text("")
    assert dropin.find("recipes", str(path)) == path
    assert dropin.find("recipes", "../loose/mine.yaml") == Path("../loose/mine.yaml")


def test_an_unknown_name_is_answered_with_the_nearest(places, root):
    for name in ("demo_one", "walk"):
        (places / f"loose/{name}.yaml").write_text("")
    with pytest.raises(MorphVlaError) as caught:
        dropin.find("recipes", "demo_on", [places / "loose"])
    text = str(caught.value)
    assert text.startswith("no recipe 'demo_on'; did you mean 'demo_one'? (the recipes are ")
    assert f"; searched {places / 'loose'}, {places / 'here/configs'}, {root / 'configs'})" in text


@pytest.mark.parametrize(
    ("kind", "name", "sentence"),
    [
        ("robots", "robots/pnda.urdf", "no such file: robots/pnda.urdf; did you mean 'panda'?"),
        (
            "recipes",
            "pi05_morph_so101",
            "'pi05_morph_so101' is a configuration of openpi's trainer, no recipe of ours; see docs/hosts.md",
        ),
        ("robots", "pnda.urdf", "no such file: pnda.urdf; did you mean 'panda'?"),
        (
            "robot",
            "panda",
            "no such kind of file 'robot'; did you mean 'robots'? (robots, recipes, suites, grids)",
        ),
    ],
)
def test_the_words_for_what_is_not_there(places, kind, name, sentence):
    with pytest.raises(MorphVlaError) as caught:
        dropin.find(kind, name)
    assert str(caught.value) == sentence


def test_a_file_of_the_wrong_kind_and_a_folder_that_is_not_there(places):
    (places / "loose/notes.txt").write_text("")
    with pytest.raises(MorphVlaError, match=r"notes.txt is not a .urdf file$"):
        dropin.find("robots", str(places / "loose/notes.txt"))
    with pytest.raises(MorphVlaError, match=r"^no such folder: /nowhere/at/all$"):
        dropin.available("robots", ["/nowhere/at/all"])
