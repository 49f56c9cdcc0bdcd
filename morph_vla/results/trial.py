"""One episode of an evaluation: how it began, how it ended and where its video lies."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import sqrt
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Literal, get_args

from morph_vla.errors import MorphVlaError
from morph_vla.results.values import Real, integer, listing, mapping, numbers, read_as, real, text

ERROR = "error"  # how a trial ended in which something broke
Outcome = Literal["success", "failure", "error"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
Key = tuple[str, int]  # task, episode
# What earlier trials lack, and what only some simulators' trials have.
LATER = ("grasped", "knocked", "dragged", "final_target", "reward", "least", "first_seen", "jumps", "placed")


@dataclass(frozen=True)
class Jumps:
    """How far targets jumped where one answer took over from another (`evaluation.chunking.jumps`)."""

    count: int
    """Of such steps"""
    rms: Real
    """Over these and the arm's joints [rad | m]"""
    max: Real
    others: int
    """How many other steps there were"""
    elsewhere: Real
    """The rms at those"""

    def __str__(self) -> str:
        """`targets jump by 0.0502 rms, 0.263 at most, at 231 borders of answers [rad | m]; ...`."""
        there = f"targets jump by {self.rms:.4f} rms, {self.max:.3f} at most"
        return f"{there}, at {self.count} borders of answers [rad | m]; elsewhere by {self.elsewhere:.4f} rms"


def pooled(parts: Sequence[Jumps]) -> Jumps | None:
    """The jumps of several trials; None without any."""
    count, others = sum(part.count for part in parts), sum(part.others for part in parts)
    if not count:
        return None
    there = sum(part.count * part.rms**2 for part in parts) / count
    elsewhere = sum(part.others * part.elsewhere**2 for part in parts) / max(others, 1)
    return Jumps(count, sqrt(there), max(part.max for part in parts), others, sqrt(elsewhere))


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One episode. What a record written by an earlier version does not say is None."""

    task: str = ""
    """The task it belongs to, "" where the evaluation had a single one without a name."""
    episode: int
    """Row of the task's table of initial states."""
    success: bool
    time_s: Real | None = None
    """When it succeeded, seconds from its start."""
    ended: str = "time"
    """`success`, `time` (the episode's time was up), `lost` (the object fell off the table) or `error`."""
    error: str | None = None
    """What broke, in a sentence."""
    steps: int | None = None
    """Control steps that were simulated."""
    failed_clause: str | None = None
    """The clause of the success criterion at which it stopped."""
    clauses: Mapping[str, Real | None] | None = None
    """Seconds for which each clause held."""
    touched: bool | None = None
    grasped: bool | None = None
    """Whether both fingers of a gripper held it at once."""
    lifted: bool | None = None
    knocked: bool | None = None
    dropped: bool | None = None
    pushed_in: bool | None = None
    dragged: bool | None = None
    reward: Real | None = None
    """Sum of the rewards that another simulator gave."""
    least: Mapping[str, Real] = field(default_factory=dict)
    """The least of each measure: `approach`, from tool to object [m], and what another simulator gave."""
    first_seen: str | None = None
    """Digest of what was seen first, where another simulator drew the initial state."""
    jumps: Jumps | None = None
    """None where no answer took over from another, and for another simulator's actions."""
    begun_anew: bool | None = None
    """Whether its first simulation worker died."""
    initial: Mapping[str, list[Real]] | None = None
    """Object -> its initial pose, position first [m], in the robot's base frame."""
    final_object: list[Real] | None = None
    """Where the object ended [m]."""
    final_target: list[Real] | None = None
    """Where the target ended: position [m], quaternion (w, x, y, z)."""
    placed: tuple[tuple[str, str], ...] = ()
    """Of several objects, which lay in which target at the end, in the order in which they came there."""
    video: Path | None = None

    @property
    def key(self) -> Key:
        """(task, episode), which no other trial of its record has."""
        return self.task, self.episode

    @property
    def outcome(self) -> Outcome:
        """`success`, `failure`, or `error` where something broke."""
        return "success" if self.success else "error" if self.ended == ERROR else "failure"

    @property
    def of_task(self) -> str:
        """` of task 'cube_in_bowl'`, or nothing where it names no task."""
        return f" of task '{self.task}'" if self.task else ""

    def to_json(self, folder: Path) -> dict[str, object]:
        """Plain values, the video by a path relative to `folder`."""
        plain: dict[str, object] = {each.name: getattr(self, each.name) for each in fields(self)}
        for name in LATER:
            if plain[name] in (None, {}, ()):
                del plain[name]
        if self.jumps is not None:
            plain["jumps"] = asdict(self.jumps)
        return {**plain, "video": None if self.video is None else name_in(folder, self.video)}


def from_json(plain: Mapping[str, object], folder: Path, called: str = "a trial") -> Trial:
    """The trial that `to_json` wrote, in this version or an earlier one; its video lies in `folder`.

    Raises MorphVlaError, naming the episode, where its number, outcome, time or video cannot be.
    """
    episode, success, time = plain.get("episode"), plain.get("success"), plain.get("time_s")
    if integer(episode) is None:
        raise MorphVlaError(f"{called} has episode {episode!r}, expected an integer")
    if not isinstance(success, bool):
        raise MorphVlaError(f"episode {episode} has success {success!r}, expected true or false")
    ended = text(plain.get("ended")) or ("success" if success else "time")
    if success and ended == ERROR:
        raise MorphVlaError(f"episode {episode} ended in an error and yet counts as a success")
    if time is not None and real(time) is None:
        raise MorphVlaError(f"episode {episode} has time_s {time!r}, expected seconds or null")
    video, clauses, initial = plain.get("video"), plain.get("clauses"), plain.get("initial")
    poses = {str(name): numbers(pose) for name, pose in mapping(initial).items()}
    return read_as(
        Trial,
        plain,
        task=str(plain.get("task") or ""),
        episode=integer(episode) or 0,
        success=success,
        ended=ended,
        clauses=None if clauses is None else {k: real(v) for k, v in mapping(clauses).items()},
        initial=None if initial is None else {k: pose for k, pose in poses.items() if pose is not None},
        jumps=_jumps(mapping(plain.get("jumps"))),
        placed=tuple(
            (str(pair[0]), str(pair[1]))
            for pair in map(listing, listing(plain.get("placed")))
            if len(pair) == 2
        ),
        video=None if video is None else inside(folder, video),
    )


def _jumps(plain: Mapping[str, object]) -> Jumps | None:
    count, others = integer(plain.get("count")), integer(plain.get("others"))
    sizes = numbers([plain.get(name) for name in ("rms", "max", "elsewhere")])
    if count is None or others is None or sizes is None:
        return None
    rms, most, elsewhere = sizes
    return Jumps(count, rms, most, others, elsewhere)


def list_from_json(plain: object, folder: Path) -> tuple[Trial, ...]:
    """A record's trials. Raises MorphVlaError for no list of them, and for an episode that appears twice."""
    if not isinstance(plain, list | tuple):
        raise MorphVlaError("this is not an evaluation record: it has no list of trials")
    trials: dict[Key, Trial] = {}
    for place, item in enumerate(plain):
        if not isinstance(item, Mapping):
            raise MorphVlaError(f"trial {place} is {type(item).__name__}, expected a mapping")
        trial = from_json(item, folder, f"trial {place}")
        if trial.key in trials:
            raise MorphVlaError(
                f"episode {trial.episode}{trial.of_task} appears twice, expected one trial per episode"
            )
        trials[trial.key] = trial
    return tuple(trials.values())


def by_task(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Task -> its trials, in the order in which the tasks appear; "" where a trial names none."""
    tasks: dict[str, list[Trial]] = {}
    for trial in trials:
        tasks.setdefault(trial.task, []).append(trial)
    return tasks


def by_key(trials: Sequence[Trial]) -> dict[Key, Trial]:
    """(task, episode) -> trial."""
    return {trial.key: trial for trial in trials}


def inside(folder: Path, name: object) -> Path:
    """The path of a file that a record names, which must lie in the record's folder.

    Raises MorphVlaError for an absolute path, for `..` and for a name that is no text: a record is data from
    elsewhere, and must not make us publish other files.
    """
    if not isinstance(name, str) or not name.strip() or "\0" in name or not _is_written(name):
        raise MorphVlaError(f"the record names a file {name!r}, expected a path relative to its folder")
    windows = PureWindowsPath(name)  # reads both separators, so it sees `..\\x` on every system
    if windows.drive or windows.root or PurePosixPath(name).is_absolute() or ".." in windows.parts:
        raise MorphVlaError(f"the record names the file {name!r}, which is not inside its folder")
    return folder / name


def _is_written(name: str) -> bool:
    """Whether a text can be a file's name: half a surrogate pair, which JSON may hold, cannot."""
    try:
        return bool(name.encode())
    except UnicodeEncodeError:
        return False


def name_in(folder: Path, path: Path) -> str:
    """How a record in `folder` names a file. Raises MorphVlaError where it does not lie there."""
    if not path.is_relative_to(folder):
        raise MorphVlaError(f"{path} is not inside {folder}, where its record is written")
    return path.relative_to(folder).as_posix()
