"""Where on a table an arm can work with its tool pointing straight down, and the pose it begins from."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float

from morph_vla.errors import MorphVlaError
from morph_vla.robots.reach import Chain

HEADINGS = (0.0, math.pi / 2, -math.pi / 2, math.pi)
"""[rad] Which way the table lies from the base, the first that will do."""
RADII, SIDES = np.arange(0.25, 1.0, 0.05), np.linspace(-0.24, 0.24, 9)
"""Shares of the arm's length: places ahead of the base, and to its side."""
UNDER = (0.4, 0.5, 0.3, 0.6, 0.2, 0.7, 0.1, 0.8, 0.0, 0.9, -0.1, 1.0, -0.2)
"""Shares of the arm's length: how deep below its second joint a table may stand, a Panda's first."""
ASIDE = 0.15  # of the arm's length: from the root to an arm in whose front the table stands, not the root's
WIDTHS, DEPTHS = (4, 3, 2), (2, 1)
"""Places to either side of a field's middle, and before and behind it, that it may hold."""
FEWEST = 4  # joints of an arm that can put its tool down anywhere
SEEDS = 40
QUICK = 60  # iterations that tell whether a tool points down anywhere over a table
ROOT = np.zeros(3)  # where a table is counted from that stands at the height of the robot's base
MARGIN = 0.05  # of half a joint's range, to its nearest limit
LEAST_HEIGHT = 0.015  # of the arm's length: of every joint behind the second above the table
CLEAR = 0.12  # of the arm's length, from the base's axis to the last joints
LEVEL = "at the height of its base"
WHY = {
    "place": "it does not reach {reach:.2f} m over a table {where}",
    "direction": "it cannot point its gripper straight down",
    "limits": "its joints come to their limits",
    "clear": "its links would meet the table or each other",
}


@dataclass(frozen=True, eq=False)
class Field:
    """A part of the table, as a rectangle ahead of the base, and the arm's pose above its middle."""

    origin: Float[np.ndarray, "3"]
    """[m] what lies ahead and aside is counted from: the root, or below the arm; z: the table's top"""
    heading: float
    """[rad] of its middle, about z"""
    ahead: float
    """[m] from the origin to its middle"""
    depth: float
    """[m] from its middle to its near and far edge"""
    width: float
    """[m] from its middle to its sides"""
    rest: Float[np.ndarray, "j"]
    """[rad] the arm's joints, with the tool over its middle"""
    flipped: bool
    """Whether the tool's y axis is turned round for that"""
    margin: float
    """Of half its range, how far the joint nearest to a limit is from it, anywhere in the field"""

    def ranges(
        self, ahead: tuple[float, float], aside: tuple[float, float]
    ) -> tuple[tuple[float, float], ...]:
        """Ranges of x and y [m] of a part: shares of `depth` from the middle, and of `width`."""
        a, b = (self.ahead + share * self.depth for share in ahead)
        c, d = (share * self.width for share in aside)
        cos, sin = round(math.cos(self.heading)), round(math.sin(self.heading))
        x0, y0, _ = self.origin.tolist()
        corners = [(x0 + cos * x - sin * y, y0 + sin * x + cos * y) for x in (a, b) for y in (c, d)]
        return tuple((min(values), max(values)) for values in zip(*corners, strict=True))


def below(chain: Chain, size: float, table: float) -> Float[np.ndarray, "3"]:
    """What lies on a table of this height [m] is counted from the root, or from an arm far beside it."""
    x, y = chain.fixed[0][:2, 3].tolist()
    aside = math.hypot(x, y) > ASIDE * size
    return np.array([x, y, table] if aside else [0.0, 0.0, table])


def raised(chain: Chain, size: float, heights: tuple[float, float]) -> Iterator[Float[np.ndarray, "3"]]:
    """Tables at other heights than the root's over which a tool points down, half the arm's length ahead.

    An arm on a torso, a column or a ceiling works where no table at the height of its root stands.
    """
    place = np.array([[0.5 * size, 0.0]])
    shoulder = float(chain.forward(np.zeros((1, len(chain.names))))[1][0, 1, 2])
    for share in UNDER:
        origin = below(chain, size, shoulder - share * size)
        seen = _seen_from(origin, chain)
        if any(
            all(_points_down(seen, _targets(place, height, heading)) for height in heights)
            for heading in HEADINGS
        ):
            yield origin


def _points_down(chain: Chain, target: Float[np.ndarray, "1 4 4"]) -> bool:
    """Whether inverse kinematics brings the tool to a pose, from anywhere, turned about its z as it likes."""
    targets = np.repeat(target, SEEDS, 0)
    _, placed, pointing = chain.solve(targets, _seeds(chain), spin=False, iterations=QUICK)
    return bool((placed & pointing).any())


def find(
    chains: tuple[Chain, ...],
    size: float,
    spin: bool,
    heights: tuple[float, float],
    origin: Float[np.ndarray, "3"] = ROOT,
) -> Field:
    """The widest field in which the arm reaches every place at both `heights` [m] from one rest pose.

    `chains` end in the tool's frame, and in the same with y turned round; `size` is the arm's length [m],
    `origin` what places and heights are counted from. Raises MorphVlaError with what stands in the way.
    """
    reasons: Counter[str] = Counter()
    chains = tuple(_seen_from(origin, chain) for chain in chains)
    for heading in HEADINGS:
        fields = [
            field
            for rest, flipped in _rests(chains, size, spin, heights[1], heading, reasons)
            for field in _fields(chains[flipped], size, spin, heights, heading, rest, flipped, reasons)
        ]
        if fields:
            return replace(max(fields, key=rank), origin=origin)
    raise MorphVlaError(_why(chains[0], size, heights, float(origin[2]), reasons))


def _seen_from(origin: Float[np.ndarray, "3"], chain: Chain) -> Chain:
    """The same arm in axes that begin at `origin`."""
    first = chain.fixed[0].copy()
    first[:3, 3] -= origin
    return replace(chain, fixed=(first, *chain.fixed[1:]))


def rank(field: Field) -> tuple[float, float]:
    """What fields are ordered by: how large they are [m^2], then how far from the joints' limits."""
    return round(field.width * field.depth, 6), field.margin


def _why(chain: Chain, size: float, heights: tuple[float, float], table: float, reasons: Counter[str]) -> str:
    """What most poses failed at; a place that is reached with the tool pointing elsewhere is no reason."""
    cause = reasons.most_common(1)[0][0] if reasons else "place"
    if cause == "place":
        targets = np.repeat(_targets(np.array([[0.5 * size, 0.0]]), heights[1], 0.0), SEEDS, 0)
        if chain.solve(targets, _seeds(chain), spin=False, weight=0.0)[1].any():
            cause = "direction"
    where = f"{abs(table):.2f} m {'above' if table > 0 else 'below'} its base" if table else LEVEL
    return WHY[cause].format(reach=0.5 * size, where=where)


def _seeds(chain: Chain) -> Float[np.ndarray, "n j"]:
    """Where inverse kinematics begins: anywhere within the limits, and within half a turn."""
    low, high = np.maximum(chain.lower, -math.pi), np.minimum(chain.upper, math.pi)
    return np.random.default_rng(0).uniform(low, high, (SEEDS, len(low)))


def _rests(
    chains: tuple[Chain, ...],
    size: float,
    spin: bool,
    height: float,
    heading: float,
    reasons: Counter[str],
) -> Iterator[tuple[Float[np.ndarray, "j"], bool]]:
    """Poses with the tool over the middle of the table, the furthest from limits first."""
    poses = []
    for ahead in (0.55, 0.45, 0.65, 0.38):
        target = _targets(np.array([[ahead * size, 0.0]]), height, heading)
        for flipped, chain in enumerate(chains[: 2 if spin else 1]):
            targets = np.repeat(target, SEEDS, 0)
            values, good, margins = _tried(chain, targets, _seeds(chain), size, spin, reasons)
            # Away from limits, and not far round: in the middle of a turn rather than at the end of two.
            score = np.where(good, np.minimum(margins, 0.3) - 0.05 * np.abs(values).mean(axis=1), -np.inf)
            if good.any():
                pick = int(np.argmax(score))
                poses.append((float(score[pick]), values[pick], bool(flipped)))
    for _, values, flipped in sorted(poses, key=lambda item: -item[0])[:3]:
        yield values, flipped


def _fields(
    chain: Chain,
    size: float,
    spin: bool,
    heights: tuple[float, float],
    heading: float,
    rest: Float[np.ndarray, "j"],
    flipped: bool,
    reasons: Counter[str],
) -> Iterator[Field]:
    """Rectangles of places that are all reached from `rest`."""
    grid = np.array([[ahead, aside] for ahead in RADII for aside in SIDES]) * size
    shape = (len(RADII), len(SIDES))
    good, margins = np.ones(shape, bool), np.full(shape, np.inf)
    for height in heights:
        targets = _targets(grid, height, heading)
        _, reached, margin = _tried(chain, targets, np.tile(rest, (len(grid), 1)), size, spin, reasons)
        good &= reached.reshape(shape)
        margins = np.minimum(margins, margin.reshape(shape))
    middle, step = len(SIDES) // 2, float(RADII[1] - RADII[0])
    for width, depth in itertools.product(WIDTHS, DEPTHS):
        for row in range(depth, len(RADII) - depth):
            part = np.s_[row - depth : row + depth + 1, middle - width : middle + width + 1]
            if good[part].all():
                yield Field(
                    ROOT,
                    heading,
                    ahead=float(RADII[row]) * size,
                    depth=depth * step * size,
                    width=float(SIDES[middle + width]) * size,
                    rest=rest,
                    flipped=flipped,
                    margin=float(margins[part].min()),
                )


def _tried(
    chain: Chain,
    targets: Float[np.ndarray, "n 4 4"],
    start: Float[np.ndarray, "n j"],
    size: float,
    spin: bool,
    reasons: Counter[str],
) -> tuple[Float[np.ndarray, "n j"], Bool[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Joint values, which of them will do, and their margin; what is wrong with the others is counted."""
    values, placed, pointing = chain.solve(targets, start, spin)
    margins = chain.margin(values)
    _, origins, _ = chain.forward(values)
    base = origins[:, 0, :2]
    high = (origins[:, 2:, 2] > LEAST_HEIGHT * size).all(axis=1)
    apart = np.linalg.norm(origins[:, -2:, :2] - base[:, None], axis=2).min(axis=1) > CLEAR * size
    checks = {"place": placed, "direction": pointing, "limits": margins > MARGIN, "clear": high & apart}
    good = np.ones(len(values), bool)
    for reason, holds in checks.items():
        reasons[reason] += int((good & ~holds).sum())
        good &= holds
    return values, good, margins


def _targets(places: Float[np.ndarray, "n 2"], height: float, heading: float) -> Float[np.ndarray, "n 4 4"]:
    """Poses of a tool that points down, as the expert asks for at a yaw of 0, at places ahead and aside."""
    cos, sin = math.cos(heading), math.sin(heading)
    turned = np.array([[cos, -sin, 0, 0], [sin, cos, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    poses = np.tile(turned @ np.diag([1.0, -1.0, -1.0, 1.0]), (len(places), 1, 1))
    poses[:, 0, 3] = cos * places[:, 0] - sin * places[:, 1]
    poses[:, 1, 3] = sin * places[:, 0] + cos * places[:, 1]
    poses[:, 2, 3] = height
    return poses
