"""The tables of what is said: no code without a rule, no rule that nobody says, no part that nobody fills."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import morph_vla
from morph_vla.findings import SEVERITIES
from morph_vla.robots import rules as of_robots

ROOM = Path(morph_vla.__file__).parent
SAYERS = {"finding", "_say", "problem", "remark"}


def strings(room: str) -> Iterator[tuple[str, str]]:
    """Every string of a room's files, and by which function it is said where it is a code."""
    for path in sorted((ROOM / room).glob("*.py")):
        if path.name == "rules.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value, ""
            if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in SAYERS:
                    yield str(node.args[0].value), name


def codes(room: str) -> set[str]:
    if room == "robots":
        return set(of_robots.RULES)
    rules = pytest.importorskip("morph_vla.checks.rules")
    return {*rules.RULES, *rules.REMARKS}


@pytest.mark.parametrize("room", ["robots", "checks"])
def test_rules_and_what_is_said_are_the_same(room):
    said = {code for code, sayer in strings(room) if sayer}
    assert len(said) > 20
    assert said <= codes(room)
    assert codes(room) <= {text for text, _ in strings(room)}


@pytest.mark.parametrize(("sayer", "table"), [("problem", "RULES"), ("remark", "REMARKS")])
def test_a_code_is_in_the_table_that_its_function_reads(sayer, table):
    rules = pytest.importorskip("morph_vla.checks.rules")
    said = {code for code, by in strings("checks") if by == sayer}
    assert len(said) > 10
    missing = said - set(getattr(rules, table))
    assert not missing, missing


def test_every_rule_has_a_severity_and_its_parts_read_as_one_sentence():
    for code, (severity, expected, consequence) in of_robots.RULES.items():
        assert severity in SEVERITIES, code
        assert not any(part[:1].isupper() or part.endswith(" ") for part in (expected, consequence)), code
