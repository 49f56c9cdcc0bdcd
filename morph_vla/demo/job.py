"""The demo's stages: each finds what an earlier run left; an interrupted one continues where it stopped."""

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from morph_vla import report, robots
from morph_vla.demonstrations import new_suite, recording
from morph_vla.doctor import machine, require_gl
from morph_vla.evaluation import rollout
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.files.dropin import add_to_path
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text
from morph_vla.process import versions
from morph_vla.recipes import recipe as recipes
from morph_vla.results import record as records
from morph_vla.results.comparison import compare
from morph_vla.results.record import Record, Study
from morph_vla.robots import adding, draw
from morph_vla.serving import attention, trials
from morph_vla.serving import policy as policies
from morph_vla.suites import suite as suites
from morph_vla.suites.suite import Suite
from morph_vla.training import checkpoint
from morph_vla.wording import span

LOG = logging.getLogger(__name__)
SUITE, RECIPE, JOINTS = "droid_panda", "panda_demo", 8
UNTRAINED_EPISODES = 5  # few, for an untrained policy uses all of every episode's time
NOISE = 0.0  # times the sampler's noise: 0 asks for the mean of what was learnt
VIDEOS, UNTRAINED_VIDEOS = 6, 1  # films of each task
STAGES = ("robot", "record", "train", "evaluate", "attention", "report")

Bars = Callable[[str, str], AbstractContextManager[Any]]
"""(label, unit) -> progress bars with the methods of `Quiet`"""


@dataclass(frozen=True)
class Settings:
    """How large the demo is."""

    suite: str = SUITE
    """Tasks of a Panda"""
    robot: Path | None = None
    """A URDF of an arm: it gets a suite of its own, in place of `suite`"""
    overrides: Sequence[str] = ()
    """Changes to the recipe"""
    attempts: int = 750
    episodes: int = 100
    """Initial states of each task in which the trained policy is evaluated"""
    untrained_episodes: int | None = None
    """The same for the untrained policy; None: as many, but at most `UNTRAINED_EPISODES`"""

    @property
    def rows(self) -> tuple[int, int]:
        """Episodes of a task for the untrained and the trained policy."""
        untrained = self.untrained_episodes
        return min(self.episodes, UNTRAINED_EPISODES) if untrained is None else untrained, self.episodes

    @property
    def command(self) -> str:
        """The whole command, with what was left to its default."""
        asked = f"--suite {self.suite}" if self.robot is None else f"--robot {self.robot}"
        words = [*self.overrides, asked, f"--attempts {self.attempts}"]
        words += [f"--episodes {self.rows[1]}", f"--untrained-episodes {self.rows[0]}"]
        return f"morph-vla demo {' '.join(words)}"


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
    settings: Settings = Settings(),
    say: Callable[[str], None] = LOG.info,
    bars: Bars = Quiet,
) -> Study:
    """Run what is missing of the six stages, each of which says a line; record and page lie in `folder`.

    Raises MorphVlaError as the stages do, and KeyboardInterrupt where SIGTERM stopped the training.
    """
    require_gl()
    clock = _Clock(folder, say)
    # An arm's own folders, before those of the user: here, and in the processes that this one starts.
    if settings.robot is not None:
        add_to_path(folder)
    robot, tasks = clock.measure("robot", lambda: _robot(folder, settings))
    overrides = [*(_of_robot(robot) if settings.robot else ()), *settings.overrides]
    recorded = clock.measure("record", lambda: _record(folder, tasks, settings.attempts, bars))
    trained = clock.measure("train", lambda: _train(folder, overrides, bars))
    untrained, last = clock.measure("evaluate", lambda: _evaluate(folder, tasks, settings.rows, bars))
    pictures = clock.measure("attention", lambda: _attention(folder, tasks, last))
    study = Study(
        robot=robot,
        recording={**recorded, "seconds": clock.seconds["record"]},
        training={**trained, "seconds": clock.seconds["train"]},
        evaluations=(untrained, last),
        difference=to_plain(compare(untrained, last)),
        pictures={"joint_graph": "joint_graph.png", **pictures},
        machine=machine(),
        versions=versions(),
        command=settings.command,
        seconds_by_stage={stage: clock.seconds[stage] for stage in STAGES if stage in clock.seconds},
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        folder=folder,
    )
    records.write(study, folder / records.FILE_NAME)
    clock.measure("report", lambda: _report(folder, study))
    return study


class Done(NamedTuple):
    """A stage's result, its line, and whether an earlier run had made it."""

    value: Any
    words: str
    there: bool = False


class _Clock:
    """A line a stage, and its seconds, added up over interrupted runs and kept in the folder."""

    def __init__(self, folder: Path, say: Callable[[str], None]):
        self._path, self._say = folder / "seconds.json", say
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
        head = f"{STAGES.index(stage) + 1}/{len(STAGES)}  {stage:<9}  "
        first, *others = done.words.split("\n")
        first = f"already there: {first}" if done.there else f"{first}  ({span(spent)})"
        self._say("\n".join([head + first, *(" " * len(head) + line for line in others)]))
        return done.value

    def _add(self, stage: str, spent: float) -> None:
        self.seconds[stage] = round(self.seconds.get(stage, 0.0) + spent, 1)
        write_text(self._path, json.dumps(self.seconds))


def _robot(folder: Path, settings: Settings) -> Done:
    """Read the URDF, draw its graph; an arm that is new is added to the folder, with a suite."""
    if settings.robot is None:
        tasks = suites.load_tasks(settings.suite)
    else:
        tasks = _suite(folder, settings.robot)
    robot = robots.load(tasks[0].robot)
    facts, picture = robot.as_dict(), folder / "joint_graph.png"
    there = picture.exists()
    if not there:
        folder.mkdir(parents=True, exist_ok=True)
        draw.write(robot, picture)
    kinds = Counter(joint["type"] for joint in facts["joints"])
    joints = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    words = f"{robot.name}: {len(facts['joints'])} joints of its URDF ({joints}), drawn in {picture}"
    return Done((facts, tasks), words, there)


def _suite(folder: Path, source: Path) -> tuple[Suite, ...]:
    """The tasks of an arm's suite in the folder, written by the first run."""
    added, path = (
        adding.add_arm(source, folder=folder / "urdf_descriptors"),
        folder / "eval" / f"{source.stem}.yaml",
    )
    if not path.exists():
        new_suite.make(source.stem, added.robot, path=path)
    return suites.load_tasks(path)


def _of_robot(facts: dict[str, Any]) -> list[str]:
    """What the demo's recipe has to say of another robot than the Panda."""
    joints = len(facts["joints"])
    wide = [f"model.action_dim={joints}", f"model.morphology.max_joints={joints}"] if joints > JOINTS else []
    return [f"data.robot={facts['name']}", *wide]


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


def _train(folder: Path, overrides: Sequence[str], bars: Bars) -> Done:
    """Fine-tune the small pi0.5 with a body."""
    recipe = recipes.load(RECIPE, [*overrides, f"data.dataset={folder / 'dataset'}"])
    steps, before = recipe.training.steps, checkpoint.steps(folder / "train" / "checkpoints")
    with bars("training", "step") as bar:
        run = trials.train(recipe, folder / "train", on_report=bar.trained)
    if run.stopped:
        raise KeyboardInterrupt  # by SIGTERM: the next run does the rest
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


def _evaluate(folder: Path, tasks: Sequence[Suite], rows: tuple[int, int], bars: Bars) -> Done:
    """The trained and the untrained checkpoint over the same table of initial states."""
    measured, there = [], True
    for name, which, count, videos in (
        ("untrained", 0, rows[0], UNTRAINED_VIDEOS), ("trained", -1, rows[1], VIDEOS)
    ):  # fmt: skip
        place = folder / "eval" / name
        earlier = rollout.finished(place)
        with bars(f"evaluating {name}", "episode") as bar:
            record = evaluate(
                _policy(folder, which), tasks, folder=place, name=name, episodes=count, videos=videos,
                progress=bar.evaluated, groups=2 if count > policies.EVALUATION_BATCH else 1,
            )  # fmt: skip
        there &= record == earlier
        measured.append(record)
    words = (f"{r.policy.label} {r.summary.successes} of {r.summary.trials}" for r in measured)
    return Done(measured, ", ".join(words), there)


def _policy(folder: Path, which: int) -> policies.CheckpointPolicy:
    """The demo's first checkpoint (0) or its last (-1)."""
    checkpoints = folder / "train" / "checkpoints"
    chosen = checkpoints / str(checkpoint.steps(checkpoints)[which])
    return policies.load(chosen, batch=policies.EVALUATION_BATCH, noise=NOISE)


def _attention(folder: Path, tasks: Sequence[Suite], record: Record) -> Done:
    """Who attends to whom in the trained policy, over an episode in which it succeeded, where it did."""
    path, policy = folder / "attention.json", _policy(folder, -1)
    if policy.config.morphology is None:
        return Done({}, "no kinematic tokens in this recipe: nothing to show")
    filmed = [trial for trial in record.trials if trial.success and trial.video]
    trial = next(iter(filmed), record.trials[0])
    task = next(task for task in tasks if task.task_key == trial.task)
    there = attention.write(path, policy, task, trial.episode)
    words = f"between joints, in episode {trial.episode} of {task.task_key}: {path}"
    return Done({"attention": path.name}, words, there)


def _report(folder: Path, study: Study) -> Done:
    path = report.write(folder, study)
    return Done(path, f"{path} ({path.stat().st_size / 1e6:.1f} MB, opens offline)")
