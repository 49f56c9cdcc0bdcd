"""Where a demonstration begins: at rest, elsewhere, or after a mistake.

A policy that was only shown the way from rest cannot correct an approach, and never tries a missed grasp
again. Some demonstrations therefore begin where a policy may end up: what brings the robot there (the
*prelude*) is executed and not recorded; then the expert plans from what it sees, and that is recorded. A
prelude is a sequence of actions, so that every engine executes it.

| kind | the prelude |
| --- | --- |
| `rest` | none |
| `near` | the tool goes beside and above the object |
| `target` | the tool goes over the target |
| `anywhere` | the tool goes anywhere over the table where objects are placed |
| `miss` | the fingers close beside the object, and may rise with nothing in them |
| `slip` | the object is grasped, lifted, and lost on the way to the target |
| `carry` | the object is grasped, lifted, and carried beside the target or anywhere over the table |
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from morph_vla.demonstrations.experts import PickAndPlace, Waypoint
from morph_vla.engines.engine import Sight
from morph_vla.suites.begin import Begin
from morph_vla.suites.suite import Suite

GOLDEN = (math.sqrt(5) - 1) / 2
SHIFT = (0.12, 0.3)  # how far beside the object a grasp is missed, in shares of `expert.hover`
BESIDE = 0.5  # share of `carry` that begins beside the target
LOST = 0.4  # [s] for a lost object to fall and come to rest


def kind_of(begin: Begin, number: int) -> str:
    """How demonstration `number` begins: any run of numbers meets the shares nearly exactly.

    The fractional parts of n times the golden ratio fill [0, 1) evenly.
    """
    place, kinds = (number * GOLDEN + 0.5) % 1.0, begin.shares
    for kind, end in zip(kinds, np.cumsum(list(kinds.values())), strict=True):
        if place < end:
            return kind
    return next(kind for kind in reversed(kinds) if kinds[kind])


def generator(suite: Suite, number: int) -> np.random.Generator:
    """Where demonstration `number` draws its prelude from."""
    return np.random.default_rng([suite.seed, number, 1])


def prelude(
    expert: PickAndPlace, seen: Sight, kind: str, rng: np.random.Generator
) -> Float[np.ndarray, "t j"]:
    """Actions (dataset units) that bring the robot from where it is to where the demonstration begins."""
    if kind == "rest":
        return np.zeros((0, len(expert.robot.joints)))
    if kind == "miss":
        return _miss(expert, seen, rng)
    if kind == "slip":
        return _slip(expert, seen, rng)
    if kind == "carry":
        return _carry(expert, seen, rng)
    spec = expert.suite.expert
    gripper = float(rng.uniform() < spec.begin.shut)
    place = _place(expert.suite, seen, kind, rng)
    yaw = 0.0 if spec.free_spin else float(rng.uniform(-0.3, 0.3))
    return expert.follow(seen, [Waypoint(place, yaw, gripper, hold=2, seconds=spec.turn_seconds)]).actions


def way_on(expert: PickAndPlace, seen: Sight, kind: str) -> list[Waypoint]:
    """What the expert does after the prelude, in a demonstration of this kind."""
    if kind == "rest":
        return expert.stations(seen)
    return expert.stations_holding(seen) if kind == "carry" else expert.stations_from_here(seen)


def _place(suite: Suite, seen: Sight, kind: str, rng: np.random.Generator) -> Float[np.ndarray, "3"]:
    """A place for the tool [m]; distances are shares of the expert's `hover`, which grows with the robot."""
    spec, hover = suite.expert, suite.expert.hover
    if kind == "near":
        return seen.object_position + hover * rng.uniform([-0.4, -0.4, 0.35], [0.4, 0.4, 1.15])
    if kind == "target":
        above = hover * rng.uniform([-0.4, -0.4, 0.0], [0.4, 0.4, 0.6])
        return seen.target_position + np.array([0.0, 0.0, spec.release_height + spec.carry]) + above
    low, high = _corners(suite)
    height = float(seen.object_position[2]) + hover * float(rng.uniform(0.8, 2.0))
    return np.array([*rng.uniform(low, high), height])


def _corners(suite: Suite) -> tuple[Float[np.ndarray, "2"], Float[np.ndarray, "2"]]:
    """The part of the table [m] where the suite's object and target are placed."""
    places = [suite.placement[name] for name in (suite.success.object, suite.success.target)]
    x, y = (np.array([getattr(place, axis) for place in places]) for axis in "xy")
    return np.array([x.min(), y.min()]), np.array([x.max(), y.max()])


def _grasp(stations: list[Waypoint]) -> tuple[list[Waypoint], list[Waypoint]]:
    """The way up to the grasp, with it; and the rest, which begins with the lift."""
    closed = next(i for i, station in enumerate(stations) if station.gripper == 1.0)
    return stations[: closed + 1], stations[closed + 1 :]


def _miss(expert: PickAndPlace, seen: Sight, rng: np.random.Generator) -> Float[np.ndarray, "t j"]:
    """The fingers close beside the object; half of the time the tool then rises, some of the way."""
    hover, angle = expert.suite.expert.hover, float(rng.uniform(0.0, 2 * math.pi))
    shift = hover * float(rng.uniform(*SHIFT))
    way, _ = _grasp(expert.stations(seen, (shift * math.cos(angle), shift * math.sin(angle))))
    up = way[-1].position + np.array([0.0, 0.0, hover * max(0.0, float(rng.uniform(-1.0, 1.0)))])
    return expert.follow(seen, [*way, Waypoint(up, way[-1].yaw, 1.0, hold=1)]).actions


def _slip(expert: PickAndPlace, seen: Sight, rng: np.random.Generator) -> Float[np.ndarray, "t j"]:
    """The object is grasped, lifted a little and lost; the hand stays where it lost it, opened."""
    hover, rate = expert.suite.expert.hover, expert.suite.control_rate
    way, _ = _grasp(expert.stations(seen))
    grasp, target = way[-1], seen.target_position
    along = float(rng.uniform(0.0, 0.4)) * (target - grasp.position)[:2]
    place = grasp.position + np.array([*along, hover * float(rng.uniform(0.1, 0.4))])
    lifted = Waypoint(place, grasp.yaw, 1.0)
    lost = Waypoint(place, grasp.yaw, 0.0, hold=math.ceil(LOST * rate))
    return expert.follow(seen, [*way, lifted, lost]).actions


def _carry(expert: PickAndPlace, seen: Sight, rng: np.random.Generator) -> Float[np.ndarray, "t j"]:
    """The object is grasped and lifted; half of the time it is then beside the target, else anywhere."""
    hover, (low, high) = expert.suite.expert.hover, _corners(expert.suite)
    way, (lifted, over, *_) = _grasp(expert.stations(seen))
    beside = rng.uniform() < BESIDE
    offset = hover * rng.uniform(-0.6, 0.6, 2)
    place = over.position[:2] + offset if beside else rng.uniform(low, high)
    height = over.position[2] + hover * float(rng.uniform(0.0, 0.4))
    elsewhere = Waypoint(np.array([*place, height]), 0.0, 1.0)
    return expert.follow(seen, [*way, lifted, elsewhere]).actions


def tally(kinds: Mapping[str, Sequence[int]]) -> str:
    """'rest 201 of 202, near 88 of 90': how many attempts of each kind were kept."""
    return ", ".join(f"{kind} {kept} of {attempted}" for kind, (kept, attempted) in kinds.items())
