"""What is wrong with pictures within a dataset's tables, by a few of each camera and the tables' footers."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from morph_vla.checks.dataset import problem
from morph_vla.data import pictures
from morph_vla.data.layout import Layout, Rows
from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding

SAMPLES = 5  # pictures of a camera that are decoded: the first and the last row, and between them
FAR = 64 << 20  # bytes of one row group from which on a single picture is far from a place to begin at


def of_camera(dataset: Layout, camera: str, rows: Rows) -> Iterator[Finding]:
    """Problems of one camera whose pictures are within the tables; `rows`: those that training reads."""
    wanted = np.unique(np.linspace(0, len(rows.number) - 1, SAMPLES).astype(int))
    told: set[str] = set()  # of each severity the first is told
    lost: list[MorphVlaError] = []
    empty, most, largest = -1, 0, None
    for file, path in enumerate(rows.files):
        try:
            table = pictures.Table(path, dataset.pictures[camera])
        except MorphVlaError as error:
            lost.append(error)
            continue
        chosen = [int(row) for row in wanted[rows.file_of[wanted] == file]]
        if empty < 0:
            empty = _first_empty(table, rows, np.flatnonzero(rows.file_of == file))
            chosen = chosen if empty < 0 else sorted({empty, *chosen})
        for row in chosen:
            for finding in _of_one(dataset, camera, table, rows, row):
                if finding.severity not in told:
                    told.add(finding.severity)
                    yield finding
        size = max((column.total_uncompressed_size for _, column in _columns(table)), default=0)
        most, largest = (size, path) if size > most else (most, largest)
        table.close()
    if lost:
        many = f" in {len(lost)} files" if len(lost) > 1 else ""
        remedy = "write the dataset anew, or leave the camera out"
        words = f"camera '{camera}'{many}: {lost[0]}", remedy
        yield problem("no-pictures", "error", str(dataset.root), *words, subject=(camera,))
    if largest is not None and most > FAR and dataset.version.startswith("v3"):  # ours have small ones
        place = largest.relative_to(dataset.root)
        text = f"camera '{camera}': {place} has up to {most >> 20} MiB of pictures in one row group"
        remedy = "data.frames=cache reads each once; data.frames=video reads up to as much for one picture"
        yield problem("large-row-groups", "note", str(dataset.root), text, remedy, subject=(camera,))


def _of_one(dataset: Layout, camera: str, table: pictures.Table, rows: Rows, row: int) -> Iterator[Finding]:
    where, file = str(dataset.root), table.path.relative_to(dataset.root)
    place = int(rows.episode[row]), int(rows.frame[row])
    try:
        picture = pictures.decode(pictures.data_of(table.cell(int(rows.number[row])), dataset.root))
    except (pictures.PictureError, MorphVlaError) as error:
        missing, reason = isinstance(error, pictures.MissingError), str(error).removeprefix(f"{table.path}: ")
        code = "missing-picture" if missing else "broken-picture"
        what = f"is missing in {file}" if missing else f"in {file} cannot be decoded"
        text = f"camera '{camera}': its picture {what}: {reason}"
        remedy = "fetch or write the dataset anew, or leave the episode out with `episodes`"
        yield problem(code, "error", where, text, remedy, *place, subject=(camera,))
        return
    size, there = dataset.sizes.get(camera), picture.shape[:2]
    if size is not None and size != there:
        text = (
            f"camera '{camera}': its picture has {there[0]} x {there[1]} pixels, and info.json says "
            f"{size[0]} x {size[1]}"
        )
        remedy = "each is scaled from its own size: correct the shape in meta/info.json, or look"
        yield problem("picture-size", "warning", where, text, remedy, *place, subject=(camera,))


def _columns(table: pictures.Table) -> Iterator[tuple[int, Any]]:
    """Of every row group: its number, and what the footer says of the pictures' bytes."""
    for number in range(table.file.metadata.num_row_groups):
        group = table.file.metadata.row_group(number)
        for place in range(group.num_columns):
            if group.column(place).path_in_schema in (table.column, f"{table.column}.bytes"):
                yield number, group.column(place)


def _first_empty(table: pictures.Table, rows: Rows, own: np.ndarray) -> int:
    """The first of a file's rows `own` whose bytes are missing; -1 by a footer that tells of none.

    Only row groups whose footer tells of some are read.
    """
    for group, column in _columns(table):
        known = column.statistics
        if known is None or not known.has_null_count or not known.null_count:
            continue
        first, last = table.starts[group : group + 2]
        for row in own[(rows.number[own] >= first) & (rows.number[own] < last)].tolist():
            try:
                if not table.cell(int(rows.number[row]))[0]:
                    return row
            except MorphVlaError:  # that part of the file is spoilt, which is told of the row
                return row
    return -1
