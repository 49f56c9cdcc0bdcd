"""From a dataset's rows to the arrays the model takes."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.data.lerobot import Recordings
from morph_vla.pi05.observation import Observation
from morph_vla.pi05.tokenizer import Tokenizer, tokenize


def tokens(
    recordings: Recordings,
    rows: Int[np.ndarray, "b"],
    state: Float[np.ndarray, "b s"],
    tokenizer: Tokenizer,
    max_tokens: int,
) -> tuple[Int[np.ndarray, "b t"], Bool[np.ndarray, "b t"]]:
    """Prompt and normalised `state` of the given rows as tokens, and which of them are no padding.

    Computed as a batch is made, in the loader's threads: 80 us a row; of all of DROID 40 minutes, 60 GB.
    """
    states = zip(recordings.task_of[rows], state, strict=True)
    pairs = [tokenize(tokenizer, recordings.tasks[task], row, max_tokens) for task, row in states]
    return np.stack([ids for ids, _ in pairs]), np.stack([mask for _, mask in pairs])


def bucketed(longest: int, bucket: int, max_tokens: int) -> int:
    """So many tokens hold a prompt of `longest`, in whole buckets; 0 keeps them all.

    Few lengths, for each is a program of its own.
    """
    return min(max_tokens, max(1, -(-longest // bucket)) * bucket) if bucket else max_tokens


def cut(observation: Observation, length: int) -> Observation:
    """The first `length` tokens of its prompts."""
    tokens, mask = observation.tokens[:, :length], observation.token_mask[:, :length]
    return dataclasses.replace(observation, tokens=tokens, token_mask=mask)


def chunks(recordings: Recordings, rows: Int[np.ndarray, "b"], horizon: int) -> Float[np.ndarray, "b h n"]:
    """The `horizon` recorded actions from each row on; past the episode's end its last action repeats."""
    wanted = rows[:, None] + np.arange(horizon)
    return recordings.action[np.minimum(wanted, recordings.last_of(rows)[:, None])]


def window(
    recordings: Recordings, rows: Int[np.ndarray, "b"], lags: Int[np.ndarray, "w"]
) -> tuple[Int[np.ndarray, "b w"], Bool[np.ndarray, "b w"]]:
    """The rows `lags` before each, and which of them are of its episode.

    Before the episode's start its first row repeats. Of row 4, where an episode starts at row 2, for lags
    3, 2, 1 and 0:

        rows   2  2  3  4
        mask   0  1  1  1
    """
    wanted, first = rows[:, None] - lags, recordings.first_of(rows)[:, None]
    return np.maximum(wanted, first), wanted >= first
