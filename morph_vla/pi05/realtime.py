"""Real-time chunking: a chunk sampled so that it goes on from the one which the robot executes meanwhile.

Inpainting by guidance, after Black, Galliker and Levine, "Real-Time Execution of Action Chunking Flow
Policies" (arXiv 2506.07339, equations 2 to 5). Their time runs from noise at 0 to actions at 1, here it is t
from 1 to 0, and their velocity is ours with the other sign:

    a = x - t v(x, t)                                     what the chunk will be, estimated at t
    v' = v - g(t) W (y - a) da/dx                         one vector-Jacobian product a step
    g(t) = min(beta, t / ((1 - t) r^2))
    r^2 = s^2 t^2 / (t^2 + s^2 (1 - t)^2)                 variance of what x is a noisy picture of

y are the rows of the last answer that are still to come, and W (`soft_mask`) says how much each row is held
to them. beta is the number of steps n, so that one step of 1/n leads at most to y itself: 5 in the paper and
its code (Physical-Intelligence/real-time-chunking-kinetix), both with n = 5, and 10 in LeRobot with n = 10.

s is how far the actions that a policy may answer spread. The paper has 1, that of all actions. What is left
of it once the policy sees its observation is less, and with 1 the guidance is too weak (A. Soare, "Smooth as
butter robot policies", 2025, with 0.2). A policy that is certain of its answer whatever it starts from
(da/dx = 0) is not moved at all.

A model with `delay_max` needs no guidance. It was trained to go on from the first d actions of a chunk, d
drawn from 0 to `delay_max`: they are shown as they are, with a time of their own, 0, and only the others are
learnt (Black, Ren, Equi and Levine, "Training-Time Action Conditioning for Efficient Real-Time Chunking",
arXiv 2512.05964). In sampling they are those that will be executed before the answer is there. Drawn for
d = 2 of a horizon of 5, in one step of the sampler at t:

    row       0    1    2    3    4
    x         y_0  y_1  x_2  x_3  x_4
    time      0    0    t    t    t

Ours, with either: neither makes the new chunk begin just where the previous one is. Its rows are therefore
mixed with the previous one's in the end (`faded`): those that are executed meanwhile, two at least, are what
they were, and over the next four the new chunk takes over. A gripper is left out: held to the last chunk
it closes at the wrong time. docs/serving.md has what that is worth.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

OF_SPEED = 2
"""So many rows are held at least, however short the delay: one target has no speed."""
FADING = 4
"""So many rows after those that are executed meanwhile go over from the previous chunk to the new one."""
SPREAD = 0.2
"""s, of actions as the model has them (1: between their quantiles and beyond)."""


class Previous(NamedTuple):
    """What the robot executes while a chunk is sampled, of each row of a batch. Data: nothing recompiles."""

    actions: Float[Array | np.ndarray, "b h a"]
    """As the model has them; row 0 is of the control step at which the observation was taken"""
    delay: Int[Array | np.ndarray, "b"]
    """So many of them will be executed before the new chunk is there"""
    count: Int[Array | np.ndarray, "b"]
    """So many of them are given; the others are padding. 0: there is nothing to go on from"""
    smooth: Bool[Array | np.ndarray, "b a"] | None = None
    """The values that are led and fade, all if None: not a gripper's, which closes when it has to"""


def held(previous: Previous) -> Previous:
    """The same, with a delay of OF_SPEED at least."""
    return previous._replace(delay=jnp.maximum(jnp.asarray(previous.delay), OF_SPEED))


def soft_mask(
    delay: Int[Array | np.ndarray, "*b"], count: Int[Array | np.ndarray, "*b"], horizon: int
) -> Float[Array, "*b h"]:
    """How much each row of a chunk is held to the previous one: W of equation 5.

    Rows before `delay` are held whole, the others with weights that fall exponentially, and rows from
    `count` on are free. delay 2, count 5, horizon 7:

        row       0    1    2     3     4     5    6
        weight    1    1    0.49  0.19  0.04  0    0
        c                   3/4   2/4   1/4              weight = c (e^c - 1) / (e - 1)
    """
    row, end = jnp.arange(horizon), jnp.asarray(count)[..., None]
    start = jnp.minimum(jnp.asarray(delay)[..., None], end)
    share = (end - row).astype(jnp.float32) / (end - start + 1).astype(jnp.float32)
    falling = share * jnp.expm1(share) / np.float32(np.e - 1)
    return jnp.where(row < start, np.float32(1), jnp.where(row < end, falling, np.float32(0)))


def guidance_weights(times: Float[np.ndarray, "n"], spread: float = SPREAD) -> Float[np.ndarray, "n"]:
    """g(t) at the times of a schedule of n steps, at most n."""
    t, limit = times.astype(np.float64), len(times)
    with np.errstate(divide="ignore"):
        weights = (t**2 + (spread * (1 - t)) ** 2) / (spread**2 * t * (1 - t))
    return np.where(t < 1, np.minimum(weights, limit), limit).astype(np.float32)


def rows_of(given: Int[Array | np.ndarray, "*b"], horizon: int) -> Bool[Array, "*b h"]:
    """Which rows of a chunk are given: the first so many."""
    return jnp.arange(horizon) < jnp.asarray(given)[..., None]


def given(previous: Previous, most: int) -> Int[Array, "b"]:
    """How many rows a model with `delay_max` is given: those that are held, `most` at most."""
    return jnp.minimum(jnp.minimum(jnp.asarray(previous.delay), jnp.asarray(previous.count)), most)


def kept(
    x: Float[Array, "b h a"],
    previous: Previous,
    given: Int[Array, "b"],
    real: Bool[Array | np.ndarray, "b a"] | None = None,
) -> Float[Array, "b h a"]:
    """A chunk with the given rows in their place; values that are not `real` are 0 there, as in training."""
    actions = jnp.asarray(previous.actions)
    if real is not None:
        actions = jnp.where(jnp.asarray(real)[:, None], actions, np.float32(0))
    return jnp.where(rows_of(given, x.shape[1])[..., None], actions, x)


class Pull(NamedTuple):
    """Where a chunk is led, and how much each of its values."""

    target: Float[Array, "b h a"]
    mask: Float[Array, "b h a"]


def pull(previous: Previous, real: Bool[Array | np.ndarray, "b a"] | None = None) -> Pull:
    """Lead a chunk to the actions that are still to come; values not `real` or not smooth are left alone."""
    target = jnp.asarray(previous.actions)
    mask = soft_mask(previous.delay, previous.count, target.shape[1])[..., None]
    for values in (real, previous.smooth):
        if values is not None:
            mask = jnp.where(jnp.asarray(values)[:, None], mask, np.float32(0))
    return Pull(target, jnp.broadcast_to(mask, target.shape))


def faded(
    x: Float[Array, "b h a"],
    previous: Previous,
    real: Bool[Array | np.ndarray, "b a"] | None = None,
) -> Float[Array, "b h a"]:
    """A chunk that begins as the previous one: m y + (1 - m) x, m the soft mask over FADING rows at most.

    Where nothing is given it is x, bit for bit. delay 2, count 9:

        row       0    1    2     3     4     5     6
        m         1    1    0.57  0.29  0.11  0.03  0
    """
    end = jnp.minimum(jnp.asarray(previous.count), jnp.asarray(previous.delay) + FADING)
    led = pull(previous._replace(count=end), real)
    return led.mask * led.target + (1 - led.mask) * x


def guided(
    velocity: Callable[[Float[Array, "b h a"]], Float[Array, "b h a"]],
    x: Float[Array, "b h a"],
    time: Float[Array, ""],
    weight: Float[Array, ""],
    pull: Pull,
) -> Float[Array, "b h a"]:
    """The velocity at x, turned so that it leads where `pull` says; `weight` is g(time)."""

    def estimate(x: Float[Array, "b h a"]) -> tuple[Float[Array, "b h a"], Float[Array, "b h a"]]:
        v = velocity(x)
        return x - time * v, v

    actions, transposed, v = jax.vjp(estimate, x, has_aux=True)
    (correction,) = transposed(pull.mask * (pull.target - actions))
    return v - weight * correction
