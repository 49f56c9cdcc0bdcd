"""The sections of the page that say how it was made: training, robot, suite, machine, versions, commands."""

import json
from collections.abc import Sequence
from pathlib import Path

from morph_vla.report import rules
from morph_vla.report.lines import training_curve
from morph_vla.report.maps import joint_graph
from morph_vla.report.markup import Markup, count, duration, el, facts, join, table, value_words
from morph_vla.report.reading import Evaluation, data_uri, in_its_folder, media_type
from morph_vla.results.record import Json, Study, SuiteFacts
from morph_vla.results.trial import inside
from morph_vla.results.values import listing, mapping, number

PICTURE_BYTES = 3_000_000  # a larger picture would push the videos out of the page


def training(facts_of_it: Json) -> Markup | None:
    """The training curve, the recipe and the parameters by part; None when the record has none of them."""
    chart = training_curve(listing(facts_of_it.get("curve")))
    if not facts_of_it:
        return None
    steps, recipe = facts_of_it.get("steps"), mapping(facts_of_it.get("recipe"))
    seconds = number(facts_of_it.get("seconds"))
    summary = facts(
        [
            ("steps", None if steps is None else count(steps)),
            ("time", None if seconds is None else duration(seconds)),
            ("parameters", _total(facts_of_it.get("parameters"))),
        ]
    )
    parts = _parameters(mapping(facts_of_it.get("parameters_by_part")))
    folded = el("details", el("summary", "The recipe"), el("pre", _pretty(recipe))) if recipe else None
    figure = el("figure", chart, _curve_key(chart)) if chart else el("p", "No training curve.", class_="note")
    side = el("div", summary, parts, folded, class_="stack")
    return el("section", el("h2", "Training"), el("div", figure, side, class_="two"))


def robot(study: Study) -> Markup | None:
    """The joint graph over the whole width, the joints below; None when the record has neither."""
    joints = [mapping(joint) for joint in listing(study.robot.get("joints")) if mapping(joint)]
    name = str(study.robot.get("name") or "robot")
    view = _picture(study.folder, study.pictures.get("joint_graph"), f"Joint graph of {name}")
    view = view or joint_graph(study.robot)
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


def making(study: Study, evaluations: Sequence[Evaluation]) -> Markup:
    """How it was made: recording, suite, machine, versions, command, time by stage."""
    machine = facts((name, value_words(value)) for name, value in study.machine.items())
    versions = facts(_versions(study, evaluations).items())
    suites: list[SuiteFacts] = []
    for evaluation in evaluations:
        suites += [evaluation.suite] if evaluation.suite not in (*suites, SuiteFacts()) else []
    notes = [f"{evaluation.label}: {note}" for evaluation in evaluations for note in evaluation.record.notes]
    runs = facts((evaluation.label, _run(evaluation)) for evaluation in evaluations)
    commands = dict.fromkeys([study.command, *(evaluation.record.command for evaluation in evaluations)])
    boxes = [
        _box("Recording", _recording(study.recording) if study.recording else None),
        _box("Time by stage", _stages(study.seconds_by_stage)),
        *(_box("What counts as a success", rules.criterion(suite)) for suite in suites),
        *(_box("Suite", _suite(suite)) for suite in suites),
        _box(
            "Evaluation",
            join(runs, rules.asked(evaluations), (el("p", note, class_="note") for note in notes)),
        ),
        _box("Machine", machine if study.machine else None),
        _box("Versions", versions if "<dd>" in versions else None),
    ]
    known = "\n".join(filter(None, commands))
    command = _box("Command", el("pre", known)) if known else None
    return el("section", el("h2", "How this was made"), el("div", boxes, class_="boxes"), command)


def _recording(recording: Json) -> Markup:
    """What was recorded; where it lies and a time that was never taken say nothing to a reader."""
    return facts(
        (name, _fact(name, value))
        for name, value in recording.items()
        if name not in ("dataset", "folder") and not (name == "seconds" and not value)
    )


def _versions(study: Study, evaluations: Sequence[Evaluation]) -> dict[str, str]:
    """Package -> its version; all of them, where the evaluations had several."""
    packages: dict[str, list[str]] = {}
    for versions in (study.versions, *(evaluation.record.versions for evaluation in evaluations)):
        for name, version in versions.items():
            packages.setdefault(name, []).append(value_words(version))
    return {name: ", ".join(dict.fromkeys(several)) for name, several in packages.items()}


def _suite(suite: SuiteFacts) -> Markup:
    """The suite's facts, then its tasks'."""
    shared = facts((name, _fact(name, value)) for name, value in suite.to_json().items() if name != "tasks")
    rows = [
        (name, task.task or "", el("code", (task.initial_states_sha256 or "–")[:12]))
        for name, task in suite.tasks.items()
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


def _parameters(parts: Json) -> Markup | None:
    rows = [
        (part, count(mapping(counts).get("trainable")), count(mapping(counts).get("frozen")))
        for part, counts in parts.items()
    ]
    return table(rows, ("parameters", "trainable", "frozen"), "Parameters by part") if rows else None


def _total(parameters: object) -> str | None:
    if mapping(parameters):
        return ", ".join(f"{count(value)} {name}" for name, value in mapping(parameters).items())
    return count(parameters) if number(parameters) is not None else None


def _limit(joint: Json, key: str) -> str:
    value = number(joint.get(key))
    return "–" if value is None else f"{value:.3f}".replace("-", "−")


def _picture(folder: Path, name: object, alt: str) -> Markup | None:
    """The picture as an embedded image; None when it is not named, not there, no image, or too large."""
    if name is None:
        return None
    path = in_its_folder(folder, inside(folder, name))
    kind = media_type(path)
    if (
        kind is None
        or not kind.startswith("image/")
        or not path.is_file()
        or path.stat().st_size > PICTURE_BYTES
    ):
        return None
    return el("div", el("img", src=data_uri(path), alt=alt), class_="picture")


def _stages(seconds: Json) -> Markup | None:
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


def _run(evaluation: Evaluation) -> str | None:
    record = evaluation.record
    words = [
        record.engine.label if record.engine else None,
        f"{record.parallel} in parallel" if record.parallel else None,
        None if record.wall_s is None else duration(record.wall_s),
        None if record.policy.step is None else f"step {record.policy.step}",
        record.policy.checkpoint,
    ]
    return ", ".join(word for word in words if word) or None


def _fact(name: str, value: object) -> str | None:
    if value is None:
        return None
    finite = number(value)
    if finite is not None and (name == "seconds" or name.endswith("_seconds")):
        return duration(finite)
    whole = isinstance(value, int) and not isinstance(value, bool) and name not in ("seed", "version")
    return count(value) if whole else value_words(value)


def _box(title: str, content: Markup | None) -> Markup | None:
    return el("div", el("h3", title), content, class_="box") if content else None


def _pretty(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)
