"""How a run stands: losses and pace since the last line, the loss on held-out rows, the log of lines."""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from morph_vla.data import space
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text
from morph_vla.training import sharding
from morph_vla.training import step as steps
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
            entries = part.recordings.entries
            read = np.unique(part.recordings.episode_of()[row[dataset == index]])
            episodes = [entries[place].index if entries else place for place in read]
            named.append(f"episodes {', '.join(map(str, episodes))} of {part.asked.dataset}")
        return " and ".join(named)


def measurer(source: Source, mesh: Mesh) -> Callable[[steps.State], dict[str, dict[str, float]]]:
    """By robot, the loss of the averaged parameters on rows never trained on: over all joints, and of each.

    The rows pass in batches of the training's size, the last one filled up by repetition. The noise is the
    same at every step of the run, so that what changes is the policy.
    """
    recipe, batches = source.recipe, source.held_out()

    def errors(params: dict[str, Any], observation: Any, actions: Any, mask: Any, number: Any) -> Any:
        noise_key = jax.random.fold_in(jax.random.key(recipe.training.seed + 1), number)
        error = steps.draw_errors(
            recipe.model, recipe.training, params, observation, actions, noise_key, augment=False
        )
        return error, steps.row_losses(error, mask, recipe.training)

    compiled = jax.jit(errors, out_shardings=sharding.whole(mesh))

    def measure(state: steps.State) -> dict[str, dict[str, float]]:
        losses, params = {}, steps.averaged(state)
        for name, batch in batches.items():
            error, rows = [], []
            for number, part in enumerate(_parts(batch, recipe.training.batch)):
                placed = sharding.place(part, sharding.over_rows(mesh))
                pair = compiled(params, placed.observation, placed.actions, placed.mask, np.uint32(number))
                error.append(np.asarray(pair[0]))
                rows.append(np.asarray(pair[1]))
            count, names = len(batch.dataset), space.names(source.robots[name], recipe.data.space)
            each = np.concatenate(error)[:count, : len(names)].mean(axis=0).tolist()
            loss = float(np.concatenate(rows)[:count].mean())
            losses[name] = {"loss": loss, **dict(zip(names, each, strict=True))}
        return losses

    return measure


def _parts(batch: Batch, size: int) -> Iterator[Batch]:
    """`size` rows at a time; the last part repeats its last row."""
    count = len(batch.dataset)
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        yield jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf)[rows], batch)


class Curve:
    """The log: one JSON object a line, cut back to the step a resumed run starts from.

    Of several processes only one writes it.
    """

    def __init__(self, path: Path, step: int, writes: bool = True):
        self._path, self._writes = path, writes
        self.lines: list[dict[str, Any]] = []
        for line in path.read_text("utf-8", errors="replace").splitlines() if path.exists() else ():
            with suppress(json.JSONDecodeError, TypeError, KeyError):  # a last line cut short, or damaged
                entry = json.loads(line)
                self.lines += [entry] if entry["step"] <= step else []
        if writes:
            write_text(path, "".join(json.dumps(line) + "\n" for line in self.lines))

    def add(self, report: Report) -> None:
        """Append a line."""
        entry = {k: v for k, v in dataclasses.asdict(report).items() if k != "steps"}
        self.lines.append(entry)
        if self._writes:
            with self._path.open("a") as out:
                out.write(json.dumps(entry) + "\n")
