"""What a model learns of a recorded action: the absolute value, its distance from the state, or a velocity.

Recorded targets a_t, state s_t (dataset units), n values, chunk of H from row t on, frame rate f:

    absolute    a_{t+k}
    delta       a_{t+k} - s_t             (openpi: `DeltaActions`)
    velocity    (a_{t+k} - a_{t+k-1}) f   with a_{t-1} = s_t for k = 0

Grippers stay absolute in all three (openpi's mask for DROID: seven True, one False). `restore` is the inverse
on what a policy answers: the state at which it was asked is all that is needed.
"""

from typing import Literal

import numpy as np
from jaxtyping import Bool, Float

Kind = Literal["absolute", "delta", "velocity"]


def to_learn(
    kind: Kind,
    chunk: Float[np.ndarray, "*b h n"],
    state: Float[np.ndarray, "*b n"],
    relative: Bool[np.ndarray, "n"],
    fps: float,
) -> Float[np.ndarray, "*b h n"]:
    """A chunk of recorded absolute targets as the model learns them; `relative` is False for grippers."""
    if kind == "absolute":
        return chunk
    if kind == "delta":
        changed = chunk - state[..., None, :]
    else:
        before = np.concatenate([state[..., None, :], chunk[..., :-1, :]], axis=-2)
        changed = (chunk - before) * chunk.dtype.type(fps)
    return np.where(relative, changed, chunk)


def restore(
    kind: Kind,
    learnt: Float[np.ndarray, "*b h n"],
    state: Float[np.ndarray, "*b n"],
    relative: Bool[np.ndarray, "n"],
    fps: float,
) -> Float[np.ndarray, "*b h n"]:
    """Absolute targets from what a policy answers; the inverse of `to_learn`."""
    if kind == "absolute":
        return learnt
    moved = learnt if kind == "delta" else np.cumsum(learnt, axis=-2) / learnt.dtype.type(fps)
    return np.where(relative, state[..., None, :] + moved, learnt)
