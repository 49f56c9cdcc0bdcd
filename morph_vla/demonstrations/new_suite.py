"""A suite for an arm that nobody has written one for, tried with the scripted expert before it is kept."""

import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.demonstrations.check import ERROR, Check, check
from morph_vla.errors import MorphVlaError
from morph_vla.files.dropin import KINDS, available, check_name
from morph_vla.files.writing import write_text
from morph_vla.robots import Robot
from morph_vla.suites import new
from morph_vla.suites.mounts import CameraSide
from morph_vla.suites.suite import load_tasks

DEFAULT = "pick_and_place"
TRIALS, ENOUGH = 20, 0.9  # states to try each task in, and the share in which the expert must succeed


@dataclass(frozen=True)
class Made:
    """A suite that was written, and how the expert did in it."""

    path: Path
    plan: new.Plan
    kept: tuple[Check, ...]
    dropped: tuple[Check, ...]
    """Tasks that were left out, because the expert failed"""

    def __str__(self) -> str:
        """What was written, a line a task, and what to do next."""
        field, scale = self.plan.field, self.plan.scale
        stem = self.path.stem
        registered = available("suites").get(stem)
        is_it = registered is not None and registered.resolve() == self.path.resolve()
        name = shlex.quote(stem if is_it else str(self.path))
        home = shlex.quote(f"runs/{stem}")
        area = f"{2 * field.depth:.2g} x {2 * field.width:.2g} m of a table"
        top = float(field.origin[2])
        if top:
            area += f" whose top is {abs(top):.2f} m {'above' if top > 0 else 'below'} the robot's root"
        lines = [
            f"wrote {self.path}: {area}, objects {scale:.2g} times those of a Panda",
            *(f"  {done}" for done in self.kept),
            *(f"  left out: {done}" for done in self.dropped),
            f"\nnext: `morph-vla suites check {name}`, then `morph-vla record {name} -o runs/demos`",
        ]
        if len(self.plan.robot.side.grippers) == 1:  # what that base drives
            ready = f"morph-vla eval pi05-arms --suite {name} --noise 0 -o {home}"
            lines.append(f"or without a demonstration: `{ready}`")
        return "\n".join(lines)


def make(
    name: str,
    robot: Robot,
    tasks: Sequence[str] = (DEFAULT,),
    path: Path | None = None,
    *,
    trials: int = TRIALS,
    workers: int | None = None,
    overwrite: bool = False,
    table: float | None = None,
    level: bool = False,
    camera_side: CameraSide = "ahead",
) -> Made:
    """Write the suite `name` for a robot's arm, with those of `tasks` in which the expert succeeds.

    `path` is the file (default: in `./eval`). It is written once the tasks have been tried, in a folder
    beside it: whatever ends this sooner leaves no suite. With no `trials` every task is kept, untried.
    `table` is how high its top is above the robot's root [m], `level` bids it stand at the root's height,
    and on `camera_side` of the hand is its camera, as `new.plan` has them.

    Raises MorphVlaError with the one reason why the arm cannot do any, as `new.plan` and `new.chosen` do, for
    a file that is not .yaml, and without `overwrite` where a file is there.
    """
    check_name(name, "suite")
    folder, suffix = KINDS["suites"]
    path = path or Path(folder) / f"{name}{suffix}"
    if path.suffix != suffix:
        raise MorphVlaError(f"{path}: a suite's file must end in {suffix}")
    check_name(path.stem, "suite")
    if path.exists() and not overwrite:
        raise MorphVlaError(f"{path} exists; give the suite another name, or write it again (--overwrite)")
    plan = new.plan(robot, table, level=level, camera_side=camera_side)
    names = new.chosen(tasks, plan)
    checks = _tried(path, new.text(path.stem, plan, names), trials, workers) if trials else []
    good = {
        task: done for task, done in zip(names, checks, strict=False) if done.successes >= ENOUGH * trials
    }
    if trials and not good:
        raise MorphVlaError(f"{robot.name}: the expert fails every task; {_nearest(checks)}")
    write_text(path, new.text(path.stem, plan, tuple(good) if trials else names))
    dropped = tuple(done for task, done in zip(names, checks, strict=False) if task not in good)
    return Made(path, plan, tuple(good.values()), dropped)


def _tried(path: Path, text: str, trials: int, workers: int | None) -> list[Check]:
    """The expert in every task of a suite that is not at `path` yet, but in a hidden folder beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{path.stem}.", dir=path.parent) as folder:
        suite = Path(folder) / path.name
        write_text(suite, text)
        return [check(task, trials, workers=workers) for task in load_tasks(suite)]


def _nearest(checks: Sequence[Check]) -> str:
    """The check that went best, and at which clause most of its episodes failed."""
    best = max(checks, key=lambda done: done.successes)
    clause, episodes = max(best.failed.items(), key=lambda item: len(item[1]))
    attempts = f"in {best.suite} {len(episodes)} of {len(best.outcomes)} attempts"
    errors = [outcome.error for outcome in best.outcomes if outcome.error]
    return f"{attempts} ended so: {errors[0]}" if clause == ERROR else f"{attempts} failed at '{clause}'"
