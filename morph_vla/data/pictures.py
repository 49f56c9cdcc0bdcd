"""Pictures within a table: encoded bytes of one frame each, as LeRobot writes features of dtype `image`.

A cell is {bytes, path}. The bytes are the picture; where there are none, `path` may name a file inside the
dataset, and one that leads out of it is not followed. Any row can be asked for: the row group that holds it
is read in parts, from its front or from where reading stands, and one such part is in memory at a time. This
runs in the workers of `pool`: it imports neither JAX nor lerobot.
"""

import collections
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from morph_vla.data import tables
from morph_vla.errors import MorphVlaError, nearest, reason, require

MAX_PIXELS = 1 << 25  # of one picture: twice 4096 x 4096
MAX_BYTES = 64 << 20  # of one encoded picture
FORMATS = ("PNG", "JPEG")
MODES = ("RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "YCbCr")  # eight bits; depth in sixteen is no colour
PART = 16  # rows that are read at once
MAX_OPEN = 16  # tables that a worker keeps open: their footers alone
GROUP = 16  # rows of a row group in a copy of ours

Cell = tuple[bytes | None, str | None]


class UndecodableError(Exception):
    """Picture number `at` of those asked for could not be decoded."""

    def __init__(self, at: int, reason: str):
        super().__init__(reason)
        self.at = at


class PictureError(Exception):
    """Why one cell is not a picture."""


class MissingError(PictureError):
    """A cell without bytes, and without a file in their place."""


def decode(data: bytes) -> UInt8[np.ndarray, "h w 3"]:
    """The RGB pixels that pillow makes of a PNG or JPEG.

    Raises PictureError for another format, more than MAX_PIXELS (known before anything is unpacked), more
    than eight bits to a colour, and for a truncated or damaged file.
    """
    image = require("PIL.Image", "lerobot")
    if len(data) > MAX_BYTES:
        raise PictureError(f"it has {len(data)} bytes, more than {MAX_BYTES >> 20} MiB")
    try:
        with image.open(io.BytesIO(data), formats=FORMATS) as opened:
            width, height = opened.size
            if width * height > MAX_PIXELS:
                raise PictureError(f"it has {width} x {height} pixels, more than {MAX_PIXELS >> 20} million")
            if opened.mode not in MODES:
                raise PictureError(f"its pixels are {opened.mode}; expected colours of eight bits")
            return np.asarray(opened.convert("RGB"))
    except image.UnidentifiedImageError:
        raise PictureError(f"its {len(data)} bytes are neither PNG nor JPEG") from None
    except PictureError:
        raise
    except Exception as error:  # pillow's readers raise whatever the bytes lead them to
        raise PictureError(str(error) or type(error).__name__) from error


def data_of(cell: Cell, root: Path) -> bytes:
    """The encoded bytes of a cell of the dataset in `root`. Raises PictureError, MissingError without any."""
    data, name = cell
    if data:
        return data
    if not name:
        raise MissingError("it has no bytes")
    path = Path(name)
    if _leads_out(name, root):
        raise MissingError(
            f"it has no bytes, and its path '{name}' leads out of the dataset; it is not followed"
        )
    try:
        with (root / path).open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise MissingError(f"it has no bytes, and its file '{name}': {error.strerror}") from error


def beside(table: Path, column: str, root: Path) -> list[Path]:
    """The files inside the dataset that the cells of a column name; most tables hold their pictures alone."""
    file, types = tables.open_file(table, stream=True), require("pyarrow.types", "lerobot")
    schema = file.schema_arrow
    kind = schema.field(column).type if column in schema.names else None
    if kind is None or not types.is_struct(kind) or kind.get_field_index("path") < 0:
        return []
    given: dict[str, None] = {}
    for part in tables.groups(file, [f"{column}.path"], table):
        given |= dict.fromkeys(cell["path"] for cell in part.column(column).to_pylist() if cell)
    return [root / name for name in given if name and (root / name).is_file() and not _leads_out(name, root)]


def _leads_out(name: str, root: Path) -> bool:
    """Whether a name in a table is of no file inside the dataset: names of strangers are not followed."""
    path = Path(name)
    return path.is_absolute() or ".." in path.parts or "\0" in name or not _inside(root / path, root)


def _inside(path: Path, root: Path) -> bool:
    """Whether links lead nowhere else; the Hub's client keeps files beside the folder of links to them."""
    whole = root.resolve()
    blobs = whole.parent.parent / "blobs" if whole.parent.name == "snapshots" else whole
    return any(path.resolve().is_relative_to(folder) for folder in (whole, blobs))


class Table:
    """One column of pictures in an open parquet file."""

    def __init__(self, path: Path, column: str):
        """Open it: only the footer is read. Raises MorphVlaError for a column that holds no pictures."""
        types = require("pyarrow.types", "lerobot")
        self.path, self.column = path, column
        self.file = tables.open_file(path, stream=True)
        schema = self.file.schema_arrow
        if column not in schema.names:
            raise MorphVlaError(f"{path}: no column '{column}'{nearest(column, schema.names)}")
        kind = inner = schema.field(column).type
        if types.is_struct(kind):
            inner = next((field.type for field in kind if field.name == "bytes"), None)
        if inner is None or not (types.is_binary(inner) or types.is_large_binary(inner)):
            raise MorphVlaError(f"{path}: '{column}' holds {kind}; expected pictures, {{bytes, path}}")
        groups = range(self.file.metadata.num_row_groups)
        self.starts = np.cumsum([0, *(self.file.metadata.row_group(group).num_rows for group in groups)])
        self.let_go()

    def cell(self, row: int) -> Cell:
        """Bytes and path of one row. Raises MorphVlaError when that part of the file is spoilt."""
        group = int(np.searchsorted(self.starts, row, side="right")) - 1
        if not 0 <= row < self.starts[-1]:
            raise MorphVlaError(f"{self.path}: no row {row}; the file has {self.starts[-1]}")
        if group != self._group or row < self._first:
            self._begin(group)
        while row >= self._first + len(self._part):
            self._next()
        return self._part[row - self._first]

    def _begin(self, group: int) -> None:
        self.let_go()
        self._rest = self.file.iter_batches(PART, [group], [self.column], use_threads=False)
        self._group, self._first = group, int(self.starts[group])

    def _next(self) -> None:
        arrow = require("pyarrow", "lerobot")
        self._first += len(self._part)
        try:
            column = next(self._rest).column(0)
        except (arrow.ArrowException, OSError, StopIteration) as error:
            self.let_go()
            why = reason(error) if str(error) else "a row group ends early"
            raise MorphVlaError(f"{self.path}: cannot be read as parquet: {why}") from error
        # Scalars, not to_pylist: a cell's bytes stay in arrow's memory until they are asked for.
        self._part = [_cell(scalar) for scalar in column]

    def let_go(self) -> None:
        """Forget the part that was read, and where reading stands; the file stays open."""
        self._rest: Iterator[Any] = iter(())
        self._part: list[Cell] = []
        self._first = self._group = -1  # row of the part's first, and its row group

    def close(self) -> None:
        """Close the file."""
        self.let_go()
        self.file.close()


def _cell(scalar: Any) -> Cell:
    value = scalar.as_py()
    if not isinstance(value, dict):
        return value, None
    name = value.get("path")
    return value.get("bytes"), name if isinstance(name, str) else None


class Tables:
    """The tables a worker has open: the `most` that were used last; only one of them holds pictures."""

    def __init__(self, most: int = MAX_OPEN):
        self._most = most
        self._open: collections.OrderedDict[tuple[str, str], Table] = collections.OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def starts(self, path: str, column: str) -> Int[np.ndarray, "_"]:
        """The first row of every row group of a file, and the number of its rows."""
        return self._table(path, column).starts

    def pictures(
        self, path: str, column: str, root: str, rows: Sequence[int]
    ) -> Iterator[UInt8[np.ndarray, "h w 3"]]:
        """The pictures of these rows, quickest in their order. Raises UndecodableError."""
        for at, row in enumerate(rows):
            try:
                picture = decode(data_of(self._table(path, column).cell(row), Path(root)))
            except (PictureError, MorphVlaError) as error:
                raise UndecodableError(at, str(error).removeprefix(f"{path}: ")) from error
            yield picture

    def _table(self, path: str, column: str) -> Table:
        key = path, column
        if key not in self._open:
            while len(self._open) >= self._most:
                self._open.popitem(last=False)[1].close()
            self._open[key] = Table(Path(path), column)
        for other, table in self._open.items():
            if other != key:
                table.let_go()
        self._open.move_to_end(key)
        return self._open[key]

    def close(self) -> None:
        """Close every table that is open."""
        while self._open:
            self._open.popitem()[1].close()


def regroup(path: Path, columns: Sequence[str], root: Path) -> None:
    """Write a table anew in row groups of GROUP rows, so that any picture is near a place to begin at.

    Pictures that are files of the dataset in `root` are put into the table; what cannot be read stays as it
    is, for who asks for it to hear of. Raises OSError, and MorphVlaError for what is no table of pictures.
    """
    arrow, parquet = require("pyarrow", "lerobot"), require("pyarrow.parquet", "lerobot")
    file = tables.open_file(path, stream=True)
    columns = [column for column in columns if column in file.schema_arrow.names]
    for column in columns:
        Table(path, column).close()
    fresh = path.with_suffix(".regrouped")
    plain = [name for name in file.schema_arrow.names if name not in columns]
    with parquet.ParquetWriter(fresh, file.schema_arrow, use_dictionary=plain) as writer:
        for batch in file.iter_batches(GROUP, use_threads=False):
            for column in columns:
                at = batch.schema.get_field_index(column)
                kind = batch.schema.field(at).type
                cells = [_cell(scalar) for scalar in batch.column(at)]
                if any(name and not data for data, name in cells):
                    filled = [{"bytes": _embedded(cell, root), "path": cell[1]} for cell in cells]
                    batch = batch.set_column(at, batch.schema.field(at), arrow.array(filled, kind))
            writer.write_batch(batch)
    file.close()
    fresh.replace(path)


def _embedded(cell: Cell, root: Path) -> bytes | None:
    try:
        return data_of(cell, root)
    except PictureError:
        return cell[0]
