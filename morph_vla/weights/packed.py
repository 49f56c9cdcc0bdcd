"""Our own checkpoints as they are shared: averaged parameters, openpi's names, one safetensors file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import Pi05Config
from morph_vla.weights import tensors
from morph_vla.weights.checkpoint import Checkpoint, Entry, Region, grown
from morph_vla.weights.names import Shape, config_of

FILE = "averaged.safetensors"


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


class PackedCheckpoint(TensorsCheckpoint):
    """A packed checkpoint of ours, opened for reading."""

    format = "morph_vla"

    def __init__(self, folder: Path, kind: str = "averaged"):
        """Raises MorphVlaError for another `kind` of parameters than the averaged ones."""
        if kind != "averaged":
            raise MorphVlaError(f"{folder} holds the averaged parameters alone, not those of the last step")
        self.path = folder
        super().__init__(tensors.read_header(folder / FILE)[0])

    def config(self, like: Pi05Config | None = None) -> Pi05Config:
        """See `Checkpoint`; every size is in the shapes."""
        return config_of({name: entry.shape for name, entry in self.entries.items()})


def pack(opened: Checkpoint, path: Path) -> None:
    """Write the leaves of a checkpoint of ours into the file `path`, one by one, as they are stored."""
    names = sorted(opened.entries, key=lambda name: name.split("/"))

    def draft(name: str) -> tensors.Draft:
        entry = opened.entries[name]
        return tensors.Draft(entry.shape, entry.dtype, lambda: [opened.read(name, (), entry.dtype)])

    tensors.write(path, {name: draft(name) for name in names}, {})
