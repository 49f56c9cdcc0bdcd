"""Our own checkpoints as they are shared: averaged parameters, openpi's names, one safetensors file.

What equals the base that a policy began from may be left out. The file's metadata then names the base, and of
every leaf that is left out its type, shape and SHA-256:

    base           a name (pi05-base), hf://OWNER/NAME[@REVISION] or gs://BUCKET/FOLDER, never a path
    base_leaves    {"PaliGemma/llm/embedder/input_embedding": ["bfloat16", [257152, 2048], "5f2a..."], ...}

A leaf of the base is rounded to its type here, and held against its SHA-256 whenever it is read.

Leaves may be kept in 16 bits; the metadata then has the type that they are loaded in:

    rounded        float32
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.files.remote import NAMES
from morph_vla.pi05.config import Pi05Config
from morph_vla.weights import tensors
from morph_vla.weights.checkpoint import Checkpoint, Entry, Region, assembled, grown
from morph_vla.weights.names import Shape, config_of

FILE = "averaged.safetensors"
BASE, LEAVES, ROUNDED = "base", "base_leaves", "rounded"
WHOLE, HALF = np.dtype(np.float32), np.dtype(tensors.DTYPES["BF16"])
Opener = Callable[[str], Checkpoint]


class TensorsCheckpoint(Checkpoint):
    """A checkpoint of safetensors, opened for reading."""

    def __init__(self, every: Mapping[str, tensors.Tensor]):
        """`every` tensor by the name of its entry."""
        self._tensors = dict(every)
        self.entries = {name: Entry(tensor.shape, tensor.dtype) for name, tensor in every.items()}

    def block(self, name: str) -> Shape:
        """Whole rows."""
        entry = self.entries[name]
        return grown((1, *entry.shape[1:]) if entry.shape else (), entry)

    def read(self, name: str, region: Region, dtype: np.dtype) -> np.ndarray:
        """Rows of a tensor, rounded to `dtype`."""
        rows = region[0] if region else slice(None)
        return self._tensors[name].read(rows.start or 0, rows.stop).astype(dtype, copy=False)


@dataclass(frozen=True)
class Base:
    """A checkpoint that others can fetch too, and which of its leaves stand in for those left out."""

    name: str
    opener: Opener
    leaves: Mapping[str, tuple[Entry, str]]
    """Name -> type and shape in the checkpoint that leaves it out, and SHA-256 of its values"""

    @cached_property
    def opened(self) -> Checkpoint:
        """The base, fetched and opened once it is needed. Raises as `open_base`."""
        return open_base(self.name, self.opener)

    def read(self, name: str) -> np.ndarray:
        """A leaf that was left out. Raises MorphVlaError where the base has none, or another one."""
        entry, sha256 = self.leaves[name]
        leaf = leaf_of(self.opened, name, entry)
        if leaf is None or _sha256(leaf) != sha256:
            raise MorphVlaError(
                f"{self.opened.path} is not the base that these parameters were trained from: {name} differs"
            )
        return leaf


def open_base(name: str, opener: Opener) -> Checkpoint:
    """A base, opened. Raises MorphVlaError for a path, which elsewhere is another, and for half a base."""
    if name not in NAMES and not name.startswith(("hf://", "gs://")):
        raise MorphVlaError(
            f"base: '{name}' is not a checkpoint that others can fetch too: {', '.join(NAMES)}, hf:// or gs://"
        )
    opened = opener(name)
    if isinstance(opened, PackedCheckpoint) and opened.base is not None:
        raise MorphVlaError(f"base: {name} leaves out what is in {opened.base.name}: name that one")
    return opened


def leaf_of(opened: Checkpoint, name: str, entry: Entry) -> np.ndarray | None:
    """A leaf of a checkpoint of whatever format, in a type of ours; None where it has none of that shape."""
    pieces = opened.pieces(name, entry.shape)
    stored = (opened.entries.get(piece.entry) for piece in pieces)
    if any(
        found is None or found.shape != piece.entry_shape for found, piece in zip(stored, pieces, strict=True)
    ):
        return None
    return assembled(opened, pieces, entry.shape, entry.dtype)


class PackedCheckpoint(TensorsCheckpoint):
    """A packed checkpoint of ours, opened for reading."""

    format = "morph_vla"

    def __init__(self, folder: Path, opener: Opener, kind: str = "averaged"):
        """`opener` opens a base. Raises MorphVlaError for another `kind` of parameters than the averaged."""
        if kind != "averaged":
            raise MorphVlaError(f"{folder} holds the averaged parameters alone, not those of the last step")
        self.path = folder
        every, metadata = tensors.read_header(folder / FILE)
        super().__init__(every)
        self.is_rounded = metadata.get(ROUNDED) == WHOLE.name
        self.base = _base_of(folder / FILE, metadata, opener)
        if self.base is not None:
            every_leaf = self.entries | {name: entry for name, (entry, _) in self.base.leaves.items()}
            self.entries = dict(sorted(every_leaf.items(), key=lambda item: item[0].split("/")))

    def block(self, name: str) -> Shape:
        """Whole rows; a leaf of the base is read whole."""
        if self.base is not None and name in self.base.leaves:
            return self.entries[name].shape
        return super().block(name)

    def read(self, name: str, region: Region, dtype: np.dtype) -> np.ndarray:
        """A region of a leaf, rounded to `dtype`."""
        if self.base is not None and name in self.base.leaves:
            return self.base.read(name)[region].astype(dtype, copy=False)
        return super().read(name, region, dtype)

    def type_of(self, name: str) -> np.dtype:
        """The type that it is stored in, or was rounded from."""
        stored = self.entries[name].dtype
        return WHOLE if self.is_rounded and stored == HALF else stored

    def config(self, like: Pi05Config | None = None) -> Pi05Config:
        """See `Checkpoint`; every size is in the shapes."""
        return config_of({name: entry.shape for name, entry in self.entries.items()})


def _base_of(path: Path, metadata: Mapping[str, str], opener: Opener) -> Base | None:
    """The base that a file's metadata names, None without one."""
    if BASE not in metadata:
        return None
    try:
        leaves = {
            str(name): (_entry(dtype, shape), str(sha256))
            for name, (dtype, shape, sha256) in json.loads(metadata[LEAVES]).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise MorphVlaError(f"{path}: what it says of its base cannot be read ({error})") from error
    return Base(metadata[BASE], opener, leaves)


def _entry(dtype: str, shape: list[int]) -> Entry:
    types = {np.dtype(known).name: np.dtype(known) for known in tensors.DTYPES.values()}
    if min(shape, default=1) < 1 or not all(isinstance(size, int) for size in shape):
        raise ValueError(f"a shape of {shape}")
    return Entry(tuple(shape), types[dtype])


def _sha256(leaf: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data).hexdigest()


def pack(
    opened: Checkpoint, path: Path, base: str = "", opener: Opener | None = None, *, rounded: bool = False
) -> None:
    """Write the leaves of a checkpoint of ours into the file `path`, one by one, as they are stored.

    Those that equal the `base`'s, which `opener` opens, are left out. Raises MorphVlaError where none does.
    `rounded` writes the float32 leaves in bfloat16, to nearest even; they are loaded as float32.
    """
    rounded = rounded or (isinstance(opened, PackedCheckpoint) and opened.is_rounded)
    names = sorted(opened.entries, key=lambda name: name.split("/"))
    left_out: dict[str, list[object]] = {}
    if base:
        assert opener is not None
        whole = open_base(base, opener)
        for name in names:
            entry = opened.entries[name]
            theirs, sha256 = leaf_of(whole, name, entry), _sha256(opened.read(name, (), entry.dtype))
            if theirs is not None and _sha256(theirs) == sha256:
                left_out[name] = [entry.dtype.name, entry.shape, sha256]
        if not left_out:
            raise MorphVlaError(f"no leaf of {opened.path} is that of {base}: push it without --base")

    def draft(name: str) -> tensors.Draft:
        """A leaf as it is written, read when its turn comes."""
        entry = opened.entries[name]
        dtype = HALF if rounded and entry.dtype == WHOLE else entry.dtype
        return tensors.Draft(entry.shape, dtype, lambda: [opened.read(name, (), dtype)])

    metadata = {BASE: base, LEAVES: json.dumps(left_out)} if base else {}
    if rounded:
        metadata[ROUNDED] = WHOLE.name
    tensors.write(path, {name: draft(name) for name in names if name not in left_out}, metadata)
