"""The README.md of a repository on the Hub, from what was recorded: pure functions of facts."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from morph_vla.data.layout import Layout
from morph_vla.recipes.recipe import Recipe
from morph_vla.results.record import Record
from morph_vla.results.statistics import Rates, percent
from morph_vla.wording import count

LIBRARY = "morph-vla"
MAX_TASKS = 20  # sentences that are spelled out


@dataclass(frozen=True)
class Trained:
    """What is known of a checkpoint."""

    repository: str
    """`USER/NAME`"""
    step: int
    sha256: str
    """As records and servers name the policy"""
    parameters: int
    recipe: Recipe
    robots: Mapping[str, Mapping[str, Any]]
    """What policy.json says of each"""
    records: Mapping[str, Record]
    """The evaluations of this very policy, by their folders in the repository"""
    versions: Mapping[str, str]
    """Of the packages it was trained with, where that is known"""
    base: str = ""
    """Where the parameters are that did not come with it"""


def model_card(trained: Trained) -> str:
    """The card of a checkpoint: how well it does, how to use it, how it was made."""
    names = ", ".join(trained.robots)
    recipe = trained.recipe
    head = {
        "library_name": "morph-vla",
        "pipeline_tag": "robotics",
        "tags": ["robotics", "vision-language-action", "pi0.5", "morph-vla", *trained.robots],
    }
    about = f"A vision-language-action policy for {names}: pi0.5"
    if recipe.model.family != "pi05":
        about = f"A policy for {names} on joint values and poses, of the family '{recipe.model.family}'"
    if recipe.model.morphology is not None:
        about += " with the robot's URDF as tokens, attention bias and FiLM"
    about += f", trained for {trained.step:,} steps with {LIBRARY}. It has {trained.parameters:,} parameters."
    if trained.base:
        about += (
            f" Those that equal `{trained.base}` are not in this repository; they are fetched from there."
        )
    lines = [
        *_front_matter(head),
        f"# {trained.repository.partition('/')[2]}",
        "",
        about,
        "",
        "## Success",
        "",
        *_success(trained.records),
        "",
        "## Serve and evaluate it",
        "",
        *_use(trained),
        "",
        "## Robots",
        "",
        *_table(
            ("robot", "joints", "rate", "actions", "cameras"),
            (
                (
                    name,
                    len(known["joints"]),
                    f"{known['control_rate']:g} Hz",
                    known["actions"],
                    ", ".join(known["cameras"].values()),
                )
                for name, known in trained.robots.items()
            ),
        ),
        "",
        "`about/robots` has their URDFs, `about/policy.json` joints, units, limits and statistics.",
        "",
        "## Training",
        "",
        *_table(("what", ""), _training(trained)),
        "",
        "`about/recipe.json` is the whole recipe.",
        "",
    ]
    return "\n".join(lines)


def _success(records: Mapping[str, Record]) -> Iterator[str]:
    if not records:
        yield "No evaluation of this checkpoint came with it."
        return
    rows = [
        row
        for folder, record in records.items()
        for task, rates in _rates(record)
        for row in [_row(folder, record, task, rates)]
    ]
    yield from _table(("suite", "task", "succeeded", "success rate", "simulator"), rows)
    yield ""
    yield "Intervals are Wilson's at 95%, over a suite's fixed initial states; `record.json` has every trial."


def _rates(record: Record) -> list[tuple[str, Rates]]:
    """The rates of each task, and of all where there are several."""
    summary = record.summary
    if len(summary.tasks) == 1:
        return [*summary.tasks.items()]
    return [*summary.tasks.items(), ("all" if summary.tasks else "", summary)]


def _row(folder: str, record: Record, task: str, rates: Rates) -> tuple[str, ...]:
    suite = f"[{record.suite.name} v{record.suite.version}]({folder}/record.json)"
    if record.overrides:
        suite += f" with {', '.join(record.overrides)}"
    engine = record.engine.label if record.engine else ""
    measured = "stopped early: the decision counts, not the rate"
    if not record.stopped and rates.rate is not None and rates.low is not None and rates.high is not None:
        measured = percent(rates.rate, rates.low, rates.high).removesuffix(" (95% Wilson)")
    return suite, task, f"{rates.successes} of {rates.trials}", measured, engine


def _use(trained: Trained) -> Iterator[str]:
    source, several = f"hf://{trained.repository}", len(trained.robots) > 1
    robot = f" --robot {next(iter(trained.robots))}" if several else ""
    suites = dict.fromkeys(record.suite.name for record in trained.records.values())
    suite = next(iter(suites), None) or "SUITE"
    yield "```sh"
    yield "pip install 'morph-vla[model,serve,sim]'"
    yield f"morph-vla serve {source}{robot}  # openpi's protocol, on ws://127.0.0.1:8000"
    yield f"morph-vla eval {source} --suite {suite} -o runs/eval"
    yield f"morph-vla train RECIPE weights={source} -o runs/mine  # begin a fine-tuning with it"
    yield "```"


def _training(trained: Trained) -> Iterator[tuple[str, object]]:
    recipe = trained.recipe
    for source in recipe.data.sources:
        yield "dataset", f"{source.dataset} ({source.robot})"
    yield "begun with", recipe.weights or "random parameters"
    yield "learned", f"{recipe.training.kind}, {count(trained.step, 'step')} of batch {recipe.training.batch}"
    yield "optimizer", f"{recipe.optimizer.kind}, peak rate {recipe.optimizer.peak_lr:g}"
    if recipe.model.cameras:
        yield "images", f"{recipe.model.image_size} pixels, cameras {', '.join(recipe.model.cameras)}"
    yield "chunk", f"{recipe.model.horizon} actions"
    yield "tokenizer", recipe.tokenizer
    yield "sha256", trained.sha256
    if trained.versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in trained.versions.items())


def dataset_card(repository: str, dataset: Layout, recorded: Mapping[str, Any]) -> str:
    """The card of a LeRobot dataset; `recorded` is what `morph-vla record` wrote beside it, or nothing."""
    head = {
        "task_categories": ["robotics"],
        "tags": ["LeRobot", *([dataset.robot_type] if dataset.robot_type else [])],
        "configs": [{"config_name": "default", "data_files": "data/*/*.parquet"}],
    }
    frames = sum(entry.length or 0 for entry in dataset.episodes)
    rows = [
        ("robot", dataset.robot_type),
        ("rate", f"{dataset.fps:g} Hz"),
        ("LeRobot format", dataset.version),
    ]
    for camera, (height, width) in dataset.sizes.items():
        rows.append((f"camera {camera}", f"{width} x {height}"))
    for feature in ("observation.state", "action"):
        names = dataset.features.get(feature, {}).get("names")
        if isinstance(names, list):
            rows.append((feature, ", ".join(map(str, names))))
    made = ""
    if recorded:
        made = (
            f" A scripted expert was recorded on the suite {recorded.get('suite')} by {LIBRARY}: "
            f"{recorded.get('episodes')} of {recorded.get('attempted')} attempts succeeded and were kept."
        )
    tasks = sorted(dataset.tasks.values())
    more = [f"- and {len(tasks) - MAX_TASKS} more"] if len(tasks) > MAX_TASKS else []
    lines = [
        *_front_matter(head),
        f"# {repository.partition('/')[2]}",
        "",
        f"{count(len(dataset.episodes), 'episode')}, {frames:,} frames.{made}",
        "",
        *_table(("what", ""), rows),
        "",
        "Tasks:",
        "",
        *(f"- {_cell(task)}" for task in tasks[:MAX_TASKS]),
        *more,
        "",
        "```sh",
        f"morph-vla train RECIPE data.dataset={repository} -o runs/mine",
        "```",
        "",
    ]
    return "\n".join(lines)


def _front_matter(head: Mapping[str, object]) -> list[str]:
    """The Hub's YAML; JSON is YAML, and quotes what needs it."""
    return ["---", *(f"{key}: {json.dumps(value)}" for key, value in head.items()), "---", ""]


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    for cells in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(map(_cell, cells))} |"


def _cell(value: object) -> str:
    """Text that stays in its cell."""
    return " ".join(str(value).split()).replace("|", "\\|")
