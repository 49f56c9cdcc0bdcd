"""What is wrong with a dataset, all of it at once, before anything is trained: no picture is decoded.

Reading and judging are two steps: `layout` reads what the files say, the rules here hold it against itself.
A rule that hits many episodes is one sentence, with the first place and the number of them.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from morph_vla.data import layout as layouts
from morph_vla.data.layout import Entry, Layout, Rows
from morph_vla.errors import MorphVlaError, nearest

Severity = Literal["error", "warning", "note"]
GAP = 0.5  # of a frame's time: steps between time stamps that are further off than this are gaps


@dataclasses.dataclass(frozen=True)
class Problem:
    """One sentence on one dataset: what was found, where first, and what to do."""

    severity: Severity  # "error": training cannot run or learns something else; "warning": look at it
    where: str  # the dataset, or the recipe's key
    found: str
    remedy: str
    episode: int | None = None
    frame: int | None = None

    def __str__(self) -> str:
        """`error: DATASET: episode 3, frame 7: what was found; what to do`."""
        place = ", ".join(
            f"{word} {number}"
            for word, number in (("episode", self.episode), ("frame", self.frame))
            if number is not None
        )
        start = f"{self.severity}: {self.where}: {place}: " if place else f"{self.severity}: {self.where}: "
        return f"{start}{self.found}; {self.remedy}"


@dataclasses.dataclass(frozen=True)
class Judged:
    """The problems of a dataset, and what of its values could be read."""

    problems: tuple[Problem, ...]
    rows: Rows | None  # of the episodes that are asked for; None when nothing could be read
    entries: tuple[Entry, ...]  # those episodes


def of_values(
    found: Layout,
    features: Sequence[str],
    widths: Mapping[str, int] | None = None,
    episodes: Sequence[int] = (),
) -> Judged:
    """Everything that is wrong with the tables of a dataset.

    Args:
        found: The dataset.
        features: The keys of state and action that training reads.
        widths: How many values a feature must have, where that is known.
        episodes: Those that training reads; none means all.
    """
    where = str(found.root)
    said: list[Problem] = []
    if not found.episodes:
        said.append(Problem("error", where, "the dataset has no episode", "record some"))
    wanted, known_indices = frozenset(episodes), {entry.index for entry in found.episodes}
    for index in episodes:
        if index not in known_indices:
            said.append(Problem("error", where, f"there is no episode {index}", "leave it out of `episodes`"))
    known = []
    for name in features:
        if name in found.features:
            known.append(name)
            continue
        there = nearest(name, found.features) or f" (there are {', '.join(list(found.features)[:12])})"
        remedy = "name the dataset's keys with `state` and `action`"
        said.append(Problem("error", where, f"no feature '{name}'{there}", remedy))
    entries = tuple(entry for entry in found.episodes if not wanted or entry.index in wanted)
    parts = []
    for path, of_file in _by_file(entries).items():
        try:
            part = layouts.rows(found, known, path)
            parts += [part] if len(part.episode) else []
        except MorphVlaError as error:
            lost = ", ".join(str(entry.index) for entry in of_file[:5]) + (
                ", ..." if len(of_file) > 5 else ""
            )
            remedy = f"restore it, or leave out what it holds (episode {lost})"
            said.append(Problem("error", where, str(error), remedy, of_file[0].index))
    said += _widths(found, known, parts, widths or {})
    rows = None
    if parts and len({tuple(value.shape[1] for value in part.values.values()) for part in parts}) == 1:
        rows = layouts.joined(parts)
        if episodes:
            rows = layouts.chosen(rows, np.isin(rows.episode, np.asarray(episodes)))
        lost_files = any(problem.episode is not None for problem in said)
        said += [*_lengths(where, rows, entries, lost_files), *_order(where, rows), *_finite(found, rows)]
        said += [*_times(found, rows), *_tasks(found, rows, entries)]
        rows = rows if len(rows.episode) else None
    return Judged(tuple(said), rows, entries)


def _by_file(entries: Sequence[Entry]) -> dict:
    files: dict = {}
    for entry in entries:
        files.setdefault(entry.data, []).append(entry)
    return files


def _widths(
    found: Layout, features: Sequence[str], parts: Sequence[Rows], wanted: Mapping[str, int]
) -> Iterator[Problem]:
    """Features of another width than info.json, another file, or training expects."""
    for name in features:
        said, where = layouts.width_of(found.features[name]), str(found.root)
        there = [part.values[name].shape[1] for part in parts]
        for part, width in zip(parts, there, strict=True):
            if said is not None and width != said:
                text = f"'{name}' has {width} values, and info.json says {said}"
                remedy = "correct the shape in meta/info.json, or record the episode again"
                yield Problem(
                    "error", where, text, remedy, int(part.episode[0]) if len(part.episode) else None
                )
                break
        width = there[0] if there else said
        if width is not None and wanted.get(name, width) != width:
            text = f"'{name}' has {width} values where {wanted[name]} are expected"
            yield Problem("error", where, text, "name the right key, or the right robot")


def _lengths(where: str, rows: Rows, entries: Sequence[Entry], lost_files: bool) -> Iterator[Problem]:
    """Episodes without frames, of another length than meta says, or that meta does not know."""
    indices, counts = np.unique(rows.episode, return_counts=True)
    held = dict(zip(indices.tolist(), counts.tolist(), strict=True))
    empty = [] if lost_files else [entry.index for entry in entries if entry.index not in held]
    if empty:
        text = f"{_count(len(empty), 'episode')} without a frame{_such(empty)}"
        yield Problem("error", where, text, "remove them from the dataset", empty[0])
    other = [e for e in entries if e.length is not None and held.get(e.index, e.length) != e.length]
    if other:
        first = other[0]
        text = f"the table holds {held[first.index]} frames, and the meta files say {first.length}"
        more = f" (and {len(other) - 1} more episodes like it)" if len(other) > 1 else ""
        remedy = "repair the meta files, or leave the episode out with `episodes`"
        yield Problem("error", where, f"{text}{more}", remedy, first.index)
    unknown = sorted(set(held) - {entry.index for entry in entries})
    if unknown:
        text = f"{_count(len(unknown), 'episode')} in the tables and not in the meta files{_such(unknown)}"
        yield Problem("error", where, text, "repair the meta files", unknown[0])
    short = [entry.index for entry in entries if held.get(entry.index) == 1]
    if short:
        text = f"{_count(len(short), 'episode')} of a single frame{_such(short)}"
        yield Problem("warning", where, text, "nothing moves in one: leave it out with `episodes`", short[0])


def _order(where: str, rows: Rows) -> Iterator[Problem]:
    """Rows of one episode that are apart, and frames that are not numbered 0, 1, 2, ..."""
    starts = (
        np.flatnonzero(np.r_[True, np.diff(rows.episode) != 0]) if len(rows.episode) else np.array([], int)
    )
    again = [int(e) for i, e in enumerate(rows.episode[starts]) if e in rows.episode[starts][:i]][:1]
    if again:
        yield Problem(
            "error", where, "its rows are not one after another", "write the dataset anew", again[0]
        )
        return
    wanted = np.arange(len(rows.frame)) - np.repeat(starts, np.diff(np.r_[starts, len(rows.frame)]))
    odd = np.flatnonzero(rows.frame != wanted)
    if len(odd):
        row = odd[0]
        text = f"frame_index is {rows.frame[row]} where {wanted[row]} is due ({_count(len(odd), 'row')})"
        remedy = (
            "frames were lost or doubled: look at the recording, or leave the episode out with `episodes`"
        )
        yield Problem("error", where, text, remedy, int(rows.episode[row]), int(wanted[row]))


def _finite(found: Layout, rows: Rows) -> Iterator[Problem]:
    for name, value in rows.values.items():
        bad = np.argwhere(~np.isfinite(value))
        if len(bad):
            row, column = bad[0]
            names = found.names((name,))
            called = f" ('{names[column]}')" if names else ""
            hit = np.unique(rows.episode[bad[:, 0]])
            text = (
                f"'{name}' has {_count(len(bad), 'value')} not finite in "
                f"{_count(len(hit), 'episode')}, the first is value {column}{called}"
            )
            remedy = "training refuses it: repair the frames, or leave the episodes out with `episodes`"
            place = int(rows.episode[row]), int(rows.frame[row])
            yield Problem("error", str(found.root), text, remedy, *place)


def _times(found: Layout, rows: Rows) -> Iterator[Problem]:
    """Time stamps that go back, lie apart, or tell of another rate than info.json."""
    if rows.timestamp is None or len(rows.timestamp) < 2:
        return
    where, inside = str(found.root), np.diff(rows.episode) == 0
    steps = np.diff(rows.timestamp)
    if not np.isfinite(rows.timestamp).all():
        row = int(np.flatnonzero(~np.isfinite(rows.timestamp))[0])
        place = int(rows.episode[row]), int(rows.frame[row])
        yield Problem("error", where, "its time stamp is not finite", "write the time stamps anew", *place)
        return
    back = np.flatnonzero(inside & (steps <= 0))
    if len(back):
        row = int(back[0]) + 1
        text = f"the time stamps do not grow ({rows.timestamp[row - 1]:g} s, then {rows.timestamp[row]:g} s)"
        more = f", in {len(back)} places" if len(back) > 1 else ""
        place = int(rows.episode[row]), int(rows.frame[row])
        yield Problem("error", where, f"{text}{more}", "write the time stamps anew", *place)
    if not inside.any():
        return
    typical = float(np.median(steps[inside]))
    if typical > 0 and abs(typical * found.fps - 1) > 0.02:
        text = f"info.json says {found.fps:g} Hz, and the time stamps are {1 / typical:.4g} Hz apart"
        yield Problem("error", where, text, "correct fps in meta/info.json, or the time stamps")
        return
    gaps = np.flatnonzero(inside & (steps > 0) & (np.abs(steps * found.fps - 1) > GAP))
    if len(gaps):
        row = int(gaps[0]) + 1
        text = f"{_count(len(gaps), 'gap')} between time stamps, the first of {steps[row - 1]:.4g} s"
        remedy = (
            f"a frame is due every {1 / found.fps:.4g} s: frames were lost, and a policy learns the jumps"
        )
        yield Problem("warning", where, text, remedy, int(rows.episode[row]), int(rows.frame[row]))


def _tasks(found: Layout, rows: Rows, entries: Sequence[Entry]) -> Iterator[Problem]:
    where = str(found.root)
    if rows.task is None:
        yield Problem("error", where, "no column 'task_index'", "every frame needs the number of its task")
        return
    unknown = np.flatnonzero(~np.isin(rows.task, list(found.tasks)))
    if len(unknown):
        row = int(unknown[0])
        text = (
            f"its task is {rows.task[row]}, which the {_count(len(found.tasks), 'task')} of meta do not have"
        )
        place = int(rows.episode[row]), int(rows.frame[row])
        yield Problem("error", where, text, "add it to the tasks in meta", *place)
    for index in np.unique(rows.task):
        if not found.tasks.get(int(index), "-").strip():
            row = int(np.flatnonzero(rows.task == index)[0])
            remedy = "a policy is prompted with it: write what is to be done"
            yield Problem("warning", where, f"task {index} is empty", remedy, int(rows.episode[row]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _such(indices: Sequence[int]) -> str:
    shown = ", ".join(map(str, indices[:5]))
    return f" ({shown}{', ...' if len(indices) > 5 else ''})"
