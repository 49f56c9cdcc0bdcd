"""What is wrong with a dataset, all of it at once, before anything is trained: no picture is decoded.

Reading and judging are two steps: `layout` reads what the files say, the rules here hold it against itself.
A rule that hits many episodes is one sentence, with the first place and the number of them.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from morph_vla.checks.rules import problem
from morph_vla.data import layout as layouts
from morph_vla.data.layout import Entry, Layout, Rows
from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding
from morph_vla.wording import count

GAP = 0.5  # of a frame's time: steps between time stamps that are further off than this are gaps


@dataclasses.dataclass(frozen=True)
class Judged:
    """The problems of a dataset, and what of its values could be read."""

    problems: tuple[Finding, ...]
    rows: Rows | None  # of the episodes that are asked for; None when nothing could be read
    entries: tuple[Entry, ...]  # those episodes


def of_values(dataset: Layout, features: Sequence[str], episodes: Sequence[int] = ()) -> Judged:
    """Everything that is wrong with the tables of a dataset.

    `features`: the keys of state and action that training reads; `episodes`: those it reads, none means all.
    """
    where = str(dataset.root)
    problems: list[Finding] = []
    if not dataset.episodes:
        problems.append(problem("no-episodes", where, "the dataset has no episode"))
    wanted, indices = frozenset(episodes), {entry.index for entry in dataset.episodes}
    for index in episodes:
        if index not in indices:
            subject = (str(index),)
            problems.append(
                problem("no-such-episode", where, f"there is no episode {index}", subject=subject)
            )
    known = [name for name in features if name in dataset.features]
    for name in features:
        if name not in known:
            problems.append(problem("no-feature", where, dataset.no_feature(name), subject=(name,)))
    entries = tuple(entry for entry in dataset.episodes if not wanted or entry.index in wanted)
    files: dict = {}
    for entry in entries:
        files.setdefault(entry.data, []).append(entry.index)
    parts = []
    for path, in_file in files.items():
        try:
            part = layouts.rows(dataset, known, path)
            parts += [part] if len(part.episode) else []
        except MorphVlaError as error:
            remedy = f"restore it, or leave out what it holds (episode {_some(in_file)})"
            problems.append(problem("unreadable-file", where, str(error), in_file[0], remedy=remedy))
    problems += _widths(dataset, known, parts)
    if entries and not parts and not any(finding.code == "unreadable-file" for finding in problems):
        problems.append(problem("empty-episodes", where, "the dataset has no frame"))
    rows = None
    if parts and len({tuple(value.shape[1] for value in part.values.values()) for part in parts}) == 1:
        rows = layouts.joined(parts)
        if episodes:
            rows = layouts.chosen(rows, np.isin(rows.episode, np.asarray(episodes)))
        lost_files = any(finding.code in ("unreadable-file", "width-in-info") for finding in problems)
        problems += [*_lengths(where, rows, entries, lost_files), *_order(where, rows)]
        problems += [*_finite(dataset, rows), *_times(dataset, rows), *_tasks(dataset, rows)]
        rows = rows if len(rows.episode) else None
    return Judged(tuple(problems), rows, entries)


def place(rows: Rows, row: int | np.integer) -> tuple[int, int]:
    """The episode and the frame of a row."""
    return int(rows.episode[row]), int(rows.frame[row])


def _width(part: Rows, name: str) -> int:
    return part.values[name].shape[1]


def _widths(dataset: Layout, features: Sequence[str], parts: Sequence[Rows]) -> Iterator[Finding]:
    """Features of another width than info.json says, or in one file than in another."""
    for name in features:
        in_info = layouts.width_of(dataset.features[name])
        other = next((part for part in parts if _width(part, name) != _width(parts[0], name)), None)
        if in_info is None and other is not None:
            first, second = (
                f"{_width(part, name)} values in {part.files[0].name}" for part in (parts[0], other)
            )
            found = f"'{name}' has {first}, and {second}"
            yield problem("width-in-info", str(dataset.root), found, int(other.episode[0]), subject=(name,))
        for part in parts:
            width = _width(part, name)
            if in_info is not None and width != in_info:
                found = f"'{name}' has {width} values, and info.json says {in_info}"
                first = int(part.episode[0]) if len(part.episode) else None
                yield problem("width-in-info", str(dataset.root), found, first, subject=(name,))
                break


def _lengths(where: str, rows: Rows, entries: Sequence[Entry], lost_files: bool) -> Iterator[Finding]:
    """Episodes without frames, of another length than meta says, or that meta does not know."""
    indices, counts = np.unique(rows.episode, return_counts=True)
    lengths = dict(zip(indices.tolist(), counts.tolist(), strict=True))
    other = [e for e in entries if e.length is not None and lengths.get(e.index, e.length) != e.length]
    if other:
        first = other[0]
        more = f" (and {len(other) - 1} more episodes like it)" if len(other) > 1 else ""
        found = f"the table holds {lengths[first.index]} frames, and the meta files say {first.length}{more}"
        yield problem("other-length", where, found, first.index)
    known = [entry.index for entry in entries]
    empty = [] if lost_files else [index for index in known if index not in lengths]
    short = [index for index in known if lengths.get(index) == 1]
    for code, episodes, what in (
        ("empty-episodes", empty, "without a frame"),
        ("unknown-episodes", sorted(lengths.keys() - known), "in the tables and not in the meta files"),
        ("single-frames", short, "of a single frame"),
    ):
        if episodes:
            found = f"{count(len(episodes), 'episode')} {what} ({_some(episodes)})"
            yield problem(code, where, found, episodes[0])


def _order(where: str, rows: Rows) -> Iterator[Finding]:
    """Rows of one episode that are apart, and frames that are not numbered 0, 1, 2, ..."""
    starts = np.flatnonzero(np.diff(rows.episode, prepend=rows.episode[:1] - 1))
    begun: set[int] = set()
    for episode in rows.episode[starts].tolist():
        if episode in begun:
            yield problem("split-episode", where, "its rows are not contiguous", episode)
            return
        begun.add(episode)
    wanted = np.arange(len(rows.frame)) - np.repeat(starts, np.diff(np.r_[starts, len(rows.frame)]))
    odd = np.flatnonzero(rows.frame != wanted)
    if len(odd):
        row = odd[0]
        found = f"frame_index is {rows.frame[row]} where {wanted[row]} is expected ({count(len(odd), 'row')})"
        yield problem("frame-order", where, found, int(rows.episode[row]), int(wanted[row]))


def _finite(dataset: Layout, rows: Rows) -> Iterator[Finding]:
    for name, value in rows.values.items():
        with np.errstate(over="ignore"):  # training reads them so
            bad = np.argwhere(~np.isfinite(value.astype(np.float32)))
        if len(bad):
            row, column = bad[0]
            names = dataset.names((name,))
            called = f" ('{names[column]}')" if len(names) == value.shape[1] else ""
            episodes = count(len(np.unique(rows.episode[bad[:, 0]])), "episode")
            found = (
                f"'{name}' has {count(len(bad), 'value')} not finite in {episodes}, "
                f"the first is value {column}{called}"
            )
            yield problem("not-finite", str(dataset.root), found, *place(rows, row), subject=(name,))


def _times(dataset: Layout, rows: Rows) -> Iterator[Finding]:
    """Time stamps that go back, have gaps, or show another rate than info.json."""
    times = rows.timestamp
    if times is None or len(times) < 2:
        return
    where, inside, steps = str(dataset.root), np.diff(rows.episode) == 0, np.diff(times)
    if not np.isfinite(times).all():
        row = np.flatnonzero(~np.isfinite(times))[0]
        yield problem("time-not-finite", where, "its time stamp is not finite", *place(rows, row))
        return
    back = np.flatnonzero(inside & (steps <= 0)) + 1
    if len(back):
        more = f", in {len(back)} places" if len(back) > 1 else ""
        pair = f"({times[back[0] - 1]:g} s, then {times[back[0]]:g} s)"
        found = f"the time stamps do not increase {pair}{more}"
        yield problem("time-backwards", where, found, *place(rows, back[0]))
    if not inside.any():
        return
    typical = float(np.median(steps[inside]))
    if typical > 0 and abs(typical * dataset.fps - 1) > 0.02:
        found = f"info.json says {dataset.fps:g} Hz, and the time stamps are {1 / typical:.4g} Hz apart"
        yield problem("other-rate", where, found)
        return
    gaps = np.flatnonzero(inside & (steps > 0) & (np.abs(steps * dataset.fps - 1) > GAP)) + 1
    if len(gaps):
        found = f"{count(len(gaps), 'gap')} between time stamps, the first of {steps[gaps[0] - 1]:.4g} s"
        due = f"a frame is expected every {1 / dataset.fps:.4g} s"
        remedy = f"{due}: frames were lost, and a policy learns the jumps"
        yield problem("time-gaps", where, found, *place(rows, gaps[0]), remedy=remedy)


def _tasks(dataset: Layout, rows: Rows) -> Iterator[Finding]:
    where = str(dataset.root)
    if rows.task is None:
        yield problem("no-task-column", where, "no column 'task_index'")
        return
    unknown = np.flatnonzero(~np.isin(rows.task, list(dataset.tasks)))
    if len(unknown):
        row, known = unknown[0], count(len(dataset.tasks), "task")
        found = f"its task is {rows.task[row]}, which the {known} of meta do not have"
        yield problem("unknown-task", where, found, *place(rows, row))
    for index in np.unique(rows.task).tolist():
        if not dataset.tasks.get(index, "-").strip():
            first = int(rows.episode[np.flatnonzero(rows.task == index)[0]])
            yield problem("empty-task", where, f"task {index} is empty", first, subject=(str(index),))


def _some(indices: Sequence[int]) -> str:
    return ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")
