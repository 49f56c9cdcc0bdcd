"""Several training seeds in one program (`vmap` over parameters), beside as many programs one after another.

The conditions are those of `configs/evidence/relatives.yaml`, whose cells train alone: does it pay to train a
condition's seeds together? A step of each side is the trainer's; batch and random keys are the same for all.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.harness import take_turns
from benchmarks.subject import Compiled, Subject
from morph_vla.evidence import grid as grids
from morph_vla.recipes.keys import Recipe
from morph_vla.training import step as steps

GRID = Path(__file__).parents[1] / "configs" / "evidence" / "relatives.yaml"


@dataclasses.dataclass(frozen=True)
class Together:
    """A condition's seeds: median milliseconds of a step of all of them."""

    condition: str
    seeds: int
    together_ms: float
    apart_ms: float
    ratio: float
    """`together_ms` over `apart_ms`: below 1 it pays"""
    losses_apart: float
    """The largest relative difference between a seed's first losses on the two sides"""


def conditions(batch: int) -> dict[str, Recipe]:
    """The grid's conditions by name, in batches of that size."""
    grid = grids.load(GRID)
    recipes: dict[str, Recipe] = {}
    for name in grid.conditions:
        recipe = grids.condition_of(grid, name)
        assert isinstance(recipe, Recipe)
        training = dataclasses.replace(recipe.training, batch=batch)
        recipes[name] = dataclasses.replace(recipe, training=training)
    return recipes


def measured(name: str, recipe: Recipe, seeds: int, repeats: int) -> Together:
    """One condition's seeds together and one after another, in turn."""
    subjects = [_of_seed(recipe, seed) for seed in range(seeds)]
    together = _together(subjects)  # before a step gives the states away
    apart = [subject.step().run for subject in subjects]
    first, at_once = np.asarray([run()["loss"] for run in apart]), np.asarray(together.run()["loss"])
    works = {"together": together.run, "apart": lambda: [run() for run in apart]}
    ms = {side: 1e3 * seconds for side, seconds in take_turns(works, repeats).items()}
    difference = float(np.max(np.abs(at_once - first) / np.abs(first)))
    return Together(name, seeds, ms["together"], ms["apart"], ms["together"] / ms["apart"], difference)


def _of_seed(recipe: Recipe, seed: int) -> Subject:
    return Subject(dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, seed=seed)))


def _together(subjects: list[Subject]) -> Compiled:
    """One step of every subject as one program, whose states go on; their own states are left alone."""
    first = subjects[0]
    step = steps.make_step(first.model, first.recipe.training, first.optimizer)
    states: Any = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(subject.state for subject in subjects))
    leaves, form = jax.tree.flatten((*first.batch, jax.random.key(1)))

    def every(states: Any, leaves: Any) -> Any:  # lowering may not rebuild an Observation
        return jax.vmap(lambda state: step(state, *jax.tree.unflatten(form, leaves)))(states)

    program = jax.jit(every, donate_argnums=0).lower(states, leaves).compile()

    def again() -> Any:
        nonlocal states
        states, metrics = program(states, leaves)
        return jax.block_until_ready((states, metrics))[1]

    return Compiled(again, program)
