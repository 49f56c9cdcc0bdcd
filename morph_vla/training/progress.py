"""How a run stands: losses and pace since the last line, and the log of lines."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text
from morph_vla.training.source import Source


@dataclasses.dataclass(frozen=True)
class Report:
    """One line of progress."""

    step: int
    steps: int
    loss: float
    held_out_loss: float | None
    lr: float
    steps_per_s: float
    samples_per_s: float
    robots: dict[str, float]  # the loss of each robot's rows since the last line
    held_out: dict[str, dict[str, float]] | None  # of each robot: the loss, and that of each joint
    gradient_norm: float  # of the last step, before the clip
    gradient_norms: dict[str, float]  # of each part (`pi05.parts`) that learns
    waiting: float  # share of the time since the first step in which nothing was computed for want of data


class Meter:
    """Losses since the last line, by robot; the pace since the first step; whether a loss is a number."""

    def __init__(self, source: Source, step: int, last_good: Callable[[], Path | None]):
        """From `step` on; `last_good` is asked for the newest checkpoint when a loss is no number."""
        self._source, self._first, self._last_good = source, step, last_good
        self._pending: list[tuple[int, dict[str, Any]]] = []
        self._steps, self._began, self._waited = 0, 0.0, 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around asking for data: its time counts when the device has nothing left to do at its end."""
        began = time.monotonic()
        yield
        if self._pending and self._pending[-1][1]["loss"].is_ready():
            self._waited += time.monotonic() - began

    def add(self, number: int, metrics: dict[str, Any]) -> None:
        """Keep a step's losses on the device: reading them would wait for it.

        Two steps at most are under way, so that what is waited for is waited for here.
        """
        self._pending.append((number, metrics))
        if number == self._first:  # the first step compiles: it says nothing about the pace
            jax.block_until_ready(metrics)
            self._began, self._waited = time.monotonic(), 0.0
            return
        self._steps += 1
        if len(self._pending) > 1:
            self._pending[-2][1]["loss"].block_until_ready()

    def check(self) -> None:
        """Raise MorphVlaError when a loss since the last line is not finite: step, episodes, what is kept."""
        for number, metrics in self._pending:
            loss, norm = float(metrics["loss"]), float(metrics["gradient_norm"])
            if not (math.isfinite(loss) and math.isfinite(norm)):
                raise MorphVlaError(
                    f"the loss is {loss}, its gradient's norm {norm}, at step {number + 1}, on "
                    f"{self._episodes(number)}; the last good checkpoint is {self._last_good() or 'none'}. "
                    "Lower optimizer.peak_lr or look at the statistics (`morph-vla stats`)"
                )

    def read(self) -> dict[str, Any]:
        """Of a `Report`: the last loss, the mean of each robot's rows, the pace, the share of waiting."""
        self.check()
        rows: dict[str, list[float]] = {}
        for number, metrics in self._pending:
            datasets, _ = self._source.mixture.at(number)
            for dataset, loss in zip(datasets.tolist(), np.asarray(metrics["rows"]).tolist(), strict=True):
                rows.setdefault(self._source.parts[dataset].asked.robot, []).append(loss)
        last = self._pending[-1][1]
        self._pending = []
        elapsed = max(time.monotonic() - self._began, 1e-9)
        return {
            "loss": float(last["loss"]),
            "gradient_norm": float(last["gradient_norm"]),
            "gradient_norms": {part: float(norm) for part, norm in last["gradient_norms"].items()},
            "robots": {name: float(np.mean(losses)) for name, losses in rows.items()},
            "steps_per_s": round(self._steps / elapsed, 3),
            "samples_per_s": round(self._steps * self._source.mixture.batch / elapsed, 2),
            "waiting": round(min(self._waited / elapsed, 1.0), 4),
        }

    def _episodes(self, number: int) -> str:
        """Where the rows of a step are from, by dataset and episode."""
        dataset, row = self._source.mixture.at(number)
        named = []
        for index in np.unique(dataset):
            part = self._source.parts[index]
            episodes = np.unique(part.recordings.episode_of()[row[dataset == index]])
            named.append(f"episodes {', '.join(map(str, episodes))} of {part.asked.dataset}")
        return " and ".join(named)


class Curve:
    """The log: one JSON object a line, cut back to the step a resumed run starts from.

    Of several processes only one writes it.
    """

    def __init__(self, path: Path, step: int, writes: bool = True):
        self._path, self._writes = path, writes
        self.lines: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # a last line cut short
                if entry["step"] <= step:
                    self.lines.append(entry)
        if writes:
            write_text(path, "".join(json.dumps(line) + "\n" for line in self.lines))

    def add(self, report: Report) -> None:
        entry = {k: v for k, v in dataclasses.asdict(report).items() if k != "steps"}
        self.lines.append(entry)
        if not self._writes:
            return
        with self._path.open("a") as out:
            out.write(json.dumps(entry) + "\n")
