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
from morph_vla.errors import MorphVlaError
from morph_vla.findings import Finding, Severity, Source

Code = Literal[
    # a dataset's tables
    "no-episodes", "no-such-episode", "no-feature", "unreadable-file", "width-in-info", "wrong-width",
    "empty-episodes", "other-length", "unknown-episodes", "single-frames", "split-episode", "frame-order",
    "not-finite", "time-not-finite", "time-backwards", "other-rate", "time-gaps", "no-task-column",
    "unknown-task", "empty-task",
    # its videos and pictures
    "no-camera", "no-video", "missing-video", "broken-video", "cut-video", "short-video", "long-video",
    "video-rate", "no-pictures", "large-row-groups", "missing-picture", "broken-picture", "picture-size",
    # a recipe
    "robot", "dataset", "share", "rates", "no-cameras", "old-version", "nothing-left", "nothing-held-out",
    "statistics", "action-width", "model-width", "max-joints", "state-width", "units", "phases",
    "not-absolute", "narrow", "weights-not-here", "weights", "tokenizer-not-here", "tokenizer", "long-prompt",
]  # fmt: skip
GAP = 0.5  # of a frame's time: steps between time stamps that are further off than this are gaps


def problem(
    code: Code,
    severity: Severity,
    where: str,
    found: str,
    remedy: str,
    episode: int | None = None,
    frame: int | None = None,
    subject: tuple[str, ...] = (),
) -> Finding:
    """One sentence on a dataset, or on the key of a recipe, and what to do.

    An error: training cannot run or learns something else.
    """
    return Finding(code, severity, Source(where, episode, frame), subject, found, "", remedy)


@dataclasses.dataclass(frozen=True)
class Judged:
    """The problems of a dataset, and what of its values could be read."""

    problems: tuple[Finding, ...]
    rows: Rows | None  # of the episodes that are asked for; None when nothing could be read
    entries: tuple[Entry, ...]  # those episodes


def of_values(
    dataset: Layout,
    features: Sequence[str],
    widths: Mapping[str, int] | None = None,
    episodes: Sequence[int] = (),
) -> Judged:
    """Everything that is wrong with the tables of a dataset.

    Args:
        dataset: The dataset.
        features: The keys of state and action that training reads.
        widths: How many values a feature must have, where that is known.
        episodes: Those that training reads; none means all.
    """
    where = str(dataset.root)
    problems: list[Finding] = []
    if not dataset.episodes:
        problems.append(problem("no-episodes", "error", where, "the dataset has no episode", "record some"))
    wanted, known_indices = frozenset(episodes), {entry.index for entry in dataset.episodes}
    for index in episodes:
        if index not in known_indices:
            words = f"there is no episode {index}", "leave it out of `episodes`"
            problems.append(problem("no-such-episode", "error", where, *words, subject=(str(index),)))
    known = []
    for name in features:
        if name in dataset.features:
            known.append(name)
            continue
        words = dataset.no_feature(name), "name the dataset's keys with `state` and `action`"
        problems.append(problem("no-feature", "error", where, *words, subject=(name,)))
    entries = tuple(entry for entry in dataset.episodes if not wanted or entry.index in wanted)
    parts = []
    for path, of_file in _by_file(entries).items():
        try:
            part = layouts.rows(dataset, known, path)
            parts += [part] if len(part.episode) else []
        except MorphVlaError as error:
            lost = ", ".join(str(entry.index) for entry in of_file[:5]) + (
                ", ..." if len(of_file) > 5 else ""
            )
            remedy = f"restore it, or leave out what it holds (episode {lost})"
            problems.append(problem("unreadable-file", "error", where, str(error), remedy, of_file[0].index))
    problems += _widths(dataset, known, parts, widths or {})
    rows = None
    if parts and len({tuple(value.shape[1] for value in part.values.values()) for part in parts}) == 1:
        rows = layouts.joined(parts)
        if episodes:
            rows = layouts.chosen(rows, np.isin(rows.episode, np.asarray(episodes)))
        lost_files = any(known.code in ("unreadable-file", "width-in-info") for known in problems)
        problems += [*_lengths(where, rows, entries, lost_files), *_order(where, rows)]
        problems += [*_finite(dataset, rows), *_times(dataset, rows), *_tasks(dataset, rows)]
        rows = rows if len(rows.episode) else None
    return Judged(tuple(problems), rows, entries)


def _by_file(entries: Sequence[Entry]) -> dict:
    files: dict = {}
    for entry in entries:
        files.setdefault(entry.data, []).append(entry)
    return files


def _widths(
    dataset: Layout, features: Sequence[str], parts: Sequence[Rows], wanted: Mapping[str, int]
) -> Iterator[Finding]:
    """Features of another width than info.json, another file, or training expects."""
    for name in features:
        known, where = layouts.width_of(dataset.features[name]), str(dataset.root)
        there = [part.values[name].shape[1] for part in parts]
        for part, width in zip(parts, there, strict=True):
            if known is not None and width != known:
                text = f"'{name}' has {width} values, and info.json says {known}"
                remedy = "correct the shape in meta/info.json, or record the episode again"
                first = int(part.episode[0]) if len(part.episode) else None
                yield problem("width-in-info", "error", where, text, remedy, first, subject=(name,))
                break
        width = there[0] if there else known
        if width is not None and wanted.get(name, width) != width:
            text = f"'{name}' has {width} values where {wanted[name]} are expected"
            remedy = "name the right key, or the right robot"
            yield problem("wrong-width", "error", where, text, remedy, subject=(name,))


def _lengths(where: str, rows: Rows, entries: Sequence[Entry], lost_files: bool) -> Iterator[Finding]:
    """Episodes without frames, of another length than meta says, or that meta does not know."""
    indices, counts = np.unique(rows.episode, return_counts=True)
    held = dict(zip(indices.tolist(), counts.tolist(), strict=True))
    empty = [] if lost_files else [entry.index for entry in entries if entry.index not in held]
    if empty:
        text = f"{_count(len(empty), 'episode')} without a frame{_such(empty)}"
        yield problem("empty-episodes", "error", where, text, "remove them from the dataset", empty[0])
    other = [e for e in entries if e.length is not None and held.get(e.index, e.length) != e.length]
    if other:
        first = other[0]
        text = f"the table holds {held[first.index]} frames, and the meta files say {first.length}"
        more = f" (and {len(other) - 1} more episodes like it)" if len(other) > 1 else ""
        remedy = "repair the meta files, or leave the episode out with `episodes`"
        yield problem("other-length", "error", where, f"{text}{more}", remedy, first.index)
    unknown = sorted(set(held) - {entry.index for entry in entries})
    if unknown:
        text = f"{_count(len(unknown), 'episode')} in the tables and not in the meta files{_such(unknown)}"
        yield problem("unknown-episodes", "error", where, text, "repair the meta files", unknown[0])
    short = [entry.index for entry in entries if held.get(entry.index) == 1]
    if short:
        text = f"{_count(len(short), 'episode')} of a single frame{_such(short)}"
        remedy = "nothing moves in one: leave it out with `episodes`"
        yield problem("single-frames", "warning", where, text, remedy, short[0])


def _order(where: str, rows: Rows) -> Iterator[Finding]:
    """Rows of one episode that are apart, and frames that are not numbered 0, 1, 2, ..."""
    starts = (
        np.flatnonzero(np.r_[True, np.diff(rows.episode) != 0]) if len(rows.episode) else np.array([], int)
    )
    again = [int(e) for i, e in enumerate(rows.episode[starts]) if e in rows.episode[starts][:i]][:1]
    if again:
        words = "its rows are not one after another", "write the dataset anew"
        yield problem("split-episode", "error", where, *words, again[0])
        return
    wanted = np.arange(len(rows.frame)) - np.repeat(starts, np.diff(np.r_[starts, len(rows.frame)]))
    odd = np.flatnonzero(rows.frame != wanted)
    if len(odd):
        row = odd[0]
        text = f"frame_index is {rows.frame[row]} where {wanted[row]} is due ({_count(len(odd), 'row')})"
        remedy = (
            "frames were lost or doubled: look at the recording, or leave the episode out with `episodes`"
        )
        place = int(rows.episode[row]), int(wanted[row])
        yield problem("frame-order", "error", where, text, remedy, *place)


def _finite(dataset: Layout, rows: Rows) -> Iterator[Finding]:
    for name, value in rows.values.items():
        bad = np.argwhere(~np.isfinite(value))
        if len(bad):
            row, column = bad[0]
            names = dataset.names((name,))
            called = f" ('{names[column]}')" if names else ""
            hit = np.unique(rows.episode[bad[:, 0]])
            text = (
                f"'{name}' has {_count(len(bad), 'value')} not finite in "
                f"{_count(len(hit), 'episode')}, the first is value {column}{called}"
            )
            remedy = "training refuses it: repair the frames, or leave the episodes out with `episodes`"
            place = int(rows.episode[row]), int(rows.frame[row])
            yield problem("not-finite", "error", str(dataset.root), text, remedy, *place, (name,))


def _times(dataset: Layout, rows: Rows) -> Iterator[Finding]:
    """Time stamps that go back, lie apart, or tell of another rate than info.json."""
    if rows.timestamp is None or len(rows.timestamp) < 2:
        return
    where, inside = str(dataset.root), np.diff(rows.episode) == 0
    steps = np.diff(rows.timestamp)
    if not np.isfinite(rows.timestamp).all():
        row = int(np.flatnonzero(~np.isfinite(rows.timestamp))[0])
        place = int(rows.episode[row]), int(rows.frame[row])
        words = "its time stamp is not finite", "write the time stamps anew"
        yield problem("time-not-finite", "error", where, *words, *place)
        return
    back = np.flatnonzero(inside & (steps <= 0))
    if len(back):
        row = int(back[0]) + 1
        text = f"the time stamps do not grow ({rows.timestamp[row - 1]:g} s, then {rows.timestamp[row]:g} s)"
        more = f", in {len(back)} places" if len(back) > 1 else ""
        place = int(rows.episode[row]), int(rows.frame[row])
        remedy = "write the time stamps anew"
        yield problem("time-backwards", "error", where, f"{text}{more}", remedy, *place)
    if not inside.any():
        return
    typical = float(np.median(steps[inside]))
    if typical > 0 and abs(typical * dataset.fps - 1) > 0.02:
        text = f"info.json says {dataset.fps:g} Hz, and the time stamps are {1 / typical:.4g} Hz apart"
        yield problem("other-rate", "error", where, text, "correct fps in meta/info.json, or the time stamps")
        return
    gaps = np.flatnonzero(inside & (steps > 0) & (np.abs(steps * dataset.fps - 1) > GAP))
    if len(gaps):
        row = int(gaps[0]) + 1
        text = f"{_count(len(gaps), 'gap')} between time stamps, the first of {steps[row - 1]:.4g} s"
        remedy = (
            f"a frame is due every {1 / dataset.fps:.4g} s: frames were lost, and a policy learns the jumps"
        )
        place = int(rows.episode[row]), int(rows.frame[row])
        yield problem("time-gaps", "warning", where, text, remedy, *place)


def _tasks(dataset: Layout, rows: Rows) -> Iterator[Finding]:
    where = str(dataset.root)
    if rows.task is None:
        words = "no column 'task_index'", "every frame needs the number of its task"
        yield problem("no-task-column", "error", where, *words)
        return
    unknown = np.flatnonzero(~np.isin(rows.task, list(dataset.tasks)))
    if len(unknown):
        row = int(unknown[0])
        known = _count(len(dataset.tasks), "task")
        text = f"its task is {rows.task[row]}, which the {known} of meta do not have"
        place = int(rows.episode[row]), int(rows.frame[row])
        yield problem("unknown-task", "error", where, text, "add it to the tasks in meta", *place)
    for index in np.unique(rows.task):
        if not dataset.tasks.get(int(index), "-").strip():
            row = int(np.flatnonzero(rows.task == index)[0])
            remedy = "a policy is prompted with it: write what is to be done"
            text, first = f"task {index} is empty", int(rows.episode[row])
            yield problem("empty-task", "warning", where, text, remedy, first, subject=(str(index),))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _such(indices: Sequence[int]) -> str:
    shown = ", ".join(map(str, indices[:5]))
    return f" ({shown}{', ...' if len(indices) > 5 else ''})"
