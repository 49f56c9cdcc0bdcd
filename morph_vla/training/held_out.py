"""The loss on rows that are never trained on, of each robot and each of its joints."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from morph_vla.training import step as steps
from morph_vla.training.source import Source


def measurer(source: Source) -> Callable[[steps.State], dict[str, dict[str, float]]]:
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
