"""A point that is pushed over a plane, and the two sets of paths that it was shown (BeT, Appendix A).

Shafiullah et al., "Behavior Transformers: Cloning k modes with one stone" (NeurIPS 2022): observation (x, y),
action (dx, dy), and after each step the point snaps "close to" the nearest whole coordinates. Where the paper
is silent: 10% of the distance from them is left, an action of a demonstration has Gaussian noise of 0.05, a
start one of 0.1, and each demonstration takes one of the paths at random.
"""

import dataclasses
import itertools

import numpy as np
from jaxtyping import Float

LEFT = 0.1  # of the distance from whole coordinates after a step
ACTION_NOISE, START_NOISE = 0.05, 0.1
Path = tuple[tuple[int, int], ...]


@dataclasses.dataclass(frozen=True)
class Paths:
    """One of the paper's sets."""

    paths: tuple[Path, ...]
    """Each a way of doing the same; points that are passed, in order"""
    bins: int
    """That the paper's Table 4 has for it"""

    @property
    def start(self) -> np.ndarray:
        """Where all begin."""
        return np.array(self.paths[0][0], np.float64)

    @property
    def longest(self) -> int:
        """Steps of the longest path."""
        return max(map(len, self.paths)) - 1


def straight(*corners: tuple[int, int]) -> Path:
    """Steps from corner to corner, none longer than 1 along x or y."""
    points = [corners[0]]
    for (x, y), (to_x, to_y) in itertools.pairwise(corners):
        count = max(abs(to_x - x), abs(to_y - y))
        points += [(x + (to_x - x) * n // count, y + (to_y - y) * n // count) for n in range(1, count + 1)]
    return tuple(points)


SETS = {
    "fork": Paths(
        (
            ((1, 2), (2, 2), (2, 3), (2, 4), (3, 4), (4, 4), (4, 3), (4, 2), (5, 2)),
            ((1, 2), (2, 2), (2, 1), (2, 0), (3, 0), (4, 0), (4, 1), (4, 2), (5, 2)),
        ),
        bins=2,
    ),
    "crossing": Paths(
        (
            straight((0, 0), (8, 8)),
            straight((0, 0), (0, 4), (4, 4), (8, 4), (8, 8)),
            straight((0, 0), (4, 0), (4, 4), (4, 8), (8, 8)),
        ),
        bins=3,
    ),
}


def moved(points: Float[np.ndarray, "n 2"], actions: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
    """Where the points are after a step."""
    pushed = points + actions
    whole = np.round(pushed)
    return whole + LEFT * (pushed - whole)


def begun(paths: Paths, count: int, rng: np.random.Generator) -> Float[np.ndarray, "n 2"]:
    """Where episodes begin."""
    return paths.start + START_NOISE * rng.normal(size=(count, 2))


@dataclasses.dataclass(frozen=True)
class Demonstration:
    """One episode."""

    points: Float[np.ndarray, "t 2"]
    actions: Float[np.ndarray, "t 2"]


def demonstrations(paths: Paths, count: int, seed: int) -> list[Demonstration]:
    """Episodes, each along one of the paths; a function of the seed."""
    rng = np.random.default_rng(seed)
    return [_demonstration(paths, rng) for _ in range(count)]


def _demonstration(paths: Paths, rng: np.random.Generator) -> Demonstration:
    path = np.array(paths.paths[rng.integers(len(paths.paths))], np.float64)
    actions = np.diff(path, axis=0) + ACTION_NOISE * rng.normal(size=(len(path) - 1, 2))
    points = [begun(paths, 1, rng)]
    for action in actions[:-1]:
        points.append(moved(points[-1], action[None]))
    return Demonstration(np.concatenate(points), actions)


def windows(points: Float[np.ndarray, "t n 2"], width: int) -> Float[np.ndarray, "t n w 2"]:
    """The last `width` points at each time, the present one last; the first repeats before the start."""
    padded = np.concatenate([np.repeat(points[:1], width - 1, axis=0), points])
    return np.stack([padded[lag : lag + len(points)] for lag in range(width)], axis=2)


def path_of(points: Float[np.ndarray, "t 2"], paths: Paths) -> int | None:
    """Which path was followed from beginning to end, however long the point rested on it; None for none."""
    cells = [tuple(cell) for cell in np.round(points).astype(int).tolist()]
    passed = tuple(cell for cell, _ in itertools.groupby(cells))
    for number, path in enumerate(paths.paths):
        if passed[: len(path)] == path:
            return number
    return None
