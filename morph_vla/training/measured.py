"""Statistics of a dataset's recorded states and actions, beside those of its own meta/stats.json."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.data import layout, stats, versions
from morph_vla.data.stats import Stats
from morph_vla.errors import MorphVlaError
from morph_vla.training.statistics import MAX_FILE, different
from morph_vla.wording import count

KEYS = {"state": "observation.state", "action": "action"}


@dataclasses.dataclass(frozen=True)
class Lost:
    """Values that are not finite, and the first of them."""

    count: int
    value: int
    episode: int
    frame: int


@dataclasses.dataclass(frozen=True)
class Feature:
    """States or actions of a dataset."""

    key: str
    names: tuple[str, ...]  # of the values, where the dataset names them
    stats: Stats  # measured, over all its frames whose values are finite
    own: Stats | None  # by the dataset itself, where it has quantiles of its own
    lost: Lost | None = None

    @property
    def apart(self) -> list[int]:
        """The values of which the dataset's own range is another; none where it has other values."""
        same = self.own is not None and len(self.own.q01) == len(self.stats.q01)
        return different(self.own, self.stats) if self.own is not None and same else []

    def name(self, value: int) -> str:
        """What a value is called."""
        return self.names[value] if len(self.names) == len(self.stats.mean) else f"value {value}"


@dataclasses.dataclass(frozen=True)
class Measured:
    """A dataset's statistics, by `state` and `action`."""

    root: Path
    version: str
    episodes: int
    frames: int
    fps: float
    has_own: bool
    """whether there is a meta/stats.json"""
    features: dict[str, Feature]

    def plain(self) -> dict[str, Any]:
        """Each feature's statistics, for JSON."""
        return {word: dataclasses.asdict(feature.stats) for word, feature in self.features.items()}

    def __str__(self) -> str:
        """The table, how the dataset's own statistics differ, and what hardly moves."""
        return "\n".join(_lines(self))


def _lines(measured: Measured) -> Iterator[str]:
    size = f"{measured.episodes} episodes, {measured.frames} frames, {measured.fps:g} Hz"
    yield f"{measured.root}: LeRobot {measured.version}, {size}"
    features = measured.features.items()
    yield from stats.rows_of((word, feature.stats, feature.names) for word, feature in features)
    for word, feature in features:
        if lost := feature.lost:
            first = f"the first is '{feature.name(lost.value)}' in episode {lost.episode}, frame {lost.frame}"
            frames = "such frames are left out here, and training refuses the dataset"
            yield f"{word}: {count(lost.count, 'value')} not finite; {first}: {frames}"
    if not measured.has_own:
        yield "the dataset has no statistics of its own (meta/stats.json)"
    for word, feature in features if measured.has_own else ():
        theirs = f"the dataset's own statistics of '{feature.key}'"
        if feature.own is None:
            yield f"{theirs} have no q01 and q99"
            continue
        for d in feature.apart:
            ends = f"{feature.own.q01[d]:.4g} .. {feature.own.q99[d]:.4g}"
            yield f"{word} '{feature.name(d)}': the dataset's own statistics say {ends}"
        if not feature.apart:
            yield f"{theirs} agree (no end differs by more than a quarter of the range)"
    for word, feature in features:
        for d in stats.narrow(feature.stats):
            rule = f"training widens its range to {stats.MIN_SPAN:g}, or refuses it (data.degenerate)"
            yield f"{word} '{feature.name(d)}' hardly moves: {rule}"


def measure(source: str) -> Measured:
    """The statistics of a dataset in a folder, or on the Hub (`USER/NAME`); no pixel is decoded.

    Raises MorphVlaError as `versions.located` and `layout.read`.
    """
    dataset = layout.read(versions.located(source))
    rows = layout.all_rows(dataset, tuple(KEYS.values()))
    path = dataset.root / "meta" / "stats.json"
    features = {word: _feature(dataset, rows, key, _own(path, key)) for word, key in KEYS.items()}
    frames = len(rows.episode)
    return Measured(
        dataset.root, dataset.version, len(dataset.episodes), frames, dataset.fps, path.is_file(), features
    )


def _feature(dataset: layout.Layout, rows: layout.Rows, key: str, own: Stats | None) -> Feature:
    values, lost = rows.values[key], None
    finite = np.isfinite(values)
    if not finite.all():
        row, value = map(int, np.argwhere(~finite)[0])
        lost = Lost(int((~finite).sum()), value, int(rows.episode[row]), int(rows.frame[row]))
        values = values[finite.all(axis=1)]
        if not len(values):
            raise MorphVlaError(f"{dataset.root}: no frame of '{key}' is finite")
    return Feature(key, dataset.names((key,)), stats.measure(values), own, lost)


def _own(path: Path, key: str) -> Stats | None:
    try:
        if path.stat().st_size > MAX_FILE:
            return None
        return stats.from_plain(json.loads(path.read_text(encoding="utf-8"))[key])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
