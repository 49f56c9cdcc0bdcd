"""The loss on rows that are never trained on, of each robot and each of its joints."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from morph_vla.training import sharding
from morph_vla.training import step as steps
from morph_vla.training.source import Batch, Source


def measurer(source: Source, mesh: Mesh) -> Callable[[steps.State], dict[str, dict[str, float]]]:
    """By robot, the loss of the averaged parameters on held-out rows: over all joints, and of each.

    The rows pass in batches of the training's size, the last one filled up by repetition. The noise is the
    same at every step of the run, so that what changes is the policy.
    """
    recipe, batches = source.recipe, source.held_out()

    def errors(params: dict[str, Any], observation: Any, actions: Any, mask: Any, number: Any) -> Any:
        noise_key = jax.random.fold_in(jax.random.key(recipe.training.seed + 1), number)
        error = steps.draw_errors(
            recipe.model, recipe.training, params, observation, actions, noise_key, augment=False
        )
        return error, steps.row_losses(error, mask, recipe.training)

    compiled = jax.jit(errors, out_shardings=sharding.whole(mesh))

    def measure(state: steps.State) -> dict[str, dict[str, float]]:
        found, params = {}, steps.averaged(state)
        for name, batch in batches.items():
            error, rows = [], []
            for number, part in enumerate(_parts(batch, recipe.training.batch)):
                placed = sharding.place(part, sharding.over_rows(mesh))
                number = np.uint32(number)
                two = compiled(params, placed.observation, placed.actions, placed.mask, number)
                error.append(np.asarray(two[0]))
                rows.append(np.asarray(two[1]))
            count, joints = len(batch.dataset), source.robots[name].names
            each = np.concatenate(error)[:count, : len(joints)].mean(axis=0).tolist()
            loss = float(np.concatenate(rows)[:count].mean())
            found[name] = {"loss": loss, **dict(zip(joints, each, strict=True))}
        return found

    return measure


def _parts(batch: Batch, size: int) -> Iterator[Batch]:
    """`size` rows at a time; the last part repeats its last row."""
    count = len(batch.dataset)
    for start in range(0, count, size):
        rows = np.minimum(np.arange(start, start + size), count - 1)
        yield jax.tree.map(lambda leaf, rows=rows: np.asarray(leaf)[rows], batch)
