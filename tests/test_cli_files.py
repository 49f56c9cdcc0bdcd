"""`list` and `show` of recipes and suites."""

import dataclasses
import json
import shutil

import pytest

from morph_vla import cli
from morph_vla.cli import files, suites
from morph_vla.demonstrations import recording
from morph_vla.evidence.grid import Grid
from morph_vla.files import dropin, kinds, typed_yaml
from morph_vla.recipes.keys import Recipe
from morph_vla.robots.side import Side
from morph_vla.suites.suite import SuiteFile
from morph_vla.suites.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class Page:
    seed: int = 7


def test_files_are_listed_by_name_with_the_first_line_of_their_head(run, folder):
    (folder / "eval").mkdir()
    (folder / "eval/mine.yaml").write_text("# A cube in a bowl.\n# More.\nseed: 3\n")
    (folder / "eval/terse.yaml").write_text("seed: 3\n")
    rows = {row["name"]: row for row in json.loads(run("suites list --json")[1])}
    assert rows["mine"]["about"] == "A cube in a bowl."
    assert rows["terse"]["about"] == ""
    assert "mine" in run("suites list")[1]
    (folder / "configs").mkdir()
    (folder / "configs/quick.yaml").write_text("# A quick look.\n")
    assert "A quick look." in run("recipes list")[1]


def test_show_prints_the_file_and_with_overrides_what_they_lead_to(run, folder, monkeypatch):
    def load(name, overrides, folders):
        return typed_yaml.read(dropin.find("suites", name, folders), Page, overrides)

    monkeypatch.setattr(suites, "configure", lambda parser: files.configure(parser, "suites", load))
    (folder / "mine.yaml").write_text("# A cube.\nseed: 3  # prime\n")
    assert run("suites show mine.yaml") == (0, "# A cube.\nseed: 3  # prime\n", "")
    assert run("suites show mine.yaml seed=5") == (0, "seed: 5\n", "")
    assert json.loads(run("suites show mine.yaml --json")[1]) == {"seed": 3}
    status, _, err = run("suites show mine.yaml sede=5")
    assert (status, err) == (
        2,
        "error: override 'sede=5': sede: no such key; did you mean 'seed'?\n",
    )


@pytest.mark.long
@pytest.mark.slow
def test_the_shipped_suites_and_recipes_pass_their_own_checks(run):
    for kind in ("suites", "recipes"):
        rows = json.loads(run(f"{kind} list --json")[1])
        for row in rows:
            status, out, err = run(f"{kind} show {row['name']} --json")
            assert (status, err) == (0, "")
            assert json.loads(out)


@pytest.mark.parametrize(
    ("line", "path", "words"),
    [
        ("recipes show", "eval/droid_panda.yaml", "this is a suite; use `morph-vla suites show`"),
        ("suites show", "configs/panda_demo.yaml", "this is a recipe; use `morph-vla recipes show`"),
        ("evidence check", "configs/panda_demo.yaml", "this is a recipe; use `morph-vla recipes show`"),
        (
            "recipes show",
            "configs/evidence/quick.yaml",
            "this is a grid of a study; use `morph-vla evidence check`",
        ),
        (
            "suites show",
            "urdf_descriptors/panda.yaml",
            "this is a robot's side file; use `morph-vla robots show` ",
        ),
    ],
)
def test_a_file_of_another_kind_is_one_sentence(run, root, line, path, words):
    status, out, err = run(f"{line} {root / path}")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"error: {root / path}: {words}")


def test_the_keys_by_which_a_kind_is_known_are_its_own():
    schemas = dict(zip(kinds.KINDS, (Recipe, SuiteFile, Side, Grid), strict=True))
    for kind, schema in schemas.items():
        known = {field.name for field in dataclasses.fields(schema)} | {TASKS}
        assert kind.keys <= known
        assert kinds.other(known, known) is None
    assert kinds.other({"training", "sede"}, {"seed"}) is None  # one key is a slip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("robot=so10", "no robot 'so10'; did you mean 'so101'? "),
        ("expert.tool=panda_hant", "expert.tool: robot 'panda' has no link 'panda_hant'; did you mean "),
        ("cameras.wrist.link=hand", "cameras.wrist.link: robot 'panda' has no link 'hand'"),
        ("start={panda_joint9: 0}", "start: robot 'panda' moves no joint 'panda_joint9'; did you mean "),
        (
            "actuators.joints={x: {stiffness: 1, damping: 1}}",
            "actuators.joints: robot 'panda' moves no joint 'x'",
        ),
    ],
)
def test_showing_a_suite_holds_it_against_its_robot(capsys, change, words):
    assert cli.main(["suites", "show", "droid_panda", change]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_folder_that_is_searched_has_the_robots_of_its_suites_too(run, folder, root, monkeypatch):
    there = folder / "relatives"
    for place, name in (("urdf_descriptors", "panda.urdf"), ("urdf_descriptors", "panda.yaml")):
        (there / place).mkdir(parents=True, exist_ok=True)
        shutil.copy(root / place / name, there / place / name.replace("panda", "my_panda"))
    (there / "eval").mkdir()
    text = (root / "eval" / "droid_panda.yaml").read_text()
    (there / "eval" / "my_suite.yaml").write_text(text.replace("robot: panda", "robot: my_panda"))
    recorded = []

    def record(tasks, output, attempts, **_):
        recorded.append(recording.layout(tasks[0]).robot)
        return recording.Recording("my_suite", "", 1, 1, 1, 15.0, {}, {}, {})

    monkeypatch.setattr(recording, "record", record)
    status, _, err = run("record my_suite:cube_in_bowl 'cameras={}' --folder relatives -o out")
    assert (status, err) == (0, "")
    assert recorded == ["my_panda"]
    status, _, err = run("record my_suite:cube_in_bowl 'cameras={}' --folder relative -o out")
    assert (status, err) == (2, "error: no such folder: relative\n")
