"""The page of a study: closed, balanced, escaped, its numbers those of the answer."""

import dataclasses
import json
import re
from xml.etree import ElementTree as ET

import pytest
from test_page import Page

from morph_vla.report import evidence as page
from morph_vla.results.cells import CellRecord, Judged
from morph_vla.results.evidence import Answer, conditions, contrast, judge, pooled

PLACES = [("no-a", "a"), ("no-b", "b")]


def record(condition: str, seed: int, split: str, body: str, successes: int) -> CellRecord:
    rows = "1" * successes + "0" * (50 - successes)
    events = {"touched": "1" * 50, "lifted": rows}
    seconds = [3.0 if letter == "1" else None for letter in rows]
    judged = Judged(body, f"{body}:task", False, rows, events, seconds, {"approach": [0.02] * 50})
    return CellRecord(
        split=split, condition=condition, seed=seed, settings_sha256="x", judged=(judged,), parameters=1234
    )


@pytest.fixture
def answer() -> Answer:
    records = [
        record(condition, seed, split, body, base + 2 * seed + (14 + seed if condition == "full <b>" else 0))
        for condition in ("matched", "full <b>")
        for seed in range(3)
        for (split, body), base in zip(PLACES, (10, 20), strict=True)
    ]
    asked: dict[str, int] = {"matched": 5, "full <b>": 5}
    tested = [
        contrast(records, "full <b>", "matched", PLACES, "H1"),
        contrast(records, "x", "matched", PLACES, "H2"),
    ]
    return Answer(
        title="Does a <body> help?",
        question="We ask.",
        margin=0.05,
        primary=pooled(records, PLACES, asked),
        conditions=conditions(records, asked),
        hypotheses=judge(tested, 0.05),
        exploratory=[],
        done=12,
        asked=20,
        missing=["no-a/full/3"],
        failures={"no-a/full/4": "the loss is <nan>"},
        hours=1.25,
        episodes=600,
        apart=["a body"],
        machines=["a chip"],
        versions={"jax": ["1", "2"]},
    )


def test_the_page_is_closed_balanced_and_escaped(answer, tmp_path):
    written = Page(page.write(tmp_path, answer))
    assert written.unbalanced == []
    assert written.declared == "doctype html"
    assert not any(name in attributes for _, attributes in written.tags for name in ("src", "href"))
    assert "Does a <body> help?" in written.words
    assert "<b>" not in written.source
    assert "the loss is <nan>" in written.words


def test_it_says_verdicts_bodies_and_what_was_not_run(answer, tmp_path):
    words = " ".join(Page(page.write(tmp_path, answer)).words.split())
    assert "H1: full <b> - matched: +30.0 points" in words
    assert "H2: x - matched: 0 seeds have every body; two are needed" in words
    for part in (
        "12 of 20 cells",
        "Cells that were not run: 1",
        "no-a/full/3",
        "54.0%",
        "3 of 5",
        "jax 1, 2",
    ):
        assert part in words, part


def test_the_numbers_beside_it_are_the_answers(answer, tmp_path):
    page.write(tmp_path, answer)
    numbers = json.loads((tmp_path / "evidence.json").read_text())
    assert numbers["hypotheses"][0]["verdict"] == "yes"
    assert numbers["hypotheses"][0]["estimate"]["mean"] == pytest.approx(0.3)
    assert [row["graded"]["approach"] for row in numbers["conditions"]] == [pytest.approx(0.02)] * 4
    tables = (tmp_path / "evidence.md").read_text()
    assert "| H1: full <b> − matched | +30.0 |" in tables
    assert tables.endswith("12 of 20 cells, 1.2 h, 600 episodes.\n")


def test_the_figures_for_the_docs_stand_alone(answer, tmp_path):
    page.write(tmp_path, answer)
    for name, words in (
        ("rates.svg", "full <b> 64.0%"),
        ("differences.svg", "H1: full <b> − matched +30.0 [+25.0, +35.0] yes"),
    ):
        chart = ET.fromstring((tmp_path / name).read_text(encoding="utf-8"))
        assert chart.tag == "{http://www.w3.org/2000/svg}svg"
        assert words in str(chart.attrib["aria-label"]).replace("\xa0", " ")
        style = chart.find("{http://www.w3.org/2000/svg}style")
        assert style is not None
        assert ".whisker { stroke:" in str(style.text)
        assert not re.search(r"url\((?!#)|@import", str(style.text))  # it loads nothing


def test_a_difference_that_decides_nothing_shows_no_interval_and_why(answer, tmp_path):
    alike = [
        record(condition, seed, split, body, 0)
        for condition in ("matched", "full <b>")
        for seed in range(3)
        for split, body in PLACES
    ]
    flat = contrast(alike, "full <b>", "matched", PLACES, "H1")
    early = dataclasses.replace(answer.hypotheses[0], name="H2", unfinished="so far: 3 of 5 seeds")
    open_ = dataclasses.replace(answer, hypotheses=judge([flat, early], 0.05))
    nothing, unfinished = page.contrast_table(open_).rows
    why = "undecided (nothing succeeded under either condition: no interval)"
    assert [*nothing[1:]] == ["0.0", "–", 3, "–", "1.0000", why]
    assert unfinished[-1] == "undecided (so far: 3 of 5 seeds)"
    words = " ".join(Page(page.write(tmp_path, open_)).words.split())
    assert f"H1: full <b> - matched: +0.0 points, Holm p 1.0000: {why}" in words


def test_a_study_without_hypotheses_or_cells_has_a_page_too(answer, tmp_path):
    bare = dataclasses.replace(answer, hypotheses=[], conditions=[], done=0)
    words = Page(page.write(tmp_path, bare)).words
    assert "No hypothesis is tested: everything here is exploratory." in words
