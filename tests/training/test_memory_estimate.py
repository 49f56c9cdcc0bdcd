"""The memory estimate: against XLA's own figures on small models, across devices, and its levers."""

import dataclasses
import types
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig, init_params
from morph_vla.pi05.model import example
from morph_vla.recipes import recipe as config
from morph_vla.recipes.keys import Data, Recipe, Training
from morph_vla.training import memory, step

pytestmark = pytest.mark.slow

SMALL = Pi05Config(
    vocab=64,
    image_size=56,
    cameras=("base_0_rgb",),
    vit=VitConfig(64, 2, 160, 4, 7),
    prefix=GemmaConfig(96, 320),
    expert=GemmaConfig(64, 192),
    depth=2,
    heads=4,
    head_dim=24,
    action_dim=7,
    horizon=16,
    max_tokens=16,
    dtype="float32",
    remat=False,
)


def recipe(kind: Any = "expert", batch=8, weights="", model=SMALL, **keys):
    return Recipe(
        Data(dataset="x", robot="panda"),
        model,
        Training(steps=9, batch=batch, kind=kind, **keys),
        weights=weights,
    )


@pytest.mark.parametrize(
    ("kind", "remat"), [("expert", True), pytest.param("full", False, marks=pytest.mark.long)]
)
def test_the_estimate_is_within_a_factor_of_two_of_xlas(kind, remat):
    model = dataclasses.replace(SMALL, remat=remat)
    chosen = recipe(kind, model=model)
    optimizer, _ = step.make_optimizer(chosen.optimizer, chosen.training.steps)
    state = jax.eval_shape(
        lambda: step.start(init_params(model, jax.random.key(0)), optimizer, chosen.training)
    )
    seen, actions, _ = example(model, chosen.training.batch)
    mask = jnp.ones((chosen.training.batch, 7), bool)
    advance = step.make_step(chosen.model, chosen.training, optimizer)
    leaves, form = jax.tree.flatten(seen)  # lowering may not rebuild an Observation

    def on_leaves(state, leaves, *rest):
        return advance(state, jax.tree.unflatten(form, leaves), *rest)

    lowered = jax.jit(on_leaves, donate_argnums=0).lower(state, leaves, actions, mask, jax.random.key(0))
    # What users run: tests are compiled with less.
    analysis = lowered.compile({"xla_backend_optimization_level": 3}).memory_analysis()
    assert analysis is not None
    wanted = analysis.argument_size_in_bytes + analysis.temp_size_in_bytes
    estimate = memory.estimate(chosen)
    print(f"{kind}, remat {remat}: {estimate.total / wanted:.2f} of XLA's {wanted / 1e6:.1f} MB")
    assert 0.5 < estimate.total / wanted < 2
    held = estimate.parameters + estimate.optimizer + estimate.average  # all arguments but the batch
    assert held == pytest.approx(analysis.argument_size_in_bytes, rel=0.07)


def test_what_learns_decides_and_devices_divide():
    full, expert = memory.estimate(recipe("full")), memory.estimate(recipe("expert"))
    assert full.parameters == expert.parameters
    assert full.optimizer == 2 * full.average == 2 * full.parameters
    assert 0 < expert.optimizer < full.optimizer
    held = memory.estimate(
        recipe("expert", weights="run", model=dataclasses.replace(SMALL, dtype="bfloat16"))
    )
    assert held.parameters == expert.average + (expert.parameters - expert.average) // 2
    many = memory.estimate(recipe("full"), data=2, fsdp=4)
    assert many.parameters == full.parameters // 4
    assert many.activations == pytest.approx(full.activations / 8, rel=1e-6)
    assert memory.estimate(recipe("full", accumulate=4)).activations < full.activations / 2


def test_half_a_batch_is_offered_where_it_lies_on_all_devices_alike():
    def offered(batch: int, devices: int) -> bool:
        training = dataclasses.replace(recipe("full").training, batch=batch)
        levers = memory.levers(dataclasses.replace(recipe("full"), training=training), devices)
        return f"training.batch: {batch // 2}" in [lever.change for lever in levers]

    assert [offered(*each) for each in ((6, 1), (6, 2), (12, 2), (4, 4), (8, 4))] == [
        True,
        False,
        True,
        False,
        True,
    ]


def test_levers_come_in_order_and_save_what_they_say():
    levers = memory.levers(recipe("full"))
    names = [lever.change for lever in levers]
    assert names == [
        "training.kind: expert",
        "training.kind: lora",
        "training.accumulate: 8",
        "model.remat: true",
        "training.batch: 4",
        "training.mesh.fsdp: 8",
        "model.dtype: bfloat16",
    ]
    before, saves = memory.estimate(recipe("full")).total, {lever.change: lever.saves for lever in levers}
    assert saves["training.kind: expert"] == before - memory.estimate(recipe("expert")).total
    assert saves["training.batch: 4"] == before - memory.estimate(recipe("full", batch=4)).total
    assert "training.kind: expert" not in [lever.change for lever in memory.levers(recipe("expert"))]


def test_the_words_say_whether_it_fits(monkeypatch):
    monkeypatch.setattr(memory, "device_memory", lambda: ("a device", 10**12))
    assert memory.words(recipe()).endswith("fits into the 1e+03 GB of a device")
    monkeypatch.setattr(memory, "device_memory", lambda: ("a device", 10**6))
    lines = memory.words(recipe("full"), data=2).split("\n")
    assert lines[0].startswith("memory: about 0.0")
    assert lines[0].endswith("on 2 x 1 devices (data x fsdp)")
    assert lines[1].startswith("while a checkpoint is written, a copy of 0.0")
    assert lines[1].endswith(" GB in the host's memory")
    assert lines[2:4] == [
        "does not fit into the 0.001 GB of a device",
        "what would save memory, each alone, in the order to try:",
    ]
    assert lines[4].startswith("  training.kind: expert saves 0.0")
    needed = memory.estimate(recipe("full"))
    monkeypatch.setattr(memory, "device_memory", lambda: (memory.HOST, needed.on_a_cpu - 1))
    assert f"memory: {needed.on_a_cpu / 1e9:.3g} GB at most\ndoes not fit" in memory.words(recipe("full"))
    assert ", a CPU (a full-size model takes minutes a step)\n" in memory.words(recipe("full"))
    monkeypatch.setattr(memory, "device_memory", lambda: None)
    assert "training.accumulate" in memory.words(recipe())


def test_a_state_that_does_not_fit_is_refused_with_the_levers(monkeypatch):
    monkeypatch.setattr(memory, "device_memory", lambda: ("a device", 1_000_000_000))
    memory.check(recipe("full"))  # small
    needed = memory.estimate(recipe("full"))
    state = needed.parameters + needed.optimizer + needed.average
    monkeypatch.setattr(memory, "device_memory", lambda: ("a device", state - 1))
    words = r"(?s)optimizer and average alone take .* GB a device\n.*training\.kind: expert saves "
    with pytest.raises(MorphVlaError, match=words):
        memory.check(recipe("full"))
    memory.check(recipe("expert"))
    monkeypatch.setattr(memory, "device_memory", lambda: None)
    memory.check(recipe("full"))


def test_the_disk_that_checkpoints_take(tmp_path, monkeypatch):
    """At full size an expert's checkpoint takes 6.9 GB and not 20; what is frozen is there once."""
    with jax.numpy_dtype_promotion("standard"):
        needed = memory.disk(config.load("pi05_droid", ["model.morphology=null"]))
    assert (needed.frozen, needed.each, needed.most) == (2 * 2_923_335_408, 16 * 430_098_464, 3)
    small = recipe("full", checkpoint_every=3, keep=1)
    assert memory.disk(small).most == 3  # the first, the newest, and the one being written
    tried = config.load("pi05_droid", ["evaluation.suites=[droid_panda]", "evaluation.every=100"])
    few = {"steps": 400, "checkpoint_every": 400, "keep": 3}
    tried = dataclasses.replace(tried, training=dataclasses.replace(tried.training, **few, keep_every=0))
    with jax.numpy_dtype_promotion("standard"):
        assert memory.disk(tried).most == 4  # three that are kept, and one being written
    assert memory.disk_words(small).startswith("disk: about ")
    monkeypatch.setattr(memory.shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10))
    words = memory.disk_words(small, tmp_path / "not" / "there")
    assert words.endswith("too little: fewer training.keep, or another disk; 1e-08 GB are free")


def test_the_peaks_of_a_cpu_at_full_size():
    """18.82 and 21.05 GB were measured: `python scripts/full_size.py FOLDER`, 2 cores, 24 GiB."""
    with jax.numpy_dtype_promotion("standard"):
        for kind, peak in (("expert", 18.82), ("lora", 21.05)):
            needed = memory.estimate(config.load("pi05_droid", ["training.batch=1", f"training.kind={kind}"]))
            assert needed.on_a_cpu / 1e9 == pytest.approx(peak, rel=0.1)
            assert needed.on_a_cpu == needed.state + needed.saving > needed.total


def test_the_one_figure_measured_at_full_size():
    """5.2 GB of temporary memory on an H200 for the action expert's step, batch 32 (docs/scale.md)."""
    with jax.numpy_dtype_promotion("standard"):
        loaded = memory.estimate(config.load("pi05_droid", ["model.morphology=null"]))
    assert (loaded.gradients + loaded.activations) / 1e9 == pytest.approx(5.2, rel=0.15)
    assert loaded.average == 4 * 430_098_464
