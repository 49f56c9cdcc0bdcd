"""How fast a fresh plugin leaves its host: gradient norms by part, and the velocity's distance to the host's.

A small random host with open adaRMS gates, a Panda with Mix bias and FiLM, AP-FT with the full-size recipes'
optimiser (peak 2.5e-5 after 1000 steps); made-up prompts and smooth made-up actions. Of every start the same
weights are run with and without kinematic tokens on rows that are never trained on:

    python scripts/start_distance.py [STEPS [START ...]]

The numbers in docs/method.md are of this script. A pretrained host differs in size.
"""

import dataclasses
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from morph_vla import robots
from morph_vla.morphology import MorphologyConfig, body_of, stack
from morph_vla.pi05 import GemmaConfig, Observation, Pi05, Pi05Config, VitConfig, init_params
from morph_vla.pi05 import model as pi05
from morph_vla.recipes.keys import Optimizer, Training
from morph_vla.training import step as training

JOINTS, BATCH, MARKS = 8, 8, (0, 50, 100, 200, 500, 1000)
HOST = Pi05Config(
    vocab=64, image_size=14, cameras=("base_0_rgb",),
    vit=VitConfig(width=16, depth=1, mlp_dim=32, heads=2, patch=7),
    prefix=GemmaConfig(width=64, mlp_dim=128), expert=GemmaConfig(width=64, mlp_dim=128), depth=4, heads=4,
    kv_heads=1, head_dim=16, action_dim=JOINTS, horizon=16, max_tokens=8, dtype="float32", remat=False,
    init="scratch",
)  # fmt: skip
SETTINGS = Training(steps=100_000, batch=BATCH, kind="expert", augmentation="none")
STARTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "paper": ({}, {}),
    "clip_parts: apart": ({}, {"clip_parts": "apart"}),
    "descriptors: standardised": ({"descriptors": "standardised"}, {}),
    "plugin_lr_share: 0.1": ({}, {"plugin_lr_share": 0.1}),
    "standardised, 0.1": ({"descriptors": "standardised"}, {"plugin_lr_share": 0.1}),
    "film: false": ({"film": False}, {}),
    "start: exact": ({"start": "exact"}, {}),
}


def rows(seed: int) -> tuple[Observation, Any]:
    """A batch of made-up prompts and images, with a sine per joint that starts where the prompt says."""
    source = np.random.default_rng(seed)
    tokens = source.integers(2, 64, (BATCH, 8)).astype(np.int32)
    phase = 2 * np.pi * tokens[:, None] / 64
    actions = np.sin(phase + np.linspace(0, 2, HOST.horizon)[None, :, None]).astype(np.float32)
    body = stack([body_of(robots.load("panda"), JOINTS)] * BATCH)
    images = {"base_0_rgb": source.uniform(-1, 1, (BATCH, 14, 14, 3)).astype(np.float32)}
    masks = {"base_0_rgb": np.ones(BATCH, bool)}
    return Observation(images, masks, tokens, np.ones((BATCH, 8), bool), body), actions


def distance_of(config: Pi05Config) -> Any:
    """|v - v of the same weights without kinematic tokens| / |the latter|, on held-out rows."""
    seen, actions = rows(1_000_003)
    noise = jnp.asarray(np.random.default_rng(5).normal(size=actions.shape), jnp.float32)
    time = jnp.linspace(0.1, 0.9, BATCH)
    x_t, _ = pi05.interpolate(jnp.asarray(actions), noise, time)

    def velocity(config: Pi05Config, params: Any, seen: Observation) -> Any:
        return Pi05(config).apply({"params": params}, seen, x_t, time, method=Pi05.velocity_joint)

    @jax.jit
    def distance(params: Any) -> Any:
        alone = {name: leaf for name, leaf in params.items() if name != "morphology"}
        host = velocity(HOST, alone, dataclasses.replace(seen, body=None))
        return jnp.linalg.norm(velocity(config, params, seen) - host) / jnp.linalg.norm(host)

    return distance


def measure(name: str, steps: int) -> None:
    """Print one start's gradient norms and distances."""
    plugin, optimiser = STARTS[name]
    config = dataclasses.replace(HOST, morphology=MorphologyConfig(max_joints=JOINTS, **plugin))
    optimizer, _ = training.make_optimizer(Optimizer(**optimiser), SETTINGS.steps)
    advance = training.make_step(config, SETTINGS, optimizer)
    host = jax.jit(lambda: init_params(HOST, jax.random.key(0)))()
    fresh = jax.jit(lambda: init_params(config, jax.random.key(1))["morphology"])()
    state = training.start({**host, "morphology": fresh}, optimizer, SETTINGS)
    distance, mask = distance_of(config), np.ones((BATCH, JOINTS), bool)
    for step in range(steps + 1):
        apart = float(distance(state.params)) if step in MARKS else None
        state, metrics = advance(state, *rows(step), mask, jax.random.key(7))
        if apart is not None:
            norms = {part: f"{float(norm):.3g}" for part, norm in metrics["gradient_norms"].items()}
            print(
                f"{name:28}{step:6}  distance {apart:.3f}  loss {float(metrics['loss']):.3f}  {norms}",
                flush=True,
            )


if __name__ == "__main__":
    for start in sys.argv[2:] or STARTS:
        measure(start, int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
