"""The same steps and actions on two devices: numbers that would differ if either computed something else.

Fresh weights hide most of a model: what scales with the time (adaRMS), the image head and FiLM begin at zero,
so that actions do not depend on what is seen. Here every leaf is moved, and the rows are of a Panda.
"""

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.subject import Subject, batch_of, compiled, recipe_of, served
from morph_vla import policies, robots
from morph_vla.morphology import stack
from morph_vla.pi05 import sample_actions
from morph_vla.training import parameters

ROWS, ROBOT = 2, "panda"
MOVED = 0.02  # standard deviation of what is added to every weight


def numbers(size: str, dtype: str, device: Any) -> dict[str, np.ndarray]:
    """Losses, gradients' norms and learnt leaves of two steps, and sampled actions, on a device."""
    exact = "highest" if dtype == "float32" else "default"  # no TF32
    with jax.default_device(device), jax.default_matmul_precision(exact):
        recipe = recipe_of(size, ROWS, dtype=dtype)
        subject = Subject(recipe, moved(parameters.fresh_params(recipe)))
        model, run = subject.model, subject.step().run
        observation, *others = batch_of(model, ROWS)
        body = policies.of(model).body(model, robots.load(ROBOT))
        observation = dataclasses.replace(observation, body=None if body is None else stack([body] * ROWS))
        subject.batch = jax.device_put((observation, *others))
        noise = jax.random.normal(jax.random.key(2), (ROWS, model.horizon, model.action_dim))
        params = served(model, subject.state.params)
        results = {"actions": compiled(partial(sample_actions, model), params, observation, noise).run()}
        for number in (1, 2):
            metrics = run()
            results[f"losses of step {number}"] = metrics["rows"]
            norms = metrics["gradient_norms"]
            results |= {f"gradient of the {part}, step {number}": norm for part, norm in norms.items()}
        results["the encoder of joints"] = subject.state.params["morphology"]["encoder"]["out"]["kernel"]
    return {name: np.asarray(value, np.float64) for name, value in results.items()}


def moved(params: Any) -> Any:
    """The parameters with small random numbers added, in their types."""
    leaves, form = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(7), len(leaves))

    def one(leaf: Any, key: Any) -> Any:
        random = MOVED * jax.random.normal(key, leaf.shape)
        return (leaf.astype(jnp.float32) + random).astype(leaf.dtype)

    return jax.tree.unflatten(form, [one(leaf, key) for leaf, key in zip(leaves, keys, strict=True)])


def compared(wanted: dict[str, np.ndarray], ours: dict[str, np.ndarray], most: float) -> list[dict[str, Any]]:
    """For each number the largest difference over the largest value; one that is all zeros says nothing."""
    rows = []
    for name, values in wanted.items():
        scale = float(np.abs(values).max())
        apart = float(np.abs(ours[name] - values).max()) / scale if scale else float("nan")
        rows.append({"what": name, "apart": apart, "allowed": most, "within": apart <= most})
    return rows
