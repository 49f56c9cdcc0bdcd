"""Success: the object's centre inside the target's box, at rest, released, for the dwell time.

The criterion is the paper's (Appendix C.3): a box around the target, a minimum dwell time, approximately
stationary; ours adds that the gripper is open and that no link of the robot touches the object. The box moves
and turns with the target. A suite may ask for more of the target: that it stands `upright`, and that it is
still `in_place`. All of it is stated over *consecutive* control steps: leaving the box, moving or touching
starts the dwell anew. Pure functions over readings, so that tests can move objects by script and any engine
can use them.

An episode with a dwell of 5 steps: picked up, carried, let go above the box; a jolt in step 12 starts the
dwell anew (`high`: more than LIFTED above where the object first lay):

    control step   1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17
    touching       .  x  x  x  x  x  .  .  .  .  .  .  .  .  .  .  .
    high           .  .  .  x  x  x  x  .  .  .  .  .  .  .  .  .  .
    inside         .  .  .  .  .  .  .  x  x  x  x  x  x  x  x  x  x
    at_rest        x  .  .  .  .  .  .  .  x  x  x  .  x  x  x  x  x
    released       x  .  .  .  .  .  x  x  x  x  x  x  x  x  x  x  x
    all three      .  .  .  .  .  .  .  .  x  x  x  .  x  x  x  x  x
    noted             touched                                      |
                            lifted                                 success

An object more than BELOW under the table's top is `lost`: the episode ends there.

What is noted besides, of the object that the suite names and of no other:

touched    a link of the robot touched it, a finger or any other (`Progress.reached`).
lifted     the robot touched it while its centre was more than LIFTED above where it first lay.
knocked    before both fingers of a gripper first held it, it was moved along the table by more than KNOCKED:
           pushed or knocked away, by whichever link.
dropped    it had been lifted, and then was out of the robot's reach and out of the box for AWAY seconds
           without a break: it lies, rolls or flies elsewhere. One let go above the box falls in sooner: AWAY
           seconds of free fall are 1.2 m. It stays noted when the object is picked up again; what is let go
           in the last AWAY seconds of an episode is not decided and not noted.
pushed_in  in the box at the end, or succeeded, without ever having been lifted: pushed or flung in, or
           the target was slid under it. The criterion is fulfilled all the same; this says how.
dragged    at the end the target is more than DRAGGED from where it first stood.

How near the tool's frame came to the object's centre is kept too: it tells two policies apart of which
neither touches anything.

A suite may name further objects and as many further targets (`Success.also`). Then each object belongs into
the box of any target, each into another one; all are at rest and none is touched, all at once. One of them is
enough to be `touched` or `lost`; the other events are the first object's. Kept besides is which objects lie
in which box, in the order in which they came to rest there (`Progress.placed`): with several ways to do a
task, it is the way that was taken.
"""

import dataclasses
import itertools
import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from morph_vla.robots.geometry import Quaternion, matrix_of
from morph_vla.suites.suite import Success

CLAUSES = (
    "lost",
    "reached",
    "knocked",
    "grasped",
    "lifted",
    "inside",
    "upright",
    "in_place",
    "at_rest",
    "released",
    "dwell",
)
ALL = "all"  # the name of all momentary clauses together
LIFTED = 0.03  # [m] above where the object first lay: clear of the table, below any carry
KNOCKED = 0.05  # [m] along the table: more than fingers that close on an object move it
DRAGGED = 0.05  # [m] of the target, in any direction
BELOW = 0.1  # [m] under the table's top, where nothing brings an object back from
AWAY = 0.5  # [s] out of the robot's reach and out of the box after which a lifted object was dropped

Point = tuple[float, float, float]


@dataclasses.dataclass(frozen=True)
class Reading:
    """What an engine measures after one control step. Positions in the base frame."""

    object_position: Float[np.ndarray, "3"]
    """[m] of the object's centre of mass."""
    target_position: Float[np.ndarray, "3"]
    """[m] of the target's origin."""
    target_quaternion: Quaternion
    """(w, x, y, z)."""
    speed: float
    """[m/s] of the object."""
    spin: float
    """[rad/s] of the object."""
    opening: float
    """Of the gripper: 0 closed .. 1 open."""
    touching: bool
    """Whether any link of the robot touches the object."""
    grasping: bool
    """Whether both fingers of a gripper touch it."""
    approach: float | None = None
    """[m] from the tool's frame to the object's centre; None where the engine does not measure it."""
    also: tuple["Reading", ...] = ()
    """The same of the further objects and targets (`Success.also`), pair by pair."""

    @property
    def every(self) -> tuple["Reading", ...]:
        """This one and those of the further objects."""
        return self, *self.also


@dataclasses.dataclass(frozen=True)
class Progress:
    """What has happened so far in an episode, from where object and target first lay [m]."""

    object_start: Point = (0.0, 0.0, 0.0)
    target_start: Point = (0.0, 0.0, 0.0)
    table_height: float = 0.0
    """[m]"""
    steps: int = 0
    reached: bool = False
    grasped: bool = False
    lifted: bool = False
    knocked: bool = False
    dropped: bool = False
    lost: bool = False
    away_steps: int = 0
    """Since it was lifted, without a break until now: out of the robot's reach and out of the box."""
    longest: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """Momentary clause, or ALL -> the most consecutive control steps for which it held."""
    running: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The same, of the stretch that has not ended."""
    success_step: int | None = None
    nearest: float | None = None
    """The least `approach` so far [m]."""
    placed: tuple[tuple[int, int], ...] = ()
    """Of several objects, those that lie in a box: (object, target), by when they came to rest there."""


def clauses(progress: Progress, reading: Reading, success: Success) -> dict[str, bool]:
    """Which of the momentary clauses that the suite asks for hold now, in the order of CLAUSES."""
    every = reading.every
    holds_now = {"inside": _each_in_a_box(reading, success)}
    if (least := success.min_upright) is not None:
        holds_now["upright"] = all(bool(matrix_of(one.target_quaternion)[2, 2] >= least) for one in every)
    if success.max_moved is not None:
        holds_now["in_place"] = moved(progress, reading) <= success.max_moved
    holds_now["at_rest"] = all(_at_rest(one, success) for one in every)
    holds_now["released"] = reading.opening >= success.min_opening and not any(one.touching for one in every)
    return holds_now


def _in_box(thing: Reading, target: Reading, success: Success) -> bool:
    """Whether the object of one reading is in the box around the target of another, or of the same."""
    base_from_target = matrix_of(target.target_quaternion)
    place = base_from_target.T @ (thing.object_position - target.target_position)
    return bool(np.all(place >= success.low) and np.all(place <= success.high))


def _each_in_a_box(reading: Reading, success: Success) -> bool:
    """Whether every object is in a target's box, each in another one."""
    orders = itertools.permutations(reading.every)
    return any(all(map(_in_box, reading.every, targets, itertools.repeat(success))) for targets in orders)


def _at_rest(reading: Reading, success: Success) -> bool:
    return reading.speed <= success.max_speed and reading.spin <= success.max_spin


def _placed(before: Progress, reading: Reading, success: Success) -> tuple[tuple[int, int], ...]:
    """Those that lie in a box and still do, then those that came to rest there now."""
    every = reading.every
    inside = [(i, j) for i, j in np.ndindex(len(every), len(every)) if _in_box(every[i], every[j], success)]
    kept = tuple(pair for pair in before.placed if pair in inside)
    return kept + tuple(p for p in inside if p not in kept and _at_rest(every[p[0]], success))


def moved(progress: Progress, reading: Reading) -> float:
    """How far the target is from where it first stood [m]."""
    return float(np.linalg.norm(reading.target_position - progress.target_start))


def dragged(progress: Progress, reading: Reading) -> bool:
    """Whether the target is no longer where it first stood."""
    return moved(progress, reading) > DRAGGED


def begin(reading: Reading, table_height: float) -> Progress:
    """The progress of an episode that has not taken a step, at a table whose top is at this height [m]."""
    return Progress(_point(reading.object_position), _point(reading.target_position), table_height)


def _point(position: Float[np.ndarray, "3"]) -> Point:
    x, y, z = (float(value) for value in position)
    return x, y, z


def update(progress: Progress, reading: Reading, success: Success, control_rate: float) -> Progress:
    """Progress after one more control step; `success_step` is set once and stays."""
    now = clauses(progress, reading, success)
    holding = {**now, ALL: all(now.values())}
    running = {name: progress.running.get(name, 0) + 1 if holds else 0 for name, holds in holding.items()}
    steps, done = progress.steps + 1, progress.success_step
    if done is None and running[ALL] >= dwell_steps(success, control_rate):
        done = steps
    way = reading.object_position - progress.object_start
    lies = any(_in_box(reading, target, success) for target in reading.every)
    away = progress.away_steps + 1 if progress.lifted and not (reading.touching or lies) else 0
    grasped = progress.grasped or reading.grasping
    lowest = min(float(one.object_position[2]) for one in reading.every) - progress.table_height
    return dataclasses.replace(
        progress,
        steps=steps,
        reached=progress.reached or any(one.touching for one in reading.every),
        grasped=grasped,
        lifted=progress.lifted or (reading.touching and bool(way[2] > LIFTED)),
        knocked=progress.knocked or (not grasped and math.hypot(*way[:2]) > KNOCKED),
        dropped=progress.dropped or away >= away_steps(control_rate),
        lost=progress.lost or lowest < -BELOW,
        away_steps=away,
        running=running,
        longest={name: max(progress.longest.get(name, 0), count) for name, count in running.items()},
        success_step=done,
        nearest=min((a for a in (progress.nearest, reading.approach) if a is not None), default=None),
        placed=_placed(progress, reading, success) if reading.also else (),
    )


def dwell_steps(success: Success, control_rate: float) -> int:
    """Consecutive control steps that make up the dwell time (at least one)."""
    return max(1, round(success.dwell_seconds * control_rate))


def away_steps(control_rate: float) -> int:
    """Consecutive control steps out of reach and box after which a lifted object was dropped."""
    return max(1, math.ceil(AWAY * control_rate))


def pushed_in(progress: Progress, reading: Reading, success: Success) -> bool:
    """Whether the object is in the box (or the task was done) though it was never lifted."""
    lies = any(_in_box(reading, target, success) for target in reading.every)
    return (progress.success_step is not None or lies) and not progress.lifted


def already(progress: Progress) -> bool:
    """Whether the task was done with nothing to do: each object in a target's box from the first step on."""
    return progress.success_step is not None and progress.longest.get("inside", 0) >= progress.steps


def failed_clause(progress: Progress, reading: Reading, success: Success) -> str | None:
    """The first clause, in the order of CLAUSES, that keeps the episode from success; None if it succeeded.

    Reaching, grasping and lifting are named only where the object did not end up inside: an object that was
    pushed in has fulfilled the criterion's first clause by other means. One that was never grasped failed at
    `knocked` if it was knocked away. An object that is to be pushed need not be grasped.
    """
    if progress.success_step is not None:
        return None
    now, before = clauses(progress, reading, success), {"lost": not progress.lost}
    if not now["inside"]:
        before["reached"] = progress.reached
    if not now["inside"] and not success.by_pushing:
        before |= {
            "knocked": progress.grasped or not progress.knocked,
            "grasped": progress.grasped,
            "lifted": progress.lifted,
        }
    return next((name for name, holds in {**before, **now}.items() if not holds), "dwell")


def placed(progress: Progress, success: Success) -> tuple[tuple[str, str], ...]:
    """`Progress.placed` by name: (object, target)."""
    return tuple((success.pairs[i][0], success.pairs[j][1]) for i, j in progress.placed)


def times(progress: Progress, control_rate: float) -> dict[str, float]:
    """Longest unbroken stretch [s] of each clause and of all together, as the record names them."""
    return {f"{name}_s": steps / control_rate for name, steps in progress.longest.items()}
