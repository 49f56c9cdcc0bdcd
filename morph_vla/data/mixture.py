"""Which sample comes at which step: a pure function of (seed, step), so that a resumed run sees what an
uninterrupted one would have seen.
"""

import hashlib

import numpy as np
from jaxtyping import Bool, Int


def batch_rows(rows: Int[np.ndarray, "n"], batch: int, seed: int, step: int) -> Int[np.ndarray, "b"]:
    """The rows of step `step`: pass after pass over `rows`, each shuffled anew, batches cut across passes."""
    places = np.arange(step * batch, (step + 1) * batch)
    out = np.empty(batch, np.int64)
    for turn in np.unique(places // len(rows)):
        here = places // len(rows) == turn
        order = np.random.default_rng([seed, int(turn)]).permutation(len(rows))
        out[here] = rows[order[places[here] % len(rows)]]
    return out


def held_out(episodes: int, share: float, salt: str = "") -> Bool[np.ndarray, "e"]:
    """Which episodes are held out: by a stable hash of their number, so that growing a dataset moves none."""
    marks = [
        int.from_bytes(hashlib.sha256(f"{salt}/{i}".encode()).digest()[:4], "big") / 2**32 < share
        for i in range(episodes)
    ]
    return np.asarray(marks, bool)
