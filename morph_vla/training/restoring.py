"""Reading checkpoints (`checkpoint` has their layout): all that training goes on from, or parameters."""

import json
import logging
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from morph_vla.errors import MorphVlaError, reason, require
from morph_vla.pi05 import serving
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.pi05.serving import Leaf
from morph_vla.training.checkpoint import steps, text
from morph_vla.training.saving import named_leaves
from morph_vla.training.step import State
from morph_vla.weights import FROZEN, nested, open_checkpoint, packed
from morph_vla.weights.checkpoint import Checkpoint, Piece, assembled, layers_of

Types = Callable[[str], str | None]
"""A leaf's name -> the type it is rounded to as it is read, or None for the one it was trained in."""


def as_stored(_: str) -> None:
    """`Types` that round nothing."""


def restore(folder: Path, like: State) -> State:
    """The state saved in the checkpoint at `folder`, its leaves placed as those of `like`.

    Raises MorphVlaError naming the first leaf that is missing, new or of another shape, and for files that
    are damaged.
    """
    try:
        return _restored_state(folder, like)
    except MorphVlaError:
        raise
    except Exception as error:  # orbax raises its own, and plain ones
        older = [step for step in steps(folder.parent) if str(step) != folder.name]
        then = f"goes on from step {older[-1]}" if older else "begins anew"
        remedy = f"remove it, and the same command {then}"
        if not (folder / "state").is_dir() and (folder / "averaged").is_dir():
            raise MorphVlaError(
                f"{folder} has no state of the optimizer, so it acts and cannot be trained on: begin a new "
                f"run with its weights (weights={folder}), or {remedy}"
            ) from error
        raise MorphVlaError(f"{folder} is damaged ({reason(error)[:200]}): {remedy}") from error


def _restored_state(folder: Path, like: State) -> State:
    names, leaves = named_leaves(like)
    saved = json.loads(text(folder, "leaves.json"))
    if any(name.startswith(".ema") for name in saved):  # today's averages have a place of their own
        raise MorphVlaError(
            f"{folder}: a checkpoint of an earlier morph_vla, which acts but cannot be trained on as it is; "
            f"begin a new run with its weights: weights={folder}"
        )
    shapes = _shapes(folder / "state")
    stored = {name: shapes[f"{i:05d}"] for i, name in enumerate(saved)}
    wanted = dict(zip(names, leaves, strict=True))
    _compare(folder, stored, wanted)
    read = _read(folder / "state", {f"{i:05d}": wanted[name] for i, name in enumerate(saved)})
    values = {name: read[f"{i:05d}"] for i, name in enumerate(saved)}
    structure = jax.tree.structure(like._replace(params={}, ema={}))
    rest = jax.tree.unflatten(structure, [values[name] for name in names])
    params = load_params(folder, like.params, "params")
    return rest._replace(params=params, ema=_read_named(folder / "averaged", like.ema))


def load_params(
    folder: Path, like: dict[str, Any], kind: str = "averaged", types: Types = as_stored
) -> dict[str, Any]:
    """The parameters of the checkpoint at `folder`, checked against the tree `like` (arrays or shapes).

    They are placed as the arrays of `like`, or on this process's first device for shapes. Raises
    MorphVlaError naming the first leaf that does not fit, and when there is no checkpoint.
    """
    if (folder / packed.FILE).is_file():
        return _load_packed(folder, like, kind, types)
    if not (folder / kind).is_dir():
        raise MorphVlaError(f"{folder}: no checkpoint here ('{kind}' is missing)")
    items = [folder / item for item in (kind, FROZEN) if (folder / item).is_dir()]
    stored = {item: by_name(_shapes(item)["params"]) for item in items}
    wanted, values = by_name(like), {}
    _compare(folder, {name: leaf for leaves in stored.values() for name, leaf in leaves.items()}, wanted)
    for item, leaves in stored.items():
        values |= by_name(_read_named(item, nested({name: wanted[name] for name in leaves}), types))
    return map_named(lambda name, _: values[name], like)


class Averaged:
    """The parameters to act with, leaf by leaf; each is read when it is asked for, and nothing is kept."""

    def __init__(self, folder: Path, like: dict[str, Any], types: Types = as_stored):
        """Open the checkpoint at `folder` and check it against the tree `like`. Raises as `load_params`."""
        if not (folder / packed.FILE).is_file() and not (folder / "averaged").is_dir():
            raise MorphVlaError(f"{folder}: no checkpoint here ('averaged' is missing)")
        self._opened, self._names, self._types = open_checkpoint(folder), list(by_name(like)), types
        _compare(folder, self._opened.entries, by_name(like))

    def leaves(self) -> Iterator[tuple[str, Leaf]]:
        """Names and leaves in the order of a tree's; a stack of layers comes layer by layer."""
        for name in self._names:
            if serving.is_stack(name):
                yield name, layers_of(*_asked_of(self._opened, name, self._types))
            else:
                yield name, self.leaf(name)

    def leaf(self, name: str) -> np.ndarray:
        """A leaf as a whole."""
        return assembled(*_asked_of(self._opened, name, self._types))


def _asked_of(
    opened: Checkpoint, name: str, types: Types
) -> tuple[Checkpoint, list[Piece], tuple[int, ...], np.dtype]:
    """A leaf's pieces, its shape, and the type that it is read in."""
    shape = opened.entries[name].shape
    return opened, opened.pieces(name, shape), shape, np.dtype(types(name) or opened.type_of(name))


def _load_packed(folder: Path, like: dict[str, Any], kind: str, types: Types) -> dict[str, Any]:
    opened, wanted = packed.PackedCheckpoint(folder, open_checkpoint, kind), by_name(like)
    _compare(folder, opened.entries, wanted)
    leaves = ((name, assembled(*_asked_of(opened, name, types))) for name in wanted)
    return nested({name: jax.device_put(leaf, _placed(wanted[name])) for name, leaf in leaves})


def _compare(folder: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, leaf in wanted.items():
        if name not in saved:
            raise MorphVlaError(f"{folder}: the model's leaf '{name}' is not in the checkpoint")
        if tuple(saved[name].shape) != tuple(leaf.shape):
            raise MorphVlaError(
                f"{folder}: leaf '{name}' has shape {tuple(saved[name].shape)} in the checkpoint, "
                f"{tuple(leaf.shape)} in the model"
            )
    for name in saved:
        if name not in wanted:
            raise MorphVlaError(f"{folder}: the checkpoint's leaf '{name}' has no place in the model")


@cache
def _orbax() -> Any:
    """The door to orbax for reading."""
    # It warns that an item has no metadata file of its own; its checkpoint has one for all.
    expected = "Metadata file does not exist"
    logging.getLogger("absl").addFilter(lambda record: not record.getMessage().startswith(expected))
    return require("orbax.checkpoint", "model")


def _shapes(path: Path) -> Any:
    """The tree of an orbax item as shapes and types; nothing is read."""
    metadata = _orbax().PyTreeCheckpointer().metadata(path.resolve())
    tree = getattr(metadata, "item_metadata", metadata)
    return getattr(tree, "tree", tree)


def _read_named(path: Path, like: dict[str, Any], types: Types = as_stored) -> dict[str, Any]:
    """An item of parameters; where `like` has None, so has the result."""
    asked = {name: _asked(leaf, types(name)) for name, leaf in by_name(like).items()}
    if not asked:  # nothing learns
        return map_named(lambda name, _: None, like)
    values = by_name(_restored(path, {"params": nested(asked)})["params"])
    return map_named(lambda name, _: values[name], like)


def _placed(leaf: Any) -> Any:
    """Where an array lies; of a shape, this process's first device."""
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return getattr(leaf, "sharding", None) or here


def _read(path: Path, like: Any) -> Any:
    """An orbax item, every leaf placed as that of `like`, read by each process as far as it needs it."""
    return _restored(path, jax.tree.map(_asked, like))


def _asked(leaf: Any, dtype: str | None = None) -> Any:
    """What orbax is asked for in the place of an array, or of a shape."""
    named = {} if dtype is None else {"dtype": np.dtype(dtype)}
    return _orbax().ArrayRestoreArgs(sharding=_placed(leaf), global_shape=tuple(np.shape(leaf)), **named)


def _restored(path: Path, asked: Any) -> Any:
    return _orbax().PyTreeCheckpointer().restore(path.resolve(), restore_args=asked)
