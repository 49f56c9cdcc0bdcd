"""`morph-vla demo`: the main job, small, real, end to end.

From a URDF to a success rate with an interval, in one folder. Every stage finds what an earlier run left and
says so; an interrupted stage goes on where it stopped.
"""

import argparse
import contextlib
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from morph_vla import process
from morph_vla.cli.common import add_json, print_json
from morph_vla.doctor import machine
from morph_vla.errors import MorphVlaError
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
ATTEMPTS = 750  # demonstrations tried
EPISODES = 100  # initial states of each task that the trained policy meets
UNTRAINED_EPISODES = 10  # and that the untrained one meets, which uses all of every episode's time
NOISE = 0.0  # times the sampler's noise: 0 asks for the mean of what was learnt
VIDEOS, UNTRAINED_VIDEOS = 6, 2  # films of each task
STAGES = ("robot", "record", "train", "evaluate", "attention", "report")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla demo`."""
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help=f"changes to the recipe {RECIPE}")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("runs/demo"), metavar="FOLDER", help="where it goes"
    )
    parser.add_argument(
        "--suite", default=SUITE, help=f"tasks of a Panda, for example {SUITE}:cube_in_bowl (default {SUITE})"
    )
    parser.add_argument(
        "--attempts", type=int, default=ATTEMPTS, help=f"demonstrations to try (default {ATTEMPTS})"
    )
    parser.add_argument(
        "--episodes",
        type=int,
        default=EPISODES,
        help=f"initial states of each task that the trained policy meets (default {EPISODES})",
    )
    parser.add_argument(
        "--untrained-episodes",
        type=int,
        default=None,
        metavar="N",
        help=f"and that the untrained policy meets (default: as many, at most {UNTRAINED_EPISODES})",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run what is missing of the six stages, a line each, and print the result."""
    from morph_vla.cli import demo_words
    from morph_vla.cli.progress import passing
    from morph_vla.doctor import require_gl
    from morph_vla.suites import suite

    process.prepare()
    rows = arguments.episodes, _untrained_rows(arguments)
    if arguments.attempts < 10 or min(rows) < 1:
        raise MorphVlaError("the demo wants at least 10 attempts and 1 episode")
    require_gl()
    folder, tasks = arguments.output, suite.load_tasks(arguments.suite)
    say = partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    say(f"The demo, in {folder}. Ctrl-C stops it, the same command goes on.\n")
    clock = _Clock(folder, say)
    with passing():
        robot = clock.measure("robot", lambda: _robot(folder))
        recording = clock.measure("record", lambda: _record(folder, tasks, arguments.attempts))
        training = clock.measure("train", lambda: _train(folder, arguments.overrides))
        records = clock.measure("evaluate", lambda: _evaluate(folder, tasks, rows))
        attention = clock.measure("attention", lambda: _attention(folder, tasks, records[-1]))
        study = _compose(folder, robot, recording, training, records, attention, clock, arguments)
        report = clock.measure("report", lambda: _report(folder, study))
    if arguments.json:
        print_json({"folder": str(folder), "report": str(report), "record": str(folder / "record.json")})
    else:
        demo_words.show(study, folder, report, arguments.suite, arguments.episodes)


def _untrained_rows(arguments: argparse.Namespace) -> int:
    asked = arguments.untrained_episodes
    return min(arguments.episodes, UNTRAINED_EPISODES) if asked is None else asked


class Done(NamedTuple):
    """What a stage hands on, what it says in one line, and whether an earlier run had made it."""

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
    return Done(
        facts, f"panda: {len(facts['joints'])} joints of its URDF ({joints}), drawn in {picture}", there
    )


def _record(folder: Path, tasks: "Sequence[Suite]", attempts: int) -> Done:
    """Demonstrations of the scripted expert."""
    from morph_vla.cli.progress import Bar, counting
    from morph_vla.cli.record import sentence
    from morph_vla.demonstrations import recording as record

    dataset = folder / "dataset"
    there = record.completed(dataset) is not None
    if there:
        done = record.record(tasks, dataset, attempts)  # refuses one of other settings
    else:
        with Bar("recording", attempts, "attempt") as bar:
            done = record.record(tasks, dataset, attempts, progress=counting(bar))
    facts = {
        "attempted": done.attempted,
        "episodes": done.episodes,
        "dropped": done.dropped,
        "frames": done.frames,
        "fps": done.fps,
        "folder": "dataset",
        "failed": to_plain(done.failed_clauses),
    }
    return Done(facts, f"{sentence(done)}, in {dataset}", there)


def _train(folder: Path, overrides: list[str]) -> Done:
    """Fine-tune the small pi0.5 with a body."""
    from morph_vla.cli.train import Progress
    from morph_vla.recipes import recipe as config
    from morph_vla.serving import trials
    from morph_vla.training import checkpoint

    recipe = config.load(RECIPE, [*overrides, f"data.dataset={folder / 'dataset'}"])
    before = checkpoint.steps(folder / "train" / "checkpoints")
    there = bool(before) and before[-1] >= recipe.training.steps
    with contextlib.ExitStack() as stack:
        run = trials.train(recipe, folder / "train", on_report=Progress(stack))
    if run.stopped:
        raise KeyboardInterrupt  # by SIGTERM: what is left of the demo is for the next run
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

    records, there = [], True
    for name, which, count, videos in (
        ("untrained", 0, rows[1], UNTRAINED_VIDEOS), ("trained", -1, rows[0], VIDEOS)
    ):  # fmt: skip
        place = folder / "eval" / name
        earlier = finished(place)
        with Bars(f"evaluating {name}", "episode") as bars:
            record = evaluate(
                _policy(folder, which), tasks, folder=place, name=name, episodes=count, videos=videos,
                progress=bars.evaluated,
            )  # fmt: skip
        there &= record == earlier
        records.append(record)
    words = ", ".join(
        f"{record.policy.label} {record.summary.successes} of {record.summary.trials}" for record in records
    )
    return Done(records, words, there)


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
        return Done("", "no kinematic tokens in this recipe: nothing to show")
    filmed = [trial for trial in record.trials if trial.success and trial.video]
    trial = next(iter(filmed), record.trials[0])
    task = next(task for task in tasks if task.task_key == trial.task)
    there = attention.write(path, policy, task, trial.episode)
    return Done(path.name, f"between joints, in episode {trial.episode} of {task.task_key}: {path}", there)


def _compose(
    folder: Path,
    robot: dict[str, Any],
    recording: dict[str, Any],
    training: dict[str, Any],
    records: list["Record"],
    attention: str,
    clock: _Clock,
    arguments: argparse.Namespace,
) -> "Study":
    """The demo's record.json, with every path relative to its folder."""
    from morph_vla.evaluation import rollout
    from morph_vla.files.plain import to_plain
    from morph_vla.results import comparison
    from morph_vla.results.record import FILE_NAME, Study, write

    words = [
        *arguments.overrides,
        f"--suite {arguments.suite}",
        f"--attempts {arguments.attempts}",
        f"--episodes {arguments.episodes}",
        f"--untrained-episodes {_untrained_rows(arguments)}",
    ]
    study = Study(
        robot=robot,
        recording={**recording, "seconds": clock.seconds["record"]},
        training={**training, "seconds": clock.seconds["train"]},
        evaluations=tuple(records),
        difference=to_plain(comparison.compare(records[0], records[1])),
        pictures={"joint_graph": "joint_graph.png", **({"attention": attention} if attention else {})},
        machine=machine(),
        versions=rollout.versions(),
        command=f"morph-vla demo {' '.join(words)}",
        seconds_by_stage={stage: clock.seconds[stage] for stage in STAGES if stage in clock.seconds},
        time=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        folder=folder,
    )
    write(study, folder / FILE_NAME)
    return study


def _report(folder: Path, study: "Study") -> Done:
    from morph_vla import report

    path = report.write(folder, study)
    return Done(path, f"{path} ({path.stat().st_size / 1e6:.1f} MB, opens offline)")
