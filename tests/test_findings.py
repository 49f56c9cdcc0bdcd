"""The one kind of finding: how it is rendered and sorted, and that nothing but text depends on its words."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from morph_vla import cli, robots
from morph_vla.checks import draw_path
from morph_vla.findings import (
    SEVERITIES,
    Feature,
    Finding,
    Line,
    Severity,
    Source,
    counts,
    errors,
    in_order,
)
from morph_vla.robots import examine

HERE = Line("a.urdf", 3)


def finding(
    severity: Severity = "warning",
    where: Line | Feature | Source = HERE,
    words: tuple[str, str, str] = ("a", "b", "c"),
) -> Finding:
    return Finding("odd", severity, where, (), *words)


@pytest.mark.parametrize(
    ("where", "words", "line"),
    [
        (Line("a.urdf", 3), ("a", "b", "c"), "a.urdf:3: warning: a; b; c"),
        (Line("a.yaml"), ("a", "", "c"), "a.yaml: warning: a; c"),
        (Feature("action"), ("a", "b", "c"), "action: warning: a; b; c"),
        (Feature(), ("a", "b", "c"), "warning: a; b; c"),
        (Source("set"), ("a", "", "c"), "warning: set: a; c"),
        (Source("set", 0, 7), ("a", "", "c"), "warning: set: episode 0, frame 7: a; c"),
        (Source("set", 2), ("a\nb\x9b", "", "c"), "warning: set: episode 2: a\\nb\\x9b; c"),
    ],
)
def test_one_line_wherever_it_is(where, words, line):
    assert str(finding(where=where, words=words)) == line


def test_they_come_by_file_and_line_the_gravest_first_and_each_once():
    error, warning, note = (finding(severity) for severity in SEVERITIES)
    early, other = finding("note", Line("a.urdf", 2)), finding("error", Line("0.yaml", 1))
    again = finding("note", words=("other", "words", "here"))
    assert in_order([note, other, warning, again, error, early]) == (early, error, warning, note, other)
    whole, part = finding("note", Source("b", 0)), finding("error", Source("b", 9))
    assert in_order([whole, part]) == (part, whole)
    assert errors([note, error, warning]) == (error,)
    assert counts([note, error, note]) == {"errors": 1, "warnings": 0, "notes": 2}


# ------------------------------------------------------------------------- nothing but text depends on words


def gist(findings) -> list[tuple]:
    """What is left of findings without their words."""
    return [(result["code"], result["severity"], result["where"], result["subject"]) for result in findings]


JOINT = "<joint name='{0}' type='{1}'><parent link='a'/><child link='{0}'/>{2}</joint>\n"
ODD = (
    "<robot name='odd'>\n<link name='a'/><link name='j0'/>\n"
    + JOINT.format("j0", "revolute", "<axis xyz='{0}'/><limit lower='{1}' upper='x'/>")
    + JOINT.format("j1", "prismatic", "<limit lower='0' upper='900' effort='1' velocity='1'/>")
    + JOINT.format("j2", "revolut", "")
    + "<xacro:macro/></robot>\n"
)


@pytest.mark.parametrize(
    ("text", "side"),
    [
        (ODD, None),
        (ODD.replace("revolut'", "fixed'").replace("'x'", "'2'").replace("{0}", "0 0 2"), None),
        (ODD.replace("revolut'", "fixed'").replace("'x'", "'2'"), "joints: [j9, j1]\nrest: [1]\n"),
        (ODD.replace("revolut'", "fixed'").replace("{0}", "0 0 1").replace("'x'", "'2'"), "jonts: [1]\n"),
        ("<robot name='odd'><link name='a'/></robot>", None),
        ("<robot", None),
        ("<!DOCTYPE a><robot/>", None),
    ],
    ids=["errors", "usable", "side file", "side file's keys", "no joint", "cut", "doctype"],
)
def test_robots_check_does_the_same_in_other_words(reword, capsys, tmp_path, text, side):
    path = tmp_path / "odd.urdf"
    path.write_text(text)
    if side is not None:
        path.with_suffix(".yaml").write_text(side)

    def check() -> tuple:
        status = cli.main(["robots", "check", str(path), "--json"])
        plain = json.loads(capsys.readouterr().out)
        result = plain.pop("findings")
        try:
            robots.load(path)
            refusal = None
        except Exception as error:  # its words are others; its kind and its lines are not
            refusal = type(error), len(str(error).splitlines())
        return status, plain, gist(result), refusal, [f["found"] for f in result]

    *before, sentences = check()
    reword()
    *after, words = check()
    assert after == before
    assert sentences
    assert all(here != there for here, there in zip(sentences, words, strict=True))


def test_playing_an_episode_does_the_same_in_other_words(
    reword, capsys, tmp_path, monkeypatch, write_dataset
):
    monkeypatch.setattr(draw_path, "write", lambda *_: None)
    body = robots.load("so101")
    turn = np.linspace(0, 2 * math.pi, 61)[:, None] + np.arange(len(body.joints))
    values = (
        2.2 * np.cos(turn) * (np.arange(6) != 2)
    )  # as if radians, further than the limits; one stands still
    names = [body.side.names[j] for j in (1, 0, 2, 3, 4, 5)]
    state = np.concatenate([values, values[:, :1]], axis=1)
    state[3, 2] = np.nan
    episodes = [{"action": values, "observation.state": state}]
    root = write_dataset("v3.0", episodes, names={"action": names, "observation.state": None}, fps=15)
    line = ["robots", "check", "so101", "--episode", str(root), "--json"]

    def check() -> tuple:
        status = cli.main(line)
        plain = json.loads(capsys.readouterr().out)
        return status, gist(plain["episode"].pop("findings")), plain["episode"]

    before = check()
    assert {"names-in-another-order", "wrong-width", "control-rate"} <= {code for code, *_ in before[1]}
    reword()
    assert check() == before


def test_recipes_check_does_the_same_in_other_words(reword, write_dataset):
    from morph_vla.checks import recipe as check
    from morph_vla.recipes import recipe as config

    body = robots.load("so101")
    turn = np.linspace(0, 2 * math.pi, 31)[:, None] + np.arange(len(body.joints))
    values = 30 * np.cos(turn) * (np.arange(6) != 2)
    names = [body.side.names[j] for j in (1, 0, 2, 3, 4, 5)]
    wide = np.concatenate([values, values[:, :1]], axis=1)
    wide[3, 2] = np.nan
    right, wrong = (
        write_dataset(
            "v2.1", [{"action": action, "observation.state": wide}] * 2, names=keys, fps=15, folder=f
        )
        for f, action, keys in (("right", values, {"action": names}), ("wrong", wide, {}))
    )
    entries = ", ".join(
        f"{{dataset: {root}, robot: so101, cameras: {{base_0_rgb: front}}}}"
        for root in (right, wrong, "none")
    )
    recipe = config.load("panda_demo", [f"data={{held_out: 0.9, datasets: [{entries}]}}", "tokenizer=bytes"])
    before = check.check(recipe)
    reword()
    after = check.check(recipe)
    assert [finding.identity for finding in after.problems] == [f.identity for f in before.problems]
    assert after.datasets == before.datasets
    assert {"names-in-another-order", "action-width", "wrong-width", "dataset", "no-camera"} <= {
        finding.code for finding in before.problems
    }
    severity = {(f.code, f.where.name): f.severity for f in before.problems if isinstance(f.where, Source)}
    assert severity["names-in-another-order", str(right)] == "error"
    assert severity["wrong-width", str(wrong)] == "note"  # as an error it is said of the robot
    assert not any(before.problems[i].found == after.problems[i].found for i in range(len(before.problems)))


# ------------------------------------------------------------------------------------- read once, judged once


@pytest.mark.parametrize("side", [None, "unit: degrees\n"])
def test_a_robot_is_read_once_and_judged_once(run, tmp_path, monkeypatch, side):
    path = tmp_path / "arm.urdf"
    path.write_bytes(robots.load("so101").urdf_path.read_bytes())
    if side is not None:
        path.with_suffix(".yaml").write_text(side)
    calls = []

    def counted(name: str, called):
        def call(*arguments):
            calls.append(name)
            return called(*arguments)

        return call

    monkeypatch.setattr(examine, "read", counted("read", examine.read))
    monkeypatch.setattr(examine, "judge", counted("judge", examine.judge))
    monkeypatch.setattr(examine.typed_yaml, "read", counted("side file", examine.typed_yaml.read))
    monkeypatch.setattr(examine.side, "judge", counted("side judge", examine.side.judge))
    opened = counted("open", Path.open)
    monkeypatch.setattr(Path, "open", lambda self, mode="r": (opened if self == path else open)(self, mode))
    assert run(f"robots check {path} --joints wrist_*")[0] == 0
    expected = ["read", "open", *(["side file"] if side else []), "judge", "side judge"]
    assert sorted(calls) == sorted(expected)
    calls.clear()
    assert run(f"robots add {path} --to {tmp_path / 'mine'} --joints wrist_*")[0] == 0
    assert calls.count("judge") == calls.count("read") == 1
