"""The trainer, top to bottom: data, parameters, steps, log, checkpoints. There is one; recipes vary it.

Everything lands in one folder. A run that was interrupted goes on from its newest checkpoint and repeats what
an uninterrupted one would have done: samples and noise are functions of (seed, step).
"""

import dataclasses
import hashlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from morph_vla.files.plain import to_plain
from morph_vla.pi05 import counts, tokenizer
from morph_vla.pi05 import model as pi05
from morph_vla.recipes.recipe import Recipe, Training
from morph_vla.robots import Robot
from morph_vla.training import checkpoint, memory, parameters, sharding
from morph_vla.training import step as steps
from morph_vla.training.folder import claim
from morph_vla.training.held_out import measurer
from morph_vla.training.kinds import parts_of
from morph_vla.training.progress import Curve, Meter, Report
from morph_vla.training.source import Source
from morph_vla.training.trackers import Tracker, numbers

LOG = logging.getLogger(__name__)
MAX_TEXTS = 500  # a checkpoint keeps no more: of a dataset with a text per episode they say little


@dataclasses.dataclass(frozen=True)
class Run:
    """What a training run left: the folder, its last checkpoint, and what was learnt by which part."""

    folder: Path
    checkpoint: Path
    parameters: int
    parts: dict[str, dict[str, int]]  # part -> {"trainable": n, "frozen": n}
    curve: list[dict[str, Any]]
    seconds: float
    stopped: bool  # by SIGTERM, before its last step; the same command goes on


def train(
    recipe: Recipe,
    folder: str | Path,
    trackers: Sequence[Tracker] = (),
    *,
    on_report: Callable[[Report], None] | None = None,
    on_stage: Callable[[str], None] = LOG.info,
    on_start: Callable[[dict[str, dict[str, int]]], None] | None = None,
    evaluate: Callable[[Path], Mapping[str, float]] | None = None,
) -> Run:
    """Train `recipe` into `folder`; go on from its newest checkpoint when there is one.

    `trackers` and `on_report` are told every line of the log, `on_stage` what is being done before the first
    step; `on_start` is given the table of trainable and frozen parameters. `evaluate` is given the
    checkpoints of the recipe's `evaluation.every` steps, and what it returns goes to the trackers
    (`serving.trials.train` tries the recipe's suites so). Of several processes (`jax.distributed`) every one
    calls this, and the first alone calls these back. Raises MorphVlaError when the folder holds a run of
    another recipe.
    """
    folder = Path(folder)
    began, first = time.monotonic(), sharding.is_first()
    say = on_stage if first else lambda _: None
    training, checkpoints = recipe.training, folder / "checkpoints"
    mesh = sharding.make_mesh(training.mesh.data, training.mesh.fsdp)
    sharding.check_batch(training.batch, mesh.size)
    sharding.first_then_others("claim", lambda: claim(folder, recipe))
    saved = checkpoint.steps(checkpoints)
    make = partial(Source, recipe, folder / "cache", say, jax.process_index(), jax.process_count())
    source = sharding.first_then_others("data", make)
    # A run that goes on reads everything from its own checkpoint: shapes are all it needs here.
    params = counts.shapes(recipe.model) if saved else parameters.first_params(recipe, say)
    parts, size = parts_of(params, training), pi05.count(params)
    if on_start and first:
        on_start(parts)
    say(memory.words(recipe, *mesh.devices.shape))
    optimizer, schedule = steps.make_optimizer(recipe.optimizer, training.steps)
    shapes = _shapes(params, optimizer, training, mesh)
    if saved:
        newest = checkpoints / str(saved[-1])
        tokenizer.check_same(checkpoint.about(newest).get("tokenizer"), source.tokenizer, str(newest))
        state = checkpoint.restore(newest, shapes)
    else:
        state = _begun(params, optimizer, training, shapes)
    del params  # the state's now
    held = sharding.bytes_per_device(state) / 2**20
    along = " x ".join(str(mesh.shape[axis]) for axis in sharding.AXES)
    say(
        f"parameters, average, optimizer: {held:.2f} MiB on each of {mesh.size} devices ({along} data x fsdp)"
    )
    curve = Curve(folder / "log.jsonl", int(state.step), first)
    with checkpoint.Saver(checkpoints, training.keep, training.keep_every) as saver:
        work = _Work(source, mesh, optimizer, schedule, curve, saver, describe(recipe, source))
        if not saved:
            saver.save(state, work.about)
        if int(state.step) < training.steps:
            say("compiling the training step")
        calls = _Calls(on_report, evaluate, trackers) if first else _Calls(None, evaluate, ())
        stopped = _loop(work, state, calls)
        last = saver.newest() or checkpoints
    return Run(folder, last, size, parts, curve.lines, time.monotonic() - began, stopped)


class _Work(NamedTuple):
    """What the loop works with."""

    source: Source
    mesh: Mesh
    optimizer: Any
    schedule: Callable[[Any], Any]
    curve: Curve
    saver: checkpoint.Saver
    about: dict[str, Any]


class _Calls(NamedTuple):
    """Whom the loop tells."""

    report: Callable[[Report], None] | None
    evaluate: Callable[[Path], Mapping[str, float]] | None
    trackers: Sequence[Tracker]


def _shapes(params: Any, optimizer: Any, training: Training, mesh: Mesh) -> steps.State:
    """The state's shapes and types, each with where it lies on the mesh; for parameters or their shapes."""
    shapes = jax.eval_shape(lambda params: steps.start(params, optimizer, training), params)
    places = sharding.of_tree(mesh, shapes, int(training.mesh.whole_below_mib * 2**20))
    return jax.tree.map(
        lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), shapes, places
    )


def _begun(params: Any, optimizer: Any, training: Training, shapes: steps.State) -> steps.State:
    """The state before the first step, over the devices of the mesh."""
    lies = jax.tree.map(lambda leaf: leaf.sharding, shapes)
    placed = sharding.place(params, lies.params)
    return jax.jit(lambda params: steps.start(params, optimizer, training), out_shardings=lies)(placed)


def _loop(work: _Work, state: steps.State, calls: _Calls) -> bool:
    """The steps that are left; whether SIGTERM ended them early, after a checkpoint."""
    source, mesh = work.source, work.mesh
    training = source.recipe.training
    lies = (jax.tree.map(lambda leaf: leaf.sharding, state), sharding.whole(mesh))
    advance = steps.make_step(source.recipe.model, training, work.optimizer, lies)
    held_out = measurer(source, mesh)
    key = sharding.place_key(training.seed, mesh)
    first = int(state.step)
    meter = Meter(source, first, work.saver.newest)
    batches = sharding.ahead(source.batches(first, training.steps), mesh)
    _try_out(work, calls, first, training.steps)
    with _termination() as terminated:
        for number in range(first, training.steps):
            with meter.waiting():
                batch = next(batches)
            state, metrics = advance(state, batch.observation, batch.actions, batch.mask, key)
            meter.add(number, metrics)
            done = number + 1
            ending = terminated(done)
            last = done == training.steps or ending
            if done % training.log_every == 0 or last:
                _report(work, calls, meter, held_out, state, number)
            trying = _is_tried(source.recipe, done)
            if done % training.checkpoint_every == 0 or trying or last:
                meter.check()
                work.saver.save(state, work.about)
            if trying and not ending:
                _try_out(work, calls, done, training.steps)
            if last:
                return ending and done < training.steps
    return False


def _report(
    work: _Work,
    calls: _Calls,
    meter: Meter,
    held_out: Callable[[steps.State], dict[str, dict[str, float]]],
    state: steps.State,
    number: int,
) -> None:
    """One line of the log, after the step of that number."""
    training, done, read = work.source.recipe.training, number + 1, meter.read()
    measure = done % training.held_out_every == 0 or done == training.steps
    held = held_out(state) if measure else None
    mean = None if not held else float(np.mean([row["loss"] for row in held.values()]))
    lr = float(work.schedule(number))
    report = Report(step=done, steps=training.steps, held_out_loss=mean, lr=lr, held_out=held, **read)
    work.curve.add(report)
    for tracker in calls.trackers:
        tracker.add(done, numbers(report))
    if calls.report:
        calls.report(report)


def _is_tried(recipe: Recipe, step: int) -> bool:
    """Whether the checkpoint of a step is tried in the recipe's suites."""
    asked = recipe.evaluation
    return bool(asked.suites) and step > 0 and (step % asked.every == 0 or step == recipe.training.steps)


def _try_out(work: _Work, calls: _Calls, step: int, steps: int) -> None:
    """Let the policy of a step be tried when that is due; called again for a run that goes on from there."""
    if calls.evaluate and _is_tried(work.source.recipe, step):
        tried = work.saver.newest()
        if sharding.is_first() and tried is not None:
            rates = dict(calls.evaluate(tried))
            for tracker in calls.trackers:
                tracker.add(step, rates)
        sharding.together(f"tried {step} of {steps}")


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
    known = {}
    for name, robot in source.robots.items():
        part = next(part for part in source.parts if part.asked.robot == name)
        texts = {text for one in source.parts if one.asked.robot == name for text in one.recordings.tasks}
        known[name] = {
            **_body(robot),
            "tasks": sorted(texts)[:MAX_TEXTS] if len(texts) <= MAX_TEXTS else [],
            "sizes": {own: list(size) for own, size in part.recordings.sizes.items()},
            "joints": list(robot.names),
            "control_rate": part.recordings.fps,
            "actions": part.asked.actions,
            "relative": part.relative.tolist(),
            "cameras": dict(part.asked.cameras),
            "state_stats": dataclasses.asdict(source.stats[name].state),
            "action_stats": dataclasses.asdict(source.stats[name].action),
            "statistics": source.stats[name].source,
        }
    return {
        "schema": 3,
        "recipe": to_plain(recipe),
        "robots": known,
        "tokenizer": tokenizer.describe(source.tokenizer),
    }


def _body(robot: Robot) -> dict[str, Any]:
    """What actions mean on this robot: a suite's robot of the same name must still have all of it."""
    return {
        "urdf_sha256": hashlib.sha256(robot.urdf_path.read_bytes()).hexdigest(),
        "limits": [[joint.lower, joint.upper] for joint in robot.joints],
        "units": [joint.unit for joint in robot.joints],
        "affine": [[joint.scale, joint.zero] for joint in robot.joints],
    }
