"""The README: its Python runs, its commands parse, its files are there, its numbers are of one run."""

import re
import shlex

import pytest

from morph_vla.cli import build_parser


@pytest.fixture(scope="module")
def readme(root) -> str:
    return (root / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.slow
def test_its_python_runs_on_a_cpu(readme, capsys):
    (code,) = blocks(readme, "python")
    assert len(code.splitlines()) < 20
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.rstrip().endswith("(1, 16, 8)")


def test_its_commands_parse(readme):
    lines = [line.split("#")[0].strip() for block in blocks(readme, "sh") for line in block.splitlines()]
    commands = [line for line in lines if line.startswith("morph-vla ")]
    assert len(commands) >= 7
    for command in commands:
        words = shlex.split(command)[1:]
        build_parser(words[0]).parse_args(words)


def test_its_recipe_is_one(readme, tmp_path):
    import yaml

    from morph_vla.files import typed_yaml
    from morph_vla.recipes.keys import Data

    (text,) = blocks(readme, "yaml")
    keys = yaml.safe_load(text)
    path = tmp_path / "data.yaml"
    path.write_text(yaml.safe_dump(keys.pop("data")))
    data = typed_yaml.read(path, Data)
    assert [source.robot for source in data.sources] == ["panda", "so101"]
    assert keys == {"weights": "pi05-base", "tokenizer": "paligemma"}


def test_its_make_targets_are_there(readme, root):
    targets = set(re.findall(r"^([a-z0-9-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    wanted = set(re.findall(r"\bmake ([a-z][a-z0-9-]*)", readme))
    assert wanted <= targets


def test_its_links_lead_to_files(readme, root):
    for link in re.findall(r"\]\((?!http)([^)#]+)\)", readme):
        assert (root / link).exists(), link


def test_its_table_is_consistent(readme):
    from morph_vla.results.statistics import wilson

    rows = re.findall(r"\| (\d+) of (\d+), ([\d.]+)% \| \[([\d.]+), ([\d.]+)\]", readme)
    assert len(rows) == 4
    for won, trials, rate, low, high in rows:
        interval = wilson(int(won), int(trials))
        assert int(trials) >= 50
        assert f"{100 * int(won) / int(trials):.1f}" == rate
        assert (f"{100 * interval.low:.1f}", f"{100 * interval.high:.1f}") == (low, high)
    *tasks, whole = ([int(row[0]), int(row[1])] for row in rows)
    assert whole == [sum(column) for column in zip(*tasks, strict=True)]
    (none, trials, low, high) = re.findall(r"\| (\d+) of (\d+) \[([\d.]+), ([\d.]+)\]", readme)[0]
    interval = wilson(int(none), int(trials))
    assert (f"{100 * interval.low:.1f}", f"{100 * interval.high:.1f}") == (low, high)
    assert float(high) < float(rows[3][3]), "the intervals overlap"
