"""The README.md of a repository on the Hub, from what was recorded: pure functions of facts."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from morph_vla.data.layout import Layout
from morph_vla.files import dropin
from morph_vla.pi05.config import Pi05Config
from morph_vla.recipes.keys import Recipe
from morph_vla.results.record import Record
from morph_vla.results.statistics import Rates, percent, summarise
from morph_vla.wording import count

LIBRARY = "morph-vla"
MAX_TASKS = 20  # sentences that are spelled out
MAX_ROBOTS = 12  # the same
# What `data.space` says of an action.
SPACES = {"joints": "", "tool": ", of the tool's pose", "hand": ", of the tool's pose, told from the hand"}


@dataclass(frozen=True)
class Trained:
    """What is known of a checkpoint."""

    repository: str
    """`USER/NAME`, or the name of a base that comes with the package"""
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
    rounded_from: str = ""
    """The sha256 before the parameters were rounded to 16 bits; "" where they were not"""
    made: Mapping[str, str] = field(default_factory=dict)
    """What else is known of how it was made"""
    revision: str = ""
    """The branch of the repository; "" is the main one"""

    @property
    def source(self) -> str:
        """How others name it."""
        at = f"@{self.revision}" if self.revision else ""
        return f"hf://{self.repository}{at}" if "/" in self.repository else self.repository

    @property
    def every_robot(self) -> str:
        """Their names, or how many there are."""
        return ", ".join(self.robots) if self.is_spelled_out else f"{len(self.robots)} robots"

    @property
    def is_spelled_out(self) -> bool:
        """Whether each robot is named."""
        return len(self.robots) <= MAX_ROBOTS


def model_card(trained: Trained) -> str:
    """The card of a checkpoint: how well it does, how to use it, how it was made."""
    names, recipe = trained.every_robot, trained.recipe
    is_pi05 = recipe.model.family == "pi05"
    family = ["vision-language-action", "pi0.5"] if is_pi05 else [recipe.model.family]
    head = {
        "library_name": "morph-vla",
        "pipeline_tag": "robotics",
        "tags": ["robotics", *family, "morph-vla", *(trained.robots if trained.is_spelled_out else ())],
    }
    about = f"A vision-language-action policy for {names}: pi0.5"
    if not is_pi05:
        about = f"A policy for {names} on joint values and poses, of the family '{recipe.model.family}'"
    if recipe.model.morphology is not None:
        about += " with the robot's URDF as tokens, attention bias and FiLM"
    about += f", trained for {trained.step:,} steps with {LIBRARY}. It has {trained.parameters:,} parameters"
    about += ", kept in 16 bits." if trained.rounded_from else "."
    if trained.base:
        about += (
            f" Those that equal `{trained.base}` are not in this repository; they are fetched from there."
        )
    lines = [
        *_front_matter(head),
        f"# {trained.repository.rpartition('/')[2]}",
        "",
        about,
        "",
        "## Success",
        "",
        *_success(trained),
        "",
        "## Serve and evaluate it",
        "",
        *_use(trained),
        "",
        "## Robots",
        "",
        *_table(("robot", "joints", "rate", "actions", "cameras"), _robots(trained)),
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


def _robots(trained: Trained) -> Iterator[tuple[object, ...]]:
    """A row for each robot; of many, for those that are alike."""
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, known in trained.robots.items():
        cameras = ", ".join(known["cameras"].values())
        learnt = known["actions"] + SPACES[known.get("space", "joints")]
        row = (len(known["joints"]), f"{known['control_rate']:g} Hz", learnt, cameras)
        alike.setdefault((*row, name) if trained.is_spelled_out else row, []).append(name)
    for row, names in alike.items():
        yield (names[0] if len(names) == 1 else f"{len(names)} robots"), *row[:4]


def _success(trained: Trained) -> Iterator[str]:
    records, comes = trained.records, "/" in trained.repository
    if not records:
        yield "No evaluation of this checkpoint came with it."
        return
    rows = [
        _row(folder if comes else "", record, task, rates)
        for folder, record in records.items()
        for task, rates in _rates(record)
    ]
    header = ("suite", "task", "succeeded", "success rate", "simulator")
    if any(record.suite.robot not in (None, *trained.robots) for record in records.values()):
        robots = [_robot(trained, record) for record in records.values() for _ in _rates(record)]
        by_robot = ((robot, *row) for robot, row in zip(robots, rows, strict=True))
        yield from _table(("robot", *header), itertools.chain(by_robot, _unseen(trained)))
    else:
        yield from _table(header, rows)
    yield ""
    where = "; `record.json` has every trial" if comes else ""
    yield f"Intervals are Wilson's at 95%, over a suite's fixed initial states{where}."
    before = sum(record.policy.sha256 == trained.rounded_from for record in records.values())
    if before:
        yield f"{count(before, 'evaluation')} measured the parameters before they were rounded to 16 bits."


def _robot(trained: Trained, record: Record) -> str:
    name = record.suite.robot
    if name is None:  # another simulator's environment need not name one
        return ""
    return name if name in trained.robots else f"{name}, never trained on"


def _unseen(trained: Trained) -> Iterator[tuple[str, ...]]:
    """A row for all robots together that were not trained on."""
    known = (None, *trained.robots)
    records = [r for r in trained.records.values() if r.suite.robot not in known and not r.stopped]
    if len(records) > 1:
        rates = summarise([trial for record in records for trial in record.trials])
        yield f"{len(records)} evaluations, never trained on", "", "all", *_measured(rates), ""


def _rates(record: Record) -> list[tuple[str, Rates]]:
    """The rates of each task, and of all where there are several."""
    summary = record.summary
    if len(summary.tasks) == 1:
        return [*summary.tasks.items()]
    return [*summary.tasks.items(), ("all" if summary.tasks else "", summary)]


def _row(folder: str, record: Record, task: str, rates: Rates) -> tuple[str, ...]:
    suite = f"{record.suite.name} v{record.suite.version}"
    suite = f"[{suite}]({folder}/record.json)" if folder else suite
    if record.overrides:
        suite += f" with {', '.join(record.overrides)}"
    engine = record.engine.label if record.engine else ""
    succeeded, measured = _measured(rates)
    if record.stopped:
        measured = "stopped early: the decision counts, not the rate"
    return suite, task, succeeded, measured, engine


def _measured(rates: Rates) -> tuple[str, str]:
    """`76 of 100`, and the rate with its interval."""
    assert rates.rate is not None  # there are trials
    assert rates.low is not None
    assert rates.high is not None
    measured = percent(rates.rate, rates.low, rates.high).removesuffix(" (95% Wilson)")
    return f"{rates.successes} of {rates.trials}", measured


def _use(trained: Trained) -> Iterator[str]:
    source, several = trained.source, len(trained.robots) > 1
    robot = f" --robot {next(iter(trained.robots))}" if several else ""
    suite, made = _suite_to_try(trained)
    yield "```sh"
    yield "pip install -e 'CHECKOUT[model,serve,sim]'  # CHECKOUT: a folder with morph_vla's source"
    yield f"morph-vla serve {source}{robot}  # openpi's protocol, on ws://127.0.0.1:8000"
    samplers = {record.policy.sampler and record.policy.sampler.noise for record in trained.records.values()}
    mean = " --noise 0" if samplers == {0} else ""
    if made:
        yield f"morph-vla suites new {suite}  # a table for the robot, from its kinematics"
    yield f"morph-vla eval {source} --suite {suite}{mean} -o runs/eval"
    if isinstance(trained.recipe.model, Pi05Config):  # the other families begin with random parameters
        yield f"morph-vla train RECIPE weights={source} -o runs/mine  # begin a fine-tuning with it"
    yield "```"


def _suite_to_try(trained: Trained) -> tuple[str, bool]:
    """A suite that whoever reads the card has, and whether it is first made, of a robot that they have.

    Of those evaluated a shipped one, else the table of a shipped robot; else a table of a shipped robot that
    was trained on; else the first one evaluated.
    """
    shipped = [path.stem for folder in dropin.packaged("eval") for path in folder.glob("*.yaml")]
    robots = {path.stem for folder in dropin.packaged("urdf_descriptors") for path in folder.glob("*.urdf")}
    suites = {record.suite.name: record.suite.robot for record in trained.records.values()}
    for suite in suites:
        if suite in shipped:
            return suite, False
    for suite in (
        *(name for name, robot in suites.items() if name == robot),
        *(trained.robots if suites else ()),
    ):
        if suite in robots:
            return suite, True
    return next(filter(None, suites), "SUITE"), False


def _training(trained: Trained) -> Iterator[tuple[str, object]]:
    recipe = trained.recipe
    sources = recipe.data.sources
    if len(sources) > MAX_ROBOTS:
        yield (
            "datasets",
            f"{len(sources)}, from {_named(sources[0].dataset)} to {_named(sources[-1].dataset)}",
        )
    else:
        yield from (("dataset", f"{_named(source.dataset)} ({source.robot})") for source in sources)
    yield from trained.made.items()
    yield "begun with", _named(recipe.weights) or "random parameters"
    yield "learned", f"{recipe.training.kind}, {count(trained.step, 'step')} of batch {recipe.training.batch}"
    yield "optimizer", f"{recipe.optimizer.kind}, peak rate {recipe.optimizer.peak_lr:g}"
    if recipe.model.cameras:
        yield "images", f"{recipe.model.image_size} pixels, cameras {', '.join(recipe.model.cameras)}"
    yield "chunk", f"{recipe.model.horizon} actions"
    yield "tokenizer", recipe.tokenizer
    yield "sha256", trained.sha256
    if trained.rounded_from:
        yield "sha256 before it was rounded", trained.rounded_from
    if trained.versions:
        yield "versions", ", ".join(f"{name} {version}" for name, version in trained.versions.items())


def _named(place: str) -> str:
    """A dataset or weights, without the folders of this machine."""
    return Path(place).name if Path(place).is_absolute() else place


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
