"""The sections of the page that speak of numbers: result, training, robot, attention, and how it was made."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from morph_vla.sim import comparison
from morph_vla.sim.report.charts import difference_bar, success_bars, training_curve
from morph_vla.sim.report.episodes import FAILED_AT, failed_at
from morph_vla.sim.report.maps import heat_maps, joint_graph
from morph_vla.sim.report.markup import (
    Markup,
    bracket,
    count,
    duration,
    el,
    facts,
    join,
    mapping,
    number,
    percent,
    points,
    table,
    value_words,
)
from morph_vla.sim.report.reading import (
    Evaluation,
    attention,
    data_uri,
    disagreement,
    inside,
    media_type,
    the_policy,
)

PICTURE_BYTES = 3_000_000  # a larger picture would push the videos out of the page


def headline(evaluations: Sequence[Evaluation]) -> str:
    """The measured result in one sentence: the last evaluation that has trials."""
    main = [one for one in evaluations if one.trials][-1]
    s = main.summary
    return (
        f"{the_policy(main)} succeeds in {s['successes']} of {s['trials']} trials: "
        f"{percent(s['rate'])} {bracket(s['low'], s['high'])}"
    )


def header(record: Mapping[str, Any], evaluations: Sequence[Evaluation]) -> Markup:
    """Title, headline and the sentence below it."""
    main = [one for one in evaluations if one.trials][-1]
    suite = main.suite
    time = str(record.get("time") or main.record.get("time") or "").replace("T", " ").replace("Z", " UTC")
    words = [record.get("kind"), suite.get("robot"), suite.get("name"), time]
    others = [one for one in evaluations if one is not main]
    lead = [f"Task: “{suite['task']}”." if suite.get("task") else None]
    lead += [_in_short(one) for one in others] if len(others) <= 2 else []
    lead.append("Brackets hold 95% Wilson intervals, in per cent.")
    warnings = [words for words in map(disagreement, evaluations) if words]
    return el(
        "header",
        el("p", " · ".join(str(word) for word in words if word), class_="kicker"),
        el("h1", headline(evaluations)),
        el("p", " ".join(sentence for sentence in lead if sentence), class_="lead"),
        (el("p", words, class_="note warn") for words in warnings),
    )


def result(evaluations: Sequence[Evaluation]) -> Markup:
    """Success bars, the table, and each later evaluation against the first."""
    measured = [one for one in evaluations if one.trials]
    compared = [comparison.compare(measured[0].record, one.record) for one in measured[1:]]
    labelled = [
        {**found, "a": measured[0].label, "b": one.label}
        for found, one in zip(compared, measured[1:], strict=True)
    ]
    bars, differences = el("figure", success_bars(evaluations)), [_difference(one) for one in labelled]
    listed = el("div", _table(evaluations), el("p", _note(evaluations), class_="note"), class_="stack")
    if len(evaluations) <= 2:
        return el(
            "section",
            el("h2", "Success"),
            el("div", el("div", bars, differences, class_="stack"), listed, class_="two"),
        )
    # With more columns the table needs the whole width.
    return el(
        "section",
        el("h2", "Success"),
        el("div", bars, el("div", differences, class_="stack"), class_="two"),
        listed,
    )


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
    """The joint graph and the joints; None when the record has neither."""
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
    side = el("div", listed, el("p", note, class_="note") if rows else None)
    return el(
        "section", el("h2", f"The body: {name}"), el("div", graph if view else None, side, class_="two")
    )


def attention_maps(record: Mapping[str, Any], folder: Path) -> Markup | None:
    """Attention between joints, layer by layer; None when the record names no readable file."""
    name = mapping(record.get("pictures")).get("attention")
    found = attention(folder, name) if name is not None else None
    maps = heat_maps(found, mapping(record.get("robot")).get("adjacency")) if found else []
    if not maps or found is None:
        return None
    joints = found.get("joints")
    names = joints if isinstance(joints, list) else []
    key = ", ".join(f"{place + 1} {name}" for place, name in enumerate(names))
    lines = (el("line", x1=0, y1=0, x2=0, y2=5, class_="hatch"),)
    hatch = el(
        "pattern",
        *lines,
        id="hatch",
        width="4",
        height="5",
        patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )
    return el(
        "section",
        el("h2", "Attention between joints"),
        el(
            "p",
            "Mean attention weight between kinematic tokens: a row is the joint that asks, a column the "
            "joint it reads, stronger is more, one scale for all layers. In masked layers the hatched pairs "
            "are no neighbours and cannot see each other.",
            class_="note",
        ),
        el("svg", el("defs", hatch), width="0", height="0", aria_hidden="true", style="position:absolute"),
        el("div", maps, class_="layers"),
        el("p", f"Joints: {key}.", class_="note") if key else None,
    )


def making(record: Mapping[str, Any], evaluations: Sequence[Evaluation]) -> Markup:
    """How it was made: recording, suite, machine, versions, command, time by stage."""
    recording = facts((name, _fact(name, value)) for name, value in mapping(record.get("recording")).items())
    stages = _stages(mapping(record.get("seconds_by_stage")))
    machine = facts((name, value_words(value)) for name, value in mapping(record.get("machine")).items())
    first = evaluations[0].record
    versions = {**mapping(first.get("versions")), **mapping(record.get("versions"))}
    suite = facts((name, _fact(name, value)) for name, value in evaluations[0].suite.items())
    runs = facts((one.label, _run(one)) for one in evaluations)
    commands = [record.get("command"), *(one.record.get("command") for one in evaluations)]
    known = list(dict.fromkeys(value_words(command) for command in commands if command))
    boxes = [
        _box("Recording", recording if record.get("recording") else None),
        _box("Time by stage", stages),
        _box("Suite", suite if evaluations[0].suite else None),
        _box("Evaluation", runs),
        _box("Machine", machine if record.get("machine") else None),
        _box("Versions", facts((n, value_words(v)) for n, v in versions.items()) if versions else None),
    ]
    command = _box("Command", el("pre", "\n".join(known))) if known else None
    return el("section", el("h2", "How this was made"), el("div", boxes, class_="two"), command)


def _in_short(one: Evaluation) -> str:
    s = one.summary
    if not one.trials:
        return f"{the_policy(one)} was not measured."
    return (
        f"{the_policy(one)} in {s['successes']} of {s['trials']}: "
        f"{percent(s['rate'])} {bracket(s['low'], s['high'])}."
    )


def _difference(comparison: Mapping[str, Any]) -> Markup:
    """One comparison in words, with its bar."""
    a, b, low, high = (comparison[key] for key in ("a", "b", "low", "high"))
    if low is None:
        return el("p", f"{b} is not compared with {a}: {comparison['reason']}.", class_="note")
    sure = "the interval excludes zero" if low > 0 or high < 0 else "the interval includes zero"
    words = (
        f"{b} minus {a}: {points(comparison['difference'])} percentage points, "
        f"95% interval [{points(low)}, {points(high)}] ({comparison['interval']}); {sure}. "
    )
    paired = comparison["paired"]
    if paired is None:
        words += f"Not paired: {comparison['reason']}."
    else:
        words += (
            f"On the same {sum(paired[k] for k in ('both', 'only_a', 'only_b', 'neither'))} initial states: "
            f"both {paired['both']}, only {b} {paired['only_b']}, only {a} {paired['only_a']}, "
            f"neither {paired['neither']}; exact McNemar p\u00a0{_p_value(paired['p_value'])}."
        )
    return el("figure", difference_bar(comparison), el("figcaption", words))


def _p_value(p: float) -> str:
    return "<\u00a00.0001" if p < 0.0001 else f"=\u00a0{p:.4f}"


def _table(evaluations: Sequence[Evaluation]) -> Markup:
    """One column for each evaluation."""
    summaries = [one.summary for one in evaluations]
    rows: list[tuple[object, ...]] = [
        ("successes / trials", *(f"{s['successes']} / {s['trials']}" for s in summaries)),
        ("success rate", *(percent(s["rate"]) for s in summaries)),
        ("95% interval", *(bracket(s["low"], s["high"]) for s in summaries)),
        (
            "half-width",
            *("–" if s["half_width"] is None else f"± {100 * s['half_width']:.1f}" for s in summaries),
        ),
        ("errors", *(s["errors"] for s in summaries)),
        ("time to success, median", *(_seconds(s, "median") for s in summaries)),
        ("95% interval of it", *(_seconds_interval(s) for s in summaries)),
        ("time to success, mean", *(_seconds(s, "mean") for s in summaries)),
    ]
    named = {clause for s in summaries for clause in s["failed_clauses"]}
    order = [clause for clause in FAILED_AT if clause in named] + sorted(named - FAILED_AT.keys())
    for clause in order:
        rows.append(
            (f"failed: {failed_at(clause)}", *(s["failed_clauses"].get(clause, 0) for s in summaries))
        )
    return table(rows, ("", *(one.label for one in evaluations)), "Results")


def _note(evaluations: Sequence[Evaluation]) -> str:
    words = "Every trial counts; one that ended in an error is a trial that did not succeed."
    if any(one.summary["time_to_success_s"] for one in evaluations):
        words += " Times are those of successes only; their interval bounds the median, by order statistics."
    if len(evaluations) > 2:
        words += (
            " Each interval and p value stands for itself: none is widened for the number of comparisons."
        )
    return words


def _seconds(summary: Mapping[str, Any], key: str) -> str:
    found = summary["time_to_success_s"]
    return "–" if found is None else f"{found[key]:.2f} s"


def _seconds_interval(summary: Mapping[str, Any]) -> str:
    found = summary["time_to_success_s"]
    if found is None or found["low"] is None:
        return "–"
    return f"[{found['low']:.2f}, {found['high']:.2f}] s"


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
