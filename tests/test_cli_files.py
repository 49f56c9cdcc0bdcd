"""`list` and `show` of recipes and suites."""

import dataclasses
import json

from morph_vla.cli import files, suites
from morph_vla.files import dropin, typed_yaml


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


def test_the_shipped_suites_and_recipes_pass_their_own_checks(run):
    for kind in ("suites", "recipes"):
        rows = json.loads(run(f"{kind} list --json")[1])
        for row in rows:
            status, out, err = run(f"{kind} show {row['name']} --json")
            assert (status, err) == (0, "")
            assert json.loads(out)
