"""What the readers of all formats have in common, and how a folder appears whole or not at all."""

import abc
import contextlib
import dataclasses
import hashlib
import itertools
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.memory import aligned, aligned_copy
from morph_vla.weights.names import Piece, Shape, own_piece

Region = tuple[slice, ...]
BLOCK = 4 * 2**20  # bytes read at once


@dataclasses.dataclass(frozen=True)
class Entry:
    """One stored array: what its file says of it."""

    shape: Shape
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        """Size in bytes, as stored or as it would be in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


class Checkpoint(abc.ABC):
    """A checkpoint opened for reading; nothing but names, shapes and types is in memory."""

    path: Path
    format: str
    entries: dict[str, Entry]  # every stored array, by its name in the file

    unused: frozenset[str] = frozenset()
    """Entries that belong to the format and to no leaf"""

    def pieces(self, leaf: str, shape: Shape) -> list[Piece]:
        """Where the format keeps a leaf of that shape: in one array of its name, unless it says otherwise."""
        return [own_piece(leaf, shape)]

    def type_of(self, name: str) -> np.dtype:
        """The type that an entry is loaded in, where no other is asked for."""
        return self.entries[name].dtype

    @abc.abstractmethod
    def config(self, like: Pi05Config | None = None) -> Pi05Config:
        """The host's sizes; what the file does not tell is that of `like`, or of the full model.

        Raises KeyError or ValueError when it is no pi0.5.
        """

    @abc.abstractmethod
    def block(self, name: str) -> Shape:
        """The shape in which an entry is best read: some 4 MiB, and no less than what is stored together."""

    @abc.abstractmethod
    def read(self, name: str, region: Region, dtype: np.dtype) -> np.ndarray:
        """A region of an entry (() is all of it), rounded to `dtype`, in memory of its own."""

    def read_into(self, name: str, region: Region, place: np.ndarray) -> None:
        """The same into `place`, rounded to its type."""
        place[...] = self.read(name, region, place.dtype)


def grown(block: Shape, entry: Entry) -> Shape:
    """A stored block made larger, the last axes first, until it has BLOCK bytes or is the whole entry."""
    sizes = list(block)
    for axis in reversed(range(len(sizes))):
        room = BLOCK // max(1, math.prod(sizes) * entry.dtype.itemsize)
        sizes[axis] = max(1, min(entry.shape[axis], sizes[axis] * max(1, room)))
    return tuple(sizes)


def regions(shape: Shape, block: Shape) -> Iterator[Region]:
    """The blocks that an array of that shape falls into, in order."""
    starts = [range(0, size, step) for size, step in zip(shape, block, strict=True)]
    for corner in itertools.product(*starts):
        yield tuple(slice(a, min(a + b, s)) for a, b, s in zip(corner, block, shape, strict=True))


def assembled(opened: Checkpoint, pieces: Sequence[Piece], shape: Shape, dtype: np.dtype) -> np.ndarray:
    """One leaf, put together in place from its pieces, rounded to `dtype`."""
    leaf = aligned(shape, dtype)
    for piece in pieces:
        part = leaf[(*piece.index, ...)]
        if piece.is_plain:
            _fill(opened, piece.entry, part)
        else:
            part[...] = piece.to_slice(opened.read(piece.entry, (), dtype))
    return leaf


def layers_of(
    opened: Checkpoint, pieces: Sequence[Piece], shape: Shape, dtype: np.dtype
) -> Iterator[np.ndarray]:
    """What lies along the first axis of a leaf, one by one in memory of their own, rounded to `dtype`.

    Each is read when it is asked for, with those that are stored together with it.
    """
    if pieces[0].index:
        for i in range(shape[0]):
            inner = [dataclasses.replace(p, index=p.index[1:]) for p in pieces if p.index[0] == i]
            yield assembled(opened, inner, shape[1:], dtype)
        return
    (piece,) = pieces
    together = opened.block(piece.entry)[0]
    for start in range(0, shape[0], together):
        group = aligned((min(together, shape[0] - start), *shape[1:]), dtype)
        _fill(opened, piece.entry, group, start)
        yield from (aligned_copy(layer) for layer in group) if together > 1 else group


def _fill(opened: Checkpoint, entry: str, place: np.ndarray, start: int = 0) -> None:
    """Read an entry, from row `start` on, into `place`, block by block."""
    for region in regions(place.shape, opened.block(entry)):
        shifted = tuple(slice(s.start + start, s.stop + start) for s in region[:1])
        opened.read_into(entry, (*shifted, *region[1:]), place[(*region, ...)])


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A nested dictionary as one whose keys are joined by "/".

    >>> flat({"a": {"b": 1, "c": 2}})
    {'a/b': 1, 'a/c': 2}
    """
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        leaves |= flat(value, f"{name}/") if isinstance(value, Mapping) else {name: value}
    return leaves


def nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `flat`."""
    tree: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *folders, last = name.split("/")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[last] = leaf
    return tree


def digest(params: Mapping[str, Any]) -> str:
    """SHA-256 of names, types, shapes and values: equal when, and only when, the parameters are."""
    sha256 = hashlib.sha256()
    for name, leaf in sorted(flat(params).items()):
        values = np.asarray(leaf)
        sha256.update(f"{name} {values.dtype.name} {values.shape}\n".encode())
        sha256.update(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
    return sha256.hexdigest()


def new_folder(folder: Path | str) -> Path:
    """The path. Raises MorphVlaError when something is there: nothing is ever overwritten."""
    final = Path(folder)
    if final.exists() or final.is_symlink():
        raise MorphVlaError(f"{final} exists: nothing is overwritten; remove it or choose another name")
    return final


@contextlib.contextmanager
def fresh(folder: Path | str) -> Iterator[Path]:
    """A temporary folder beside `folder` that becomes it at the end, or is removed when something fails.

    Raises MorphVlaError when `folder` exists: nothing is ever overwritten.
    """
    final = new_folder(folder)
    unfinished = final.with_name(f".{final.name}.{os.getpid()}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        unfinished.rename(final)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def recipe_model(opened: Checkpoint) -> dict[str, Any]:
    """What the recipe beside a checkpoint of ours says of the model; nothing where there is none.

    Raises MorphVlaError for a file that is no recipe.
    """
    return _of_recipe(opened, "model")


def recipe_space(opened: Checkpoint) -> str:
    """What a state and an action are to the model: `joints`, or what the recipe beside it says."""
    return str(_of_recipe(opened, "data").get("space", "joints"))


def _of_recipe(opened: Checkpoint, key: str) -> dict[str, Any]:
    recipes = [opened.path / place for place in ("about/recipe.json", "recipe.json")]  # now, and earlier
    path = next((path for path in recipes if path.is_file()), None)
    if path is None:
        return {}
    try:
        values = json.loads(path.read_text(encoding="utf-8")).get(key) or {}
        parts = (values, values.get("morphology") or {}, values.get("lora") or {})
        if not all(isinstance(part, dict) for part in parts):
            raise ValueError(f"its {key} is no mapping")
    except (ValueError, AttributeError, RecursionError) as error:
        raise MorphVlaError(f"{path}: not a recipe ({error})") from error
    return values
