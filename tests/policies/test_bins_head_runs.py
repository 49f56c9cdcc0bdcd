"""A run of pi0.5 with a head, on poses: its checkpoint, what it answers, and what takes it or refuses it."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest

from morph_vla import weights
from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.files import typed_yaml
from morph_vla.hosts.openpi import recipes as openpi_recipes
from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig, init_params
from morph_vla.pi05.config import BinsHead
from morph_vla.pi05.parts import by_name
from morph_vla.recipes import recipe as recipes
from morph_vla.serving import card, foreign
from morph_vla.serving.policy import CheckpointPolicy, load
from morph_vla.training import counted, loop, parameters
from morph_vla.training.source import Source
from morph_vla.weights.convert import convert

pytestmark = pytest.mark.slow

MODEL = (
    "model={vocab: 1288, cameras: [], environment: 14, image_size: 16, vit: {width: 8, depth: 1, mlp_dim: 8,"
    " heads: 1, patch: 16}, prefix: {width: 8, mlp_dim: 12}, expert: {width: 8, mlp_dim: 12}, depth: 2,"
    " heads: 2, head_dim: 4, action_dim: 9, horizon: 4, max_tokens: 24, dtype: float32, init: scratch,"
    " morphology: {max_joints: 9, descriptors: geometry, poses: present}}"
)
SMALL = [
    MODEL, "training={steps: 5, batch: 6, checkpoint_every: 5, held_out_every: 5}", "tokenizer=words",
    "data.cameras={}", "data.held_out=0.4", "data.actions=delta", "data.phases={}", "data.statistics=robot",
]  # fmt: skip
HEAD = "model.head={bins: 5, gamma: 0}"


def model_of(run) -> Pi05Config:
    model = recipes.of_run(run.folder).model
    assert isinstance(model, Pi05Config)
    return model


def recipe_of(dataset, *changes):
    return recipes.load("panda_demo", [*SMALL, f"data.dataset={dataset}", *changes])


@pytest.fixture(scope="module")
def run(dataset, tmp_path_factory):
    return loop.train(recipe_of(dataset, HEAD), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def plain(dataset, tmp_path_factory):
    return loop.train(recipe_of(dataset), tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def policy(run) -> CheckpointPolicy:
    return CheckpointPolicy(run.checkpoint, batch=2)


def test_a_checkpoint_remembers_the_choice_and_its_kinds(run, policy):
    assert policy.config == model_of(run)
    assert model_of(run).head == BinsHead(bins=5, gamma=0.0)
    again = parameters.begun(
        recipes.of_run(run.folder), Source(recipes.of_run(run.folder), run.folder / "cache")
    )
    np.testing.assert_array_equal(policy.params["bins"]["centres"], again["bins"]["centres"])
    assert np.ptp(policy.params["bins"]["centres"], axis=0).max() > 0.1
    assert np.abs(policy.params["head"]["out"]["kernel"]).max() > 0


def test_it_answers_alike_in_any_company_and_draws_by_episode_and_step(policy, run, seen):
    asked = {**seen, "episode": 0, "step": 0}
    moved = {**asked, "environment_state": asked["environment_state"] + np.float32(0.1)}
    one, other = policy.infer_batch([asked, moved])
    assert one["actions"].shape == (4, 8)
    np.testing.assert_array_equal(policy.infer(asked)["actions"], one["actions"])
    assert not np.array_equal(one["actions"], other["actions"])
    rows = [{**asked, "step": number} for number in range(23)]
    answers = {answer["actions"].tobytes() for answer in policy.infer_batch(rows)}
    assert 1 < len(answers) <= 5
    quiet = CheckpointPolicy(run.checkpoint, batch=2, noise=0.0, steps=3)
    assert len({answer["actions"].tobytes() for answer in quiet.infer_batch(rows)}) == 1


def test_it_is_served_and_evaluated_but_does_not_go_on_from_other_answers(policy, tiny_suite):
    known, _ = card.of(policy)
    card.check(known)
    words = "does not go on from what is being executed .*; serve it without --real-time$"
    with pytest.raises(MorphVlaError, match=words):
        card.of(policy, real_time=True)
    options: dict[str, Any] = {"episodes": 1, "videos": 0, "parallel": 1, "groups": 1, "workers": 1}
    assert [trial.error for trial in evaluate(policy, tiny_suite, **options).trials] == [None]
    with pytest.raises(MorphVlaError, match=r"^this policy does not go on from what is being executed"):
        evaluate(policy, tiny_suite, real_time=True, **options)


@pytest.mark.long
def test_weights_without_a_head_begin_it_anew(plain, dataset):
    recipe = recipe_of(dataset, HEAD, f"weights={plain.checkpoint}", "training.kind=expert")
    params, theirs = by_name(parameters.first_params(recipe)), CheckpointPolicy(plain.checkpoint).params
    np.testing.assert_array_equal(params["action_in_proj/kernel"], theirs["action_in_proj"]["kernel"])
    assert "action_out_proj/kernel" not in params
    np.testing.assert_array_equal(params["head/out/kernel"], 0)


def test_weights_with_a_head_bring_their_kinds(run, policy, dataset, tmp_path):
    recipe = recipe_of(dataset, HEAD, f"weights={run.checkpoint}", "training.seed=3")
    params = parameters.begun(recipe, Source(recipe, tmp_path))
    for part in ("head", "bins"):
        ours, theirs = by_name(params[part]), by_name(policy.params[part])
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
    with pytest.raises(MorphVlaError, match="head/queries"):
        parameters.first_params(recipe_of(dataset, f"weights={run.checkpoint}"))


@pytest.mark.parametrize("to", ["openpi", "lerobot"])
def test_no_other_programs_pi05_can_have_it(run, tmp_path, to):
    with pytest.raises(
        MorphVlaError, match=f"trained with model.head, and {to}'s pi0.5 denoises its actions$"
    ):
        convert(run.checkpoint, tmp_path / "out", to)
    if to == "lerobot":
        config = model_of(run)
        bare = {"head": {"queries": np.zeros((4, 9), np.float32)}}
        with pytest.raises(
            MorphVlaError, match=r"^LeRobot's pi0\.5 has no model\.head: it denoises its actions$"
        ):
            weights.save_lerobot(tmp_path / "out", bare, dataclasses.replace(config, morphology=None))


def test_our_own_format_keeps_it(tmp_path):
    config = Pi05Config(
        vocab=37, image_size=21, cameras=("base_0_rgb",), vit=VitConfig(6, 1, 5, 2, 7),
        prefix=GemmaConfig(10, 11), expert=GemmaConfig(12, 13), depth=1, heads=2, kv_heads=1, head_dim=4,
        action_dim=7, horizon=6, max_tokens=5, dtype="float32", remat=False, head=BinsHead(bins=3),
    )  # fmt: skip
    params = init_params(config, jax.random.key(0))
    weights.save_morph_vla(tmp_path / "ours", params)
    for given in (config, None):
        again, report = weights.load(tmp_path / "ours", given)
        assert not report.new
        assert by_name(again).keys() == by_name(params).keys()
        np.testing.assert_array_equal(again["head"]["queries"], params["head"]["queries"])


def test_a_checkpoint_of_others_is_not_read_by_a_recipe_with_a_head(plain, dataset, tmp_path):
    words = "trained with model.environment, and openpi's pi0.5 reads no poses"
    with pytest.raises(MorphVlaError, match=words):
        convert(plain.checkpoint, tmp_path / "theirs", "openpi", model_of(plain))
    weights.save_openpi(tmp_path / "theirs", weights.load(plain.checkpoint, model_of(plain))[0])
    opened = weights.open_checkpoint(tmp_path / "theirs")
    words = "the checkpoint denoises its actions, and the recipe has model.head; give --recipe one without$"
    with pytest.raises(MorphVlaError, match=words):
        foreign._config(opened, "", recipe_of(dataset, HEAD), foreign.Processor())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            "training.flow_samples=3",
            "training.flow_samples: 3 has no effect with model.head, .* set it to 1, or",
        ),
        (
            "training.noise_share=0.5",
            "training.noise_share: 0.5 has no effect with model.head, .* set it to 0",
        ),
        ("model.delay_max=2", "model.delay_max: 2 has no effect with model.head"),
        ("model.head.bins=0", "model.head.bins: must be at least 1, not 0"),
        ("model.head.kinds=3", "model.head.kinds: no such key"),
    ],
)
def test_what_does_not_go_with_a_head_is_said(dataset, change, sentence):
    with pytest.raises(ConfigError, match=sentence):
        recipe_of(dataset, HEAD, change)


def test_openpis_host_does_not_know_it(tmp_path):
    path = tmp_path / "some.yaml"
    path.write_text("robot: panda\ndata: fake\nhead: {bins: 3}\n")
    with pytest.raises(ConfigError, match="head: no such key"):
        typed_yaml.read(path, openpi_recipes.Recipe)


def test_it_is_counted(dataset):
    with_head, without = (counted.count(recipe_of(dataset, *changes)) for changes in ([HEAD], []))
    parts = {row["part"]: row for row in with_head.parts}
    assert parts["head"]["parameters"] == parts["head"]["trainable"] == 4 * 9 + (8 + 1) * 5 * (1 + 9)
    assert (parts["bins"]["parameters"], parts["bins"]["trainable"]) == (5 * 4 * 9 + 1, 0)
    assert not {"head", "bins"} & {row["part"] for row in without.parts}
    (ours, *_), (theirs, *_) = with_head.variants, without.variants
    assert ours.sampling_call_flop < theirs.sampling_call_flop


def test_steps_of_a_sampler_that_it_does_not_have_are_refused(run):
    words = "--sampler-steps 5 has no effect: .* is a policy with model.head, which answers in one pass and"
    with pytest.raises(MorphVlaError, match=f"^{words} integrates no flow; leave it out$"):
        load(run.checkpoint, refuse_unused=True, steps=5)
    assert load(run.checkpoint, refuse_unused=True, noise=0.5).sampler["noise"] == 0.5  # its kind is drawn
