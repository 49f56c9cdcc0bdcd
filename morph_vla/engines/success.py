"""Success: the object's centre inside the target's box, at rest, released, for the dwell time.

The criterion is the paper's (Appendix C.3): an axis-aligned box, a minimum dwell time, approximately
stationary; ours adds that the gripper is open and clear of the object. It is stated over *consecutive*
control steps: leaving the box, moving or touching starts the dwell anew. Pure functions over readings, so
that tests can move objects by script and any engine can use them.

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

What is noted besides, of the object that the suite names and of no other:

touched    the gripper touched it.
lifted     the gripper touched it while its centre was more than LIFTED above where it first lay.
dropped    it had been lifted, and then was out of the gripper and out of the box for LOST seconds without a
           break: it lies, rolls or flies elsewhere. One let go above the box falls in sooner: LOST seconds
           of free fall are 1.2 m. It stays noted when the object is picked up again; what is let go in the
           last LOST seconds of an episode is not decided and not noted.
pushed_in  in the box at the end, or succeeded, without ever having been lifted: pushed or flung in, or
           the target was slid under it. The criterion is fulfilled all the same; this says how.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from morph_vla.suites.suite import Success

CLAUSES = ("reached", "grasped", "lifted", "inside", "at_rest", "released", "dwell")
LIFTED = 0.03  # [m] above where the object first lay: clear of the table, below any carry
LOST = 0.5  # [s] out of the gripper and out of the box after which a lifted object was dropped


@dataclasses.dataclass(frozen=True)
class Reading:
    """What an engine measures after one control step. Positions in the base frame."""

    object_position: Float[np.ndarray, "3"]  # [m]
    target_position: Float[np.ndarray, "3"]  # [m]
    speed: float  # [m/s] of the object's centre
    spin: float  # [rad/s]
    opening: float  # gripper: 0 closed .. 1 open
    touching: bool  # the gripper touches the object
    grasping: bool  # both fingers touch it


@dataclasses.dataclass(frozen=True)
class Progress:
    """What has happened so far in an episode; times are seconds of the longest unbroken stretch."""

    start_height: float
    steps: int = 0
    reached: bool = False
    grasped: bool = False
    lifted: bool = False
    dropped: bool = False
    lost_steps: int = 0  # since it was lifted, running: out of the gripper and out of the box
    longest: tuple[int, int, int, int] = (0, 0, 0, 0)  # inside, at_rest, released, all three [steps]
    running: tuple[int, int, int, int] = (0, 0, 0, 0)
    success_step: int | None = None


def target_box(
    success: Success, target_position: Float[np.ndarray, "3"]
) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]:
    """Corners [m] of the box the object's centre must stay in, around the target where it is now."""
    return target_position + np.asarray(success.low), target_position + np.asarray(success.high)


def clauses(reading: Reading, success: Success) -> dict[str, bool]:
    """Which of the three momentary clauses hold now: inside, at_rest, released."""
    low, high = target_box(success, reading.target_position)
    inside = bool(np.all(reading.object_position >= low) and np.all(reading.object_position <= high))
    at_rest = reading.speed <= success.max_speed and reading.spin <= success.max_spin
    released = reading.opening >= success.min_opening and not reading.touching
    return {"inside": inside, "at_rest": at_rest, "released": released}


def begin(reading: Reading) -> Progress:
    """The progress of an episode that has not taken a step."""
    return Progress(start_height=float(reading.object_position[2]))


def update(progress: Progress, reading: Reading, success: Success, control_rate: float) -> Progress:
    """Progress after one more control step; `success_step` is set once and stays."""
    now = clauses(reading, success)
    held = (*now.values(), all(now.values()))
    running = tuple(n + 1 if holds else 0 for n, holds in zip(progress.running, held, strict=True))
    steps, done = progress.steps + 1, progress.success_step
    if done is None and running[3] >= dwell_steps(success, control_rate):
        done = steps
    high = float(reading.object_position[2]) > progress.start_height + LIFTED
    lost = progress.lost_steps + 1 if progress.lifted and not (reading.touching or now["inside"]) else 0
    return dataclasses.replace(
        progress,
        steps=steps,
        reached=progress.reached or reading.touching,
        grasped=progress.grasped or reading.grasping,
        lifted=progress.lifted or (reading.touching and high),
        dropped=progress.dropped or lost >= lost_steps(control_rate),
        lost_steps=lost,
        running=running,
        longest=tuple(map(max, progress.longest, running)),
        success_step=done,
    )


def dwell_steps(success: Success, control_rate: float) -> int:
    """Consecutive control steps that make up the dwell time (at least one)."""
    return max(1, round(success.dwell_seconds * control_rate))


def lost_steps(control_rate: float) -> int:
    """Consecutive control steps out of gripper and box after which a lifted object was dropped."""
    return max(1, math.ceil(LOST * control_rate))


def pushed_in(progress: Progress, reading: Reading, success: Success) -> bool:
    """Whether the object is in the box (or the task was done) though it was never lifted."""
    there = progress.success_step is not None or clauses(reading, success)["inside"]
    return there and not progress.lifted


def failed_clause(progress: Progress, reading: Reading, success: Success) -> str | None:
    """The first clause, in the order of CLAUSES, that keeps the episode from success; None if it succeeded.

    Reaching, grasping and lifting are named only where the object did not end up inside: an object that was
    pushed in has fulfilled the criterion's first clause by other means.
    """
    if progress.success_step is not None:
        return None
    now = clauses(reading, success)
    if not now["inside"]:
        for name in ("reached", "grasped", "lifted"):
            if not getattr(progress, name):
                return name
        return "inside"
    for name in ("at_rest", "released"):
        if not now[name]:
            return name
    return "dwell"


def times(progress: Progress, control_rate: float) -> dict[str, float]:
    """Longest unbroken stretch [s] of each clause and of all together, as the record names them."""
    names = ("inside_s", "at_rest_s", "released_s", "all_s")
    return {name: steps / control_rate for name, steps in zip(names, progress.longest, strict=True)}
