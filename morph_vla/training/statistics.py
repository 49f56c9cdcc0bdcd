"""The statistics a robot's values are normalised by: exact, over all rows that are read, held-out ones
too; no image is decoded.

Their origin (`data.statistics`) is logged, and so is every value whose range differs much from that of the
dataset's own statistics or of the checkpoint that training starts from. Measured statistics are kept in the
cache folder, under a digest of the values, the kind of actions and the horizon.

Rule for a degenerate dimension (`data.degenerate`): where q99 - q01 is below MIN_SPAN = 0.01 (in the
dataset's units), `widen` takes the range to MIN_SPAN about its middle, `refuse` is an error; both name it.
"""

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.data import stats
from morph_vla.data.actions import Kind, to_learn
from morph_vla.data.lerobot import Recordings
from morph_vla.data.space import Space, tools_of
from morph_vla.data.stats import Stats
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files import remote
from morph_vla.files.cache import cache_folder
from morph_vla.files.writing import write_text
from morph_vla.robots.robot import Robot
from morph_vla.robots.screws import screws

LOG = logging.getLogger(__name__)

Degenerate = Literal["widen", "refuse"]
FAR = 0.25  # of the used range: an end that differs by more is named
OF_BODY = "robot"  # `data.statistics` of a robot's URDF, and the source of what they gave
ROWS = 1 << 18  # rows whose chunks are taken apart at once: each needs 20 bytes for every action of its chunk
FAR_TOOL, MOVE_TOOL = 1.0, 0.2  # [m] of a tool from the root, and within a chunk: 1 where a robot says
FAR_HAND = 0.5  # [m] of one from where it stands, which is never far from it
TURN = 0.5  # [rad] a joint moves within a chunk, or of the reach that a sliding one does: 1 where a body says
MAX_FILE = 64 << 20  # bytes of a file of statistics


@dataclasses.dataclass(frozen=True)
class Recorded:
    """One dataset of a robot, in the form it is trained on."""

    dataset: str
    recordings: Recordings
    kind: Kind
    relative: Bool[np.ndarray, "a"]  # which values a difference is taken of
    converted: bool = False  # whether its values were brought to other units than the file's
    state: tuple[str, ...] = ("observation.state",)
    action: tuple[str, ...] = ("action",)


@dataclasses.dataclass(frozen=True)
class RobotStats:
    """Statistics of one robot over all its datasets, of what is trained on."""

    state: Stats
    action: Stats
    frames: int = 0
    source: str = "own"  # whose they are: `own`, `robot`, or the file
    remarks: tuple[str, ...] = ()  # sentences: large differences to earlier statistics


OfRobots = dict[str, tuple[tuple[str, ...], Kind, RobotStats]]
"""By a robot's name: its joints, what is learnt, and its statistics"""


def of_robot(
    name: str,
    joints: tuple[str, ...],
    parts: Sequence[Recorded],
    horizon: int,
    *,
    statistics: str = "own",
    degenerate: Degenerate = "widen",
    before: str = "",
) -> RobotStats:
    """What the values of one robot are normalised by.

    Args:
        name: The robot's.
        joints: Its joints' names, for messages.
        parts: Its datasets.
        horizon: Actions in a chunk: a difference depends on its place there, so all of a chunk's are counted.
        statistics: `own` measures; `dataset` takes meta/stats.json; else a checkpoint's folder, or a file
            that `morph-vla stats --output` wrote.
        degenerate: What to do with values that hardly move.
        before: The checkpoint that training starts from, when it is one of ours: its statistics are compared.

    Raises MorphVlaError for statistics that are not there or not of these values, and for a degenerate value
    that is refused.
    """
    width = parts[0].recordings.state.shape[1]  # of every dataset: a robot's joints, or its tools' values
    if statistics == "own":
        used, source = measured(parts, horizon), "own"
    elif statistics == "dataset":
        used, source = _of_dataset(name, parts), f"{parts[0].dataset}: its own meta/stats.json"
    else:
        path = remote.folder_of(statistics)
        used, source = of_file(path, name, parts[0].kind, joints, horizon), statistics
    for feature, given, wanted in (("state", used[0], width), ("action", used[1], len(joints))):
        if len(given.q01) != wanted:
            has = f"has {len(given.q01)} values of the {feature}, robot '{name}' {wanted}"
            raise MorphVlaError(f"data.statistics: {source} {has}")
    remarks = tuple(_compared(name, joints, parts, horizon, used, before, statistics == "own"))
    state = _settled(used[0], joints if width == len(joints) else (), degenerate, f"{name}: state")
    action = _settled(used[1], joints, degenerate, f"{name}: action")
    return RobotStats(state, action, sum(part.recordings.frames for part in parts), source, remarks)


def of_body(
    robot: Robot, kind: Kind, space: Space = "joints", degenerate: Degenerate = "widen"
) -> RobotStats:
    """What a robot's values are normalised by, from its URDF alone: a robot without a recording has it too.

    States and absolute targets by the joint's limits, a whole turn where it has none; a gripper's from open
    to closed, whatever its limits leave beyond. Differences by TURN, or by as large a share of the reach,
    whichever robot it is: one move has one value on all.
    Raises MorphVlaError for velocities, which a URDF bounds but hardly says, and as `of_robot` for a joint
    that its limits hardly let move.
    """
    if kind == "velocity":
        raise MorphVlaError(
            f"data.statistics: robot knows no range of velocities ('{robot.name}' learns them); "
            "learn deltas, or choose own"
        )
    known = _of_joints(robot, kind)
    if space != "joints":
        known = _of_tools(robot, kind, known, space)
    names = robot.names if space == "joints" else ()
    values = ((known.state, f"{robot.name}: state"), (known.action, f"{robot.name}: action"))
    state, action = (_settled(given, names, degenerate, where) for given, where in values)
    return dataclasses.replace(known, state=state, action=action)


def _of_joints(robot: Robot, kind: Kind) -> RobotStats:
    """Of joint values."""
    state = _between(robot, *_ends(robot))
    if kind == "absolute":
        return RobotStats(state, state, source=OF_BODY)
    sliding = np.array([joint.type == "prismatic" for joint in robot.joints])
    grippers = np.array([joint.is_gripper for joint in robot.joints])
    far = np.where(sliding, TURN * screws(robot).reach, TURN)
    zero = robot.to_dataset(np.zeros_like(far))
    moved = _between(robot, -far, far, zero)
    chosen = [dataclasses.asdict(values) for values in (state, moved)]
    action = {key: tuple(np.where(grippers, chosen[0][key], chosen[1][key]).tolist()) for key in chosen[0]}
    return RobotStats(state, Stats(**action), source=OF_BODY)


def _ends(robot: Robot) -> tuple[Float[np.ndarray, "j"], Float[np.ndarray, "j"]]:
    """From where to where a joint's native values are counted: for a gripper from open to closed."""
    endless = np.array([joint.type == "continuous" for joint in robot.joints])
    low, high = np.where(endless, -np.pi, robot.lower), np.where(endless, np.pi, robot.upper)
    for column, joint in enumerate(robot.joints):
        if joint.is_gripper:
            gripper = robot.side.grippers[joint.name]
            low[column], high[column] = gripper.open, gripper.closed
    return low, high


def _of_tools(robot: Robot, kind: Kind, of_joints: RobotStats, space: Space) -> RobotStats:
    """Of poses of the tools: one range for all robots (a metre is one on all); the rest as it was.

    A gripper's is its share of closing, 0 to 1.
    """
    known = tools_of(robot)
    grippers = [robot.joints[column].is_gripper for column in known.rest]
    far = np.tile([FAR_TOOL if space == "tool" else FAR_HAND] * 3 + [1.0] * 6, len(known.tools))
    moved = far if kind == "absolute" else np.tile([MOVE_TOOL] * 3 + [TURN] * 6, len(known.tools))

    def joined(ends: Float[np.ndarray, "p"], own: Stats) -> Stats:
        """Poses evenly spread over -ends to ends, then the joints that move no tool."""
        rest = np.array(dataclasses.astuple(own))[:, known.rest]
        rest[:, grippers] = np.array([0.0, 1.0, 0.5, 1 / np.sqrt(12)])[:, None]
        poses = np.stack([-ends, ends, 0 * ends, 2 * ends / np.sqrt(12)])
        return Stats(*(tuple(map(float, row)) for row in np.concatenate([poses, rest], axis=1)))

    return RobotStats(joined(far, of_joints.state), joined(moved, of_joints.action), source="robot")


def _between(
    robot: Robot,
    low: Float[np.ndarray, "j"],
    high: Float[np.ndarray, "j"],
    zero: Float[np.ndarray, "j"] | float = 0.0,
) -> Stats:
    """Values evenly spread between two native ones, in dataset units; `zero` is taken from both."""
    ends = np.stack([robot.to_dataset(values) for values in (low, high)]) - zero
    low, high = ends.min(axis=0), ends.max(axis=0)
    mean, std = (low + high) / 2, (high - low) / np.sqrt(12)
    return Stats(*(tuple(float(value) for value in row) for row in (low, high, mean, std)))


def _settled(given: Stats, names: tuple[str, ...], degenerate: Degenerate, where: str) -> Stats:
    """The rule for degenerate dimensions."""
    narrow = stats.narrow(given)
    if narrow and degenerate == "refuse":
        called = ", ".join(f"'{names[d]}'" if names else f"value {d}" for d in narrow)
        raise MorphVlaError(
            f"{where}: {called} hardly move{'s' if len(narrow) == 1 else ''} (q99 - q01 is below "
            f"{stats.MIN_SPAN:g}): data.degenerate: widen would take the range to that"
        )
    return stats.widened(given, names)


def measured(parts: Sequence[Recorded], horizon: int) -> tuple[Stats, Stats]:
    """Exact statistics of (state, action) over all datasets; from the cache when it has them."""
    path = cache_folder() / "statistics" / f"{_digest(parts, horizon)}.json"
    if path.is_file():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            return stats.from_plain(kept["state"]), stats.from_plain(kept["action"])
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)  # not of this version, or not whole
    state = stats.measure(np.concatenate([part.recordings.state for part in parts]))
    columns = range(parts[0].recordings.action.shape[1])
    action = stats.joined([stats.measure(_column(parts, horizon, d)[:, None]) for d in columns])
    text = json.dumps({"state": dataclasses.asdict(state), "action": dataclasses.asdict(action)})
    try:
        write_text(path, text)
    except OSError as error:  # measured they are: nothing hangs on keeping them
        words = "statistics are not kept: %s: %s (MORPH_VLA_CACHE names another folder)"
        LOG.warning(words, path.parent, error.strerror or str(error))
    return state, action


def _digest(parts: Sequence[Recorded], horizon: int) -> str:
    digest = hashlib.sha256(b"morph_vla statistics 1")
    for part in parts:
        values = part.recordings
        of_kind = "" if part.kind == "absolute" else f"{horizon} {values.fps} {part.relative.tolist()}"
        digest.update(f"{part.kind} {of_kind} {values.state.shape} {values.action.shape}".encode())
        for array in (values.state, values.action, values.starts):
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:32]


def _column(parts: Sequence[Recorded], horizon: int, d: int) -> Float[np.ndarray, "m"]:
    """All that is learnt of one action value; a column at a time, for a chunk multiplies a dataset."""
    columns, value = [], slice(d, d + 1)
    for part in parts:
        recordings, action = part.recordings, part.recordings.action[:, value]
        if part.kind == "absolute":
            columns.append(action[:, 0])
            continue
        for first in range(0, len(action), ROWS):
            rows = np.arange(first, min(first + ROWS, len(action)))
            wanted = np.minimum(rows[:, None] + np.arange(horizon), recordings.last_of(rows)[:, None])
            state, relative = recordings.state[rows, value], part.relative[value]
            learnt = to_learn(part.kind, action[wanted], state, relative, recordings.fps)
            columns.append(learnt.reshape(-1))
    return np.concatenate(columns)


def _of_dataset(name: str, parts: Sequence[Recorded]) -> tuple[Stats, Stats]:
    """The statistics that a dataset brings with it; they are of absolute values in the file's units."""
    part = parts[0]
    if len(parts) > 1:
        raise MorphVlaError(
            f"data.statistics: robot '{name}' has {len(parts)} datasets, and their own statistics cannot be "
            "merged exactly; choose `own`"
        )
    if part.kind != "absolute" or part.converted:
        what = f"{part.kind} actions are" if part.kind != "absolute" else "values in other units are"
        raise MorphVlaError(
            f"data.statistics: {what} learnt from {part.dataset}; its own statistics are of other values"
        )
    given = dataset_stats(part)
    if given is None:
        raise MorphVlaError(
            f"data.statistics: {part.dataset} has no q01 and q99 in its meta/stats.json; choose `own`"
        )
    return given


def dataset_stats(part: Recorded) -> tuple[Stats, Stats] | None:
    """(state, action) of meta/stats.json; None without quantiles there."""
    path = part.recordings.root / "meta" / "stats.json"
    if not path.is_file() or path.stat().st_size > MAX_FILE:
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        state = stats.joined([stats.from_plain(kept[key]) for key in part.state])
        return state, stats.joined([stats.from_plain(kept[key]) for key in part.action])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def of_file(
    path: Path, robot: str, kind: Kind, joints: tuple[str, ...], horizon: int | None = None
) -> tuple[Stats, Stats]:
    """(state, action) of a robot in a checkpoint's folder, or in a file of `morph-vla stats --output`.

    Raises MorphVlaError for another file, for another robot, order of joints or kind of actions, and for
    differences over chunks of another `horizon`, where both are known: over longer ones they are larger.
    """
    file = path / "about" / "policy.json" if path.is_dir() else path
    where = f"data.statistics: {path}"
    if not file.is_file() or file.stat().st_size > MAX_FILE:
        raise MorphVlaError(f"{where} is neither a checkpoint of ours nor a file of statistics")
    try:
        known = json.loads(file.read_text(encoding="utf-8"))["robots"]
        if robot not in known:
            raise MorphVlaError(f"{where} has no robot '{robot}'{nearest(robot, known)} ({', '.join(known)})")
        kept = known[robot]
        if kept.get("space", "joints") != "joints":
            raise MorphVlaError(f"{where} is of poses of tools (data.space: {kept['space']}), not of joints")
        if kept["actions"] != kind or tuple(kept["joints"]) != joints:
            what = f"{kept['actions']} actions of {', '.join(kept['joints'])}"
            raise MorphVlaError(f"{where} is of {what}; {kind} ones of {', '.join(joints)} are learnt")
        measured_over = _horizon(path, kept)
        if kind == "delta" and None not in (horizon, measured_over) and horizon != measured_over:
            raise MorphVlaError(
                f"{where} is of differences over chunks of {measured_over} actions, and chunks of {horizon}"
                " are learnt (model.horizon): measure them anew"
            )
        return stats.from_plain(kept["state_stats"]), stats.from_plain(kept["action_stats"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MorphVlaError(f"{where} is neither a checkpoint of ours nor a file of statistics") from error


def _horizon(path: Path, kept: Mapping[str, Any]) -> int | None:
    """Actions in a chunk of what a file, or a checkpoint's recipe, is of; None where that is of no account,
    because it is of the body alone (`of_body`), and in earlier files.
    """
    recipe = path / "about" / "recipe.json"
    if not recipe.is_file():
        return None if kept.get("source") == OF_BODY else kept.get("horizon")
    trained = json.loads(recipe.read_text(encoding="utf-8"))
    return None if trained.get("data", {}).get("statistics") == OF_BODY else trained["model"]["horizon"]


def _compared(
    name: str,
    joints: tuple[str, ...],
    parts: Sequence[Recorded],
    horizon: int,
    used: tuple[Stats, Stats],
    before: str,
    own: bool,
) -> Iterator[str]:
    """Large differences to what each dataset alone, its meta/stats.json or the first checkpoint says."""
    others: dict[str, tuple[Stats, Stats] | None] = {}
    for part in parts:
        if len(parts) > 1 or not own:
            others[f"{part.dataset} alone"] = measured([part], horizon)
        if part.kind == "absolute" and not part.converted:
            others[f"{part.dataset}: its meta/stats.json"] = dataset_stats(part)
    begun = remote.kept(before) if before else None
    if begun is not None and (begun / "about" / "policy.json").is_file():
        try:
            others[before] = of_file(begun, name, parts[0].kind, joints, horizon)
        except MorphVlaError:
            others[before] = None  # of another robot or kind: nothing to compare
    for where, other in others.items():
        for feature, old, new in zip(("state", "action"), other or (), used, strict=False):
            if len(old.q01) != len(new.q01):
                continue
            names = joints if len(joints) == len(new.q01) else ()
            for d in different(old, new):
                called = f"'{names[d]}'" if names else f"value {d}"
                yield (
                    f"{name}: {feature} {called} is normalised by {new.q01[d]:.4g} .. {new.q99[d]:.4g}; "
                    f"{where}: {old.q01[d]:.4g} .. {old.q99[d]:.4g}"
                )


def different(old: Stats, new: Stats) -> list[int]:
    """Dimensions of which an end (q01 or q99) differs by more than FAR of the new range."""
    low, high = np.subtract(old.q01, new.q01), np.subtract(old.q99, new.q99)
    span = np.maximum(np.subtract(new.q99, new.q01), stats.MIN_SPAN)
    return np.flatnonzero(np.maximum(np.abs(low), np.abs(high)) > FAR * span).tolist()


def sentences(name: str, used: RobotStats) -> Iterator[str]:
    """Whose statistics are used, and every large difference."""
    whose = f"measured on {used.frames} frames" if used.source == "own" else used.source
    whose = "its limits, and one range of moves for all robots" if used.source == "robot" else whose
    yield f"statistics of '{name}': {whose}"
    yield from (f"statistics of {remark}" for remark in used.remarks)


def listed(robots: OfRobots, horizon: int) -> Iterator[str]:
    """For each robot, whose statistics they are, and the table."""
    for name, (joints, kind, known) in robots.items():
        yield from ("", *sentences(name, known))
        yield f"{name}: {kind} actions, chunks of {horizon}, {known.frames} frames"
        yield from stats.rows_of((("state", known.state, joints), ("action", known.action, joints)))
    yield ""


def plain(robots: OfRobots, horizon: int) -> dict[str, Any]:
    """What `of_file` reads back; `horizon` is that of the chunks that were measured."""
    return {
        "robots": {
            name: {
                "joints": list(joints),
                "actions": kind,
                "horizon": horizon,
                "frames": used.frames,
                "source": used.source,
                "state_stats": dataclasses.asdict(used.state),
                "action_stats": dataclasses.asdict(used.action),
                "remarks": list(used.remarks),
            }
            for name, (joints, kind, used) in robots.items()
        }
    }
