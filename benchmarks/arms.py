"""From strangers' URDFs to success rates: `python -m benchmarks.arms FILE... -o FOLDER`.

Each file is added to the folder, gets a suite as `morph-vla suites new` writes it, and its expert tries the
first states of every task. Prints a table; FOLDER/arms.png shows each arm with the object in its hand.
Seconds are those from the file to the suite, without the trials.
"""

import argparse
import math
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from morph_vla.demonstrations import new_suite
from morph_vla.demonstrations.check import check
from morph_vla.demonstrations.experts import PickAndPlace
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import MorphVlaError, require
from morph_vla.files.dropin import add_to_path
from morph_vla.robots import Robot, adding
from morph_vla.robots.limb import Arm, find
from morph_vla.suites.suite import Suite, initial_state, load_tasks
from morph_vla.wording import table

HANDS = {"parallel": "its own", "other": "ours, for its own", "none": "ours"}
HEADER = ("arm", "joints", "hand", "opens by", "s", "task", "expert", "median s")


@dataclass(frozen=True)
class Row:
    """An arm in the table, or why it is none."""

    cells: tuple[tuple[object, ...], ...]
    frame: np.ndarray | None = None


def measure(source: Path, folder: Path, states: int) -> Row:
    """One arm: a line for each task."""
    name, began = source.stem, time.monotonic()
    try:
        robot = adding.add_arm(source, folder=folder / "urdf_descriptors").robot
        arm, path = find(adding.examine_new(source).urdf), folder / "eval" / f"{name}.yaml"
        path.unlink(missing_ok=True)
        made = new_suite.make(name, robot, path=path, trials=0)
    except MorphVlaError as error:
        return Row(((name, "", "", "", "", f"- {error}", "", ""),))
    spent, tasks = time.monotonic() - began, load_tasks(path)
    checks = [check(task, states, workers=1) for task in tasks]
    head = _head(name, arm, made, spent)
    cells = [
        (
            *(head if first else [""] * 5),
            done.suite.partition(":")[2],
            f"{done.successes} of {states}",
            done.seconds,
        )
        for first, done in zip([True] + [False] * len(checks), checks, strict=False)
    ]
    return Row(tuple(cells), holding(robot, tasks[0]))


def _head(name: str, arm: Arm, made: new_suite.Made, spent: float) -> list[object]:
    return [name, len(arm.joints), HANDS[arm.hand], f"{1000 * made.plan.tool.opening:.0f} mm", f"{spent:.1f}"]


def holding(robot: Robot, suite: Suite) -> np.ndarray:
    """A picture of the scene when the object has just been lifted."""
    engine = MujocoEngine(robot, suite)
    engine.reset({0: initial_state(suite, 0, len(robot.joints))})
    actions = PickAndPlace(engine).plan(0).actions
    gripper = next(index for index, joint in enumerate(robot.joints) if joint.is_gripper)
    closing = int(np.argmax(actions[:, gripper] != actions[0, gripper]))
    for action in actions[: closing + round(suite.control_rate)]:
        engine.step({0: action})
    frame = engine.scene_view(0)
    engine.close()
    return frame


def sheet(frames: dict[str, np.ndarray], path: Path, columns: int = 4) -> None:
    """One picture of all, with their names."""
    pyplot = require("matplotlib.pyplot", "sim")
    rows = math.ceil(len(frames) / columns)
    figure, places = pyplot.subplots(rows, columns, figsize=(3 * columns, 2.3 * rows), squeeze=False)
    for place in places.flat:
        place.axis("off")
    for place, (name, frame) in zip(places.flat, frames.items(), strict=False):
        place.imshow(frame)
        place.set_title(name, fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    """Measure every file that is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("runs/arms"))
    parser.add_argument("--states", type=int, default=20)
    arguments = parser.parse_args()
    os.environ.setdefault("MPLBACKEND", "Agg")
    add_to_path(arguments.output)
    cells, frames = [], {}
    for source in arguments.files:
        row = measure(source, arguments.output, arguments.states)
        print(source.stem, row.cells[0][4:], file=sys.stderr, flush=True)
        cells += row.cells
        if row.frame is not None:
            frames[source.stem] = row.frame
    if frames:
        sheet(frames, arguments.output / "arms.png")
    print("\n".join(table(HEADER, cells)))


if __name__ == "__main__":
    main()
