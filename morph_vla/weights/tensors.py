"""Safetensors files, read and written one tensor at a time.

The format: eight bytes with the length of a JSON header, the header (name -> type, shape, offsets), then the
numbers, little-endian, without gaps. The `safetensors` package maps the whole file into memory, where every
page that was read counts until the end; here a tensor is read when it is asked for, and nothing else is kept.
"""

import dataclasses
import json
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from morph_vla.errors import MorphVlaError

MAX_HEADER = 100_000_000  # bytes; what the safetensors package allows
DTYPES: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Where one tensor lies."""

    path: Path
    dtype: np.dtype
    shape: tuple[int, ...]
    offset: int  # bytes from the beginning of the file

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self, start: int = 0, stop: int | None = None) -> np.ndarray:
        """The tensor, or its rows from `start` to `stop`, in memory of its own."""
        if not self.shape:
            return np.fromfile(self.path, self.dtype, 1, offset=self.offset).reshape(())
        start, stop, _ = slice(start, stop).indices(self.shape[0])
        row = math.prod(self.shape[1:])
        offset = self.offset + start * row * self.dtype.itemsize
        values = np.fromfile(self.path, self.dtype, (stop - start) * row, offset=offset)
        return values.reshape((stop - start, *self.shape[1:]))


def read_header(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file, by name, and its metadata.

    Raises MorphVlaError when the file is cut off or is not what it says it is.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(MAX_HEADER, size - 8):
            raise MorphVlaError(f"{path}: not a safetensors file, or a truncated one ({size} bytes)")
        try:
            header = json.loads(file.read(length))
            metadata = header.pop("__metadata__", {}).items()
            tensors = {name: _tensor(path, entry, 8 + length) for name, entry in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise MorphVlaError(f"{path}: the safetensors header cannot be read ({error})") from error
    expected = 8 + length
    for tensor in sorted(tensors.values(), key=lambda tensor: (tensor.offset, tensor.nbytes)):
        if tensor.offset != expected:  # as the format has it: so a small file is never many large tensors
            raise MorphVlaError(f"{path}: its tensors overlap or leave a gap at byte {tensor.offset}")
        expected += tensor.nbytes
    if expected != size:
        raise MorphVlaError(f"{path}: damaged or truncated: {size} bytes, its header expects {expected}")
    return tensors, {str(key): str(value) for key, value in metadata}


def _tensor(path: Path, entry: Mapping[str, Any], data: int) -> Tensor:
    if entry["dtype"] not in DTYPES:
        raise ValueError(f"values of type {entry['dtype']}")
    dtype, shape = np.dtype(DTYPES[entry["dtype"]]), tuple(operator.index(n) for n in entry["shape"])
    begin, end = (operator.index(n) for n in entry["data_offsets"])  # a whole number, or TypeError
    if min(begin, *shape, 0) < 0 or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"bytes {begin} to {end} do not hold {shape} of {dtype}")
    return Tensor(path, dtype, shape, data + begin)


@dataclasses.dataclass(frozen=True)
class Draft:
    """A tensor to be written; its values are made when their turn comes."""

    shape: tuple[int, ...]
    dtype: np.dtype
    make: Callable[[], Iterable[np.ndarray]]  # one after the other, they are its values

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


def write(path: Path, drafts: Mapping[str, Draft], metadata: Mapping[str, str]) -> None:
    """Write a safetensors file, tensor by tensor. The caller renames what is complete."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
    offset = 0
    for name, draft in drafts.items():
        header[name] = {
            "dtype": _NAMES[draft.dtype],
            "shape": list(draft.shape),
            "data_offsets": [offset, offset + draft.nbytes],
        }
        offset += draft.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for draft in drafts.values():
            for values in draft.make():
                # Not `tofile`, whose error on a full disk does not say that it is one.
                file.write(np.ascontiguousarray(values, draft.dtype).reshape(-1).view(np.uint8).data)
        file.flush()
        os.fsync(file.fileno())
    if path.stat().st_size != 8 + len(text) + offset:
        raise MorphVlaError(f"{path}: {path.stat().st_size} bytes were written, not {8 + len(text) + offset}")
