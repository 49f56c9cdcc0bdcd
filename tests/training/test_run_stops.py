"""What the loop of a run does around a step: what it logs, and what it never saves."""

import math
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.recipes.keys import Training
from morph_vla.recipes.recipe import Recipe
from morph_vla.training import loop
from morph_vla.training import step as steps
from morph_vla.training.source import Source


class Run:
    """A loop whose steps have the losses that are given; what it saves, and the reports that it makes."""

    def __init__(self, losses: list[float], monkeypatch: pytest.MonkeyPatch, **training: Any):
        asked = types.SimpleNamespace(robot="panda", dataset="set")
        recordings = types.SimpleNamespace(entries=(), episode_of=lambda: np.zeros(3, int))
        source: Any = Source.__new__(Source)
        recipe: Any = Recipe.__new__(Recipe)
        vars(recipe).update(
            training=Training(steps=len(losses), batch=3, **training),
            model=None, evaluation=types.SimpleNamespace(suites=(), every=1),
        )  # fmt: skip
        batch = types.SimpleNamespace(observation=None, actions=None, mask=None)
        vars(source).update(
            recipe=recipe,
            parts=[types.SimpleNamespace(asked=asked, recordings=recordings)],
            mixture=types.SimpleNamespace(at=lambda _: (np.zeros(3, int), np.arange(3)), batch=3),
            batches=lambda first, last: [batch] * (last - first),
        )
        remaining = iter(losses)

        def advance(state: steps.State, *_: object) -> tuple[steps.State, dict[str, Any]]:
            loss, norm = jnp.asarray(next(remaining)), jnp.asarray(1.0)
            metrics = {"loss": loss, "gradient_norm": norm, "gradient_norms": {}, "rows": jnp.ones(3)}
            return state, metrics

        monkeypatch.setattr(loop.steps, "make_step", lambda *_: advance)
        monkeypatch.setattr(loop, "measurer", lambda *_: lambda state: {})
        monkeypatch.setattr(loop.sharding, "place_key", lambda *_: None)
        monkeypatch.setattr(loop.sharding, "ahead", lambda batches, mesh: iter(batches))
        monkeypatch.setattr(loop.sharding, "whole", lambda mesh: None)
        self.saved: list[object] = []
        self.reports: list[Any] = []
        stubs: Any = types.SimpleNamespace
        self.loop: Any = loop._Loop.__new__(loop._Loop)
        vars(self.loop).update(
            source=source, mesh=None, optimizer=None, schedule=lambda number: 10.0 + number, about={},
            curve=stubs(add=lambda report: None), terminated=lambda done: False, evaluate=None, trackers=(),
            saver=stubs(newest=lambda: None, save=lambda state, about: self.saved.append(state)),
            on_report=self.reports.append,
        )  # fmt: skip

    def run(self) -> bool:
        """Take all steps, as `loop.run` does once the state is there."""
        state = steps.State({}, {}, (), jnp.int32(0))
        return bool(self.loop.run(state))


def test_the_rate_of_a_line_is_that_of_its_step(monkeypatch):
    """The schedule counts from 0, lines from 1: what moved the parameters, not what will."""
    run = Run([1.0] * 5, monkeypatch, log_every=2, checkpoint_every=5, held_out_every=5)
    assert not run.run()
    assert [(report.step, report.lr) for report in run.reports] == [(2, 11.0), (4, 13.0), (5, 14.0)]
    assert len(run.saved) == 1


def test_parameters_of_a_loss_that_is_no_number_are_not_saved_between_two_lines(monkeypatch):
    run = Run([1.0, math.nan, 1.0, 1.0], monkeypatch, log_every=4, checkpoint_every=2, held_out_every=4)
    with pytest.raises(MorphVlaError, match="at step 2, on episodes"):
        run.run()
    assert run.saved == []
