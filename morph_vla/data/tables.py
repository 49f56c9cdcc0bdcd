"""Parquet files of a LeRobot dataset as arrays, within bounds; what does not fit is one sentence."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from morph_vla.errors import MorphVlaError, nearest, reason, require

MAX_FRAMES = 1_000_000  # of an episode: nine hours at 30 Hz
MAX_ROWS = 200_000_000  # of a file that holds many
BUFFER = 1 << 18  # bytes read at once of a file that is streamed
MAX_BYTES = 2 << 30  # of the chosen columns of a file, unpacked


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """What pyarrow raises within, as MorphVlaError."""
    arrow = require("pyarrow", "lerobot")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        raise MorphVlaError(f"{path}: cannot be read as parquet: {reason(error)}") from error


def open_file(path: Path, stream: bool = False) -> Any:
    """A pyarrow ParquetFile; raises MorphVlaError if the file is not Parquet or is truncated.

    `stream`: its parts are read as they are needed rather than whole columns at once.
    """
    parquet = require("pyarrow.parquet", "lerobot")
    with reading(path):
        # A relative name with a colon would be an address.
        return parquet.ParquetFile(path.absolute(), pre_buffer=False, buffer_size=BUFFER if stream else 0)


def groups(file: Any, columns: Sequence[str], path: Path) -> Iterator[Any]:
    """The row groups of a parquet file, of these columns alone, within bounds."""
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        stored = [group.column(place) for place in range(group.num_columns)]
        chosen = [c for c in stored if any(f"{c.path_in_schema}.".startswith(f"{name}.") for name in columns)]
        if sum(column.total_uncompressed_size for column in chosen) > MAX_BYTES:
            raise MorphVlaError(f"{path}: more than {MAX_BYTES >> 30} GiB of values in one part of the file")
        with reading(path):
            part = file.read_row_group(number, columns=list(columns))
        yield part


def table_of(path: Path, columns: Sequence[str], needed: Sequence[str], episode: int | None = None) -> Any:
    """Those of `columns` that the file has; with `episode`, only its rows.

    Raises MorphVlaError for a file that cannot be read, is too large, or lacks a `needed` column, and with
    `episode` for one whose episodes are not whole numbers.
    """
    arrow = require("pyarrow", "lerobot")
    file = open_file(path)
    names = file.schema_arrow.names
    if twice := [name for name in columns if names.count(name) > 1]:
        raise MorphVlaError(f"{path}: has {names.count(twice[0])} columns '{twice[0]}'")
    present = set(names)
    for name in needed:
        if name not in present:
            raise MorphVlaError(f"{path}: no column '{name}'{nearest(name, present)}")
    limit, of = (MAX_ROWS, "in one file") if episode is None else (MAX_FRAMES, "for one episode")
    parts, rows = [], 0
    for part in groups(file, [name for name in columns if name in present], path):
        if episode is not None:
            part = part.filter(arrow.array(whole(path, part, "episode_index") == episode))
        rows += part.num_rows
        if rows > limit:
            raise MorphVlaError(f"{path}: more than {limit} rows {of}")
        parts.append(part)
    if not parts:
        raise MorphVlaError(f"{path}: holds no rows")
    return arrow.concat_tables(parts)


def whole(path: Path, table: Any, name: str) -> Int[np.ndarray, "n"]:
    """A column of whole numbers as int64; raises MorphVlaError if it holds anything else."""
    types = require("pyarrow.types", "lerobot")
    column = table.column(name)
    if not types.is_integer(column.type) or column.null_count:
        raise MorphVlaError(f"{path}: column '{name}' holds {column.type}; expected whole numbers")
    return column.to_numpy().astype(np.int64)


def matrix(path: Path, table: Any, name: str) -> Float[np.ndarray, "n d"]:
    """A column of numbers, or of lists of numbers all of one length, as float64; a missing number is NaN.

    Raises MorphVlaError, with the frame, for lists of several lengths and for anything but numbers.
    """
    types = require("pyarrow.types", "lerobot")
    column = table.column(name).combine_chunks()
    count, inner, kind = len(column), column, column.type
    if not count:
        return np.zeros((0, 0))
    fixed = types.is_fixed_size_list(kind)
    if fixed or types.is_list(kind) or types.is_large_list(kind):
        if column.null_count:
            frame = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise MorphVlaError(f"{path}: '{name}' has nothing in frame {frame}")
        sizes = np.zeros(1) if fixed else column.value_lengths().to_numpy(zero_copy_only=False)
        for frame in np.flatnonzero(sizes != sizes[0])[:1]:
            lengths = f"{sizes[frame]} values in frame {frame} and {sizes[0]} in frame 0"
            raise MorphVlaError(f"{path}: '{name}' has {lengths}")
        inner, kind = column.flatten(), kind.value_type
    if not (types.is_floating(kind) or types.is_integer(kind)):
        raise MorphVlaError(f"{path}: '{name}' holds {column.type}; expected a list of numbers per frame")
    flat = np.asarray(inner.to_numpy(zero_copy_only=False), np.float64)
    if len(flat) == 0:
        raise MorphVlaError(f"{path}: '{name}' has no values")
    return flat.reshape(count, -1)
