"""What goes on inside the policies of a study, in numbers: do they listen to the body, and know it?

Observations of several bodies, several of each. Three questions, each with a measure that a policy without a
body answers with nothing:

    how much of what varies is by body    `by_group`: 0 nothing, 1 all of it
    does the answer follow what is told   `moved`: 0 it does not listen
    can a length be read from a token     `left_out` and `known`: 0 no better than the joint's mean, 1 exactly
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text
from morph_vla.wording import count, table

RIDGES = tuple(10.0**power for power in range(-5, 4))
"""Penalties that are tried, in mean squares of a probe's inputs"""


@dataclass(frozen=True)
class Probe:
    """What a linear map of tokens, fitted on the other bodies, knows of a length of one that it never saw."""

    of: str
    """`joint tokens`, or `action tokens`: their mean"""
    length: str
    """A feature of `robots.screws.GEOMETRY` in metres, or the robot's `reach`"""
    layers: tuple[float, ...]
    """1 - squared error / that of the joint's mean, behind each layer; of joint tokens first as they enter"""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """The policy of one cell."""

    cell: str
    bodies: tuple[str, ...]
    unseen: tuple[str, ...]
    """Those that were not trained on; the probes' errors are of these (of all, where there is none)"""
    observations: int
    read: tuple[float, ...]
    """By layer, how much of an action token's attention goes to kinematic tokens; none with `start: exact`,
    whose gate is another thing"""
    even: float
    """That share if every token were attended alike"""
    attention_by_body: tuple[float, ...]
    """By layer, how much of what varies in the attention between joints is by body"""
    scale: float | None
    """FiLM's scale, root mean square; none without FiLM"""
    shift: float | None
    """FiLM's shift, in sizes of the tokens that FiLM makes"""
    film_by_body: float | None
    """Of FiLM's scale and shift what differs between bodies at the same joint, as a share of all (root mean
    squares)"""
    moved: float | None
    """How far the answer moves when told of another body of as many joints, root mean square, as a share of
    how far answers lie from their mean; none where no two bodies have as many joints"""
    gradients: dict[str, float]
    """Part of the model -> norm of the last logged step's gradient, before the clip"""
    probes: tuple[Probe, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        bodies = f"{len(self.bodies)} bodies, {len(self.unseen)} of them not trained on"
        yield f"{self.cell}: {bodies}; asked {count(self.observations, 'time')}"
        depth = len(self.attention_by_body)
        head = ("by layer", "as they enter", *map(str, range(depth)))
        rows: list[Sequence[str]] = [
            (f"actions' attention to joints (all alike: {self.even:.2f})", "", *_cells(self.read, depth)),
            ("of joints' attention, by body", "", *_cells(self.attention_by_body, depth)),
        ]
        for probe in self.probes:
            enters = [""] * (depth + 1 - len(probe.layers))
            rows.append((f"{probe.length} known from {probe.of}", *enters, *_cells(probe.layers)))
        yield from table(head, rows, right=range(1, depth + 2))
        if self.scale is not None and self.shift is not None and self.film_by_body is not None:
            sizes = f"scale {self.scale:.3f}, shift {self.shift:.3f} of the tokens"
            yield f"FiLM: {sizes}; between bodies at the same joint {self.film_by_body:.3f} of it"
        if self.moved is not None:
            yield f"told of another body, its answers move by {self.moved:.3f} of their spread"
        norms = ", ".join(f"{part} {norm:.2g}" for part, norm in self.gradients.items())
        if norms:
            yield f"gradient norms at the end: {norms}"


def _cells(values: Sequence[float], width: int = 0) -> list[str]:
    """How far below nothing a probe is says nothing: it was asked beyond what it was fitted on."""
    return ["< -1" if value < -1 else f"{value:.2f}" for value in values] or [""] * width


def write(inside: Inside, path: Path) -> None:
    """As JSON."""
    write_text(path, json.dumps(to_plain(inside), indent=1) + "\n")


def by_group(values: Float[np.ndarray, "n *d"], groups: Sequence[str]) -> float:
    """Of the variance of all values, the share that lies between the means of groups; 0 where nothing varies.

    Summed over all components: eta squared of several variables.
    """
    rows, names = values.reshape(len(values), -1), np.asarray(groups)
    mean = rows.mean(axis=0)
    between = sum(
        (names == name).sum() * np.square(rows[names == name].mean(axis=0) - mean).sum()
        for name in np.unique(names)
    )
    total = np.square(rows - mean).sum()
    return float(between / total) if total > 0 else 0.0


def at_same_joint(values: Float[np.ndarray, "b j d"], real: Bool[np.ndarray, "b j"]) -> float:
    """Root mean square of what differs between bodies at the same joint, as a share of that of all values."""
    counts = np.maximum(real.sum(axis=0), 1)[:, None]
    mean = np.where(real[..., None], values, 0.0).sum(axis=0) / counts
    differing, total = np.square(values - mean)[real].sum(), np.square(values)[real].sum()
    return float(np.sqrt(differing / total)) if total > 0 else 0.0


def moved(own: Float[np.ndarray, "n h a"], told: Float[np.ndarray, "n h a"]) -> float:
    """Root mean square of `told` - `own`, each action value over its own spread around its mean."""
    spread = np.square(own - own.mean(axis=(0, 1))).mean(axis=(0, 1))
    varies = spread > 1e-12
    ratios = np.square(told - own).mean(axis=(0, 1))[varies] / spread[varies]
    return float(np.sqrt(ratios.mean())) if varies.any() else 0.0


def left_out(
    tokens: Float[np.ndarray, "n d"],
    lengths: Float[np.ndarray, "n"],
    joints: Int[np.ndarray, "n"],
    bodies: Int[np.ndarray, "n"],
) -> tuple[Float[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Of every row what is known of its length from the other bodies': (by the token, by the joint's number).

    The second is the mean over the other bodies' same joint; the first adds a ridge regression of what is
    left, on what is left of the tokens. Its penalty is chosen by the rows that it is fitted on, each left out
    in turn (PRESS). Raises ValueError for rows of one body: there is no other one.
    """
    if len(np.unique(bodies)) < 2:
        raise ValueError("what other bodies tell of one needs at least two")
    by_token, by_number = np.zeros(len(lengths)), np.zeros(len(lengths))
    for body in np.unique(bodies):
        out = bodies == body
        means = {joint: _means(tokens, lengths, ~out, joints == joint) for joint in np.unique(joints)}
        token_means = np.stack([means[joint][0] for joint in joints])
        length_means = np.array([means[joint][1] for joint in joints])
        x, y = tokens - token_means, lengths - length_means
        size = np.sqrt(np.square(x[~out]).mean(axis=0))
        x = x / np.where(size > 1e-9 * max(float(size.max()), 1e-30), size, np.inf)
        by_number[out] = length_means[out]
        by_token[out] = length_means[out] + x[out] @ _ridge(x[~out], y[~out])
    return by_token, by_number


def _means(
    tokens: np.ndarray, lengths: np.ndarray, others: np.ndarray, of_joint: np.ndarray
) -> tuple[np.ndarray, float]:
    """Of the other bodies' same joint; of all their joints where none of them has it."""
    chosen = others & of_joint if (others & of_joint).any() else others
    return tokens[chosen].mean(axis=0), float(lengths[chosen].mean())


def _ridge(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n"]) -> Float[np.ndarray, "d"]:
    """Ridge regression without an intercept, of the penalty whose left-out errors are least."""
    u, singular, v = np.linalg.svd(x, full_matrices=False)
    along, scale = u.T @ y, max(float(np.square(singular).mean()), 1e-30)
    best, least = np.zeros(x.shape[1]), np.inf
    for ridge in RIDGES:
        shrunk = np.square(singular) / (np.square(singular) + ridge * scale)
        leverage = np.square(u) @ shrunk
        press = np.square((y - u @ (shrunk * along)) / np.maximum(1 - leverage, 1e-9)).sum()
        if press < least:
            best, least = v.T @ (singular / (np.square(singular) + ridge * scale) * along), press
    return best


def known(
    lengths: Float[np.ndarray, "n"],
    by_token: Float[np.ndarray, "n"],
    by_number: Float[np.ndarray, "n"],
) -> float:
    """1 - squared error by the token / squared error by the joint's number alone."""
    base = np.square(lengths - by_number).sum()
    return float(1 - np.square(lengths - by_token).sum() / base) if base > 0 else 0.0
