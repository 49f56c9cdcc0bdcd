"""`morph-vla bench bet`: are ways of doing the same kept apart? The Behavior Transformer on points, counted.

Each learner is shown the same demonstrations of a set of paths (`point_mass`), then drives 300 points. A path
is kept where at least one point in ten followed it to its end; points that followed none are lost. Sizes and
training of the Behavior Transformer are the paper's (Tables 4 and 5); it does not say how many demonstrations
there were. Cross entropy (gamma 0) stands beside its focal loss, whose probabilities approach 1 more slowly:
a bin is drawn at every step, and one wrong one is enough to leave a path. The baselines are its Appendix
B.1's: `mlp` of our families, the nearest neighbour, and the mean of the five nearest by exp(-distance).

Beside it the milliseconds of one action at the sizes of the paper's kitchen, which says 2.8 ms, and 0.5 ms
for its MLP, on an RTX 3080; and those of one answer of the recipe `bet_blocks`, a chunk of 16 actions.
"""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from benchmarks import point_mass
from benchmarks.harness import add_common, load, show, take_turns
from benchmarks.point_mass import SETS, Demonstration, Paths
from morph_vla import policies
from morph_vla.morphology import MorphologyConfig
from morph_vla.morphology.arrays import blank
from morph_vla.pi05 import Observation
from morph_vla.policies.config import BetConfig, MlpConfig
from morph_vla.policies.text import TEXT
from morph_vla.recipes import recipe as recipes
from morph_vla.recipes.keys import Optimizer, Training
from morph_vla.training import step as steps

EXAMPLES = """
  morph-vla bench bet
  morph-vla bench bet --seed 1 --json
"""
EPOCHS, BATCH = 10, 64
TRAINING = Training(steps=1, batch=BATCH, ema=0.0)
ADAM = Optimizer(peak_lr=1e-4, warmup=0, final_lr_share=1.0, weight_decay=0.1, b2=0.95, clip=1.0)
MLP_ADAM = dataclasses.replace(ADAM, peak_lr=1e-3)
STORED, NEIGHBOURS = 4096, 5
KEPT = 0.1  # of the points: a path that fewer followed is lost
KITCHEN = 9, 60 - 9 - TEXT  # values of an action, and of an observation beside the robot's and the text's
PAPER_MS = {"paper_bet_ms": 2.8, "paper_mlp_ms": 0.5}

Windows = Float[np.ndarray, "n w 2"]
Driver = Callable[[Windows, int], Float[np.ndarray, "n 2"]]
"""What points do, from where they have been and the number of the step"""


@dataclasses.dataclass(frozen=True)
class Row:
    """One learner on one set."""

    set: str
    learner: str
    context: int
    """Observations that it sees"""
    paths: int
    kept: int
    followed: tuple[int, ...]
    """Points by path"""
    lost: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench bet`."""
    parser.add_argument("--demonstrations", type=int, default=3000, metavar="N", help="(default 3000)")
    parser.add_argument("--points", type=int, default=300, metavar="N", help="driven (default 300)")
    parser.add_argument("--seed", type=int, default=0, help="of everything random (default 0)")
    add_common(parser, run, repeats=101)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per set, learner and context."""
    counts = arguments.demonstrations, arguments.points, arguments.seed
    rows = [row for name in SETS for row in counted(name, *counts)]
    found = {
        "demonstrations": arguments.demonstrations,
        "points": arguments.points,
        "seed": arguments.seed,
        "load": load(),
        **latency(arguments.repeats),
        **PAPER_MS,
        "rows": rows,
    }
    header = ("set", "learner", "context", "paths kept", "points by path", "lost")
    show(found, header, _cells, as_json=arguments.json, right=(2, 5))


def _cells(row: Row) -> tuple[object, ...]:
    followed = " ".join(map(str, row.followed))
    return row.set, row.learner, row.context, f"{row.kept} of {row.paths}", followed, row.lost


def counted(name: str, demonstrations: int, points: int, seed: int) -> list[Row]:
    """Every learner on one set."""
    paths = SETS[name]
    shown = point_mass.demonstrations(paths, demonstrations, seed)
    rows = []
    for learner, (context, learn) in LEARNERS.items():
        windows, actions = pairs(shown, context)
        driver = learn(windows, actions, paths, seed)
        walks = driven(driver, paths, context, points, seed)
        ends = [point_mass.path_of(walk, paths) for walk in walks]
        followed = tuple(ends.count(number) for number in range(len(paths.paths)))
        kept = sum(count >= KEPT * points for count in followed)
        rows.append(Row(name, learner, context, len(followed), kept, followed, ends.count(None)))
    return rows


def pairs(shown: Sequence[Demonstration], context: int) -> tuple[Windows, Float[np.ndarray, "n 2"]]:
    """What was seen, and what was done."""
    windows = [point_mass.windows(each.points[:, None], context)[:, 0] for each in shown]
    return np.concatenate(windows), np.concatenate([each.actions for each in shown])


def driven(driver: Driver, paths: Paths, context: int, count: int, seed: int) -> Float[np.ndarray, "n t 2"]:
    """Where points were, for twice as many steps as the longest path has."""
    points = [point_mass.begun(paths, count, np.random.default_rng([seed, 1]))]
    for step in range(2 * paths.longest):
        seen = point_mass.windows(np.stack(points[-context:]), context)[-1]
        points.append(point_mass.moved(points[-1], driver(seen, step)))
    return np.stack(points, axis=1)


def nearest(count: int, windows: Windows, actions: np.ndarray, paths: Paths, seed: int) -> Driver:
    """The mean action of the nearest `count` of what was seen, weighted by exp(-distance)."""
    some = np.random.default_rng(seed).permutation(len(windows))[:STORED]
    stored, done = windows[some].reshape(len(some), -1), actions[some]

    def drive(seen: Windows, step: int) -> Float[np.ndarray, "n 2"]:
        flat = seen.reshape(len(seen), -1)
        away = np.sqrt(np.square(flat[:, None] - stored).sum(axis=2))
        near = np.argpartition(away, count, axis=1)[:, :count]
        weights = np.exp(-np.take_along_axis(away, near, axis=1))
        return np.einsum("nk,nkd->nd", weights / weights.sum(axis=1, keepdims=True), done[near])

    return drive


def transformer(gamma: float, windows: Windows, actions: np.ndarray, paths: Paths, seed: int) -> Driver:
    """The family `bet` at the paper's sizes."""
    config = BetConfig(
        action_dim=2, horizon=1, environment=1, window=windows.shape[1], stride=1, bins=paths.bins,
        gamma=gamma, width=20, depth=1, heads=2, mlp_dim=80,
    )  # fmt: skip
    return learnt(config, ADAM, windows, actions, seed)


def mlp(windows: Windows, actions: np.ndarray, paths: Paths, seed: int) -> Driver:
    """The family `mlp`, which learns squared error."""
    config = MlpConfig(
        action_dim=2, horizon=1, environment=2 * windows.shape[1], width=16, depth=2, hidden=64
    )
    return learnt(config, MLP_ADAM, windows, actions, seed)


LEARNERS: dict[str, tuple[int, Callable[..., Driver]]] = {
    "Behavior Transformer": (2, partial(transformer, 2.0)),
    "with cross entropy": (2, partial(transformer, 0.0)),
    "without history": (1, partial(transformer, 2.0)),
    "MLP, squared error": (1, mlp),
    "nearest neighbour": (1, partial(nearest, 1)),
    "locally weighted, 5": (1, partial(nearest, NEIGHBOURS)),
}
"""Each with the observations that it sees, as in the paper"""


@dataclasses.dataclass(frozen=True)
class Shown:
    """What a family may ask for before the first step: `policies.Recorded`."""

    actions: Float[np.ndarray, "n 1 2"]

    def chunks(self, most: int) -> tuple[Float[np.ndarray, "n 1 2"], Bool[np.ndarray, "n 2"]]:
        """The first `most`; points have both values."""
        actions = self.actions[:most]
        return actions, np.ones((len(actions), 2), bool)

    def pairs(self, most: int) -> policies.Pairs:
        """Raise: no family that is compared here asks for what was seen."""
        raise NotImplementedError("the families compared here learn from chunks alone before the first step")


def learnt(
    config: BetConfig | MlpConfig, adam: Optimizer, windows: Windows, actions: np.ndarray, seed: int
) -> Driver:
    """A policy family, trained by the project's own loss and step, then drawn from."""
    family, key = policies.of(config), jax.random.key(seed)
    centre, scale = windows.mean(axis=(0, 1)), windows.std(axis=(0, 1))
    shown = ((windows - centre) / scale).astype(np.float32)
    chunks = actions[:, None].astype(np.float32)
    params = family.fit(config, family.init(config, key), Shown(chunks), seed)
    params = fitted(config, params, adam, observed(config, shown), jnp.asarray(chunks), seed)
    act = jax.jit(lambda asked: family.act(config, params, None, asked, 1))

    def drive(seen: Windows, step: int) -> Float[np.ndarray, "n 2"]:
        normal = ((seen - centre) / scale).astype(np.float32)
        noise = jax.random.normal(jax.random.fold_in(key, step), (len(seen), 1, 2))
        asked = policies.Asked(observed(config, normal), noise, np.ones((len(seen), 2), bool), None)
        return np.asarray(act(asked), np.float64)[:, 0]

    return drive


def observed(config: BetConfig | MlpConfig, windows: Float[np.ndarray, "n w 2"]) -> Observation:
    """Windows of points as the family takes them."""
    if isinstance(config, BetConfig):
        return observation(config, windows, np.zeros((*windows.shape[:2], 1), np.float32))
    return observation(config, windows[:, -1], windows.reshape(len(windows), -1))


def observation(config: BetConfig | MlpConfig, state: np.ndarray, environment: np.ndarray) -> Observation:
    """What a family on numbers is shown, with a text of no words."""
    count, text = len(state), np.zeros((*state.shape[:-1], TEXT), np.float32)
    none = np.zeros((count, 0), np.int32), np.zeros((count, 0), bool)
    values = np.concatenate([environment, text], axis=-1)
    if isinstance(config, BetConfig):
        return Observation({}, {}, *none, None, state, values, np.ones(state.shape[:-1], bool))
    one = blank(MorphologyConfig(max_joints=config.nodes), 1)
    body = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf), count, axis=0), one)
    return Observation({}, {}, *none, body, state, values)


def fitted(
    config: BetConfig | MlpConfig, params: Any, adam: Optimizer, shown: Observation, chunks: Any, seed: int
) -> Any:
    """Parameters after `EPOCHS` over everything shown, by the trainer's step, all steps in one program."""
    optimizer, _ = steps.make_optimizer(adam, EPOCHS * len(chunks) // BATCH)
    advance = steps.make_step(config, TRAINING, optimizer)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(chunks)) for _ in range(EPOCHS)])
    batches = jnp.asarray(order[: len(order) // BATCH * BATCH].reshape(-1, BATCH))
    mask, key = jnp.ones((BATCH, 2), bool), jax.random.key(seed)

    def step(state: steps.State, rows: Any) -> tuple[steps.State, None]:
        seen, actions = jax.tree.map(lambda leaf: jnp.asarray(leaf)[rows], (shown, chunks))
        return advance(state, seen, actions, mask, key)[0], None

    start = steps.start(params, optimizer, TRAINING)
    return jax.jit(lambda state: jax.lax.scan(step, state, batches)[0].params)(start)


def latency(repeats: int) -> dict[str, float]:
    """Milliseconds from one observation to one answer: at the sizes of the paper's kitchen, of our blocks."""
    places, environment = KITCHEN
    bet = BetConfig(
        action_dim=places, horizon=1, environment=environment, window=10, bins=64,
        width=120, depth=6, heads=6, mlp_dim=480,
    )  # fmt: skip
    mlp = MlpConfig(action_dim=places, horizon=1, environment=environment, width=16, depth=2, hidden=256)
    blocks = recipes.load("bet_blocks").model
    assert isinstance(blocks, BetConfig)
    works = {
        "bet_ms": _action(bet, (1, bet.window)),
        "mlp_ms": _action(mlp, (1,)),
        "blocks_ms": _action(blocks, (1, blocks.window)),
    }
    return {name: 1e3 * seconds for name, seconds in take_turns(works, repeats).items()}


def _action(config: BetConfig | MlpConfig, rows: tuple[int, ...]) -> Callable[[], Any]:
    """One answer to an observation whose values have the shape `rows` before their own."""
    family, places = policies.of(config), config.action_dim
    params = family.init(config, jax.random.key(0))
    shown = observation(
        config, *(np.zeros((*rows, size), np.float32) for size in (places, config.environment))
    )
    asked = policies.Asked(shown, jnp.zeros((1, config.horizon, places)), np.ones((1, places), bool), None)
    act = jax.jit(lambda params, asked: family.act(config, params, None, asked, 1))
    return lambda: jax.block_until_ready(act(params, asked))
