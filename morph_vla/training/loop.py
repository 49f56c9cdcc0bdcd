"""The trainer, top to bottom: data, parameters, steps, log, checkpoints. There is one; recipes vary it.

Everything lands in one folder. A run that was interrupted goes on from its newest checkpoint and repeats what
an uninterrupted one would have done: samples and noise are functions of (seed, step).
"""

import dataclasses
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import model as pi05
from morph_vla.pi05 import tokenizer
from morph_vla.robots.dropin import to_plain, write_text
from morph_vla.training import checkpoint, parameters
from morph_vla.training import step as steps
from morph_vla.training.config import Recipe
from morph_vla.training.held_out import measurer
from morph_vla.training.progress import Curve, Meter, Report
from morph_vla.training.source import Source


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
    folder: Path,
    *,
    on_report: Callable[[Report], None] | None = None,
    on_stage: Callable[[str], None] | None = None,
    on_start: Callable[[dict[str, dict[str, int]]], None] | None = None,
) -> Run:
    """Train `recipe` into `folder`; go on from its newest checkpoint when there is one.

    `on_start` is given the table of trainable and frozen parameters before the first step. Raises
    MorphVlaError when the folder holds a run of another recipe.
    """
    _claim(folder, recipe)
    began = time.monotonic()
    source = Source(recipe, folder / "cache", on_stage)
    _config, training = recipe.model, recipe.training
    checkpoints = folder / "checkpoints"
    saved = checkpoint.steps(checkpoints)
    # A run that goes on reads all of its parameters from its own checkpoint.
    params = (
        parameters.fresh_params(recipe)
        if saved
        else parameters.first_params(recipe, on_stage or (lambda _: None))
    )
    parts = parameters.parts_of(params, training.kind)
    if on_start:
        on_start(parts)
    optimizer, schedule = steps.make_optimizer(recipe.optimizer, training.steps)
    state = steps.start(params, optimizer, training.kind)
    about = describe(recipe, source)
    if saved:
        trained = checkpoint.about(checkpoints / str(saved[-1])).get("tokenizer")
        tokenizer.check_same(trained, source.tokenizer, str(checkpoints / str(saved[-1])))
        state = checkpoint.restore(checkpoints / str(saved[-1]), state)
    else:
        checkpoint.save(checkpoints, state, about)
    curve = Curve(folder / "log.jsonl", int(state.step))
    if on_stage and int(state.step) < training.steps:
        on_stage("compiling the training step")
    stopped = _loop(source, state, optimizer, schedule, curve, checkpoints, about, on_report)
    last = checkpoints / str(checkpoint.steps(checkpoints)[-1])
    return Run(folder, last, pi05.count(params), parts, curve.lines, time.monotonic() - began, stopped)


def _loop(
    source: Source,
    state: steps.State,
    optimizer: Any,
    schedule: Callable[[Any], Any],
    curve: Curve,
    checkpoints: Path,
    about: dict[str, Any],
    on_report: Callable[[Report], None] | None,
) -> bool:
    """The steps that are left; whether SIGTERM ended them early, after a checkpoint."""
    config, training = source.recipe.model, source.recipe.training
    advance = steps.make_step(config, training, optimizer)
    held_out = measurer(source)
    key = jax.random.key(training.seed)
    first = int(state.step)
    meter = Meter(source, checkpoints, first)
    batches = source.batches(first, training.steps)
    with _terminated() as terminated:
        for number in range(first, training.steps):
            with meter.waiting():
                batch = next(batches)
            state, metrics = advance(state, batch.observation, batch.actions, batch.mask, key)
            meter.add(number, batch, metrics)
            done = number + 1
            last = done == training.steps or terminated.is_set()
            if done % training.log_every == 0 or last:
                loss, robots, rate, waiting = meter.read()
                measure = done % training.held_out_every == 0 or done == training.steps
                held = held_out(state) if measure else None
                mean = None if not held else float(np.mean([row["loss"] for row in held.values()]))
                lr = float(schedule(number))
                report = Report(done, training.steps, loss, mean, lr, rate, robots, held, waiting)
                curve.add(report)
                if on_report:
                    on_report(report)
            if done % training.checkpoint_every == 0 or last:
                meter.check()
                checkpoint.save(checkpoints, state, about)
            if last:
                break
    return terminated.is_set() and int(state.step) < training.steps


@contextmanager
def _terminated() -> Iterator[threading.Event]:
    """An event that SIGTERM sets, so that the step under way is finished and saved."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before = signal.signal(signal.SIGTERM, lambda *_: event.set())
    try:
        yield event
    finally:
        signal.signal(signal.SIGTERM, before)


def describe(recipe: Recipe, source: Source) -> dict[str, Any]:
    """What makes parameters a policy: recipe, tokenizer, and of each robot statistics and control rate."""
    known = {}
    for name, robot in source.robots.items():
        part = next(part for part in source.parts if part.asked.robot == name)
        known[name] = {
            "joints": list(robot.names),
            "control_rate": part.recordings.fps,
            "actions": part.asked.actions,
            "relative": part.relative.tolist(),
            "cameras": dict(part.asked.cameras),
            "state_stats": dataclasses.asdict(source.stats[name].state),
            "action_stats": dataclasses.asdict(source.stats[name].action),
        }
    return {
        "schema": 2,
        "recipe": to_plain(recipe),
        "robots": known,
        "tokenizer": tokenizer.describe(source.tokenizer),
    }


def _claim(folder: Path, recipe: Recipe) -> None:
    """Make `folder` this recipe's, or refuse."""
    path, text = folder / "recipe.json", json.dumps(to_plain(recipe), indent=2, sort_keys=True)
    if path.exists() and path.read_text() != text:
        changed = _changed(json.loads(path.read_text()), json.loads(text))
        raise MorphVlaError(
            f"{folder} holds a run of another recipe (differs in {', '.join(changed)}); "
            "give another folder or remove it"
        )
    if not path.exists():
        write_text(path, text)


def _changed(old: Any, new: Any, at: str = "") -> Sequence[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(set(old) | set(new))
        return [
            n for name in names for n in _changed(old.get(name), new.get(name), f"{at}.{name}".strip("."))
        ]
    return [] if old == new else [at]
