"""`morph-vla demo`: the main job, small, real, end to end.

From a URDF to a success rate with an interval, in one folder. Every stage finds what an earlier run left and
says so; an interrupted stage continues where it stopped.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from morph_vla import process
from morph_vla.cli.common import add, add_json, add_number, add_output, add_overrides
from morph_vla.cli.render import render
from morph_vla.doctor import machine
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text

if TYPE_CHECKING:
    from morph_vla.results.record import Record, Study
    from morph_vla.serving.policy import CheckpointPolicy
    from morph_vla.suites.suite import Suite

EXAMPLES = """
  morph-vla demo
  morph-vla demo training.steps=200 --attempts 60 --episodes 20 -o runs/quick
"""

SUITE, RECIPE = "droid_panda", "panda_demo"
UNTRAINED_EPISODES = 5  # few, for an untrained policy uses all of every episode's time
NOISE = 0.0  # times the sampler's noise: 0 asks for the mean of what was learnt
VIDEOS, UNTRAINED_VIDEOS = 6, 1  # films of each task
STAGES = ("robot", "record", "train", "evaluate", "attention", "report")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla demo`."""
    add_overrides(parser, f"recipe {RECIPE}")
    add_output(parser, "the folder for everything that it makes (default runs/demo)", Path("runs/demo"))
    about = f"tasks of a Panda, for example {SUITE}:cube_in_bowl (default {SUITE})"
    add(parser, "--suite", about, "SUITE", default=SUITE)
    add_number(parser, "--attempts", 750, "demonstrations to try", least=10)
    about = "initial states of each task in which the trained policy is evaluated"
    add_number(parser, "--episodes", 100, about, least=1)
    about = f"the same for the untrained policy (default: as many, but at most {UNTRAINED_EPISODES})"
    add_number(parser, "--untrained-episodes", None, about, least=1)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing of the six stages, a line each, and print the result."""
    from morph_vla.cli import demo_words
    from morph_vla.cli.progress import passing
    from morph_vla.doctor import require_gl
    from morph_vla.evaluation.rollout import versions
    from morph_vla.results.comparison import compare
    from morph_vla.results.record import FILE_NAME, Study, write
    from morph_vla.suites import suite

    process.prepare()
    require_gl()
    folder, tasks = arguments.output, suite.load_tasks(arguments.suite)
    rows = _untrained_rows(arguments), arguments.episodes
    say = partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    say(f"The demo, in {folder}. Ctrl-C stops it; the same command goes on.\n")
    clock = _Clock(folder, say)
    with passing():
        robot = clock.measure("robot", lambda: _robot(folder))
        recording = clock.measure("record", lambda: _record(folder, tasks, arguments.attempts))
        training = clock.measure("train", lambda: _train(folder, arguments.overrides))
        records = clock.measure("evaluate", lambda: _evaluate(folder, tasks, rows))
        pictures = clock.measure("attention", lambda: _attention(folder, tasks, records[-1]))
        study = Study(
            robot=robot,
            recording={**recording, "seconds": clock.seconds["record"]},
            training={**training, "seconds": clock.seconds["train"]},
            evaluations=tuple(records),
            difference=to_plain(compare(records[0], records[1])),
            pictures={"joint_graph": "joint_graph.png", **pictures},
            machine=machine(),
            versions=versions(),
            command=_command(arguments, rows),
            seconds_by_stage={stage: clock.seconds[stage] for stage in STAGES if stage in clock.seconds},
            time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            folder=folder,
        )
        write(study, folder / FILE_NAME)
        report = clock.measure("report", lambda: _report(folder, study))
    answer = {"folder": folder, "report": report, "record": folder / "record.json"}
    lines = demo_words.lines(study, folder, report, arguments.suite, arguments.episodes)
    render(answer, arguments.json, lambda _: lines)


def _untrained_rows(arguments: argparse.Namespace) -> int:
    asked = arguments.untrained_episodes
    return min(arguments.episodes, UNTRAINED_EPISODES) if asked is None else asked


def _command(arguments: argparse.Namespace, rows: tuple[int, int]) -> str:
    """The whole command, with what was left to its default."""
    words = [*arguments.overrides, f"--suite {arguments.suite}", f"--attempts {arguments.attempts}"]
    words += [f"--episodes {rows[1]}", f"--untrained-episodes {rows[0]}"]
    return f"morph-vla demo {' '.join(words)}"


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
        from morph_vla.cli.progress import now, span

        began = time.monotonic()
        now(stage)
        try:
            done = work()
        except BaseException:  # an interruption too: what it took so far counts
            self._add(stage, time.monotonic() - began)
            raise
        finally:
            now("")
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


def _robot(folder: Path) -> Done:
    """Read the URDF, draw its graph."""
    from morph_vla import robots
    from morph_vla.robots import draw

    robot = robots.load("panda")
    facts, picture = robot.as_dict(), folder / "joint_graph.png"
    there = picture.exists()
    if not there:
        folder.mkdir(parents=True, exist_ok=True)
        draw.write(robot, picture)
    kinds = Counter(joint["type"] for joint in facts["joints"])
    joints = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    words = f"panda: {len(facts['joints'])} joints of its URDF ({joints}), drawn in {picture}"
    return Done(facts, words, there)


def _record(folder: Path, tasks: "Sequence[Suite]", attempts: int) -> Done:
    """Demonstrations of the scripted expert."""
    from morph_vla.cli.progress import Bar
    from morph_vla.cli.record import sentence
    from morph_vla.demonstrations import recording

    dataset = folder / "dataset"
    there = recording.completed(dataset) is not None
    with nullcontext() if there else Bar("recording", attempts, "attempt") as bar:
        # One that is there is refused if its settings were others.
        made = recording.record(tasks, dataset, attempts, progress=bar and bar.at)
    facts = {name: getattr(made, name) for name in ("attempted", "episodes", "dropped", "frames", "fps")}
    facts |= {"folder": "dataset", "failed": to_plain(made.failed_clauses)}
    return Done(facts, f"{sentence(made)}, in {dataset}", there)


def _train(folder: Path, overrides: list[str]) -> Done:
    """Fine-tune the small pi0.5 with a body."""
    from morph_vla.cli.progress import Bars
    from morph_vla.recipes import recipe as config
    from morph_vla.serving import trials
    from morph_vla.training import checkpoint

    recipe = config.load(RECIPE, [*overrides, f"data.dataset={folder / 'dataset'}"])
    before = checkpoint.steps(folder / "train" / "checkpoints")
    there = bool(before) and before[-1] >= recipe.training.steps
    with Bars("training", "step") as bars:
        run = trials.train(recipe, folder / "train", on_report=bars.trained)
    if run.stopped:
        raise KeyboardInterrupt  # by SIGTERM: the next run does the rest
    facts = {
        "recipe": to_plain(recipe),
        "steps": recipe.training.steps,
        "parameters": run.parameters,
        "parameters_by_part": run.parts,
        "curve": run.curve,
    }
    words = f"{recipe.training.steps} steps of a model of {run.parameters / 1e6:.2f} million parameters"
    for key, name in (("loss", "loss"), ("held_out_loss", "held out")):
        losses = [line[key] for line in run.curve if line.get(key) is not None]
        words += f", {name} {losses[-1]:.3f}" if losses else ""
    return Done(facts, words, there)


def _evaluate(folder: Path, tasks: "Sequence[Suite]", rows: tuple[int, int]) -> Done:
    """The trained and the untrained checkpoint over the same table of initial states."""
    from morph_vla.cli.progress import Bars
    from morph_vla.evaluation.evaluate import evaluate
    from morph_vla.evaluation.rollout import finished
    from morph_vla.serving import policy

    records, there = [], True
    for name, which, count, videos in (
        ("untrained", 0, rows[0], UNTRAINED_VIDEOS), ("trained", -1, rows[1], VIDEOS)
    ):  # fmt: skip
        place = folder / "eval" / name
        earlier = finished(place)
        with Bars(f"evaluating {name}", "episode") as bars:
            record = evaluate(
                _policy(folder, which), tasks, folder=place, name=name, episodes=count, videos=videos,
                progress=bars.evaluated, groups=2 if count > policy.EVALUATION_BATCH else 1,
            )  # fmt: skip
        there &= record == earlier
        records.append(record)
    words = (f"{r.policy.label} {r.summary.successes} of {r.summary.trials}" for r in records)
    return Done(records, ", ".join(words), there)


def _policy(folder: Path, which: int) -> "CheckpointPolicy":
    """The demo's first checkpoint (0) or its last (-1)."""
    from morph_vla.serving import policy
    from morph_vla.training import checkpoint

    checkpoints = folder / "train" / "checkpoints"
    chosen = checkpoints / str(checkpoint.steps(checkpoints)[which])
    return policy.load(chosen, batch=policy.EVALUATION_BATCH, noise=NOISE)


def _attention(folder: Path, tasks: "Sequence[Suite]", record: "Record") -> Done:
    """Who attends to whom in the trained policy, over an episode in which it succeeded, where it did."""
    from morph_vla.serving import attention

    path, policy = folder / "attention.json", _policy(folder, -1)
    if policy.config.morphology is None:
        return Done({}, "no kinematic tokens in this recipe: nothing to show")
    filmed = [trial for trial in record.trials if trial.success and trial.video]
    trial = next(iter(filmed), record.trials[0])
    task = next(task for task in tasks if task.task_key == trial.task)
    there = attention.write(path, policy, task, trial.episode)
    words = f"between joints, in episode {trial.episode} of {task.task_key}: {path}"
    return Done({"attention": path.name}, words, there)


def _report(folder: Path, study: "Study") -> Done:
    from morph_vla import report

    path = report.write(folder, study)
    return Done(path, f"{path} ({path.stat().st_size / 1e6:.1f} MB, opens offline)")
