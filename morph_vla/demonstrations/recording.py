"""Demonstrations of a suite's scripted expert, as a LeRobot v3.0 dataset written by `lerobot`.

Attempts are numbered; attempt i begins in row i of the suite's *demonstration* table (never a state that is
evaluated) and draws its disturbance from the same number, so a dataset does not depend on how many processes
recorded it. Several tasks of one suite share the attempts as their `expert.share` says, each with a numbering
of its own. Attempts are recorded in parts, each a complete small dataset; finished parts survive an
interruption, the last step merges them. Only successful attempts are kept, none of a task that was done
before it began, and the dropped are counted.
"""

import concurrent.futures
import contextlib
import dataclasses
import json
import multiprocessing
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from multiprocessing.sharedctypes import Synchronized
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from morph_vla import process, robots
from morph_vla.demonstrations import beginnings, lerobot_writer, robosuite
from morph_vla.demonstrations.attempts import Demonstration, demonstration, failed_clause
from morph_vla.doctor import require_extras
from morph_vla.engines import by_name as engines
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import Diverged, Worlds, environment_names, environment_state
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import taken, write_text
from morph_vla.results.modes import label, modes
from morph_vla.suites import on_robot
from morph_vla.suites.environment import EnvironmentSuite
from morph_vla.suites.suite import Suite
from morph_vla.wording import count

Task = Suite | EnvironmentSuite
# How an attempt began, the clause that failed, its frames, and with several objects its mode.
Attempted = tuple[str, str | None, int, str]
PART = 50  # attempts per part: about ten seconds of work, the most an interruption can lose
SUMMARY = "recording.json"


@dataclasses.dataclass(frozen=True)
class Recording:
    """What was recorded: kept and dropped attempts, frames, and why attempts were dropped."""

    suite: str
    fingerprint: str
    attempted: int
    episodes: int
    frames: int
    fps: float
    failed_clauses: dict[str, int]
    kinds: dict[str, list[int]] = dataclasses.field(default_factory=dict)
    """How they begin -> [kept, attempted]."""
    modes: dict[str, int] = dataclasses.field(default_factory=dict)
    """Of several objects, which came into which target, in order -> demonstrations kept."""

    @property
    def dropped(self) -> int:
        """Attempts that did not succeed and were not kept."""
        return self.attempted - self.episodes

    def __str__(self) -> str:
        """What was kept, and what was dropped and why."""
        why = ", ".join(f"{count} {clause}" for clause, count in sorted(self.failed_clauses.items()))
        dropped = f"{self.dropped} dropped" + (f" (failed: {why})" if why else "")
        kept = f"kept {self.episodes} of {self.attempted} demonstrations ({self.frames} frames), {dropped}"
        if not set(self.kinds) <= {"rest"}:
            kept = f"{kept}; by how they begin: {beginnings.tally(self.kinds)}"
        ways = modes(Counter(self.modes).elements())
        return f"{kept}\n{ways}" if ways else kept


def record(
    suite: Task | Sequence[Task],
    folder: Path,
    attempts: int,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Recording:
    """Record `attempts` demonstrations of `suite`, or in all of several tasks, into the dataset at `folder`.

    A task is one of our suites, or robosuite's.

    A complete dataset of the same suite and number is left as it is; a partial one is continued. `progress`
    is called with (attempts done, attempts in all). Raises MorphVlaError when `folder` or its `.parts` hold
    something else, while another process records there, when no attempt succeeds, where a camera's size is
    odd, and for tasks that do not go into one dataset.
    """
    tasks = tuple(suite) if isinstance(suite, Sequence) else (suite,)
    if folder.is_symlink():
        folder = folder.resolve()  # parts are beside what appears in their place
    if folder.name in ("", ".."):
        raise MorphVlaError(
            f"{folder}: a recording takes a folder's place when it is whole; name a folder within it"
        )
    _check(tasks, attempts)
    simulator = ("sim",) if isinstance(tasks[0], Suite) else ()  # robosuite says itself what it misses
    require_extras(*simulator, "lerobot", who="a recording")  # before anything is written
    done = completed(folder)
    identity = _identity(tasks, attempts)
    if done is not None:
        if _agree(done.fingerprint, identity):
            _check_whole(folder)
            return done
        changed = ", of other robot files" if _agree(done.fingerprint, identity, without_files=True) else ""
        raise MorphVlaError(
            f"{folder} holds another recording (suite '{done.suite}', {done.attempted} attempts{changed}); "
            "give another folder or remove it"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MorphVlaError(f"{folder} is not empty and holds no recording; give another folder or empty it")
    if os.path.ismount(folder):
        raise MorphVlaError(
            f"{folder} is a mount point, whose place nothing can take; give a folder within it"
        )
    parts = folder.with_name(folder.name + ".parts")
    if not _is_ours(parts / "identity") and any(parts.glob("[!.]*")):
        raise MorphVlaError(
            f"{parts} holds something else, and a recording keeps its parts there; move or remove it"
        )
    with taken(parts / ".lock") as is_ours:
        if not is_ours:
            raise MorphVlaError(f"{folder}: another process records there; wait, or give another folder")
        if completed(folder) is not None:  # between our first look and the lock
            raise MorphVlaError(f"{folder}: another process has just recorded there; see what, and try again")
        _begin(parts, identity, folder)
        attempted = _record_parts(tasks, parts, attempts, workers or os.cpu_count() or 1, progress)
        result = _merge(tasks[0], identity, parts, folder, attempted)
    shutil.rmtree(parts)  # once the lock in it is closed, which some disks ask for
    return result


def _begin(parts: Path, identity: str, folder: Path) -> None:
    """Say whose the parts are. Raises MorphVlaError where they are of a recording with other settings."""
    path = parts / "identity"
    if path.exists() and not _agree(path.read_text(encoding="utf-8"), identity):
        finished = sum(1 for _ in parts.glob(f"*/{SUMMARY}"))
        if finished:
            of, begun = count(finished, "part"), (_parsed(path.read_text(encoding="utf-8")) or [0, 0])[1]
            raise MorphVlaError(
                f"{parts} holds {of} of another recording that was not finished, of {begun} attempts: go on "
                f"with its own options, give another folder than {folder}, or remove the parts"
            )
        for left in parts.glob("[!.]*"):  # nothing in it can be used
            shutil.rmtree(left) if left.is_dir() else left.unlink()
    write_text(path, identity)


def layout(task: Task) -> lerobot_writer.Layout:
    """What a task's dataset holds."""
    if isinstance(task, EnvironmentSuite):
        return robosuite.layout(task)
    cameras = {name: (camera.height, camera.width) for name, camera in task.cameras.items()}
    robot = robots.load(task.robot)
    names = tuple(robot.side.names or robot.names)
    # With cameras none: LeRobot's own policies would take them as input.
    poses = () if cameras else environment_names(task.success)
    return lerobot_writer.Layout(
        task.name, task.robot, names, cameras, task.control_rate, task.max_steps, poses
    )


def _check(tasks: Sequence[Task], attempts: int) -> None:
    """Raise MorphVlaError where the tasks cannot be recorded, or not into one dataset."""
    first = tasks[0]
    for task in tasks:
        if isinstance(task, Suite):
            on_robot.check(task, robots.load(task.robot))
    for name, (height, width) in layout(first).cameras.items():
        if width % 2 or height % 2:
            raise MorphVlaError(
                f"camera '{name}' has {width} x {height} pixels; a recording's video needs even numbers"
            )
    if (rate := layout(first).control_rate) % 1:
        raise MorphVlaError(f"control_rate is {rate:g} Hz; a LeRobot dataset's rate is a whole number")
    for key in ("robot", "control_rate", "cameras", "images", "kwargs"):
        for other in tasks[1:]:
            if getattr(other, key, None) != getattr(first, key, None):
                raise MorphVlaError(
                    f"{first.label} and {other.label} differ in '{key}': record them into two datasets"
                )
    for other in tasks[1:]:
        if layout(other).poses != layout(first).poses:
            raise MorphVlaError(
                f"{first.label} and {other.label} differ in the poses that are shown: record them into "
                "two datasets"
            )
    if attempts < len(tasks):
        raise MorphVlaError(f"{attempts} attempts cannot be shared by {len(tasks)} tasks")


def completed(folder: Path) -> Recording | None:
    """The summary of a finished recording at `folder`, or None."""
    path = folder / SUMMARY
    if not path.exists():
        return None
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(known["fingerprint"], str):
            raise ValueError("its fingerprint is no text")
        return Recording(**known)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise MorphVlaError(
            f"{path}: not what a recording says of itself ({error}); move or remove {folder}"
        ) from error


def _check_whole(folder: Path) -> None:
    """Raise MorphVlaError where a folder of a finished dataset is empty, as a clean-up leaves it."""
    info, places = folder / "meta" / "info.json", [folder / "meta" / "episodes", folder / "data"]
    features = json.loads(info.read_text(encoding="utf-8"))["features"] if info.is_file() else {}
    places += [folder / "videos" / key for key, feature in features.items() if feature["dtype"] == "video"]
    if empty := [place for place in places if not any(place.rglob("file-*"))]:
        raise MorphVlaError(
            f"{folder / SUMMARY} says that it is finished, and {empty[0]} holds nothing: bring it back, or "
            f"move or remove {folder} and record anew"
        )


def _identity(tasks: Sequence[Task], attempts: int) -> str:
    """Everything the recorded frames depend on, as text."""
    described = [to_plain(task) for task in tasks]
    for task in described:
        for key in ("path", "episodes"):  # where the file lies and how many states are evaluated
            task.pop(key, None)
        for key in ("behind", "heading"):  # recordings from before there were pushes, or turns, are the same
            if task.get("expert", {}).get(key) == 0:
                task["expert"].pop(key)
        if task.get("success", {}).get("also") == {}:
            task["success"].pop("also")  # likewise before there were several objects
        if task.get("poses") == {}:
            task.pop("poses")  # and before another simulator's suite had any
    arms = map(robots.load, {task.robot for task in tasks if isinstance(task, Suite)})
    digests = {robot.name: [robot.urdf_sha256, robot.side_sha256] for robot in arms}
    # Objects are drawn one after another, in the order of the file: another order is another table.
    orders = [[list(task.get(key, ())) for key in ("placement", "distractors")] for task in described]
    return json.dumps([described, attempts, digests, orders], sort_keys=True)


def _parsed(identity: str) -> list[object] | None:
    """What an identity holds; None where it is no list of at least the suites and the number of attempts."""
    try:
        known = json.loads(identity)
    except (ValueError, RecursionError):
        return None
    return known if isinstance(known, list) and len(known) >= 2 else None


def _is_ours(identity: Path) -> bool:
    """Whether a folder of parts was begun by a recording: what is not is left alone."""
    try:
        return _parsed(identity.read_text(encoding="utf-8")) is not None
    except (OSError, ValueError):
        return False


def _agree(before: str, now: str, without_files: bool = False) -> bool:
    """Whether two identities are of one recording; older ones lack the digests of a robot's files, and the
    order of objects.
    """
    if (known := _parsed(before)) is None:
        return False
    (*suites_before, files_before, order_before) = (*known, None, None)[:4]
    (*suites_now, files_now, order_now) = json.loads(now)
    alike_files = without_files or files_before in (None, files_now)
    return suites_before == suites_now and alike_files and order_before in (None, order_now)


def shares(weights: Sequence[float], attempts: int, size: int = PART) -> list[tuple[int, range]]:
    """Which attempts make up each part: (task, numbers), at most `size` of them; tasks share by weight.

    Every task gets one attempt, and of the others its share, within one of them.
    """
    ends = np.rint((attempts - len(weights)) * np.cumsum(weights) / sum(weights)).astype(int)
    counts = np.diff(ends, prepend=0) + 1
    return [
        (task, range(first, min(first + size, count)))
        for task, count in enumerate(counts.tolist())
        for first in range(0, count, size)
    ]


def _record_parts(
    tasks: Sequence[Task],
    parts: Path,
    attempts: int,
    workers: int,
    progress: Callable[[int, int], None] | None,
) -> list[list[Attempted]]:
    """Record the missing parts in worker processes; the attempts of all parts in order."""
    weights = [task.expert.share if isinstance(task, Suite) else 1.0 for task in tasks]
    every = list(enumerate(shares(weights, attempts, PART)))
    missing = [(i, *share) for i, share in every if _written(parts / f"{i:04d}") is None]
    done = attempts - sum(len(numbers) for _, _, numbers in missing)
    if progress:
        progress(done, attempts)
    context = multiprocessing.get_context("spawn")  # renderers and threads do not survive a fork
    with contextlib.ExitStack() as stack:
        counter, stop = context.Value("i", done), context.Event()
        processes = min(workers, len(missing)) or 1
        pool = stack.enter_context(
            concurrent.futures.ProcessPoolExecutor(
                processes, mp_context=context, initializer=_start, initargs=(counter, stop)
            )
        )
        stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        stack.callback(stop.set)  # before that: on the way out of an interruption nobody waits for a part
        waiting = {
            pool.submit(record_part, tasks[task], parts / f"{i:04d}", numbers) for i, task, numbers in missing
        }
        while waiting:
            finished, waiting = concurrent.futures.wait(waiting, timeout=0.5)
            for future in finished:
                future.result()
            if progress:
                progress(counter.value, attempts)
    written = [_written(parts / f"{i:04d}") for i, _ in every]
    assert all(part is not None for part in written)
    return [part or [] for part in written]


def _written(part: Path) -> list[Attempted] | None:
    """The attempts of a finished part; None where it is not there, or was spoilt (a power cut)."""
    try:
        known = json.loads((part / SUMMARY).read_text(encoding="utf-8"))
        # Parts from before there were modes have three values.
        attempted = [(kind, clause, frames, "".join(mode)) for kind, clause, frames, *mode in known]
    except (OSError, ValueError, TypeError):
        return None
    kept = any(clause is None for _, clause, *_ in attempted)
    return None if kept and not (part / "meta" / "info.json").is_file() else attempted


_COUNTER: Synchronized | None = None  # attempts done, by all workers; one per worker process, set by `_start`
_STOP: Event | None = None  # set when the recording was interrupted


def _start(counter: Synchronized, stop: Event) -> None:
    global _COUNTER, _STOP
    _COUNTER, _STOP = counter, stop
    process.end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer


def record_part(suite: Task, folder: Path, numbers: range) -> list[Attempted]:
    """Record the attempts `numbers` into a dataset of their own; runs in a worker process."""
    demonstrated, close = _expert(suite)
    attempted: list[Attempted] = []
    unfinished = folder.with_suffix(".unfinished")
    for left in (unfinished, folder):
        shutil.rmtree(left, ignore_errors=True)
    with lerobot_writer.lean():
        dataset = lerobot_writer.create(layout(suite), unfinished)
        for number in numbers:
            if _STOP is not None and _STOP.is_set():
                raise MorphVlaError("the recording was interrupted")
            attempt = demonstrated(number)
            attempted.append((attempt.kind, attempt.failed_clause, len(attempt.frames), attempt.mode))
            if attempt.failed_clause is None:
                for frame in attempt.frames:
                    dataset.add_frame(frame)
                dataset.save_episode()
            if _COUNTER is not None:
                with _COUNTER.get_lock():
                    _COUNTER.value += 1
        dataset.finalize()
    close()
    write_text(unfinished / SUMMARY, json.dumps(attempted))
    unfinished.rename(folder)
    return attempted


def _expert(suite: Task) -> tuple[Callable[[int], Demonstration], Callable[[], None]]:
    """What demonstrates the attempt of a number, and what gives its worlds back."""
    if isinstance(suite, EnvironmentSuite):
        expert = robosuite.Expert(suite)
        return expert.demonstrate, expert.close
    worlds = engines.worlds(suite, 1)
    return lambda number: demonstrate(worlds, number), worlds.close


def demonstrate(worlds: Worlds, number: int) -> Demonstration:
    """Attempt `number`, in world 0. One whose physics diverges has failed, and has no frames."""
    suite = worlds.suite
    frames: list[dict[str, np.ndarray | str]] = []

    def see(action: np.ndarray) -> None:
        """Keep what is seen now, with the action that follows."""
        seen = {f"observation.images.{name}": worlds.render(0, name) for name in suite.cameras}
        if not suite.cameras:
            seen["observation.environment_state"] = environment_state(worlds, 0)
        target = {"action": action.astype(np.float32), "task": suite.task}
        frames.append({**seen, "observation.state": worlds.state(0), **target})

    kind = beginnings.kind_of(suite.expert.begin, number)
    try:
        status = demonstration(worlds, number, kind, see)
    except Diverged:
        return Demonstration([], "error", kind)
    if status.error is not None:
        return Demonstration([], "error", kind)
    clause = failed_clause(status, suite)
    return Demonstration(frames, clause, kind, label(criterion.placed(status.progress, suite.success)))


def _merge(
    suite: Task, identity: str, parts: Path, folder: Path, attempted: list[list[Attempted]]
) -> Recording:
    """Merge the parts into one dataset at `folder`, which appears whole or not at all."""
    every = [attempt for part in attempted for attempt in part]
    worth = (i for i, part in enumerate(attempted) if any(clause is None for _, clause, *_ in part))
    failed = Counter(clause for _, clause, *_ in every if clause is not None)
    if not (kept := [parts / f"{i:04d}" for i in worth]):
        raise MorphVlaError(
            f"the expert of suite '{suite.label}' failed in all {len(every)} attempts, most at "
            f"'{failed.most_common(1)[0][0]}': nothing to keep"
        )
    merged = parts / "merging"
    shutil.rmtree(merged, ignore_errors=True)
    lerobot_writer.merge(suite.name, kept, merged)
    kinds: dict[str, list[int]] = {}
    for kind, clause, *_ in every:
        tally = kinds.setdefault(kind, [0, 0])
        tally[0], tally[1] = tally[0] + (clause is None), tally[1] + 1
    frames = [count for _, clause, count, _ in every if clause is None]
    ways = Counter(mode for _, clause, _, mode in every if clause is None and mode)
    result = Recording(
        suite.name, identity, len(every), len(frames), sum(frames), suite.control_rate, dict(failed), kinds,
        dict(ways.most_common()),
    )  # fmt: skip
    write_text(merged / SUMMARY, json.dumps(dataclasses.asdict(result)))
    if folder.exists():
        folder.rmdir()
    merged.rename(folder)
    return result
