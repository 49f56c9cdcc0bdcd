"""How a run stands: losses and pace since the last line, and the log of lines."""

import dataclasses
import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.robots.dropin import write_text
from morph_vla.training import checkpoint
from morph_vla.training.source import Batch, Source


@dataclasses.dataclass(frozen=True)
class Report:
    """One line of progress."""

    step: int
    steps: int
    loss: float
    held_out_loss: float | None
    lr: float
    steps_per_s: float
    robots: dict[str, float]  # the loss of each robot's rows since the last line
    held_out: dict[str, dict[str, float]] | None  # of each robot: the loss, and that of each joint
    waiting: float  # share of the time since the first step spent waiting for data


class Meter:
    """Losses since the last line, by robot; the pace since the first step; whether a loss is a number."""

    def __init__(self, source: Source, checkpoints: Path, step: int):
        self._source, self._checkpoints, self._first = source, checkpoints, step
        self._pending: list[tuple[int, Batch, dict[str, Any]]] = []
        self._steps, self._began, self._waited = 0, 0.0, 0.0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._waited += time.monotonic() - began

    def add(self, number: int, batch: Batch, metrics: dict[str, Any]) -> None:
        """Keep a step's losses on the device: reading them would wait for it."""
        self._pending.append((number, batch._replace(observation=None, actions=None), metrics))
        if number == self._first:  # the first step compiles: it says nothing about the pace
            jax.block_until_ready(metrics)
            self._began, self._waited = time.monotonic(), 0.0
        else:
            self._steps += 1

    def check(self) -> None:
        """Raise MorphVlaError when a loss since the last line is not finite: step, episodes, what is kept."""
        for number, _, metrics in self._pending:
            loss = float(metrics["loss"])
            if not math.isfinite(loss):
                raise MorphVlaError(
                    f"the loss is {loss} at step {number + 1}, on {self._episodes(number)}; the last good "
                    f"checkpoint is {self._last_good()}. Lower optimizer.peak_lr or look at the statistics "
                    "(`morph-vla stats`)"
                )

    def read(self) -> tuple[float, dict[str, float], float, float]:
        """The last loss, the mean of each robot's rows, steps per second, share of time spent waiting."""
        self.check()
        rows: dict[str, list[float]] = {}
        for _, batch, metrics in self._pending:
            for dataset, loss in zip(
                batch.dataset.tolist(), np.asarray(metrics["rows"]).tolist(), strict=True
            ):
                rows.setdefault(self._source.parts[dataset].asked.robot, []).append(loss)
        loss = float(self._pending[-1][2]["loss"])
        self._pending = []
        elapsed = max(time.monotonic() - self._began, 1e-9)
        robots = {name: float(np.mean(losses)) for name, losses in rows.items()}
        return loss, robots, round(self._steps / elapsed, 3), round(min(self._waited / elapsed, 1.0), 4)

    def _episodes(self, number: int) -> str:
        """Where the rows of a step are from, by dataset and episode."""
        dataset, row = self._source.mixture.at(number)
        named = []
        for index in np.unique(dataset):
            part = self._source.parts[index]
            episodes = np.unique(part.recordings.episode_of()[row[dataset == index]])
            named.append(f"episodes {', '.join(map(str, episodes))} of {part.asked.dataset}")
        return " and ".join(named)

    def _last_good(self) -> str:
        found = checkpoint.steps(self._checkpoints)
        return str(self._checkpoints / str(found[-1])) if found else "none"


class Curve:
    """The log: one JSON object a line, cut back to the step a resumed run starts from."""

    def __init__(self, path: Path, step: int):
        self._path, self.lines = path, []
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    entry = json.loads(line)
                except json.JSONDecodeError:
                    continue  # a last line cut short
                if entry["step"] <= step:
                    self.lines.append(entry)
        write_text(path, "".join(json.dumps(line) + "\n" for line in self.lines))

    def add(self, report: Report) -> None:
        entry = {k: v for k, v in dataclasses.asdict(report).items() if k != "steps"}
        self.lines.append(entry)
        with self._path.open("a") as out:
            out.write(json.dumps(entry) + "\n")
