"""The sections of the page that say how it was made: training, robot, suite, machine, versions, commands."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.report import rules
from morph_vla.report.lines import training_curve
from morph_vla.report.maps import joint_graph
from morph_vla.report.markup import (
    Markup,
    count,
    duration,
    el,
    facts,
    join,
    mapping,
    number,
    table,
    value_words,
)
from morph_vla.report.reading import Evaluation, data_uri, inside, media_type

PICTURE_BYTES = 3_000_000  # a larger picture would push the videos out of the page


def training(record: Mapping[str, Any]) -> Markup | None:
    """The training curve, the recipe and the parameters by part; None when the record has none of them."""
    found = mapping(record.get("training"))
    curve = found.get("curve")
    chart = training_curve(curve) if isinstance(curve, list) else None
    parts = _parameters(mapping(found.get("parameters_by_part")))
    summary = facts(
        [
            ("steps", count(found["steps"]) if "steps" in found else None),
            ("time", _time(found.get("seconds"))),
            ("parameters", _total(found)),
        ]
    )
    if chart is None and parts is None and not found:
        return None
    recipe = mapping(found.get("recipe"))
    folded = el("details", el("summary", "The recipe"), el("pre", _pretty(recipe))) if recipe else None
    figure = el("figure", chart, _curve_key(chart)) if chart else el("p", "No training curve.", class_="note")
    side = el("div", summary, parts, folded, class_="stack")
    return el("section", el("h2", "Training"), el("div", figure, side, class_="two"))


def robot(record: Mapping[str, Any], folder: Path) -> Markup | None:
    """The joint graph over the whole width, the joints below; None when the record has neither."""
    found = mapping(record.get("robot"))
    joints = [mapping(joint) for joint in found.get("joints") or [] if isinstance(joint, Mapping)]
    name = str(found.get("name") or "robot")
    view = _picture(folder, mapping(record.get("pictures")).get("joint_graph"), f"Joint graph of {name}")
    view = view or joint_graph(found)
    if view is None and not joints:
        return None
    rows = [
        (
            f"{place + 1}  {joint.get('name')}",
            joint.get("type"),
            _limit(joint, "lower"),
            _limit(joint, "upper"),
        )
        for place, joint in enumerate(joints)
    ]
    note = "Limits in radians, prismatic joints in metres."
    listed = table(rows, ("joint", "type", "lower", "upper"), "Joints") if rows else None
    graph = el(
        "figure", view, el("figcaption", f"The joint graph of {name}: joints are dots, neighbours joined.")
    )
    side = el("div", listed, el("p", note, class_="note") if rows else None, class_="narrow")
    return el(
        "section", el("h2", f"The body: {name}"), el("div", graph if view else None, side, class_="stack")
    )


def making(record: Mapping[str, Any], evaluations: Sequence[Evaluation]) -> Markup:
    """How it was made: recording, suite, machine, versions, command, time by stage."""
    recording = _recording(mapping(record.get("recording")))
    stages = _stages(mapping(record.get("seconds_by_stage")))
    machine = facts((name, value_words(value)) for name, value in mapping(record.get("machine")).items())
    versions = _versions(record, evaluations)
    suites = [mapping(json.loads(one)) for one in dict.fromkeys(json.dumps(e.suite) for e in evaluations)]
    notes = [f"{one.label}: {note}" for one in evaluations for note in _notes(one)]
    runs = facts((one.label, _run(one)) for one in evaluations)
    commands = [record.get("command"), *(one.record.get("command") for one in evaluations)]
    known = list(dict.fromkeys(value_words(command) for command in commands if command))
    boxes = [
        _box("Recording", recording if record.get("recording") else None),
        _box("Time by stage", stages),
        *(_box("What counts as a success", rules.criterion(suite)) for suite in suites if suite),
        *(_box("Suite", _suite(suite)) for suite in suites if suite),
        _box(
            "Evaluation",
            join(runs, rules.asked(evaluations), (el("p", note, class_="note") for note in notes)),
        ),
        _box("Machine", machine if record.get("machine") else None),
        _box("Versions", facts((n, value_words(v)) for n, v in versions.items()) if versions else None),
    ]
    command = _box("Command", el("pre", "\n".join(known))) if known else None
    return el("section", el("h2", "How this was made"), el("div", boxes, class_="boxes"), command)


def _recording(found: Mapping[str, Any]) -> Markup:
    """What was recorded; where it lies and a time that was never taken say nothing to a reader."""
    return facts(
        (name, _fact(name, value))
        for name, value in found.items()
        if name not in ("dataset", "folder") and not (name == "seconds" and not value)
    )


def _notes(one: Evaluation) -> list[str]:
    """What its record notes of it."""
    found = one.record.get("notes")
    return [str(note) for note in found] if isinstance(found, list) else []


def _versions(record: Mapping[str, Any], evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """Package -> its version; all of them, where the evaluations had several."""
    found: dict[str, list[str]] = {}
    for one in (record, *(evaluation.record for evaluation in evaluations)):
        for name, version in mapping(one.get("versions")).items():
            found.setdefault(str(name), []).append(value_words(version))
    return {name: ", ".join(dict.fromkeys(several)) for name, several in found.items()}


def _suite(suite: Mapping[str, Any]) -> Markup:
    """The suite's facts, then its tasks'."""
    tasks = {str(name): mapping(own) for name, own in mapping(suite.get("tasks")).items()}
    shared = facts((name, _fact(name, value)) for name, value in suite.items() if name != "tasks")
    rows = [
        (
            name,
            str(own.get("task") or ""),
            el("code", str(own.get("initial_states_sha256") or "–")[:12]),
        )
        for name, own in tasks.items()
    ]
    return join(shared, table(rows, ("task", "text", "initial states"), "Tasks") if rows else None)


def _curve_key(chart: Markup) -> Markup:
    keys = [join(el("i", class_="key k-loss"), el("span", "loss"))]
    if 'class="held' in chart:
        keys.append(join(el("i", class_="key k-held"), el("span", "held-out loss")))
    if 'class="rate"' in chart:
        keys.append(join(el("i", class_="key k-rate"), el("span", "learning rate")))
    smooth = (
        " The loss is drawn pale as logged and strong as a running mean." if 'class="raw"' in chart else ""
    )
    return el("figcaption", keys, el("br"), f"Against optimiser steps; logarithmic loss axis.{smooth}")


def _parameters(parts: Mapping[str, Any]) -> Markup | None:
    rows = [
        (part, count(mapping(found).get("trainable")), count(mapping(found).get("frozen")))
        for part, found in parts.items()
    ]
    return table(rows, ("parameters", "trainable", "frozen"), "Parameters by part") if rows else None


def _total(found: Mapping[str, Any]) -> str | None:
    total = found.get("parameters")
    if isinstance(total, Mapping):
        return ", ".join(f"{count(value)} {name}" for name, value in total.items())
    return count(total) if number(total) is not None else None


def _limit(joint: Mapping[str, Any], key: str) -> str:
    value = number(joint.get(key))
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def _picture(folder: Path, name: object, alt: str) -> Markup | None:
    """The picture as an embedded image; None when it is not named, not there, no image, or too large."""
    if name is None:
        return None
    path = inside(folder, name)
    kind = media_type(path)
    if (
        kind is None
        or not kind.startswith("image/")
        or not path.is_file()
        or path.stat().st_size > PICTURE_BYTES
    ):
        return None
    return el("div", el("img", src=data_uri(path), alt=alt), class_="picture")


def _stages(seconds: Mapping[str, Any]) -> Markup | None:
    known = [(str(name), number(value)) for name, value in seconds.items()]
    timed = [(name, value) for name, value in known if value is not None]
    if not timed:
        return None
    longest = max(value for _, value in timed) or 1.0
    rows = [
        (name, duration(value), el("i", class_="share", style=f"width:{100 * max(value, 0) / longest:.1f}%"))
        for name, value in timed
    ]
    rows.append(("together", duration(sum(value for _, value in timed)), Markup()))
    return el("div", table(rows, ("stage", "time", ""), "Time by stage"), class_="shares")


def _run(one: Evaluation) -> str | None:
    engine = mapping(one.record.get("engine"))
    wall = number(one.record.get("wall_s"))
    policy = mapping(one.record.get("policy"))
    words = [
        f"{engine.get('name')} {engine.get('version') or ''}".strip() if engine.get("name") else None,
        f"{one.record['parallel']} in parallel" if one.record.get("parallel") else None,
        duration(wall) if wall is not None else None,
        f"step {policy['step']}" if policy.get("step") is not None else None,
        str(policy["checkpoint"]) if policy.get("checkpoint") else None,
    ]
    return ", ".join(word for word in words if word) or None


def _fact(name: str, value: object) -> str | None:
    if value is None:
        return None
    found = number(value)
    if found is not None and (name == "seconds" or name.endswith("_seconds")):
        return duration(found)
    whole = isinstance(value, int) and not isinstance(value, bool) and name not in ("seed", "version")
    return count(value) if whole else value_words(value)


def _time(seconds: object) -> str | None:
    found = number(seconds)
    return None if found is None else duration(found)


def _box(title: str, content: Markup | None) -> Markup | None:
    return el("div", el("h3", title), content, class_="box") if content else None


def _pretty(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
