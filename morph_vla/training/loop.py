"""The trainer, top to bottom: data, parameters, steps, log, checkpoints. There is one; recipes vary it.

Everything is written to one folder. An interrupted run resumes from its newest checkpoint and does what an
uninterrupted one would have done: samples and noise are functions of (seed, step).
"""

import dataclasses
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from morph_vla import policies, weights
from morph_vla.files.plain import to_plain
from morph_vla.pi05 import model as pi05
from morph_vla.pi05 import tokenizer
from morph_vla.recipes.keys import Recipe, Training
from morph_vla.training import (
    begin_with,
    checkpoint,
    datasets,
    meaning,
    memory,
    parameters,
    restoring,
    resumed,
    saving,
    sharding,
)
from morph_vla.training import step as steps
from morph_vla.training.folder import alone, check_places, claim, moved
from morph_vla.training.kinds import partition, parts_of
from morph_vla.training.progress import Curve, Meter, Report, measurer
from morph_vla.training.source import Source
from morph_vla.training.trackers import Tracker, numbers

LOG = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run: its folder, its last checkpoint, and how many parameters of each part were trained."""

    folder: Path
    checkpoint: Path
    parameters: int
    parts: dict[str, dict[str, int]]  # part -> {"trainable": n, "frozen": n}
    curve: list[dict[str, Any]]
    seconds: float
    stopped: bool  # by SIGTERM, before its last step; the same command resumes it


def train(
    recipe: Recipe,
    folder: str | Path,
    trackers: Sequence[Tracker] = (),
    *,
    on_report: Callable[[Report], None] | None = None,
    evaluate: Callable[[Path], Mapping[str, float]] | None = None,
    frames: Path | None = None,
) -> Run:
    """Train `recipe` into `folder`; resume from its newest checkpoint when there is one.

    `trackers` and `on_report` are given every line of the log. `evaluate` is given the checkpoints of the
    recipe's `evaluation.every` steps, and what it returns goes to the trackers (`serving.trials.train` tries
    the recipe's suites so). Decoded pictures lie in `frames`, which runs may share (default: in the folder).
    Of several processes (`jax.distributed`) every one calls this, and the first alone calls these back.
    Raises MorphVlaError when the folder holds a run of another recipe or of other data, while another process
    trains in it, and for a recipe whose state is larger than a device's memory.
    """
    with alone(Path(folder)) if sharding.is_first() else nullcontext():
        return _train(recipe, Path(folder), frames or Path(folder) / "cache", trackers, on_report, evaluate)


def _train(
    recipe: Recipe,
    folder: Path,
    frames: Path,
    trackers: Sequence[Tracker],
    on_report: Callable[[Report], None] | None,
    evaluate: Callable[[Path], Mapping[str, float]] | None,
) -> Run:
    began, first = time.monotonic(), sharding.is_first()
    training, checkpoints = recipe.training, folder / "checkpoints"
    mesh = sharding.make_mesh(training.mesh.data, training.mesh.fsdp)
    sharding.check_batch(training.batch, mesh.size)
    memory.check(recipe, *mesh.devices.shape)
    sharding.first_then_others("claim", lambda: claim(folder, recipe, first))
    saved = checkpoint.steps(checkpoints)
    if recipe.weights and not saved:  # before hours of decoding; first what costs nothing
        datasets.check_there(recipe, fetch=False)
        begin_with.new_leaves(recipe, weights.open_checkpoint(recipe.weights))
    if saved:
        check_places(folder, recipe)
    read = partial(Source, recipe, frames, jax.process_index(), jax.process_count())
    source = sharding.first_then_others("data", read)
    about = describe(recipe, source)
    if saved:
        resumed.check_same_data(checkpoints / str(saved[-1]), about)
        sharding.first_then_others("places", lambda: moved(folder, recipe) if first else None)
    # A resumed run reads everything from its own checkpoint: shapes are all it needs here.
    params = policies.shapes(recipe.model) if saved else parameters.begun(recipe, source)
    parts, size = parts_of(params, training), pi05.count(params)
    for part, row in parts.items():
        LOG.info("%s: %s parameters trainable, %s frozen", part, *(f"{n:,}" for n in row.values()))
    LOG.info("%s", memory.words(recipe, *mesh.devices.shape))
    if sharding.is_first():
        LOG.info("%s", memory.disk_words(recipe, folder))
    optimizer, schedule = steps.make_optimizer(recipe.optimizer, training.steps)
    shapes = _shapes(params, optimizer, training, mesh)
    if saved:
        newest = checkpoints / str(saved[-1])
        tokenizer.check_same(checkpoint.about(newest).get("tokenizer"), source.tokenizer, str(newest))
        state = restoring.restore(newest, shapes)
    else:
        state = _first_state(params, optimizer, training, shapes)
    del params  # the state's now
    held, grid = sharding.bytes_per_device(state) / 2**20, " x ".join(map(str, mesh.devices.shape))
    LOG.info(
        "parameters, average, optimizer: %.2f MiB on each of %d devices (%s data x fsdp)",
        held, mesh.size, grid,
    )  # fmt: skip
    curve = Curve(folder / "log.jsonl", int(state.step), first)
    # Until the last checkpoint is whole: a second signal would cut it off.
    with (
        _termination() as terminated,
        saving.Saver(checkpoints, training.keep, training.keep_every) as saver,
    ):
        if not saved and not recipe.weights:  # from weights, it would be those again
            saver.save(state, about)
        # Every process waits while a checkpoint is tried, so all of them must know that it is.
        callbacks = (on_report, evaluate, trackers) if first else (None, evaluate, ())
        run = _Loop(source, mesh, optimizer, schedule, curve, saver, about, terminated, *callbacks)
        stopped = run.run(state)
        last = saver.newest() or checkpoints
    if jax.process_count() == 1 and not stopped and terminated(training.steps):
        signal.raise_signal(signal.SIGTERM)  # it came after the last step, and whoever set us off waits
    return Run(folder, last, size, parts, curve.lines, time.monotonic() - began, stopped)


def _shapes(params: Any, optimizer: Any, training: Training, mesh: Mesh) -> steps.State:
    """The state's shapes and types, each with where it lies on the mesh; for parameters or their shapes."""
    shapes = jax.eval_shape(lambda params: steps.start(params, optimizer, training), params)
    places = sharding.of_tree(mesh, shapes, int(training.mesh.whole_below_mib * 2**20))
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes, places
    )


def _first_state(params: Any, optimizer: Any, training: Training, shapes: steps.State) -> steps.State:
    """The state before the first step, over the devices of the mesh; no parameter is copied."""
    lies = jax.tree.map(lambda leaf: leaf.sharding, shapes)._replace(params=None)
    placed = sharding.place(params, jax.tree.map(lambda leaf: leaf.sharding, shapes.params))
    learnt, _ = partition(placed, training)
    begun = jax.jit(
        lambda leaves: steps.start(leaves, optimizer, training)._replace(params=None), out_shardings=lies
    )
    return begun(learnt)._replace(params=placed)


@dataclasses.dataclass(frozen=True)
class _Loop:
    """The steps of a run: what they need, and the callbacks."""

    source: Source
    mesh: Mesh
    optimizer: Any
    schedule: Callable[[Any], Any]
    curve: Curve
    saver: saving.Saver
    about: dict[str, Any]
    terminated: Callable[[int], bool]
    on_report: Callable[[Report], None] | None
    evaluate: Callable[[Path], Mapping[str, float]] | None
    trackers: Sequence[Tracker]

    def run(self, state: steps.State) -> bool:
        """Take the remaining steps; whether SIGTERM ended them early, after a checkpoint."""
        recipe, training, first = self.source.recipe, self.source.recipe.training, int(state.step)
        if first < training.steps:
            LOG.info("compiling the training step")
        layout = (jax.tree.map(lambda leaf: leaf.sharding, state), sharding.whole(self.mesh))
        advance = steps.make_step(recipe.model, training, self.optimizer, layout)
        held_out = measurer(self.source, self.mesh)
        key = sharding.place_key(training.seed, self.mesh)
        meter = Meter(self.source, first, self.saver.newest)
        batches = sharding.ahead(self.source.batches(first, training.steps), self.mesh)
        self._try_out(first)
        for number in range(first, training.steps):
            with meter.waiting():
                batch = next(batches)
            state, metrics = advance(state, batch.observation, batch.actions, batch.mask, key)
            meter.add(number, metrics)
            done = number + 1
            ending = self.terminated(done)
            last = done == training.steps or ending
            measured = done % training.held_out_every == 0 or done == training.steps
            if done % training.log_every == 0 or measured or last:
                self._report(meter.read(), held_out(state) if measured else None, number)
            if done % training.checkpoint_every == 0 or self._is_tried(done) or last:
                meter.check()
                self.saver.save(state, self.about)
            if not ending:
                self._try_out(done)
            if last:
                return ending and done < training.steps
        return False

    def _report(
        self, losses: dict[str, Any], held_out: dict[str, dict[str, float]] | None, number: int
    ) -> None:
        """One line of the log, after the step of that number."""
        mean = None if not held_out else float(np.mean([row["loss"] for row in held_out.values()]))
        report = Report(
            step=number + 1, steps=self.source.recipe.training.steps, held_out_loss=mean,
            lr=float(self.schedule(number)), held_out=held_out, **losses,
        )  # fmt: skip
        self.curve.add(report)
        for tracker in self.trackers:
            tracker.add(report.step, numbers(report))
        if self.on_report:
            self.on_report(report)

    def _is_tried(self, step: int) -> bool:
        """Whether the checkpoint of a step is tried in the recipe's suites."""
        asked, last = self.source.recipe.evaluation, self.source.recipe.training.steps
        return bool(asked.suites) and step > 0 and (step % asked.every == 0 or step == last)

    def _try_out(self, step: int) -> None:
        """Try the policy of a step where that is due; called again when a run resumes from there."""
        if not (self.evaluate and self._is_tried(step)):
            return
        tried = self.saver.newest()
        if sharding.is_first() and tried is not None:
            rates = dict(self.evaluate(tried))
            for tracker in self.trackers:
                tracker.add(step, rates)
        sharding.together(f"tried {step} of {self.source.recipe.training.steps}")


@contextmanager
def _termination() -> Iterator[Callable[[int], bool]]:
    """Whether the run is to end after a step, because of SIGTERM: the step under way is finished and saved.

    Several processes agree on the step through JAX's preemption service, which then owns the signal.
    """
    if jax.process_count() > 1:
        yield sharding.reached_preemption
        return
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield lambda _: event.is_set()
        return
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    try:
        yield lambda _: event.is_set()
    finally:
        signal.signal(signal.SIGTERM, before)


def describe(recipe: Recipe, source: Source) -> dict[str, Any]:
    """What makes parameters a policy: recipe, tokenizer, and of each robot statistics and control rate."""
    known = meaning.of_parts(source.parts, source.stats, source.poses, source.recipe.data.space)
    described = [(robot.name, path) for robot in source.robots.values() for path in robot.files]
    return {
        "schema": 3,
        "recipe": to_plain(recipe),
        "files": {f"{name}{path.suffix.lower()}": path.read_bytes() for name, path in described},
        "robots": known,
        "data": resumed.data_digests(source.parts, known),
        "tokenizer": tokenizer.describe(source.tokenizer),
        **({} if recipe.model.family == "pi05" else {"family": recipe.model.family}),
    }
