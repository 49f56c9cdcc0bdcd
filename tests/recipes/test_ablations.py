"""The paper's tables as variants: every row, on the full recipe and on its small twin."""

import dataclasses
import json
import re

import jax
import pytest

from morph_vla.errors import ConfigError
from morph_vla.files import dropin
from morph_vla.pi05 import counts
from morph_vla.recipes import ablations
from morph_vla.recipes import recipe as config

ROWS = {1: 7, 2: 6, 3: 5, 4: 6, 5: 4, 11: 12}  # as many as each table has
SPACES = {"ours.tool": "tool", "ours.hand": "hand"}  # that stand in the place of the plugin


def test_the_grid_is_whole_and_has_no_duplicates():
    variants = list(ablations.VARIANTS.values())
    assert {table: sum(v.table == table for v in variants) for table in ROWS} == ROWS
    settings = [(v.overrides, v.measured_on, v.warm_start) for v in variants if not v.same_as]
    assert len(settings) == len(set(settings))
    for variant in variants:
        if variant.same_as:
            assert ablations.VARIANTS[variant.same_as].overrides == variant.overrides
        group = f"table{variant.table}" if variant.table else "ours"
        assert variant.name == f"{group}.{variant.name.partition('.')[2]}"


@pytest.mark.parametrize("name", ["three_robots", "pi05_droid_so101"])
def test_what_a_variant_says_of_its_data_is_said_of_every_dataset(name):
    for variant in ("ours.tool", "ours.hand"):
        data = config.load(f"{name}@{variant}").data
        assert len(data.sources) > 1
        assert {source.actions for source in data.sources} == {"delta"}
        assert (data.statistics, data.space) == ("robot", SPACES[variant])
    mine = "data.datasets=[{dataset: a, robot: panda}, {dataset: b, robot: so101}]"
    data = config.load("three_robots@ours.tool", [mine]).data
    assert [(source.dataset, source.actions) for source in data.sources] == [("a", "delta"), ("b", "delta")]
    data = config.load("three_robots@ours.tool", [mine, "data.datasets.1.actions=absolute"]).data
    assert data.sources[1].actions == "absolute", "what is asked for wins"


def test_half_widths_are_those_of_300_trials_of_three_tasks():
    """Wilson's half-width at n = 300 for the printed average, to the printed digit and rounding."""
    for variant in ablations.VARIANTS.values():
        if variant.success is None or variant.half_width is None:
            assert variant.name.startswith("ours.")  # which the paper does not measure
            continue
        p, n, z = variant.success / 100, 300, 1.959964
        half = 100 * z * ((p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5) / (1 + z**2 / n)
        assert variant.half_width == pytest.approx(half, abs=0.11), variant.name


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["pi05_droid", "panda_demo"])
def test_every_variant_is_a_recipe(recipe):
    base, seen = config.load(recipe), {}
    assert base.model.morphology is not None
    for name, variant in ablations.VARIANTS.items():
        loaded = config.load(f"{recipe}@{name}")
        body = loaded.model.morphology
        assert loaded.data.space == SPACES.get(name, "joints")
        assert dataclasses.replace(loaded, model=base.model, weights=base.weights, data=base.data) == base
        assert (body is None) == (name.endswith("baseline") or name in SPACES)
        if body is not None:
            assert body.max_joints == base.model.morphology.max_joints
            seen.setdefault(body, loaded.model)
        if variant.warm_start:
            assert loaded.weights == f"runs/{recipe}@{variant.warm_start}/checkpoints/{base.training.steps}"
    assert len(seen) == 27
    for body, model in seen.items():
        with jax.numpy_dtype_promotion("standard"):
            leaves = counts.plugin_shapes(model)
        assert ("film" in str(leaves)) == body.film
        assert ("'pose'" in str(leaves)) == (body.poses == "present")
        assert ("'decoder'" in str(leaves)) == (body.readout == "joints")


@pytest.mark.slow
def test_overrides_come_after_the_variant_and_a_wrong_one_names_the_nearest(run):
    loaded = config.load("panda_demo@table3.chunks-4", ["model.morphology.chunks=2", "training.seed=3"])
    assert loaded.model.morphology is not None
    assert (loaded.model.morphology.chunks, loaded.training.seed) == (2, 3)
    with pytest.raises(ConfigError, match=r"no variant 'table3\.chunk-4'; did you mean 'table3\.chunks-4'"):
        config.load("panda_demo@table3.chunk-4")
    status, out, _ = run("recipes show panda_demo@table1.baseline")
    assert status == 0
    assert "morphology: null" in out


@pytest.mark.parametrize(
    ("name", "override", "words"),
    [
        (
            "panda_demo@table1.baseline",
            "model.morphology.max_joints=8",
            "panda_demo@table1.baseline has model.morphology: null, and no keys in it; leave it out",
        ),
        (
            "panda_demo@table1.tokens",
            "model.morphology={max_joints: 8}",
            "replaces model.morphology.chunks, which panda_demo@table1.tokens sets; give the keys below ",
        ),
    ],
)
def test_no_override_makes_another_variant_of_it_under_its_name(name, override, words):
    """A whole comparison would be wrong without a trace: the baseline had the paper's best plugin."""
    with pytest.raises(ConfigError, match=re.escape(words)):
        config.load(name, [override])
    assert config.load("panda_demo", [override]).model.morphology is not None


def test_a_recipe_whose_name_has_the_mark_is_a_recipe(tmp_path):
    (tmp_path / "my@rec.yaml").write_bytes(dropin.find("recipes", "panda_demo").read_bytes())
    assert config.load("my@rec", folders=[tmp_path]) == config.load("panda_demo")
    loaded = config.load("my@rec@table1.baseline", folders=[tmp_path])
    assert loaded == config.load("panda_demo@table1.baseline")


def test_the_list_says_what_a_model_refuses(run, tmp_path, reword):
    status, out, _ = run("recipes variants pi05_droid --json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert status == 0
    assert rows.keys() == ablations.VARIANTS.keys()
    assert (rows["table1.tokens-mix-film"]["success"], rows["table1.tokens-mix-film"]["half_width"]) == (
        47.4,
        5.6,
    )
    odd = tmp_path / "odd.yaml"
    odd.write_text(
        "data: {dataset: x, robot: panda}\nmodel: {horizon: 12}\ntraining: {steps: 9}\ntokenizer: paligemma\n"
    )
    status, out, _ = run(f"recipes variants {odd} --table 3")
    assert status == 1
    assert "table3.chunks-4" in out
    assert "table3.chunks-8: refused" in out
    assert "morphology.chunks: 8 does not divide the horizon 12; choose one of 1, 2, 3, 4, 6, 12" in out
    names = f"recipes variants {odd} --table 3 --names"
    assert run(names)[1].split() == [f"table3.chunks-{g}" for g in (1, 2, 4)]
    reword()
    assert run(names)[1].split() == [f"table3.chunks-{g}" for g in (1, 2, 4)]
