"""Which programs a policy is compiled to: sizes of batches, and lengths of prompts in tokens.

XLA compiles a program for every shape. pi0.5's prompts are padded to 200 tokens, of which a sentence and the
state of an arm are some sixty: with 64 a call has 12 to 16% fewer operations (docs/scale.md). A padded token
changes nothing but the order in which sums are made.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.data.transforms import bucketed, cut
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Observation, Pi05Config
from morph_vla.pi05.tokenizer import Tokenizer, prompt_text, tokenize
from morph_vla.policies.config import ModelConfig
from morph_vla.serving.requests import PROMPT

BUCKET = 32
"""Lengths of prompts are multiples of it, as `training.prompt_bucket` is in the recipes of the full size"""
WORDS = 24
"""Tokens of a text where nobody says which will come: fifteen to twenty words"""


def sizes_up_to(batch: int) -> tuple[int, ...]:
    """1, 2, 4, ... below `batch`, and `batch`."""
    powers = (2**exponent for exponent in range(batch.bit_length()))
    return (*(power for power in powers if power < batch), batch)


def prompts_of(
    config: ModelConfig, tokenizer: Tokenizer, trained: Mapping[str, Any], any_size: bool
) -> dict[int, str]:
    """The lengths of prompts that a policy has programs for, ascending, and a text of each.

    Without `any_size` one, `max_tokens`; 0 of a family that reads no tokens.
    """
    known, most = trained.get("tasks", ()), config.max_tokens if isinstance(config, Pi05Config) else 0
    if any_size and most:
        return prompts_of_each_length(tokenizer, known, len(trained["state_stats"]["mean"]), most)
    return {most: next(iter(known), PROMPT)}


def prompts_of_each_length(
    tokenizer: Tokenizer, known: Iterable[str], values: int, most: int
) -> dict[int, str]:
    """The lengths of prompts that programs are for, ascending, and a text of each, with which it is compiled.

    Two at most: one holds all of the `known` texts in any state of so many `values`, the other is `most`.

        most 200, "stack the cubes", 7 values     {64: "stack the cubes", 200: "on on on ... on"}
        most 20, the same                         {20: "stack the cubes"}
    """
    texts = list(known)
    first = max(texts, key=lambda text: _longest(tokenizer, text, values), default=PROMPT)
    longest = _longest(tokenizer, first, values) if texts else _longest(tokenizer, "", values) + WORDS
    short = bucketed(longest, BUCKET, most)
    fillers = (" ".join(["on"] * count) for count in range(1, most))
    long = next((text for text in fillers if _shortest(tokenizer, text, values) > short), "")
    if short >= most or not long or _longest(tokenizer, long, values) > most:
        return {most: first}
    return {short: first, most: long}


def shortened(observation: Observation, lengths: Mapping[int, str]) -> Observation:
    """Its prompts in the shortest of `lengths`, ascending, that holds them all."""
    longest = int(np.sum(observation.token_mask, axis=1).max(initial=0))
    return cut(observation, next(length for length in lengths if length >= longest))


def tokens_of(
    tokenizer: Tokenizer,
    prompt: str,
    state: Float[np.ndarray, "j"],
    most: int,
    known: Collection[str],
) -> tuple[Int[np.ndarray, "t"], Bool[np.ndarray, "t"]]:
    """`tokenizer.tokenize` of a prompt that leaves the state its place. Raises MorphVlaError for another.

    pi0.5's text ends with the state, so what is cut is the state, and a robot would be driven without it.
    A text is refused in every state or in none, not in the middle of an episode. Texts that are `known` from
    training are cut as they were there.
    """
    if prompt not in known:
        needed = _longest(tokenizer, prompt, len(state))
        if needed > most:
            raise MorphVlaError(
                f"prompt: up to {needed} tokens with the state behind it, and this policy reads {most}: the "
                "state would be cut away; say it in fewer words"
            )
    return tokenize(tokenizer, prompt, state, most)


def _longest(tokenizer: Tokenizer, text: str, values: int) -> int:
    """Tokens of a prompt in the state that takes most: three digits a value."""
    return len(tokenizer.encode(prompt_text(text, np.ones(values))))


def _shortest(tokenizer: Tokenizer, text: str, values: int) -> int:
    """And in that which takes fewest: one digit a value."""
    return len(tokenizer.encode(prompt_text(text, -np.ones(values))))
