"""How a demonstration begins: at rest, elsewhere, or after a mistake.

A policy that was only shown the way from rest cannot correct an approach, and never tries a missed grasp
again. Some demonstrations therefore begin where a policy may end up: a *lead-in* brings the robot there, and
is not recorded; then the expert plans from what it sees, and that is recorded. A lead-in is a sequence of
actions, so that every engine executes it.

| kind | the lead-in |
| --- | --- |
| `rest` | none |
| `near` | the tool goes beside and above the object |
| `low` | the tool goes beside the object, at its height: there a policy ends up whose grasp has missed |
| `target` | the tool goes over the target |
| `anywhere` | the tool goes anywhere over the table where objects are placed |
| `miss` | the fingers close beside the object, and may rise with nothing in them |
| `slip` | the object is grasped, lifted, and lost on the way to the target |
| `carry` | the object is grasped, lifted, and carried beside the target or anywhere over the table |
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from morph_vla.demonstrations.experts import Expert, PickAndPlace, Waypoint
from morph_vla.engines.engine import Sight
from morph_vla.suites.begin import BeginShares
from morph_vla.suites.suite import Suite

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
LOW_BESIDE = (0.25, 1.2)  # how far beside the object the tool is, in shares of `expert.hover`
MISSED_BY = (0.12, 0.3)  # how far beside the object a grasp is missed, in shares of `expert.hover`
CARRY_BESIDE = 0.5  # share of `carry` that begins beside the target
DROP_SECONDS = 0.4  # [s] for a lost object to fall and come to rest


def kind_of(shares: BeginShares, number: int) -> str:
    """How demonstration `number` begins: any run of numbers meets the shares nearly exactly.

    The fractional parts of n times the golden ratio fill [0, 1) evenly.
    """
    place, kinds = (number * GOLDEN_RATIO + 0.5) % 1.0, shares.kinds
    for kind, end in zip(kinds, np.cumsum(list(kinds.values())), strict=True):
        if place < end:
            return kind
    return next(kind for kind in reversed(kinds) if kinds[kind])


def lead_in(expert: Expert, seen: Sight, kind: str, number: int) -> Float[np.ndarray, "t j"]:
    """Actions (dataset units) that bring the robot to where demonstration `number`, of this kind, begins."""
    if kind == "rest":
        return np.zeros((0, len(expert.robot.joints)))
    rng = np.random.default_rng([expert.suite.seed, number, 1])
    makers = {"miss": _miss, "slip": _slip, "carry": _carry}
    if kind in makers:
        assert isinstance(expert, PickAndPlace)  # `ExpertSpec.problems`: a push has none of these
        return expert.follow(seen, makers[kind](expert, seen, rng)).actions
    spec = expert.suite.expert
    gripper = float(rng.uniform() < spec.begin.shut)
    place = _place(expert.suite, seen, kind, rng)
    yaw_rad = 0.0 if spec.free_spin else float(rng.uniform(-0.3, 0.3))
    there = Waypoint(place, yaw_rad, gripper, hold=2, seconds=spec.turn_seconds)
    if kind != "low":
        return expert.follow(seen, [there]).actions
    above = dataclasses.replace(there, position=place + np.array([0.0, 0.0, spec.hover]), hold=0)
    return expert.follow(seen, [above, dataclasses.replace(there, seconds=0.0)]).actions


def recorded_waypoints(expert: Expert, seen: Sight, kind: str) -> list[Waypoint]:
    """What the expert does after the lead-in, in a demonstration of this kind."""
    if kind == "rest":
        return expert.waypoints(seen)
    if kind == "carry" and isinstance(expert, PickAndPlace):
        return expert.waypoints_holding(seen)
    return expert.waypoints_from_here(seen)


def _place(suite: Suite, seen: Sight, kind: str, rng: np.random.Generator) -> Float[np.ndarray, "3"]:
    """A place for the tool [m]; distances are shares of the expert's `hover`, which grows with the robot."""
    spec, hover = suite.expert, suite.expert.hover
    if kind == "near":
        return seen.object_position + hover * rng.uniform([-0.4, -0.4, 0.35], [0.4, 0.4, 1.15])
    if kind == "low":
        away, angle_rad = hover * float(rng.uniform(*LOW_BESIDE)), float(rng.uniform(0.0, 2 * math.pi))
        height = spec.clearance + hover * float(rng.uniform(0.0, 0.25))
        return seen.object_position + np.array(
            [away * math.cos(angle_rad), away * math.sin(angle_rad), height]
        )
    if kind == "target":
        above = hover * rng.uniform([-0.4, -0.4, 0.0], [0.4, 0.4, 0.6])
        return seen.target_position + np.array([0.0, 0.0, spec.release_height + spec.carry]) + above
    low, high = _corners(suite)
    height = float(seen.object_position[2]) + hover * float(rng.uniform(0.8, 2.0))
    return np.array([*rng.uniform(low, high), height])


def _corners(suite: Suite) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
    """The part of the table [m] where the suite's objects and targets are placed."""
    places = [suite.placement[name] for pair in suite.success.pairs for name in pair]
    x, y = (np.array([getattr(place, axis) for place in places]) for axis in "xy")
    return np.array([x.min(), y.min()]), np.array([x.max(), y.max()])


def _grasp(way: list[Waypoint]) -> tuple[list[Waypoint], list[Waypoint]]:
    """The way up to the grasp, with it; and the rest, which begins with the lift."""
    closed = next(i for i, waypoint in enumerate(way) if waypoint.gripper == 1.0)
    return way[: closed + 1], way[closed + 1 :]


def _miss(expert: PickAndPlace, seen: Sight, rng: np.random.Generator) -> list[Waypoint]:
    """The fingers close beside the object; half of the time the tool then rises, some of the way."""
    hover, angle_rad = expert.suite.expert.hover, float(rng.uniform(0.0, 2 * math.pi))
    away = hover * float(rng.uniform(*MISSED_BY))
    way, _ = _grasp(expert.waypoints(seen, (away * math.cos(angle_rad), away * math.sin(angle_rad))))
    up = way[-1].position + np.array([0.0, 0.0, hover * max(0.0, float(rng.uniform(-1.0, 1.0)))])
    return [*way, Waypoint(up, way[-1].yaw_rad, 1.0, hold=1)]


def _slip(expert: PickAndPlace, seen: Sight, rng: np.random.Generator) -> list[Waypoint]:
    """The object is grasped, lifted a little and lost; the hand stays where it lost it, opened."""
    hover, rate = expert.suite.expert.hover, expert.suite.control_rate
    way, _ = _grasp(expert.waypoints(seen))
    grasp, target = way[-1], seen.target_position
    along = float(rng.uniform(0.0, 0.4)) * (target - grasp.position)[:2]
    place = grasp.position + np.array([*along, hover * float(rng.uniform(0.1, 0.4))])
    lifted = Waypoint(place, grasp.yaw_rad, 1.0)
    return [*way, lifted, Waypoint(place, grasp.yaw_rad, 0.0, hold=math.ceil(DROP_SECONDS * rate))]


def _carry(expert: PickAndPlace, seen: Sight, rng: np.random.Generator) -> list[Waypoint]:
    """The object is grasped and lifted; half of the time it is then beside the target, else anywhere."""
    hover, (low, high) = expert.suite.expert.hover, _corners(expert.suite)
    way, (lifted, over, *_) = _grasp(expert.waypoints(seen))
    beside = rng.uniform() < CARRY_BESIDE
    offset = hover * rng.uniform(-0.6, 0.6, 2)
    place = over.position[:2] + offset if beside else rng.uniform(low, high)
    height = over.position[2] + hover * float(rng.uniform(0.0, 0.4))
    return [*way, lifted, Waypoint(np.array([*place, height]), 0.0, 1.0)]


def tally(kinds: Mapping[str, Sequence[int]]) -> str:
    """'rest 201 of 202, near 88 of 90': how many attempts of each kind were kept."""
    return ", ".join(f"{kind} {kept} of {attempted}" for kind, (kept, attempted) in kinds.items())
