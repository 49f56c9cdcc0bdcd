"""openpi's checkpoints: an orbax item `params` that holds {"params": tree}, one stored array per leaf.

A training checkpoint of openpi adds `/value` to every name (it is how Flax's NNX wrote its state); a released
one does not. The arrays are read one by one through tensorstore, which is what orbax itself reads them with:
orbax's own interface restores a tree at a time, and it is not the same in 0.11 and 0.12.
"""

import ast
import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from morph_vla.errors import MorphVlaError, reason, require
from morph_vla.files.writing import link_or_copy, write_bytes, write_text
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.memory import aligned
from morph_vla.weights.checkpoint import Checkpoint, Entry, Region, flat, fresh, grown, regions
from morph_vla.weights.names import Shape, config_of

METADATA = "_METADATA"
UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, SyntaxError, RecursionError, MemoryError)
"""What reading metadata that is none may raise"""
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
        stored = self._store(name).chunk_layout.read_chunk.shape or ()  # one number has none
        return grown(tuple(stored), self.entries[name])

    def read(self, name: str, region: Region, dtype: np.dtype) -> np.ndarray:
        """A region of an array, rounded to `dtype` on the way."""
        values = aligned(self._store(name)[region].shape, dtype)
        self.read_into(name, region, values)
        return values

    def read_into(self, name: str, region: Region, place: np.ndarray) -> None:
        """The same straight into its place: beside it there is what was stored together, and no more."""
        ts = require("tensorstore", "model")
        store = self._store(name)[region]
        if np.dtype(store.dtype.numpy_dtype) != place.dtype:
            store = ts.cast(store, ts.dtype(place.dtype))
        try:
            ts.array(place, context=self._context).write(store).result()
        except ValueError as error:
            item = self._places[name].item
            raise MorphVlaError(f"{item}: array '{name}' is damaged: {error}") from error

    def _store(self, name: str) -> Any:
        ts, place = require("tensorstore", "model"), self._places[name]
        base: Any = {"driver": "file", "path": f"{place.item.resolve()}/"}
        kvstore = {"driver": "ocdbt", "base": base, "path": f"{place.array}/"}
        if not place.ocdbt:
            kvstore = {"driver": "file", "path": f"{place.item.resolve()}/{place.array}/"}
        spec: dict[str, Any] = {"driver": "zarr3" if place.zarr3 else "zarr", "kvstore": kvstore}
        if place.is_whole:
            spec["fill_missing_data_reads"] = False  # a chunk that is not there is damage, and no zeros
        try:
            return ts.open(spec, open=True, read=True, context=self._context).result()
        except ValueError as error:
            listed = f"array '{place.array}' is listed but not there"
            raise MorphVlaError(f"{place.item}: {listed}: {reason(error)[:200]}") from error


class Place(NamedTuple):
    """Where an orbax item keeps one array."""

    item: Path
    array: str
    ocdbt: bool
    zarr3: bool
    is_whole: bool
    """Whether chunks of zeros were written too"""


def _places(item: Path) -> dict[str, Place]:
    """The arrays of an item by their leaves' names."""
    try:
        about = json.loads((item / METADATA).read_text(encoding="utf-8"))
        # What is not to be read is a branch without leaves: there is no array of it.
        keys = [
            tuple(ast.literal_eval(name))
            for name, leaf in about["tree_metadata"].items()
            if not leaf.get("value_metadata", {}).get("skip_deserialize", False)
        ]
    except UNREADABLE as error:
        raise MorphVlaError(f"{item / METADATA} cannot be read ({error})") from error
    ocdbt = (item / "manifest.ocdbt").is_file()  # orbax 0.11 says so in its metadata even when not
    arrays = {"/".join(map(str, key)): ".".join(map(str, key)) for key in keys}
    if all(name.startswith("params/") for name in arrays):
        arrays = {name.removeprefix("params/"): array for name, array in arrays.items()}
    if all(name.endswith("/value") for name in arrays):
        arrays = {name.removesuffix("/value"): array for name, array in arrays.items()}
    zarr3 = bool(about.get("use_zarr3", False))
    is_whole = bool(about.get("store_array_data_equal_to_fill_value", False))
    return {name: Place(item, array, ocdbt, zarr3, is_whole) for name, array in arrays.items()}


def save_openpi(
    folder: Path | str,
    params: Mapping[str, Any],
    *,
    value_suffix: bool = False,
    beside: Mapping[str, bytes] = {},
) -> Path:
    """Write `params` (nested, openpi's names) as openpi reads it: `folder`/params. Returns the folder.

    `value_suffix` adds the trailing `/value` of openpi's training checkpoints; `beside` are other files of
    the folder, by name. The folder appears whole or not at all. Raises MorphVlaError when it exists.
    """
    with fresh(folder) as unfinished:
        for name, content in beside.items():
            write_bytes(unfinished / name, content)
        write_item(unfinished / "params", params, value_suffix)
    return Path(folder)


def save_morph_vla(folder: Path | str, params: Mapping[str, Any], beside: Mapping[str, bytes] = {}) -> Path:
    """Write `params` in the layout of our own checkpoints, the same as trained and as averaged parameters.

    The two share their bytes on the disk. `beside` are other files of the folder, by name, such as those
    under about/ that make parameters a policy. The folder appears whole or not at all. Raises MorphVlaError
    when it exists.
    """
    with fresh(folder) as unfinished:
        for name, content in beside.items():
            write_bytes(unfinished / name, content)
        write_item(unfinished / "params", params)
        shutil.copytree(unfinished / "params", unfinished / "averaged", copy_function=link_or_copy)
    return Path(folder)


def write_item(path: Path, params: Mapping[str, Any], value_suffix: bool = False) -> None:
    """One orbax item {"params": params} at `path`, block by block, so that nothing is held twice.

    orbax's own writer copies a whole tree before it writes any of it.
    """
    ts = require("tensorstore", "model")
    suffix = ("value",) if value_suffix else ()
    leaves = {("params", *name.split("/"), *suffix): np.asarray(leaf) for name, leaf in flat(params).items()}
    path.mkdir(parents=True)
    base, context = {"driver": "file", "path": f"{path.resolve()}/"}, ts.Context(ONE_AT_A_TIME)
    for keys, leaf in leaves.items():
        block = grown((1,) * leaf.ndim, Entry(leaf.shape, leaf.dtype))
        stored = {"shape": [*leaf.shape], "chunks": [*block], "dtype": _zarr_type(leaf.dtype)}
        spec = {
            "driver": "zarr",
            "kvstore": {"driver": "ocdbt", "base": base, "path": f"{'.'.join(keys)}/"},
            "metadata": stored | {"compressor": {"id": "zstd", "level": 1}},
            "store_data_equal_to_fill_value": True,
        }
        try:
            store = ts.open(spec, create=True, context=context).result()
            for region in regions(leaf.shape, block):
                store[region].write(leaf[region]).result()
        except ValueError as error:  # so tensorstore words a full disk
            raise MorphVlaError(f"{path} cannot be written ({reason(error)[:200]}); make room") from error
    write_text(path / METADATA, json.dumps(_about(leaves)))


def _zarr_type(dtype: np.dtype) -> str:
    """The name of a type in zarr's metadata: ml_dtypes' by their own names."""
    return dtype.str if dtype.kind in "fiub" and dtype.isbuiltin == 1 else dtype.name


def _about(keys: Iterable[tuple[str, ...]]) -> dict[str, Any]:
    """What orbax notes of a tree of arrays; a key of type 2 is one of a dictionary."""
    value = {"value_type": "np.ndarray", "skip_deserialize": False}
    tree = {
        str(names): {
            "key_metadata": [{"key": name, "key_type": 2} for name in names],
            "value_metadata": value,
        }
        for names in keys
    }
    return {
        "tree_metadata": tree,
        "use_ocdbt": True,
        "use_zarr3": False,
        "store_array_data_equal_to_fill_value": True,
        "custom_metadata": None,
    }
