"""From a dataset's rows to the arrays the model takes, and from its actions back to dataset units."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from morph_vla.data.lerobot import Recordings
from morph_vla.data.stats import Stats
from morph_vla.pi05.tokenizer import Tokenizer, tokenize


@dataclasses.dataclass(frozen=True)
class Table:
    """A dataset prepared for the model: everything of a row but its frames, computed once."""

    tokens: Int[np.ndarray, "n t"]
    token_mask: Bool[np.ndarray, "n t"]
    actions: Float[np.ndarray, "n a"]  # normalised, padded to the model's action values
    last: Int[np.ndarray, "n"]  # last row of the row's episode
    frames: dict[str, UInt8[np.ndarray, "n h w 3"]]  # by the model's camera names


def pad(x: Float[np.ndarray, "*b d"], width: int) -> Float[np.ndarray, "*b a"]:
    """Zeros on the right up to `width` values."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, width - x.shape[-1])])


def prepare(
    recordings: Recordings,
    state: Stats,
    action: Stats,
    tokenizer: Tokenizer,
    frames: dict[str, UInt8[np.ndarray, "n h w 3"]],
    *,
    action_dim: int,
    max_tokens: int,
) -> Table:
    """Normalise, tokenise and pad all rows of a dataset."""
    normal = state.normalise(recordings.state)
    pairs = [
        tokenize(tokenizer, recordings.tasks[task], row, max_tokens)
        for task, row in zip(recordings.task_of, normal, strict=True)
    ]
    episode = recordings.episode_of()
    return Table(
        tokens=np.stack([tokens for tokens, _ in pairs]),
        token_mask=np.stack([mask for _, mask in pairs]),
        actions=pad(action.normalise(recordings.action), action_dim),
        last=(recordings.ends - 1)[episode],
        frames=frames,
    )


def chunks(table: Table, rows: Int[np.ndarray, "b"], horizon: int) -> Float[np.ndarray, "b h a"]:
    """The `horizon` actions from each row on; past the episode's end its last action repeats."""
    wanted = rows[:, None] + np.arange(horizon)
    return table.actions[np.minimum(wanted, table.last[rows][:, None])]
