"""Prompt and state as tokens.

pi0.5 reads the robot's state as text: 256 bins of the normalised values, printed as numbers (openpi:
`models/tokenizer.py`). Three tokenizers: PaliGemma's own (`paligemma`, from a file, a bucket or the Hub), and
two that need no file, for small models: `bytes`, one token per byte and one for each number of a state, and
`words`, one token per word, which makes a prompt half as long.
"""

import hashlib
import logging
import re
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.findings import visible
from morph_vla.pi05.paligemma import PaligemmaTokenizer

BINS = 256
SAID = 100
"""Prompts that a process says it has cut"""
_CUT: set[str] = set()
_EDGES = np.linspace(-1, 1, BINS + 1)[:-1]


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids, the first of them BOS."""

    name: str
    sha256: str  # of the file it was made from
    vocab: int

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`."""
        ...


def state_bins(state: Float[np.ndarray, "j"]) -> Int[np.ndarray, "j"]:
    """Bin of each normalised value: 0..255 in [-1, 1), -1 below, 255 above and for NaN."""
    return np.digitize(state, _EDGES) - 1


def prompt_text(prompt: str, state: Float[np.ndarray, "j"]) -> str:
    """The text pi0.5 was trained on: task, state in bins, and where actions begin."""
    task = prompt.strip().replace("_", " ").replace("\n", " ")
    return f"Task: {task}, State: {' '.join(map(str, state_bins(state)))};\nAction: "


def tokenize(
    tokenizer: Tokenizer, prompt: str, state: Float[np.ndarray, "j"], length: int
) -> tuple[Int[np.ndarray, "t"], Bool[np.ndarray, "t"]]:
    """Ids and mask, padded with 0 on the right or cut at the tail (a warning says so once) to `length`."""
    ids = tokenizer.encode(prompt_text(prompt, state))
    if len(ids) > length:
        _say_cut(len(ids), length, visible(prompt))
        ids = ids[:length]
    padding = length - len(ids)
    return np.asarray(ids + [0] * padding, np.int32), np.arange(length) < len(ids)


def _say_cut(tokens: int, length: int, prompt: str) -> None:
    """Warn once of each prompt, which a policy that acts meets at every step, and of SAID in all.

    A server's clients send what they like: its log is not theirs to fill.
    """
    if prompt in _CUT or len(_CUT) >= SAID:
        return
    _CUT.add(prompt)
    logging.getLogger("morph_vla").warning(
        "prompt of %d tokens is cut to the model's %d: '%s'", tokens, length, prompt
    )


class _Offline:
    """0 pad, 1 end, 2 begin, 3 unknown, `rows` of text, the numbers " -1" to " 255", pi0.5's fixed words.

    A number is one token exactly where it stands alone after a space.
    """

    rows: int
    numbers: int  # id of " 0"
    words = ("Task: ", ", State:", ";\nAction: ")
    pieces: re.Pattern[str]  # what a text is split at: fixed words and numbers

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, BOS first."""
        ids = [2]
        for piece in self.pieces.split(text):
            if piece in self.words:
                ids.append(self.numbers + BINS + self.words.index(piece))
            elif self.pieces.fullmatch(piece) and int(piece) < BINS:
                ids.append(self.numbers + int(piece))
            else:
                ids += self._of_text(piece)
        return ids

    def _of_text(self, text: str) -> list[int]:
        raise NotImplementedError


def _pieces(digit: str) -> re.Pattern[str]:
    """What `_Offline` splits a text at: fixed words, and numbers that no `digit` follows."""
    fixed = map(re.escape, _Offline.words)
    return re.compile(f"({'|'.join([rf' (?:-1|0|[1-9][0-9]{{0,2}})(?!{digit})', *fixed])})")


class BytesTokenizer(_Offline):
    """Text as bytes, 4..259; lossless. Fixed words and a state of 8 joints are 11 tokens instead of 55."""

    name = "bytes"
    sha256 = hashlib.sha256(b"morph_vla bytes 1").hexdigest()  # of no file: of this class and its version
    rows = 256
    numbers = 4 + rows + 1
    vocab = 4 + rows + BINS + 1 + len(_Offline.words)
    pieces = _pieces(r"\d")

    def _of_text(self, text: str) -> list[int]:
        return [4 + byte for byte in text.encode()]

    def decode(self, ids: list[int]) -> str:
        """The text of `ids` without special tokens."""
        out = b""
        for token in ids:
            if 4 <= token < 260:
                out += bytes([token - 4])
            elif token >= self.numbers + BINS:
                out += self.words[token - self.numbers - BINS].encode()
            elif token >= 260:
                out += f" {token - self.numbers}".encode()
        return out.decode(errors="replace")


class WordsTokenizer(_Offline):
    """One token a word, 4..1027, chosen by its SHA-256; case and punctuation are left out.

    Two words share a token with a chance of 1 in 1,024, so it is for few tasks; text cannot be recovered from
    its tokens.
    """

    name = "words"
    sha256 = hashlib.sha256(b"morph_vla words 1").hexdigest()  # of no file: of this class and its version
    rows = 1024
    numbers = 4 + rows + 1
    vocab = 4 + rows + BINS + 1 + len(_Offline.words)
    pieces = _pieces("[0-9]")

    def _of_text(self, text: str) -> list[int]:
        digests = (hashlib.sha256(word.encode()).digest() for word in re.findall(r"\w+", text.lower()))
        return [4 + int.from_bytes(digest[:8], "big") % self.rows for digest in digests]


OFFLINE: Mapping[str, type[BytesTokenizer] | type[WordsTokenizer]] = {
    made.name: made for made in (BytesTokenizer, WordsTokenizer)
}
"""The tokenizers that need no file, by name."""


def load(name: str) -> Tokenizer:
    """`bytes`, `words`, `paligemma` (its bucket), or `paligemma:` and a file, folder, `gs://...`, Hub name.

    Raises ConfigError for another name and for a source that holds no tokenizer.
    """
    if name in OFFLINE:
        return OFFLINE[name]()
    if name == "paligemma":
        return PaligemmaTokenizer()
    if name.startswith("paligemma:"):
        return PaligemmaTokenizer(name.removeprefix("paligemma:"))
    raise ConfigError(
        f"tokenizer: '{name}' is not known; choose 'bytes', 'words', 'paligemma' or "
        f"'paligemma:SOURCE'{nearest(name, (*OFFLINE, 'paligemma'))}"
    )


def check_vocab(tokenizer: Tokenizer, vocab: int) -> None:
    """Raise ConfigError when the model's table has no row for some of the tokenizer's tokens."""
    if tokenizer.vocab > vocab:
        raise ConfigError(
            f"model.vocab: {vocab} rows are too few for the {tokenizer.vocab} tokens of tokenizer "
            f"'{tokenizer.name}'"
        )


def describe(tokenizer: Tokenizer) -> dict[str, Any]:
    """What a checkpoint remembers of its tokenizer."""
    return {"name": tokenizer.name, "sha256": tokenizer.sha256, "vocab": tokenizer.vocab}


def check_same(trained: Mapping[str, Any] | None, tokenizer: Tokenizer, where: str) -> None:
    """Raise MorphVlaError when `tokenizer` is not the one a checkpoint was trained with (`describe`).

    Its contents decide: the same file under another name is the same tokenizer. None, from a checkpoint that
    does not say, is accepted.
    """
    if trained is not None and trained.get("sha256") != tokenizer.sha256:
        then = str(trained.get("sha256"))[:12]
        raise MorphVlaError(
            f"{where}: trained with tokenizer '{trained.get('name')}' (sha256 {then}, "
            f"{trained.get('vocab')} tokens); '{tokenizer.name}' is another (sha256 {tokenizer.sha256[:12]}, "
            f"{tokenizer.vocab} tokens)"
        )


def smooth_numbers(table: Float[np.ndarray, "v d"], tokenizer: Tokenizer) -> Float[np.ndarray, "v d"]:
    """A start from scratch with `bytes` or `words`: neighbouring numbers get neighbouring embeddings.

    Rows of the 257 number tokens become sines and cosines of the value at geometrically spaced frequencies
    (a quarter to 64 turns over the range), as large as the other rows. Nothing else changes.
    """
    if not isinstance(tokenizer, _Offline):
        return table
    width = table.shape[1]
    value = np.arange(-1, BINS) / (BINS - 1)
    turns = 0.25 * 2 ** np.linspace(0, 8, (width + 1) // 2)
    angles = 2 * np.pi * value[:, None] * turns
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)[:, :width]
    out = table.copy()
    out[tokenizer.numbers - 1 : tokenizer.numbers + BINS] = waves * (np.sqrt(2) * table.std())
    return out
