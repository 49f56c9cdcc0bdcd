"""docs/python.md: its blocks run one after the other; the library's names are there, and typed."""

import ast
import importlib
import re
import shutil

import pytest

import morph_vla
from morph_vla.results.record import PolicyCard


@pytest.fixture(scope="module")
def page(root) -> str:
    return (root / "docs/python.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.gl
def test_its_blocks_run_one_after_the_other(page, folder, tiny_dataset, capsys):
    """In one namespace, as in a notebook. The demonstrations are there already, which recording finds."""
    shutil.copytree(tiny_dataset, folder / "demos")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 9
    namespace: dict = {"__name__": "__main__"}
    for number, code in enumerate(blocks):
        exec(compile(code, f"docs/python.md, block {number + 1}", "exec"), namespace)
    out = capsys.readouterr().out.splitlines()
    assert out[-1] == "eval/trained/report.html"
    assert [step for step, _ in namespace["losses"].lines] == [2, 4]
    assert namespace["squares"].shape == (1, 4, 16, 8)
    assert int(namespace["train_state"].step) == 2
    record, still = namespace["record"], namespace["still"]
    assert record.policy.checkpoint == "run/checkpoints/4"
    assert record.command.startswith("morph-vla eval run/checkpoints/4 --suite droid_panda:cube_in_bowl ")
    assert still.policy == PolicyCard(name="still")
    assert still.command == ""
    pairs = namespace["difference"].paired
    assert pairs.both + pairs.only_a + pairs.only_b + pairs.neither == 2
    assert (folder / "eval/trained/report.html").is_file()
    assert (folder / "eval/trained/record.json").is_file()


def test_its_table_names_what_is_there(page):
    named = set(re.findall(r"^\| `(\w+)\(", page, re.MULTILINE))
    functions = {name for name in morph_vla.__all__ if name.islower() and not name.startswith("_")}
    assert named == functions
    assert all(callable(getattr(morph_vla, name)) for name in functions)


def test_names_are_imported_from_where_their_types_are_declared(root):
    """What a type checker sees (TYPE_CHECKING) is what `__getattr__` gives."""
    tree = ast.parse((root / "morph_vla/__init__.py").read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {"__version__", *declared} == set(morph_vla.__all__)
    for name, (module, own) in declared.items():
        assert getattr(morph_vla, name) is getattr(importlib.import_module(module or ""), own)
    assert (root / "morph_vla/py.typed").is_file()
