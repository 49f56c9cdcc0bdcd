"""What a run says of itself on the way: when it stops, what its held-out loss is of."""

import math
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.recipes.keys import Training
from morph_vla.training import progress, sharding
from morph_vla.training import step as steps
from morph_vla.training.source import Source


def bare(**kept: object) -> Source:
    """A source of which only that is known."""
    source = Source.__new__(Source)
    vars(source).update(kept)
    return source


def meter() -> progress.Meter:
    recordings = types.SimpleNamespace(entries=(), episode_of=lambda: np.zeros(3, int))
    part = types.SimpleNamespace(recordings=recordings, asked=types.SimpleNamespace(dataset="set"))
    mixture = types.SimpleNamespace(at=lambda _: (np.zeros(2, int), np.arange(2)))
    return progress.Meter(bare(parts=[part], mixture=mixture), 0, lambda: None)


@pytest.mark.parametrize(("loss", "norm"), [(math.nan, 1.0), (1.0, math.inf), (math.nan, math.nan)])
def test_a_loss_or_a_gradient_that_is_no_number_stops_a_run(loss: float, norm: float):
    """Each alone does: parameters would be saved that are none."""
    of_run = meter()
    of_run.add(0, {"loss": jnp.asarray(loss), "gradient_norm": jnp.asarray(norm)})
    with pytest.raises(MorphVlaError, match="at step 1, on episodes 0 of set"):
        of_run.check()


def test_a_run_goes_on_until_a_number_is_none_and_names_that_step():
    of_run = meter()
    of_run.add(0, {"loss": jnp.asarray(1.0), "gradient_norm": jnp.asarray(2.0)})
    of_run.check()
    of_run.add(1, {"loss": jnp.asarray(math.nan), "gradient_norm": jnp.asarray(2.0)})
    with pytest.raises(
        MorphVlaError, match=r"^the loss is nan, its gradient's norm 2\.0, at step 2, on episodes"
    ):
        of_run.check()


def test_a_held_out_loss_is_of_the_averaged_parameters_and_of_pictures_as_they_are(monkeypatch):
    def errors(
        config: object, training: object, params: Any, seen: object, actions: Any, key: object, augment: bool
    ) -> Any:
        return jnp.full((actions.shape[0], 8), params["w"] + 100.0 * augment)

    monkeypatch.setattr(progress.steps, "draw_errors", errors)
    seen: Any = {"a": np.zeros(7)}
    batch = progress.Batch(seen, np.zeros((7, 2, 8), np.float32), np.ones((7, 8), bool), np.zeros(7, int))
    plain = types.SimpleNamespace
    source = bare(
        recipe=plain(model=None, training=Training(steps=1, batch=4), data=plain(space="joints")),
        held_out=lambda: {"panda": batch},
        parts=[plain(asked=plain(robot="panda"), robot=robots.load("panda"))],
    )
    state = steps.State({"w": jnp.float32(1)}, {"w": jnp.float32(2)}, (), jnp.int32(0))
    measured = progress.measurer(source, sharding.make_mesh(1, 1))(state)
    assert measured["panda"]["loss"] == 2.0  # neither 1, of the raw ones, nor 102, of augmented pictures


def test_the_pace_is_of_all_steps_but_the_first_and_counts_every_row(monkeypatch):
    clock = types.SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(progress, "time", clock)
    part = types.SimpleNamespace(asked=types.SimpleNamespace(robot="panda"))
    mixture = types.SimpleNamespace(at=lambda _: (np.zeros(7, int), np.arange(7)), batch=7)
    of_run = progress.Meter(bare(parts=[part], mixture=mixture), 0, lambda: None)
    one = jnp.asarray(1.0)
    for number in range(5):
        of_run.add(number, {"loss": one, "gradient_norm": one, "gradient_norms": {}, "rows": jnp.arange(7.0)})
        clock.now += 0.5  # the first of which goes with the compilation
    clock.now += 0.5
    read = of_run.read()
    assert (read["steps_per_s"], read["samples_per_s"]) == (pytest.approx(4 / 3, abs=1e-3), 9.33)
    assert read["robots"] == {"panda": 3.0}
