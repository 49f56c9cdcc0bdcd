"""The trainer, top to bottom: data, parameters, steps, log, checkpoints. There is one; recipes vary it.

Everything lands in one folder. A run that was interrupted goes on from its newest checkpoint and repeats what
an uninterrupted one would have done: samples and noise are functions of (seed, step).
"""

import dataclasses
import json
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, init_params, tokenizer
from morph_vla.pi05 import model as pi05
from morph_vla.robots.dropin import to_plain, write_text
from morph_vla.training import checkpoint
from morph_vla.training import step as steps
from morph_vla.training.config import Recipe
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
    params = fresh_params(recipe) if saved else first_params(recipe, on_stage or (lambda _: None))
    parts = parts_of(params, training.kind)
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
    curve = _Curve(folder / "log.jsonl", int(state.step))
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
    curve: "_Curve",
    checkpoints: Path,
    about: dict[str, Any],
    on_report: Callable[[Report], None] | None,
) -> bool:
    """The steps that are left; whether SIGTERM ended them early, after a checkpoint."""
    config, training = source.recipe.model, source.recipe.training
    advance = steps.make_step(config, training, optimizer)
    held_out = _held_out(source)
    key = jax.random.key(training.seed)
    first = int(state.step)
    meter = _Meter(source, checkpoints, first)
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


class _Meter:
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


def _held_out(source: Source) -> Callable[[steps.State], dict[str, dict[str, float]]]:
    """By robot, the loss of the averaged parameters on held-out rows: over all joints, and of each.

    The noise is the same at every step of the run, so that what changes is the policy.
    """
    recipe, batches = source.recipe, source.held_out()

    @jax.jit
    def errors(params: dict[str, Any], observation: Any, actions: Any) -> Any:
        noise_key = jax.random.key(recipe.training.seed + 1)
        return steps.draw_errors(
            recipe.model, recipe.training, params, observation, actions, noise_key, augment=False
        )

    def measure(state: steps.State) -> dict[str, dict[str, float]]:
        found, params = {}, steps.averaged(state)
        for name, batch in batches.items():
            error = errors(params, batch.observation, jnp.asarray(batch.actions))
            rows = steps.row_losses(error, jnp.asarray(batch.mask), recipe.training)
            joints = np.asarray(error).mean(axis=0)[: len(source.robots[name].joints)]
            named = dict(zip(source.robots[name].names, joints.tolist(), strict=True))
            found[name] = {"loss": float(np.mean(np.asarray(rows))), **named}
        return found

    return measure


def first_params(recipe: Recipe, say: Callable[[str], None]) -> dict[str, Any]:
    """The parameters before the first step: those of `weights`, with the plugin's leaves new, or random ones.

    `say` is given the report of what was loaded, new and converted. What stays frozen is held in the model's
    type, as openpi holds it. Raises MorphVlaError when a leaf does not fit, or the tokenizer.
    """
    if not recipe.weights:
        return fresh_params(recipe)
    opened = weights.open_checkpoint(recipe.weights)
    if opened.format == "morph_vla":
        trained = checkpoint.about(opened.path).get("tokenizer")
        tokenizer.check_same(trained, tokenizer.load(recipe.tokenizer), recipe.weights)
    elif recipe.tokenizer == "bytes" and recipe.model.vocab == Pi05Config().vocab:
        raise MorphVlaError(
            f"{recipe.weights} was trained with PaliGemma's tokenizer, the recipe has tokenizer: bytes; "
            "its numbers would mean other words. Set tokenizer: paligemma"
        )
    frozen = recipe.model.dtype if recipe.training.kind == "expert" else "float32"
    params, report = weights.load(
        recipe.weights,
        recipe.model,
        dtype={"images": frozen, "vlm": frozen},
        seed=recipe.training.seed,
        place=lambda _, leaf: jnp.asarray(leaf),
    )
    say(report.table())
    return params


def fresh_params(recipe: Recipe) -> dict[str, Any]:
    """Random parameters for a recipe, numbers of the state given neighbouring embeddings where it helps."""
    params = init_params(recipe.model, jax.random.key(recipe.training.seed))
    if recipe.model.init == "scratch":
        table = params["PaliGemma"]["llm"]["embedder"]
        smooth = tokenizer.smooth_numbers(
            np.asarray(table["input_embedding"]), tokenizer.load(recipe.tokenizer)
        )
        table["input_embedding"] = jnp.asarray(smooth, jnp.float32)
    return params


def parts_of(params: dict[str, Any], kind: str) -> dict[str, dict[str, int]]:
    """Trainable and frozen parameters by part: vision encoder, language model, action expert, morphology."""
    trainable, _ = steps.partition(params, kind)
    learnt = {jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(trainable)}
    parts: dict[str, dict[str, int]] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        keys = tuple(str(key.key) for key in path)
        if keys[0] == "morphology":
            part = "morphology"
        elif not steps.is_vlm(keys):
            part = "action expert"
        else:
            part = "vision encoder" if keys[1] == "img" else "language model"
        row = parts.setdefault(part, {"trainable": 0, "frozen": 0})
        row["trainable" if jax.tree_util.keystr(path) in learnt else "frozen"] += int(leaf.size)
    return parts


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


class _Curve:
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
