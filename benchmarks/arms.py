"""From strangers' URDFs to success rates: `python -m benchmarks.arms FILE... -o FOLDER`.

Each file is added to the folder, gets a suite as `morph-vla suites new` writes it, and its expert tries the
first states of every task. Prints a table; FOLDER/arms.png shows each arm half way through its first task.
Seconds are those from the file to the suite, without the trials.

FOLDER/rows keeps what was measured, a file each: the same command goes on after an interruption, and prints
rows that are there (of the same file, tasks and states) at once. For new ones remove them.
"""

import argparse
import dataclasses
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.cli.common import add_json
from morph_vla.cli.progress import now
from morph_vla.cli.render import print_json
from morph_vla.demonstrations import new_suite
from morph_vla.demonstrations.attempts import expert_of
from morph_vla.demonstrations.check import check
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import MorphVlaError, require
from morph_vla.files.dropin import add_to_path
from morph_vla.files.writing import write_text
from morph_vla.robots import Robot, adding
from morph_vla.robots.limb import find
from morph_vla.suites import new
from morph_vla.suites.suite import Suite, initial_state, load_tasks
from morph_vla.wording import span, table

HANDS = {"parallel": "its own", "other": "ours, for its own", "none": "ours"}
HEADER = ("arm", "joints", "hand", "opens by", "s", "task", "expert", "median s")


@dataclass(frozen=True)
class Tried:
    """The expert in one task."""

    task: str
    successes: int
    median_s: float | None


@dataclass(frozen=True)
class Asked:
    """What a row answers: another file, other tasks or another number of states are another question."""

    digest: str
    """SHA-256 of the file"""
    tasks: tuple[str, ...]
    states: int

    @classmethod
    def of(cls, source: Path, tasks: Sequence[str], states: int) -> "Asked":
        """The question about a file."""
        return cls(hashlib.sha256(source.read_bytes()).hexdigest(), tuple(tasks), states)


@dataclass(frozen=True)
class Row:
    """An arm in the table, or why it is none."""

    name: str
    asked: Asked
    error: str = ""
    joints: int = 0
    hand: str = ""
    opening: float = 0.0
    """[m]"""
    seconds: float = 0.0
    """From the file to the suite"""
    tried: tuple[Tried, ...] = ()

    def __str__(self) -> str:
        """The arm and how the expert did, in a line."""
        tasks = (f"{done.task} {done.successes} of {self.asked.states}" for done in self.tried)
        return f"{self.name}: {self.error or ', '.join(tasks)}"

    def cells(self) -> Iterator[tuple[object, ...]]:
        """Its lines of the table, one a task."""
        if self.error:
            yield (self.name, "", "", "", "", f"- {self.error}", "", "")
        head = (self.name, self.joints, self.hand, f"{1000 * self.opening:.0f} mm", f"{self.seconds:.1f}")
        for index, done in enumerate(self.tried):
            outcome = (done.task, f"{done.successes} of {self.asked.states}", done.median_s)
            yield (*([""] * len(head) if index else head), *outcome)


def keep(row: Row, folder: Path) -> None:
    """Write a row down for the next run."""
    write_text(folder / "rows" / f"{row.name}.json", json.dumps(dataclasses.asdict(row), indent=1))


def kept(path: Path, asked: Asked) -> Row | None:
    """The row of an earlier run; None where there is none, or it answers another question."""
    if not path.is_file():
        return None
    plain: dict[str, Any] = json.loads(path.read_text())
    question = plain.pop("asked")
    tried = tuple(Tried(**done) for done in plain.pop("tried"))
    row = Row(**plain, asked=Asked(**{**question, "tasks": tuple(question["tasks"])}), tried=tried)
    return row if row.asked == asked else None


def measure(source: Path, folder: Path, asked: Asked) -> Row:
    """One arm in every task, and its picture; the row is kept once both are there."""
    name, began = source.stem, time.monotonic()
    path, rows = folder / "eval" / f"{name}.yaml", folder / "rows"
    try:
        robot = adding.add_arm(source, folder=folder / "urdf_descriptors").robot
        arm = find(adding.examine_new(source).urdf)
        path.unlink(missing_ok=True)
        made = new_suite.make(name, robot, asked.tasks, path, trials=0)
    except MorphVlaError as error:
        row = Row(name, asked, str(error))
    else:
        spent, tasks = time.monotonic() - began, load_tasks(path)
        names = new.chosen(asked.tasks, made.plan)  # a single task has no name in the suite
        row = Row(
            name, asked, "", len(arm.joints), HANDS[arm.hand], made.plan.tool.opening, round(spent, 1),
            tuple(_tried(name, task, asked.states) for name, task in zip(names, tasks, strict=True)),
        )  # fmt: skip
        rows.mkdir(parents=True, exist_ok=True)
        require("matplotlib.pyplot", "sim").imsave(rows / f"{name}.png", half_way(robot, tasks[0]))
    keep(row, folder)
    return row


def _tried(name: str, task: Suite, states: int) -> Tried:
    def progress(done: int, total: int) -> None:
        now(f"{task.label}: {done} of {total} states")

    done = check(task, states, workers=1, progress=progress)
    return Tried(name, done.successes, None if done.seconds is None else round(done.seconds, 1))


def measure_all(
    sources: Sequence[Path], folder: Path, tasks: Sequence[str], states: int, say: Callable[[str], None]
) -> Iterator[Row]:
    """The row of every file, kept or measured; `say` is told of each, with the pace and the time left."""
    began, measured = time.monotonic(), 0
    for index, source in enumerate(sources, start=1):
        asked = Asked.of(source, tasks, states)
        row = kept(folder / "rows" / f"{source.stem}.json", asked)
        if row is not None:
            say(f"{index}/{len(sources)}  {row}  (kept)")
        else:
            row, measured = measure(source, folder, asked), measured + 1
            pace = (time.monotonic() - began) / measured
            left = f"{span(pace)} a file, at most {span(pace * (len(sources) - index))} left"
            say(f"{index}/{len(sources)}  {row}  ({left})")
        yield row


def half_way(robot: Robot, suite: Suite) -> np.ndarray:
    """A picture of the scene in the middle of the expert's plan."""
    engine = MujocoEngine(robot, suite)
    engine.reset({0: initial_state(suite, 0, len(robot.joints))})
    actions = expert_of(engine).plan(0).actions
    for action in actions[: len(actions) // 2]:
        engine.step({0: action})
    frame = engine.scene_view(0)
    engine.close()
    return frame


def sheet(pictures: Sequence[Path], path: Path, columns: int = 4) -> None:
    """One picture of all, with their names."""
    pyplot = require("matplotlib.pyplot", "sim")
    rows = math.ceil(len(pictures) / columns)
    figure, places = pyplot.subplots(rows, columns, figsize=(3 * columns, 2.3 * rows), squeeze=False)
    for place in places.flat:
        place.axis("off")
    for place, picture in zip(places.flat, pictures, strict=False):
        place.imshow(pyplot.imread(picture))
        place.set_title(picture.stem, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main(words: Sequence[str] | None = None) -> None:
    """Measure every file that is named; Ctrl-C ends it with the rows there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/arms"))
    parser.add_argument("--task", default=new_suite.DEFAULT, help="tasks, with commas between")
    parser.add_argument("--states", type=int, default=20)
    add_json(parser)
    arguments = parser.parse_args(words)
    os.environ.setdefault("MPLBACKEND", "Agg")
    folder, rows = arguments.output, []
    add_to_path(folder)

    def say(line: str) -> None:
        now("")
        print(line, file=sys.stderr, flush=True)

    tasks = arguments.task.split(",")
    try:
        for row in measure_all(arguments.files, folder, tasks, arguments.states, say):
            rows.append(row)
    except KeyboardInterrupt:
        say(f"stopped after {len(rows)} of {len(arguments.files)} files; the same command goes on")
    if pictures := [folder / "rows" / f"{row.name}.png" for row in rows if not row.error]:
        sheet(pictures, folder / "arms.png")
    if arguments.json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        print("\n".join(table(HEADER, [cells for row in rows for cells in row.cells()])))


if __name__ == "__main__":
    main()
