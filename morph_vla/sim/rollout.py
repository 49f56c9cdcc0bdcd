"""Evaluation: a policy on a suite, over a fixed table of initial states, into a record.

Every episode of the table is started, counted and judged, whatever else happens: an error of the policy or
the simulator is that episode's failure with its reason. Which environments run side by side changes nothing:
an episode's initial state, and where its policy takes random numbers from, depend on its number alone.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla import robots
from morph_vla.robots.dropin import write_text
from morph_vla.sim import statistics
from morph_vla.sim import success as criterion
from morph_vla.sim.engine import Observation, Policy, actions_of
from morph_vla.sim.suite import InitialState, Suite, fingerprint, initial_states
from morph_vla.sim.workers import Advance, Pool

PACKAGES = ("morph-vla", "numpy", "mujoco", "mink", "jax", "flax", "lerobot")


@dataclasses.dataclass(frozen=True)
class Settings:
    """How an evaluation is run; none of it changes what an episode meets but `open_loop`."""

    episodes: int | None = None  # None: as many as the suite says
    parallel: int = 20
    workers: int | None = None  # None: one per core
    open_loop: int = 8  # actions executed before the policy is asked again
    videos: int = 6  # episodes that are filmed, the first of the table


def evaluate(
    suite: Suite,
    policy: Policy,
    settings: Settings = Settings(),
    *,
    about: dict[str, Any] | None = None,
    folder: Path | None = None,
    command: str = "",
    progress: Callable[[int, int, int], None] | None = None,
) -> dict[str, Any]:
    """Run `policy` on the suite's table of initial states and return the record (see the README).

    `about` describes the policy in the record; with `folder`, finished episodes are kept there as they end
    (an interrupted evaluation of the same policy and table goes on) and videos are written to its `videos/`.
    `progress` is called with (episodes done, episodes in all, successes).
    """
    about = about or {"name": type(policy).__name__, "checkpoint": None, "step": None}
    joints = len(robots.load(suite.robot).joints)
    count = settings.episodes or suite.episodes
    table = initial_states(suite, count, joints)
    journal = Journal(folder, _identity(suite, table, about, settings))
    trials = dict(journal.trials)
    began = time.monotonic()
    waiting = [state for state in table if state.episode not in trials]
    if waiting:
        slots = min(settings.parallel, len(waiting))
        with Pool(suite, slots, settings.workers) as pool:
            for trial in _run(pool, suite, policy, settings, waiting, joints, folder):
                trials[trial["episode"]] = trial
                journal.add(trial)
                if progress:
                    progress(len(trials), count, sum(t["success"] for t in trials.values()))
    ordered = [trials[i] for i in range(count)]
    if not waiting and (earlier := finished(folder)) and earlier["trials"] == ordered:
        return earlier  # with its own time and duration, not those of looking it up
    return {
        "schema": 1,
        "kind": "evaluation",
        "suite": _suite_facts(suite, table),
        "policy": about,
        "engine": {"name": "mujoco", "version": importlib.metadata.version("mujoco")},
        "trials": ordered,
        "summary": statistics.summarise(ordered),
        "wall_s": round(time.monotonic() - began, 2),
        "parallel": settings.parallel,
        "open_loop": settings.open_loop,
        "command": command,
        "versions": versions(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def finished(folder: Path | None) -> dict[str, Any] | None:
    """The record.json of an earlier evaluation in `folder`, or None."""
    path = None if folder is None else folder / "record.json"
    return json.loads(path.read_text()) if path is not None and path.exists() else None


def versions() -> dict[str, str]:
    """Versions of Python and of what an evaluation depends on, as far as installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _suite_facts(suite: Suite, table: Sequence[InitialState]) -> dict[str, Any]:
    return {
        "name": suite.name,
        "version": suite.version,
        "seed": suite.seed,
        "robot": suite.robot,
        "task": suite.task,
        "control_rate": suite.control_rate,
        "episode_seconds": suite.episode_seconds,
        "object": suite.success.object,
        "target": {
            "name": suite.success.target,
            "low": list(suite.success.low),
            "high": list(suite.success.high),
        },
        "initial_states_sha256": fingerprint(table),
    }


def _identity(suite: Suite, table: Sequence[InitialState], about: dict[str, Any], settings: Settings) -> str:
    """What two evaluations must share for one to continue the other."""
    facts = [_suite_facts(suite, table), about, settings.open_loop]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


class Journal:
    """Finished trials in a JSON-lines file, so that an interrupted evaluation goes on where it stopped.

    A journal of another evaluation is set aside by starting anew; a last line cut short is dropped.
    """

    def __init__(self, folder: Path | None, identity: str):
        self._path = None if folder is None else folder / "trials.jsonl"
        self.trials: dict[int, dict[str, Any]] = {}
        if self._path is None:
            return
        if self._path.exists():
            lines = [_parsed(line) for line in self._path.read_text().splitlines()]
            if lines and lines[0] == {"evaluation": identity}:
                self.trials = {line["episode"]: line for line in lines[1:] if line}
        kept = [{"evaluation": identity}, *self.trials.values()]
        write_text(self._path, "".join(json.dumps(line) + "\n" for line in kept))

    def add(self, trial: dict[str, Any]) -> None:
        """Keep one finished trial."""
        if self._path is not None:
            with self._path.open("a") as out:
                out.write(json.dumps(trial) + "\n")


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


@dataclasses.dataclass
class _Episode:
    """An episode in flight."""

    state: InitialState
    answer: Advance
    step: int = 0
    frames: list[Any] = dataclasses.field(default_factory=list)


def _run(
    pool: Pool,
    suite: Suite,
    policy: Policy,
    settings: Settings,
    waiting: Sequence[InitialState],
    joints: int,
    folder: Path | None,
) -> Any:
    """Yield finished trials; slots that fall free take the next state of the table."""
    queue, flying = list(waiting)[::-1], {}
    filmed = settings.videos if folder is not None else 0
    while queue or flying:
        free = [slot for slot in range(pool.slots) if slot not in flying]
        begin = {slot: queue.pop() for slot in free[: len(queue)]}
        if begin:
            messages = {slot: ("begin", state, state.episode < filmed) for slot, state in begin.items()}
            for slot, answer in pool.run(messages).items():
                flying[slot] = _Episode(begin[slot], answer, frames=list(answer.frames))
        asked = {slot: e for slot, e in flying.items() if e.answer.observation is not None}
        observations = [
            {**e.answer.observation, "episode": e.state.episode, "step": e.step}
            for e in asked.values()
            if e.answer.observation is not None
        ]
        chunks, failures = {}, {}
        for slot, answer in zip(asked, infer_all(policy, observations, joints), strict=True):
            if isinstance(answer, str):
                failures[slot] = answer
            else:
                chunks[slot] = ("advance", answer[: settings.open_loop])
        for slot, answer in pool.run(chunks).items():
            episode = flying[slot]
            episode.step, episode.answer = answer.progress.steps, answer
            episode.frames += answer.frames
        for slot in list(flying):
            episode = flying[slot]
            error = failures.get(slot) or episode.answer.error
            if error or episode.answer.observation is None:
                del flying[slot]
                yield _trial(suite, episode, error, folder)


def infer_all(policy: Policy, observations: Sequence[Observation], joints: int) -> list[Any]:
    """Checked actions [h, joints] per observation, or a sentence where the policy failed.

    A batch that fails is asked again one by one, so that the failure lands on its own episode.
    """
    if not observations:
        return []
    batch = getattr(policy, "infer_batch", None)
    if batch is not None:
        try:
            return [actions_of(answer, joints) for answer in batch(observations)]
        except Exception:
            pass
    return [_infer(policy, observation, joints) for observation in observations]


def _infer(policy: Policy, observation: Observation, joints: int) -> Any:
    try:
        return actions_of(policy.infer(observation), joints)
    except Exception as error:
        return f"policy: {type(error).__name__}: {error}"


def _trial(suite: Suite, episode: _Episode, error: str | None, folder: Path | None) -> dict[str, Any]:
    """One row of the record."""
    progress, reading = episode.answer.progress, episode.answer.reading
    success = error is None and progress.success_step is not None
    video = None
    if episode.frames and folder is not None:
        video = f"videos/{episode.state.episode:03d}.mp4"
        write_video(folder / video, episode.frames, suite.control_rate)
    return {
        "episode": episode.state.episode,
        "success": success,
        "time_s": progress.success_step / suite.control_rate if success and progress.success_step else None,
        "ended": "error" if error else "success" if success else "time",
        "error": error,
        "steps": progress.steps,
        "failed_clause": None if error else criterion.failed_clause(progress, reading, suite.success),
        "clauses": criterion.times(progress, suite.control_rate),
        "touched": progress.reached,
        "lifted": progress.lifted,
        "initial": {name: list(pose) for name, pose in episode.state.poses.items()},
        "final_object": [round(float(v), 4) for v in reading.object_position],
        "video": video,
    }


def write_video(path: Path, frames: Sequence[np.ndarray], rate: float) -> None:
    """Write RGB frames [h w 3] as an H.264 MP4 that browsers play."""
    from morph_vla.errors import require

    av = require("av", "sim")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".unfinished.mp4")
    with av.open(str(unfinished), "w") as container:
        stream = container.add_stream(
            "libx264", rate=round(rate), options={"crf": "24", "preset": "veryfast"}
        )
        height, width = frames[0].shape[:2]
        stream.width, stream.height, stream.pix_fmt = width // 2 * 2, height // 2 * 2, "yuv420p"
        for frame in frames:
            image = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame[: stream.height, : stream.width]))
            container.mux(stream.encode(image))
        container.mux(stream.encode())
    unfinished.replace(path)
