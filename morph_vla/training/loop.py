"""The trainer, top to bottom: data, parameters, steps, log, checkpoints. There is one; recipes vary it.

Everything lands in one folder. A run that was interrupted goes on from its newest checkpoint and repeats what
an uninterrupted one would have done: samples and noise are functions of (seed, step).
"""

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from morph_vla import robots
from morph_vla.data import lerobot, mixture, stats, transforms
from morph_vla.errors import MorphVlaError
from morph_vla.morphology import body_of
from morph_vla.pi05 import Observation, init_params, tokenizer
from morph_vla.pi05 import model as pi05
from morph_vla.robots.dropin import to_plain, write_text
from morph_vla.training import checkpoint
from morph_vla.training import step as steps
from morph_vla.training.config import Recipe

HELD_OUT_ROWS = 256  # frames of held-out episodes on which the held-out loss is measured


@dataclasses.dataclass(frozen=True)
class Report:
    """One line of progress."""

    step: int
    steps: int
    loss: float
    held_out_loss: float | None
    lr: float
    steps_per_s: float


@dataclasses.dataclass(frozen=True)
class Run:
    """What a training run left: the folder, its last checkpoint, and what was learnt by which part."""

    folder: Path
    checkpoint: Path
    parameters: int
    parts: dict[str, dict[str, int]]  # part -> {"trainable": n, "frozen": n}
    curve: list[dict[str, Any]]
    seconds: float


class Source:
    """A recipe's data, ready for the model: batches by step, and the held-out rows."""

    def __init__(self, recipe: Recipe, cache: Path, progress: Callable[[str], None] | None = None):
        say = progress or (lambda _: None)
        robot = robots.load(recipe.data.robot)
        say("reading values")
        self.recordings = lerobot.read(Path(recipe.data.dataset))
        names = tuple(joint.name for joint in robot.joints)
        width = self.recordings.action.shape[1]
        if width != len(names):
            raise MorphVlaError(
                f"{recipe.data.dataset}: actions have {width} values, robot '{robot.name}' has {len(names)} "
                f"joints ({', '.join(names)})"
            )
        if width > recipe.model.action_dim:
            raise MorphVlaError(
                f"robot '{robot.name}' has {width} joints, the model {recipe.model.action_dim} action "
                "values; raise model.action_dim"
            )
        self.recipe, self.robot, self.action_dims = recipe, robot, width
        self.state_stats = stats.compute(self.recordings.state, names)
        self.action_stats = stats.compute(self.recordings.action, names)
        frames = {}
        for model_name, name in recipe.data.cameras.items():
            say(f"decoding camera '{name}' ({self.recordings.frames} frames)")
            frames[model_name] = lerobot.frames(self.recordings, name, recipe.model.image_size, cache)
        say("tokenising")
        self.tokenizer = tokenizer.load(recipe.tokenizer)
        tokenizer.check_vocab(self.tokenizer, recipe.model.vocab)
        self.table = transforms.prepare(
            self.recordings, self.state_stats, self.action_stats, self.tokenizer, frames,
            action_dim=recipe.model.action_dim, max_tokens=recipe.model.max_tokens,
        )  # fmt: skip
        held = mixture.held_out(len(self.recordings.starts), recipe.data.held_out)[
            self.recordings.episode_of()
        ]
        self.train_rows, held_rows = np.flatnonzero(~held), np.flatnonzero(held)
        self.held_rows = held_rows[:: max(1, len(held_rows) // HELD_OUT_ROWS)][:HELD_OUT_ROWS]
        self._body = None
        if recipe.model.morphology is not None:
            self._body = body_of(robot, recipe.model.morphology.max_joints)

    def batch(self, rows: Int[np.ndarray, "b"]) -> tuple[Observation, np.ndarray]:
        """Observation and actions [b h a] of the given rows."""
        table, count = self.table, len(rows)
        body = None
        if self._body is not None:
            body = jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), self._body)
        observation = Observation(
            {name: np.asarray(frames[rows]) for name, frames in table.frames.items()},
            {name: np.ones(count, bool) for name in table.frames},
            table.tokens[rows],
            table.token_mask[rows],
            body,
        )
        return observation, transforms.chunks(table, rows, self.recipe.model.horizon)

    def at(self, step: int) -> tuple[Observation, np.ndarray]:
        """The batch of one step: a pure function of the recipe's seed and the step."""
        training = self.recipe.training
        return self.batch(mixture.batch_rows(self.train_rows, training.batch, training.seed, step))


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
    params = fresh_params(recipe)
    parts = parts_of(params, training.kind)
    if on_start:
        on_start(parts)
    optimizer, schedule = steps.make_optimizer(recipe.optimizer, training.steps)
    state = steps.start(params, optimizer, training.kind)
    about = describe(recipe, source)
    checkpoints = folder / "checkpoints"
    saved = checkpoint.steps(checkpoints)
    if saved:
        trained = checkpoint.about(checkpoints / str(saved[-1])).get("tokenizer")
        tokenizer.check_same(trained, source.tokenizer, str(checkpoints / str(saved[-1])))
        state = checkpoint.restore(checkpoints / str(saved[-1]), state)
    else:
        checkpoint.save(checkpoints, state, about)
    curve = _Curve(folder / "log.jsonl", int(state.step))
    if on_stage and int(state.step) < training.steps:
        on_stage("compiling the training step")
    _loop(source, state, optimizer, schedule, curve, checkpoints, about, on_report)
    last = checkpoints / str(checkpoint.steps(checkpoints)[-1])
    return Run(folder, last, pi05.count(params), parts, curve.lines, time.monotonic() - began)


def _loop(
    source: Source,
    state: steps.State,
    optimizer: Any,
    schedule: Callable[[Any], Any],
    curve: "_Curve",
    checkpoints: Path,
    about: dict[str, Any],
    on_report: Callable[[Report], None] | None,
) -> None:
    """The steps that are left."""
    config, training = source.recipe.model, source.recipe.training
    advance = steps.make_step(config, training, optimizer, source.action_dims)
    held_out = _held_out_loss(source)
    key = jax.random.key(training.seed)
    mark, mark_step = time.monotonic(), int(state.step)
    for number in range(int(state.step), training.steps):
        observation, actions = source.at(number)
        state, metrics = advance(state, observation, actions, key)
        done = number + 1
        if number == mark_step:  # the first step compiles: it says nothing about the rate
            jax.block_until_ready(metrics)
            mark = time.monotonic()
        if done % training.log_every == 0 or done == training.steps:
            value = float(metrics["loss"])
            if not math.isfinite(value):
                raise MorphVlaError(
                    f"the loss is {value} at step {done}; the last good checkpoint is kept in {checkpoints}. "
                    "Lower optimizer.peak_lr or look at the statistics (`morph-vla stats`)"
                )
            rate = (done - 1 - mark_step) / max(time.monotonic() - mark, 1e-9)
            measure = done % training.held_out_every == 0 or done == training.steps
            held = held_out(state) if measure else None
            report = Report(done, training.steps, value, held, float(schedule(number)), round(rate, 3))
            curve.add(report)
            if on_report:
                on_report(report)
        if done % training.checkpoint_every == 0 or done == training.steps:
            checkpoint.save(checkpoints, state, about)


def _held_out_loss(source: Source) -> Callable[[steps.State], float | None]:
    """The loss of the averaged parameters on held-out rows, always with the same noise."""
    recipe = source.recipe
    if len(source.held_rows) == 0:
        return lambda _: None
    observation, actions = source.batch(source.held_rows)

    @jax.jit
    def measure(params: dict[str, Any]) -> Any:
        return steps.draw_loss(
            recipe.model, recipe.training, params, observation, jnp.asarray(actions), source.action_dims,
            jax.random.key(recipe.training.seed + 1), augment=False,
        )  # fmt: skip

    return lambda state: float(measure(steps.averaged(state)))


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
    """What makes parameters a policy: recipe, statistics, robot, control rate, tokenizer."""
    return {
        "schema": 1,
        "recipe": to_plain(recipe),
        "robot": source.robot.name,
        "joints": [joint.name for joint in source.robot.joints],
        "control_rate": source.recordings.fps,
        "state_stats": dataclasses.asdict(source.state_stats),
        "action_stats": dataclasses.asdict(source.action_stats),
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
