"""Every page: its commands parse, its links and files are there, its tables name the keys that exist."""

import dataclasses
import itertools
import re
import shlex

import pytest
import yaml

from morph_vla.cli import build_parser
from morph_vla.files import typed_yaml
from morph_vla.recipes.keys import Dataset, Mesh
from morph_vla.results.record import Record
from morph_vla.robots.side import Side
from morph_vla.suites.begin import BeginShares
from morph_vla.suites.environment import EnvironmentFile, load_tasks
from morph_vla.suites.suite import ExpertSpec, SuiteFile
from morph_vla.suites.variation import Variation

FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ("docs", "configs", "eval", "urdf_descriptors", ".")


@pytest.fixture(scope="module")
def pages(root) -> dict[str, str]:
    """Path below the root -> text, of all but the changelog."""
    files = [path for folder in PAGES for path in sorted((root / folder).glob("*.md"))]
    return {
        str(path.relative_to(root)): path.read_text(encoding="utf-8")
        for path in files
        if path.name != "CHANGELOG.md"
    }


def blocks(text: str, language: str) -> list[str]:
    return [block for kind, block in FENCED.findall(text) if kind == language]


def commands(text: str) -> list[list[str]]:
    """The words after `morph-vla` of every command in the page's shell blocks."""
    shell = "".join(blocks(text, "sh") + blocks(text, "")).replace("\\\n", " ")
    lines = [line.strip() for line in shell.splitlines()]
    result = [re.search(r"(^|/|srun |')morph-vla (.*)", line) for line in lines]
    tails = [(match[2].rstrip("'") if match[1] == "'" else match[2]) for match in result if match]
    return [shlex.split(tail, comments=True) for tail in tails]


def anchors(text: str) -> set[str]:
    """What a link may name after #: GitHub's form of every heading."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def keys(text: str, head: str) -> list[str]:
    """The keys in the first column of the table whose first line begins with `head`."""
    rows = text[text.index(head) :].splitlines()[2:]
    table = itertools.takewhile(lambda row: row.startswith("|"), rows)
    return [key for row in table for key in re.findall(r"`(\w[\w.]*)`", row.split("|")[1])]


def fields(kind: type) -> list[str]:
    return sorted(field.name for field in dataclasses.fields(kind))


def test_commands_parse(pages):
    parsed = 0
    for name, text in pages.items():
        for words in commands(text):
            assert build_parser(words[0]).parse_args(words), (name, words)
            parsed += 1
    assert parsed > 50


def test_links_lead_to_pages_and_headings(pages, root):
    for name, text in pages.items():
        for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
            page, _, heading = link.partition("#")
            path = (root / name).parent / page if page else root / name
            assert path.exists(), (name, link)
            if heading:
                assert heading in anchors(path.read_text(encoding="utf-8")), (name, link)


def test_files_that_are_named_exist(pages, root):
    """A path with a folder of the checkout, or of the package, before it."""
    places = (root, root / "morph_vla")
    tops = {path.name for place in places for path in place.iterdir() if path.is_dir()}
    mine = re.compile(r"NAME|/my_")  # the reader's own
    for name, text in pages.items():
        for path in re.findall(r"`([\w.-]+/[\w/.-]+\.(?:py|sh|yaml))`", text):
            if path.split("/")[0] in tops and not mine.search(path):
                assert any((place / path).is_file() for place in places), (name, path)


def test_make_targets_are_there(pages, root):
    targets = set(re.findall(r"^([a-z0-9-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    for name, text in pages.items():
        code = "\n".join(re.findall(r"`[^`]+`|^make .*$", text, re.MULTILINE))
        assert set(re.findall(r"\bmake\s([a-z][a-z0-9-]*)", code)) <= targets, name


def test_tables_have_every_key(pages):
    robots, datasets, suites = (pages[f"docs/{page}.md"] for page in ("robots", "datasets", "suites"))
    assert sorted(keys(robots, "| key | value | default |")) == fields(Side)
    assert sorted(keys(datasets, "| key | value | default |")) == fields(Dataset)
    several, expert, begin, variation = (
        keys(suites, f"| key | {head}")
        for head in ("what it says |\n| --- | --- |\n| `version`", "what it says |\n| --- | --- |\n| `tool`",
                     "what happened", "what it draws")
    )  # fmt: skip
    assert sorted(several) == fields(SuiteFile)
    assert sorted([*expert, "kind"]) == fields(ExpertSpec)
    assert sorted(begin) == fields(BeginShares)
    assert sorted(key.removeprefix("variation.") for key in variation) == fields(Variation)
    others = keys(pages["docs/environments.md"], "| key | what it says |")
    assert sorted(others) == fields(EnvironmentFile)
    assert set(keys(pages["docs/evaluation.md"], "| key | what it says |")) <= {*fields(Record), "summary"}


def test_their_yaml_is_read(pages, tmp_path, root):
    (side,) = blocks(pages["docs/robots.md"], "yaml")
    (tmp_path / "side.yaml").write_text(side)
    assert typed_yaml.read(tmp_path / "side.yaml", Side).joints == ("arm_1", "arm_2", "jaw_left")
    (environment,) = blocks(pages["docs/environments.md"], "yaml")
    (tmp_path / "my_push.yaml").write_text(environment)
    assert load_tasks(tmp_path / "my_push.yaml")[0].label == "my_push"
    (example,) = load_tasks(root / "docs/examples/pusht.yaml")
    assert (example.label, example.max_steps) == ("pusht", 300)
    (mesh,) = blocks(pages["docs/scale.md"], "yaml")
    (tmp_path / "mesh.yaml").write_text(yaml.safe_dump(yaml.safe_load(mesh)["training"]["mesh"]))
    assert typed_yaml.read(tmp_path / "mesh.yaml", Mesh) == Mesh(fsdp=8)
