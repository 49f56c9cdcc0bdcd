"""`model.family` in a recipe: which sizes it means, and what does not go with it."""

import dataclasses
import json
import re
import textwrap

import pytest

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.pi05 import Pi05Config
from morph_vla.policies.config import BodyConfig, MlpConfig
from morph_vla.policies.family import MODULES
from morph_vla.policies.parts import part_of
from morph_vla.recipes import recipe as recipes
from morph_vla.training import counted

pytestmark = pytest.mark.slow

RECIPE = """\
data: {dataset: runs/poses, robot: panda}
model: {family: mlp, width: 7}
training: {steps: 11}
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(textwrap.dedent(RECIPE))
    return path


@pytest.mark.parametrize(
    ("override", "kind"),
    [("model={}", Pi05Config), ("model={family: pi05}", Pi05Config), ("model={family: body}", BodyConfig)],
)
def test_the_family_names_the_sizes(path, override, kind):
    assert isinstance(recipes.load(path, [override]).model, kind)
    assert recipes.load(path).model == MlpConfig(width=7)


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (
            ["model.family=boddy"],
            r"model.family: expected 'pi05', 'body', 'mlp', 'fourier', 'bet' or 'nearest', got \"boddy\"; "
            r"did you mean 'body'\?",
        ),
        (["model.heads=3"], r"model.heads: no such key \(the keys here are action_dim, .*\)"),
        (
            ["training.kind=expert"],
            "training.kind: 'expert' freezes parts that model.family 'mlp' does not have; choose full",
        ),
        (
            ["weights=runs/1"],
            "weights: model.family 'mlp' is trained from random parameters; leave weights out",
        ),
        (
            ["data.cameras={base_0_rgb: front}"],
            "data.cameras: model.family 'mlp' looks through none; leave out base_0_rgb",
        ),
    ],
)
def test_what_does_not_go_with_a_family_is_said(path, overrides, sentence):
    with pytest.raises(ConfigError, match=f"{sentence}$"):
        recipes.load(path, overrides)


NO_TOKENS = "reads a hash of the task's words, no tokens"
UNUSED = [
    ("training.flow_samples=4", "training.flow_samples: 4", "draws no noise in training", "1"),
    ("training.noise_share=0.5", "training.noise_share: 0.5", "draws no noise in training", "0"),
    ("training.prompt_bucket=32", "training.prompt_bucket: 32", "reads no prompt tokens", "0"),
    ("training.shift_pixels=3", "training.shift_pixels: 3", "sees no images", "0"),
    ("training.brightness=0.2", "training.brightness: 0.2", "sees no images", "0"),
    ("training.augmentation=openpi", "training.augmentation: 'openpi'", "sees no images", "none"),
    ("optimizer.plugin_lr_share=0.5", "optimizer.plugin_lr_share: 0.5", "has no plugin", "1"),
    ("tokenizer=words", "tokenizer: 'words'", NO_TOKENS, "bytes"),
]


@pytest.mark.parametrize("family", sorted(set(MODULES) - {"pi05", "nearest"}))
@pytest.mark.parametrize(("override", "given", "why", "unset"), UNUSED)
def test_a_key_that_a_family_on_numbers_does_not_use_is_refused(path, family, override, given, why, unset):
    words = (
        f"{given} has no effect with model.family '{family}', which {why}; set it to {unset}, or leave it out"
    )
    with pytest.raises(ConfigError, match=rf": {re.escape(words)}$"):
        recipes.load(path, [f"model={{family: {family}}}", override])
    recipes.load(path, [f"model={{family: {family}}}", f"{override.partition('=')[0]}={unset}"])


def test_a_run_that_began_with_a_key_of_no_use_goes_on(path, tmp_path):
    recipe = recipes.load(path, ["model={family: mlp}"])
    old = dataclasses.replace(recipe, training=dataclasses.replace(recipe.training, flow_samples=4))
    (tmp_path / "recipe.json").write_text(json.dumps(to_plain(old)))
    assert recipes.of_run(tmp_path) == old


@pytest.mark.parametrize(
    ("model", "place", "rows"),
    [
        ("{family: fourier, window: 1, modes: 1, stride: 5}", "model", "window"),
        ("{family: bet, window: 1, stride: 5}", "model", "window"),
        (
            "{morphology: {history: {steps: 1, modes: 1, stride: 5}}}",
            "model.morphology.history",
            "steps",
        ),
    ],
)
def test_a_stride_between_no_rows_is_refused(path, model, place, rows):
    words = (
        f"{place}.stride: 5 has no effect with {place}.{rows} 1, which has no earlier row; set it to 8 (the "
        f"default), or {place}.{rows} to 2 or more"
    )
    with pytest.raises(ConfigError, match=rf": {re.escape(words)}$"):
        recipes.load(path, [f"model={model}"])
    recipes.load(path, [f"model={model}", f"{place}.stride=8"])
    recipes.load(path, [f"model={model}", f"{place}.{rows}=2"])


@pytest.mark.parametrize(
    "changes", [[], ["model={family: mlp}"], ["model={family: fourier}"], ["model={family: bet}"]]
)
def test_a_family_is_counted(changes):
    recipe = recipes.load("body_state", changes)
    text = str(counted.count(recipe))
    assert "tokenizer" in text
    assert "encoder" in text
    counts = json.loads(json.dumps(counted.count(recipe).kinds))
    assert counts["full"]["trainable"] > 10_000


def test_only_pi05s_step_is_estimated():
    with pytest.raises(
        MorphVlaError, match=r"a step's time is estimated for pi0.5, not for model.family 'body'"
    ):
        counted.scaling(recipes.load("body_state"))


def test_parts_are_told_by_name():
    assert part_of("encoder/layer_0/out/kernel") == "encoder"
    assert part_of("tokenizer/root/kernel") == "tokenizer"
    assert part_of("PaliGemma/llm/embedder/input_embedding") == "language model"
