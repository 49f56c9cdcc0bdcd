"""openpi's checkpoints: an orbax item `params` that holds {"params": tree}, one stored array per leaf.

A training checkpoint of openpi adds `/value` to every name (it is how Flax's NNX wrote its state); a released
one does not. The arrays are read one by one through tensorstore, which is what orbax itself reads them with:
orbax's own interface restores a tree at a time, and it is not the same in 0.11 and 0.12.
"""

import ast
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from morph_vla.errors import MorphVlaError, require
from morph_vla.files.writing import link_or_copy
from morph_vla.pi05.config import Pi05Config
from morph_vla.weights.checkpoint import BLOCK, Checkpoint, Entry, Region, fresh, grown
from morph_vla.weights.names import Shape, config_of

METADATA = "_METADATA"
FROZEN = "frozen"  # in checkpoints of ours, the item of what does not learn
# Blocks are asked for one by one; more threads would only each keep the memory of their last block.
ONE_AT_A_TIME = {"data_copy_concurrency": {"limit": 1}, "file_io_concurrency": {"limit": 1}}


class OrbaxCheckpoint(Checkpoint):
    """An orbax item of parameters, opened for reading."""

    def __init__(self, folder: Path, format_: str, *items: Path):
        """`folder` is what the user named, `items` the folders of the orbax items in it."""
        self.path, self.format = folder, format_
        self._context = require("tensorstore", "model").Context(ONE_AT_A_TIME)
        self._places = {name: place for item in items for name, place in _places(item).items()}
        self.entries = {}
        for name in self._places:
            store = self._store(name)
            self.entries[name] = Entry(tuple(store.shape), np.dtype(store.dtype.numpy_dtype))

    def config(self, like: Pi05Config | None = None) -> Pi05Config:
        """See `Checkpoint`; every size is in the shapes."""
        return config_of({name: entry.shape for name, entry in self.entries.items()})

    def block(self, name: str) -> Shape:
        """What orbax stored together, and its neighbours."""
        return grown(tuple(self._store(name).chunk_layout.read_chunk.shape), self.entries[name])

    def read(self, name: str, region: Region, dtype: np.dtype) -> np.ndarray:
        """A region of an array, rounded to `dtype` on the way."""
        ts = require("tensorstore", "model")
        store = self._store(name)[region]
        if np.dtype(store.dtype.numpy_dtype) != dtype:
            store = ts.cast(store, ts.dtype(dtype))
        try:
            return np.asarray(store.read().result())
        except ValueError as error:
            item = self._places[name].item
            raise MorphVlaError(f"{item}: array '{name}' is damaged: {error}") from error

    def _store(self, name: str) -> Any:
        ts, place = require("tensorstore", "model"), self._places[name]
        base: Any = {"driver": "file", "path": f"{place.item.resolve()}/"}
        kvstore = {"driver": "ocdbt", "base": base, "path": f"{place.array}/"}
        if not place.ocdbt:
            kvstore = {"driver": "file", "path": f"{place.item.resolve()}/{place.array}/"}
        spec = {"driver": "zarr3" if place.zarr3 else "zarr", "kvstore": kvstore}
        try:
            return ts.open(spec, open=True, read=True, context=self._context).result()
        except ValueError as error:
            listed = f"array '{place.array}' is listed but not there"
            raise MorphVlaError(f"{place.item}: {listed}: {error}") from error


class Place(NamedTuple):
    """Where an orbax item keeps one array."""

    item: Path
    array: str
    ocdbt: bool
    zarr3: bool


def _places(item: Path) -> dict[str, Place]:
    """The arrays of an item by their leaves' names."""
    try:
        about = json.loads((item / METADATA).read_text(encoding="utf-8"))
        keys = [ast.literal_eval(name) for name in about["tree_metadata"]]
    except (ValueError, KeyError, SyntaxError) as error:
        raise MorphVlaError(f"{item / METADATA} cannot be read ({error})") from error
    ocdbt = (item / "manifest.ocdbt").is_file()  # orbax 0.11 says so in its metadata even when not
    arrays = {"/".join(map(str, key)): ".".join(map(str, key)) for key in keys}
    if all(name.startswith("params/") for name in arrays):
        arrays = {name.removeprefix("params/"): array for name, array in arrays.items()}
    if all(name.endswith("/value") for name in arrays):
        arrays = {name.removesuffix("/value"): array for name, array in arrays.items()}
    zarr3 = bool(about.get("use_zarr3", False))
    return {name: Place(item, array, ocdbt, zarr3) for name, array in arrays.items()}


def save_openpi(folder: Path | str, params: Mapping[str, Any], *, value_suffix: bool = False) -> Path:
    """Write `params` (nested, openpi's names) as openpi reads it: `folder`/params. Returns the folder.

    `value_suffix` adds the trailing `/value` of openpi's training checkpoints. The folder appears whole or
    not at all. Raises MorphVlaError when it exists.
    """
    with fresh(folder) as unfinished:
        write_item(unfinished / "params", params, value_suffix)
    return Path(folder)


def save_morph_vla(folder: Path | str, params: Mapping[str, Any]) -> Path:
    """Write `params` in the layout of our own checkpoints, the same as trained and as averaged parameters.

    The two share their bytes on the disk. The folder appears whole or not at all. Raises MorphVlaError when
    it exists.
    """
    with fresh(folder) as unfinished:
        write_item(unfinished / "params", params)
        shutil.copytree(unfinished / "params", unfinished / "averaged", copy_function=link_or_copy)
    return Path(folder)


def write_item(path: Path, params: Mapping[str, Any], value_suffix: bool = False) -> None:
    """One orbax item {"params": params} at `path`, in blocks of 4 MiB or of one row."""
    import jax

    ocp = require("orbax.checkpoint", "model")
    tree: Any = {"params": jax.tree.map(np.asarray, dict(params))}
    if value_suffix:
        tree = jax.tree.map(lambda leaf: {"value": leaf}, tree)
    # Left to itself, orbax stores up to 2 GB together, and a reader has to hold that twice.
    together = jax.tree.map(lambda leaf: ocp.SaveArgs(chunk_byte_size=_together(leaf), shard_axes=(0,)), tree)
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(path.resolve(), tree, save_args=together)


def _together(leaf: np.ndarray) -> int | None:
    """Bytes of the rows stored together: at most BLOCK, unless one row is more; None for all of them.

    orbax cuts an axis into equal parts only, so that an axis of prime length falls into single rows; where
    these are tiny, the leaf had better be left whole.
    """
    if leaf.nbytes <= BLOCK or leaf.ndim < 2:
        return None
    count, row = leaf.shape[0], leaf.nbytes // leaf.shape[0]
    rows = max(n for n in range(1, count + 1) if count % n == 0 and (n * row <= BLOCK or n == 1))
    return rows * row if rows * row >= BLOCK // 64 else None
