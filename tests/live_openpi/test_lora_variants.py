"""Our low-rank pairs are openpi's: names, shapes, the loss, and what its freeze filter leaves to learn."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from live_openpi_sizes import ODD, pure

from morph_vla.pi05 import Observation, init_params, loss
from morph_vla.pi05.config import Lora, LowRank
from morph_vla.recipes.keys import Training
from morph_vla.training.kinds import learns
from morph_vla.weights.checkpoint import flat

PAIRS = Lora(LowRank(16, 16.0), LowRank(32, 32.0))


@pytest.fixture(scope="module")
def paired(openpi):
    """openpi's gemma_2b_lora with gemma_300m_lora at the sizes of ODD, and weights none of which is zero."""
    from flax import nnx

    patch, own = pytest.MonkeyPatch(), openpi.gemma.get_config
    low = {name: own(name).lora_configs for name in ("gemma_2b_lora", "gemma_300m_lora")}

    def sized(variant: str) -> Any:
        size = ODD.expert if "300m" in variant else ODD.prefix
        sizes = size.width, ODD.depth, size.mlp_dim, ODD.heads, ODD.kv_heads, ODD.head_dim
        return openpi.gemma.Config(*sizes, low.get(variant, {}))

    vit, pixels = ODD.vit, (ODD.image_size, ODD.image_size)
    sizes = {"width": vit.width, "depth": vit.depth, "mlp_dim": vit.mlp_dim, "num_heads": vit.heads}
    patch.setattr(openpi.gemma, "get_config", sized)
    patch.setattr(openpi.gemma, "PALIGEMMA_VOCAB_SIZE", ODD.vocab)
    patch.setattr(openpi.siglip, "decode_variant", lambda _: {**sizes, "patch_size": (vit.patch, vit.patch)})
    patch.setattr(openpi.model, "IMAGE_RESOLUTION", pixels)
    patch.setitem(openpi.model.preprocess_observation.__kwdefaults__, "image_resolution", pixels)
    config = openpi.pi0_config.Pi0Config(
        dtype="float32", pi05=True, action_dim=ODD.action_dim, action_horizon=ODD.horizon,
        max_token_len=ODD.max_tokens, paligemma_variant="gemma_2b_lora",
        action_expert_variant="gemma_300m_lora",
    )  # fmt: skip
    model = openpi.pi0.Pi0(config, rngs=nnx.Rngs(0))
    rng, state = np.random.default_rng(0), nnx.state(model)
    state.replace_by_pure_dict(
        jax.tree.map(lambda x: np.asarray(0.25 * rng.normal(size=x.shape), np.float32), pure(state))
    )
    nnx.update(model, state)
    yield config, model, jax.tree.map(np.asarray, pure(nnx.state(model)))
    patch.undo()


def test_names_shapes_and_loss(openpi, paired, batch):
    _, theirs, params = paired
    model = dataclasses.replace(ODD, lora=PAIRS)
    ours = jax.eval_shape(lambda: init_params(model, jax.random.key(0)))
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, ours)
    seen = openpi.model.Observation(
        images=jax.tree.map(jnp.asarray, batch.images),
        image_masks=jax.tree.map(jnp.asarray, batch.masks),
        state=jnp.asarray(batch.state),
        tokenized_prompt=jnp.asarray(batch.tokens),
        tokenized_prompt_mask=jnp.asarray(batch.token_mask),
    )
    key, actions = jax.random.key(3), jnp.asarray(batch.actions)
    wanted = theirs.compute_loss(key, seen, actions, train=False)
    _, noise_key, time_key = jax.random.split(key, 3)
    noise = jax.random.normal(noise_key, actions.shape)
    time = jax.random.beta(time_key, 1.5, 1, actions.shape[:1]) * 0.999 + 0.001
    observation = Observation(batch.images, batch.masks, batch.tokens, batch.token_mask)
    result = loss(model, params, observation, actions, noise[None], time[None])[0].mean(-1)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-5)


def test_the_same_leaves_learn(paired):
    from flax import nnx

    config, model, params = paired
    frozen = nnx.state(model).filter(nnx.All(nnx.Param, config.get_freeze_filter()))
    theirs = set(flat(params)) - set(flat(pure(frozen)))
    training = Training(steps=1, kind="lora", lora=PAIRS)
    assert theirs == {name for name in flat(params) if learns(name, training)}
