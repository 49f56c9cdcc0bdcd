"""From a dataset's rows to the arrays the model takes."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.data.lerobot import Recordings
from morph_vla.data.stats import Stats
from morph_vla.pi05.tokenizer import Tokenizer, tokenize


@dataclasses.dataclass(frozen=True)
class Table:
    """What of a dataset's rows is computed once: tokens of prompt and state."""

    tokens: Int[np.ndarray, "n t"]
    token_mask: Bool[np.ndarray, "n t"]


def prepare(recordings: Recordings, state: Stats, tokenizer: Tokenizer, *, max_tokens: int) -> Table:
    """Normalise and tokenise all rows of a dataset."""
    states = zip(recordings.task_of, state.normalise(recordings.state), strict=True)
    rows = [tokenize(tokenizer, recordings.tasks[task], row, max_tokens) for task, row in states]
    return Table(*map(np.stack, zip(*rows, strict=True)))


def chunks(recordings: Recordings, rows: Int[np.ndarray, "b"], horizon: int) -> Float[np.ndarray, "b h n"]:
    """The `horizon` recorded actions from each row on; past the episode's end its last action repeats."""
    wanted = rows[:, None] + np.arange(horizon)
    return recordings.action[np.minimum(wanted, recordings.last_of(rows)[:, None])]
