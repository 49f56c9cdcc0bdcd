"""The demo's stages: each finds what an earlier run left; an interrupted one continues where it stopped."""

import dataclasses
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from morph_vla import perception, report, robots
from morph_vla.demo import arm, base
from morph_vla.demo.settings import STAGES, Settings
from morph_vla.demonstrations import recording
from morph_vla.doctor import machine, require_gl
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import rollout
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.files import remote
from morph_vla.files.dropin import add_to_path
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text
from morph_vla.process import versions
from morph_vla.recipes import recipe as recipes
from morph_vla.recipes.keys import Recipe
from morph_vla.results import record as records
from morph_vla.results.comparison import compare
from morph_vla.results.record import Record, Study
from morph_vla.robots import draw
from morph_vla.serving import inside, trials
from morph_vla.serving import policy as policies
from morph_vla.suites.suite import Suite
from morph_vla.termination import Terminated
from morph_vla.training import checkpoint
from morph_vla.wording import span

LOG = logging.getLogger(__name__)
RECIPE, JOINTS, TUNING = "panda_demo", 8, "nano_demo"
# What random weights learn best with (those of RECIPE): a rate for what has been learnt would hold them back.
SCRATCH = ("optimizer.matrix_lr=0.009", "optimizer.peak_lr=0.003")
NOISE = 0.0  # times the sampler's noise: 0 asks for the mean of what was learnt
VIDEOS, UNTRAINED_VIDEOS = 6, 1  # films of each task, of the trained policy and of the others
AS_IT_IS_VIDEOS = 3
AS_DEFAULT = Settings()

Bars = Callable[[str, str], AbstractContextManager[Any]]
"""(label, unit) -> progress bars with the methods of `Quiet`"""


class Quiet:
    """Progress bars that show nothing."""

    def __init__(self, label: str, unit: str):
        pass

    def recorded(self, done: int, total: int) -> None:
        """Attempts that have ended, of how many."""

    def trained(self, report: object) -> None:
        """A line of the training log."""

    def evaluated(self, task: str, done: int, total: int, successes: int) -> None:
        """Episodes of a task that have ended, of how many, and how many of them succeeded."""

    def __enter__(self) -> "Quiet":
        return self

    def __exit__(self, *_: object) -> None:
        pass


def run(
    folder: Path,
    settings: Settings = AS_DEFAULT,
    say: Callable[[str], None] = LOG.info,
    bars: Bars = Quiet,
) -> Study:
    """Run what is missing of the stages, each of which says a line; record and page lie in `folder`.

    Raises MorphVlaError as the stages do, before anything is recorded where the base does not fit, and
    Terminated where SIGTERM stopped the training.
    """
    settings.check_poses()
    clock, robot, tasks = _begin(folder, settings, say)
    recipe = _recipe(folder, settings, robot)
    # What a base does of itself comes first: it needs no demonstration.
    first, about = (), {}
    if settings.has_base:
        first, about = clock.measure(
            "zero-shot", lambda: _zero_shot(folder, tasks, recipe, settings.rows[0], bars)
        )
    recorded = clock.measure("record", lambda: _record(folder, tasks, settings.size.attempts, bars))
    runs = {"train": clock.measure("train", lambda: _train(folder / "train", recipe, bars))}
    if settings.has_base:
        control = _recipe(folder, settings, robot, scratch=True)
        runs["scratch"] = clock.measure("scratch", lambda: _train(folder / "scratch", control, bars))
    last = clock.measure("evaluate", lambda: _evaluate(folder, tasks, settings, bars))
    evaluations: tuple[Record, ...] = (*first, *last)
    pictures = clock.measure("attention", lambda: _attention(folder, tasks, evaluations[-1]))
    runs = {stage: {**facts, "seconds": clock.seconds[stage]} for stage, facts in runs.items()}
    if "scratch" in runs:
        runs["scratch"]["difference"] = to_plain(compare(evaluations[-2], evaluations[-1]))
    study = Study(
        robot=robot,
        base=about,
        recording={**recorded, "seconds": clock.seconds["record"]},
        training=runs["train"],
        scratch=runs.get("scratch", {}),
        evaluations=evaluations,
        difference=to_plain(compare(evaluations[0], evaluations[-1])),
        pictures={"joint_graph": arm.PICTURE, **pictures},
        machine=machine(),
        versions=versions(),
        command=settings.command,
        seconds_by_stage={stage: clock.seconds[stage] for stage in clock.stages if stage in clock.seconds},
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        folder=folder,
    )
    records.write(study, folder / records.FILE_NAME)
    clock.measure("report", lambda: _report(folder, study))
    return study


def act(
    folder: Path,
    settings: Settings,
    say: Callable[[str], None] = LOG.info,
    bars: Bars = Quiet,
) -> Record:
    """Let a base act on an arm as it is, without a demonstration of it; record and page lie in `folder`.

    Raises MorphVlaError as `Settings.check_zero_shot` and the stages do.
    """
    settings.check_zero_shot()
    estimator = perception.load(settings.poses_from) if settings.poses_from else None
    clock, _, tasks = _begin(folder, settings, say)
    record = clock.measure("zero-shot", lambda: _as_it_is(folder, tasks, settings, estimator, bars))
    clock.measure("report", lambda: _report(folder, record))
    return record


def _begin(
    folder: Path, settings: Settings, say: Callable[[str], None]
) -> tuple["_Clock", Mapping[str, Any], tuple[Suite, ...]]:
    """The clock, the facts of the robot, and its tasks."""
    require_gl()
    clock = _Clock(folder, say, settings.stages)
    # An arm's own folders, before those of the user: here, and in the processes that this one starts.
    if settings.writes_suite:
        add_to_path(folder)
    return clock, *clock.measure("robot", lambda: _robot(folder, settings))


class Done(NamedTuple):
    """A stage's result, its line, and whether an earlier run had made it."""

    value: Any
    words: str
    there: bool = False


class _Clock:
    """A line a stage, and its seconds, added up over interrupted runs and kept in the folder."""

    def __init__(self, folder: Path, say: Callable[[str], None], stages: Sequence[str] = STAGES):
        self._path, self._say, self.stages = folder / "seconds.json", say, stages
        self.seconds: dict[str, float] = json.loads(self._path.read_text()) if self._path.exists() else {}

    def measure(self, stage: str, work: Callable[[], Done]) -> Any:
        """Do a stage, say what it made; looking up what was there already adds nothing to its seconds."""
        began = time.monotonic()
        LOG.info("%s", stage)
        try:
            done = work()
        except BaseException:  # an interruption too: what it took so far counts
            self._add(stage, time.monotonic() - began)
            raise
        spent = time.monotonic() - began
        if not done.there or stage not in self.seconds:
            self._add(stage, spent)
        head = f"{self.stages.index(stage) + 1}/{len(self.stages)}  {stage:<9}  "
        first, *others = done.words.split("\n")
        first = f"already there: {first}" if done.there else f"{first}  ({span(spent)})"
        self._say("\n".join([head + first, *(" " * len(head) + line for line in others)]))
        return done.value

    def _add(self, stage: str, spent: float) -> None:
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + spent, 1)
        write_text(self._path, json.dumps(self.seconds))


def _robot(folder: Path, settings: Settings) -> Done:
    """Read the URDF, draw its graph; an arm that is new is added to the folder, with a suite."""
    tasks = arm.tasks(folder, settings)
    robot = robots.load(tasks[0].robot)
    facts, picture = robot.as_dict(), folder / arm.PICTURE
    there = picture.exists()
    if not there:
        folder.mkdir(parents=True, exist_ok=True)
        draw.write(robot, picture)
    kinds = Counter(joint["type"] for joint in facts["joints"])
    joints = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    words = f"{robot.name}: {len(facts['joints'])} joints of its URDF ({joints}), drawn in {picture}"
    return Done((facts, tasks), words, there)


def of_robot(facts: Mapping[str, Any], settings: Settings) -> list[str]:
    """What the demo's recipe has to say of its robot; a base's model is as wide as it is."""
    if settings.robot is None and not settings.has_base:
        return []
    joints = len(facts["joints"])
    wide = [f"model.action_dim={joints}", f"model.morphology.max_joints={joints}"]
    return [f"data.robot={facts['name']}", *(wide if joints > JOINTS and not settings.has_base else ())]


def _recipe(folder: Path, settings: Settings, robot: Mapping[str, Any], *, scratch: bool = False) -> Recipe:
    """What is trained, or with `scratch` what stands beside it: the same steps from random weights."""
    asked = [*of_robot(robot, settings), *settings.overrides, f"data.dataset={folder / 'dataset'}"]
    if not settings.has_base:
        return recipes.load(RECIPE, asked)
    if any(word.partition("=")[0] == "weights" for word in settings.overrides):
        raise MorphVlaError("weights=...: the demo takes what it fine-tunes from --base")
    tuning = TUNING + base.variant(settings.source)
    recipe = recipes.load(tuning, [*(SCRATCH if scratch else ()), *asked])
    return dataclasses.replace(recipe, weights="" if scratch else settings.source)


def _zero_shot(folder: Path, tasks: Sequence[Suite], recipe: Recipe, episodes: int, bars: Bars) -> Done:
    """What the base does as it is: its record, and what is known of it."""
    source, robot = recipe.weights, tasks[0].robot
    policy = base.load(recipe, robot, batch=policies.EVALUATION_BATCH, noise=NOISE)
    asked = _Asked("zero-shot", policy, episodes, UNTRAINED_VIDEOS)
    measured, there = _evaluated(folder, tasks, [asked], bars)
    card, unseen = measured[0].policy, "unseen" in policy.trained
    facts = {"source": source, "step": card.step, "sha256": card.sha256, "unseen": unseen}
    facts |= {"robots": len(policy.about["robots"])}
    words = measured[0].summary.sentence(f"{source}, {'never' if unseen else 'already'} trained on {robot}")
    return Done((measured, facts), words, there)


def _as_it_is(
    folder: Path,
    tasks: Sequence[Suite],
    settings: Settings,
    estimator: perception.Estimator | None,
    bars: Bars,
) -> Done:
    """What the base does where nothing follows, told exactly or what the estimator sees: its record."""
    source, robot = settings.source, tasks[0].robot
    policy = policies.load(remote.resolve(source), robot=robot, batch=policies.EVALUATION_BATCH, noise=NOISE)
    shown = perception.Seeing(policy, estimator, tasks) if estimator else policy
    name, seen = ("from-pictures", " from pictures") if estimator else ("zero-shot", "")
    asked = _Asked(name, shown, settings.size.episodes, AS_IT_IS_VIDEOS)
    (record,), there = _evaluated(folder, tasks, [asked], bars)
    trained = "never" if "unseen" in policy.trained else "already"
    return Done(record, record.summary.sentence(f"{source}{seen}, {trained} trained on {robot}"), there)


def _record(folder: Path, tasks: Sequence[Suite], attempts: int, bars: Bars) -> Done:
    """Demonstrations of the scripted expert."""
    dataset = folder / "dataset"
    there = recording.completed(dataset) is not None
    with bars("recording", "attempt") as bar:
        # One that is there is refused if its settings were others.
        made = recording.record(tasks, dataset, attempts, progress=bar.recorded)
    facts = {name: getattr(made, name) for name in ("attempted", "episodes", "dropped", "frames", "fps")}
    facts |= {"folder": "dataset", "failed": to_plain(made.failed_clauses)}
    return Done(facts, f"{made}, in {dataset}", there)


def _train(folder: Path, recipe: Recipe, bars: Bars) -> Done:
    """Train the small pi0.5 with a body."""
    steps, before = recipe.training.steps, checkpoint.steps(folder / "checkpoints")
    with bars("training", "step") as bar:
        run = trials.train(recipe, folder, on_report=bar.trained)
    if run.stopped:
        raise Terminated  # the next run does the rest
    facts = {
        "recipe": to_plain(recipe),
        "steps": steps,
        "parameters": run.parameters,
        "parameters_by_part": run.parts,
        "curve": run.curve,
    }
    words = f"{steps} steps of a model of {run.parameters / 1e6:.2f} million parameters"
    for key, name in (("loss", "loss"), ("held_out_loss", "held out")):
        losses = [line[key] for line in run.curve if line.get(key) is not None]
        words += f", {name} {losses[-1]:.3f}" if losses else ""
    return Done(facts, words, bool(before) and before[-1] >= steps)


class _Asked(NamedTuple):
    """A policy that is evaluated."""

    name: str
    policy: policies.CheckpointPolicy | perception.Seeing
    episodes: int
    videos: int


def _evaluate(folder: Path, tasks: Sequence[Suite], settings: Settings, bars: Bars) -> Done:
    """The trained checkpoint over the table of initial states, and another that it is compared with."""
    other = ("untrained", _policy(folder / "train", 0))
    if settings.has_base:
        other = ("scratch", _policy(folder / "scratch", -1))
    last = ("fine-tuned" if settings.has_base else "trained", _policy(folder / "train", -1))
    few, many = settings.rows
    asked = [_Asked(*other, few, UNTRAINED_VIDEOS), _Asked(*last, many, VIDEOS)]
    measured, there = _evaluated(folder, tasks, asked, bars)
    words = (f"{r.policy.label} {r.summary.successes} of {r.summary.trials}" for r in measured)
    return Done(measured, ", ".join(words), there)


def _evaluated(
    folder: Path, tasks: Sequence[Suite], several: Sequence[_Asked], bars: Bars
) -> tuple[list[Record], bool]:
    """The records of policies, each in the folder of its name, and whether all were there."""
    measured, there = [], True
    for name, policy, count, videos in several:
        place = folder / "eval" / name
        earlier = rollout.finished(place)
        with bars(f"evaluating {name}", "episode") as bar:
            record = evaluate(
                policy, tasks, folder=place, name=name, episodes=count, videos=videos,
                progress=bar.evaluated, groups=2 if count > policies.EVALUATION_BATCH else 1,
            )  # fmt: skip
        there &= record == earlier
        measured.append(record)
    return measured, there


def _policy(folder: Path, which: int) -> policies.CheckpointPolicy:
    """A training's first checkpoint (0) or its last (-1)."""
    checkpoints = folder / "checkpoints"
    chosen = checkpoints / str(checkpoint.steps(checkpoints)[which])
    return policies.load(chosen, batch=policies.EVALUATION_BATCH, noise=NOISE)


def _attention(folder: Path, tasks: Sequence[Suite], record: Record) -> Done:
    """What goes on inside the trained policy, over an episode in which it succeeded, where it did."""
    policy = _policy(folder / "train", -1)
    shown = inside.kinds(policy)
    if not shown:
        return Done({}, "neither kinematic tokens nor fewer image tokens in this recipe: nothing to show")
    filmed = [trial for trial in record.trials if trial.success and trial.video]
    trial = next(iter(filmed), record.trials[0])
    task = next(task for task in tasks if task.task_key == trial.task)
    files, there = inside.write(folder, policy, task, trial.episode, shown)
    what = {"attention": "between joints", "image_tokens": "image tokens that are kept"}
    names = " and ".join(what[kind] for kind in files)
    words = f"{names}, in episode {trial.episode} of {task.task_key}: {folder / files[shown[0]]}"
    return Done(files, words, there)


def _report(folder: Path, study: Study | Record) -> Done:
    path = report.write(folder, study)
    return Done(path, f"{path} ({path.stat().st_size / 1e6:.1f} MB, opens offline)")
