"""`morph-vla bench families`: one answer of each condition of a grid, a chunk of actions for one observation.

A grid names recipes and what is changed in them, so that one file says what is compared in success and in
time. Parameters are random: what an answer costs does not depend on them. On one core, in turn, in processor
time, with parameters as a policy holds them and whatever it computes ahead computed once. Simulation, the
decoding of pictures and the network are not in it. A policy of LeRobot's is made for the grid's recording,
and answers between its own processors.
"""

import argparse
import dataclasses
import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.fourier import one_core
from benchmarks.harness import add_common, load, show, take_turns
from morph_vla import policies
from morph_vla.cli.bench import ROOT
from morph_vla.cli.common import add_number
from morph_vla.errors import MorphVlaError, require
from morph_vla.evaluation.sampler import Sampler
from morph_vla.evidence import grid as grids
from morph_vla.hosts.lerobot import options, theirs
from morph_vla.hosts.lerobot.options import Training
from morph_vla.pi05 import Observation
from morph_vla.pi05.model import example
from morph_vla.pi05.parts import map_named
from morph_vla.policies import state
from morph_vla.policies.config import ModelConfig, NodeConfig, Pi05Config, WindowConfig
from morph_vla.policies.text import TEXT
from morph_vla.recipes.keys import Recipe

LOG = logging.getLogger(__name__)
EXAMPLES = """
  morph-vla bench families
  morph-vla bench families configs/evidence/parts.yaml --json
"""
GRID = ROOT / "configs" / "evidence" / "family.yaml"
HEADER = ("condition", "parameters", "ms of an answer", "times the first's", "ms an action")


@dataclasses.dataclass(frozen=True)
class Row:
    """What one answer of a condition costs."""

    condition: str
    parameters: int
    answer_ms: float
    times: float
    """the first condition's"""
    action_ms: float
    """of an action that is executed, where an answer gives as many as `executed`"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench families`."""
    about = f"a grid's file (default configs/evidence/{GRID.name})"
    parser.add_argument("grid", nargs="?", type=Path, default=GRID, help=about)
    about = "control steps that a robot executes of an answer"
    add_number(parser, "--executed", 8, about, "N", least=1)
    add_common(parser, run, repeats=31)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per condition: its parameters and the milliseconds of an answer and of an action."""
    grid = grids.load(arguments.grid)
    conditions = {name: grids.condition_of(grid, name) for name in grid.conditions}
    models = {name: asked.model for name, asked in conditions.items() if isinstance(asked, Recipe)}
    trainings = {name: asked for name, asked in conditions.items() if isinstance(asked, Training)}
    counts = {name: parameters(model) for name, model in models.items()}
    with one_core():
        answers = {name: answering(model, grid.sampler_steps) for name, model in models.items()}
        for name, training in trainings.items():
            try:
                counts[name], answers[name] = of_lerobot(training, _recording(grid))
            except MorphVlaError as error:
                LOG.warning("%s is left out: %s", name, error)
        seconds = take_turns(answers, arguments.repeats, time.process_time)
    first = next(iter(seconds.values()))
    rows = [
        Row(name, counts[name], 1e3 * each, each / first, 1e3 * each / arguments.executed)
        for name, each in seconds.items()
    ]
    found = {"cores": 1, "load": load(), "sampler_steps": grid.sampler_steps, "rows": rows}
    show(found, HEADER, _cells, as_json=arguments.json, right=range(1, len(HEADER)))


def _cells(row: Row) -> tuple[object, ...]:
    times = f"{row.answer_ms:.2f}", f"{row.times:.2f}", f"{row.action_ms:.2f}"
    return row.condition, f"{row.parameters:,}", *times


def parameters(config: ModelConfig) -> int:
    """How many values a model has."""
    return sum(leaf.size for leaf in jax.tree.leaves(policies.shapes(config)))


def of_lerobot(training: Training, dataset: Path) -> tuple[int, Callable[[], Any]]:
    """The same of a policy that LeRobot makes for a dataset. Raises MorphVlaError where it makes none."""
    policy, before, after = options.made(training, dataset)
    require("torch", "lerobot").set_num_threads(1)
    return sum(leaf.numel() for leaf in policy.parameters()), theirs.asking(policy, before, after)


def _recording(grid: grids.Grid) -> Path:
    """Of the first body that is trained on."""
    split = next(iter(grid.splits.values()))
    return Path(grid.bodies[split.train[0]].dataset)


def answering(config: ModelConfig, steps: int = Sampler.steps) -> Callable[[], Any]:
    """One answer of a model with random parameters, as a policy computes it."""
    family, places = policies.of(config), config.action_dim
    leaves: list[tuple[str, Any]] = []
    map_named(lambda name, leaf: leaves.append((name, leaf)), family.init(config, jax.random.key(0)))
    params = family.ready(config, leaves)
    ahead = jax.jit(partial(family.ahead, config, steps=steps))(params)
    noise = jax.random.normal(jax.random.key(1), (1, config.horizon, places))
    asked = policies.Asked(seen(config), noise, np.ones((1, places), bool), None)
    act = jax.jit(lambda params, ahead, asked: family.act(config, params, ahead, asked, steps))
    return lambda: jax.block_until_ready(act(params, ahead, asked))


def seen(config: ModelConfig) -> Observation:
    """One observation of zeros."""
    if isinstance(config, Pi05Config):
        return example(config)[0]
    if isinstance(config, NodeConfig):
        return state.example(config)
    rows = (1, config.window) if isinstance(config, WindowConfig) else (1,)
    none = np.zeros((1, 0), np.int32), np.zeros((1, 0), bool)
    states, values = (jnp.zeros((*rows, size)) for size in (config.action_dim, config.environment + TEXT))
    mask = np.ones(rows, bool) if isinstance(config, WindowConfig) else None
    return Observation({}, {}, *none, None, states, values, mask)
