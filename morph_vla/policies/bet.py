"""Behavior Transformer: a causal transformer that names a bin of actions, and an offset within it.

    observation  ->  embedding  ->  layers  ->  a logit of each of k bins, and an offset for each

Shafiullah, Cui, Altanzaya and Pinto, "Behavior Transformers: Cloning k modes with one stone" (NeurIPS 2022),
Appendix B. Where demonstrations do the same thing in several ways, squared error learns their mean, which may
be none of them; here one way is drawn. `bins` has the arithmetic. The centres of the bins are found before
the first step, and are leaves that do not learn.

Decided where the paper is silent, or ours is another setting: a bin is one of whole action chunks (`horizon:
1` is the paper's); the loss is of the last observation of a window, for which alone a batch has actions;
gamma is 2; no dropout; the last layer begins at zero, so that both losses are equal there (`bins.balance`).
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from morph_vla.pi05.head import unfitted
from morph_vla.pi05.observation import Observation
from morph_vla.policies import bins
from morph_vla.policies.body import Layer
from morph_vla.policies.config import BetConfig
from morph_vla.policies.family import Asked, Drawn, Params, Recorded, as_trained
from morph_vla.policies.text import TEXT
from morph_vla.robots import Robot

ready = as_trained


class Trunk(nn.Module):
    """The layers: every observation sees itself and those before it."""

    config: BetConfig

    @nn.compact
    def __call__(self, x: Float[Array, "b w d"], mask: Bool[Array, "b w"]) -> Float[Array, "b w d"]:
        """`mask`: which observations there are; the others are seen by none but themselves."""
        window = x.shape[1]
        table = self.param("positions", nn.initializers.normal(0.02), (window, self.config.width))
        bias = jnp.where(causal(mask), 0.0, -jnp.inf)
        x = x + jnp.asarray(table)
        for number in range(self.config.depth):
            x = Layer(self.config, name=f"layer_{number}")(x, bias)
        return nn.LayerNorm(name="norm")(x)


def causal(mask: Bool[Array, "b w"]) -> Bool[Array, "b w w"]:
    """What each observation (row) sees.

    Of a window of four whose first is before the episode's start:

    1 0 0 0
    0 1 0 0
    0 1 1 0
    0 1 1 1
    """
    own = jnp.eye(mask.shape[1], dtype=bool)
    return jnp.tril(mask[:, None, :] | own)


class BetPolicy(nn.Module):
    """Tokenizer, trunk, and one linear layer to logits and offsets."""

    config: BetConfig

    @nn.compact
    def __call__(
        self, values: Float[Array, "b w f"], mask: Bool[Array, "b w"]
    ) -> tuple[Float[Array, "b w k"], Float[Array, "b w k d"]]:
        """Logits of the bins, and the offset in each."""
        config = self.config
        x = nn.Dense(config.width, name="tokenizer")(values)
        x = Trunk(config, name="encoder")(x, mask)
        each = 1 + config.horizon * config.action_dim
        last = nn.Dense(config.bins * each, name="detokenizer", kernel_init=nn.initializers.zeros)(x)
        last = last.reshape(*x.shape[:2], config.bins, each)
        return last[..., 0], last[..., 1:]


def inputs(observation: Observation) -> tuple[Float[Array, "b w f"], Bool[Array, "b w"]]:
    """Joint values and what is no joint's, side by side; and which rows of the window there are."""
    state, environment, mask = observation.state, observation.environment, observation.window_mask
    assert mask is not None  # of a family that looks back
    values = [jnp.asarray(part) for part in (state, environment)]
    return jnp.concatenate(values, axis=-1), jnp.asarray(mask)


def predicted(
    config: BetConfig, params: Params, observation: Observation
) -> tuple[Float[Array, "b k"], Float[Array, "b k h a"]]:
    """Logits and offsets at the present observation, the window's last."""
    learnt = {name: leaves for name, leaves in params.items() if name != "bins"}
    outputs: Any = BetPolicy(config).apply({"params": learnt}, *inputs(observation))
    logits, offsets = outputs
    sizes = config.bins, config.horizon, config.action_dim
    return logits[:, -1], offsets[:, -1].reshape(-1, *sizes)


def init(config: BetConfig, key: Array) -> Params:
    """Fresh parameters, float32; the centres are zero until `fit`."""
    config.check()
    values = jnp.zeros((1, config.window, config.action_dim + config.environment + TEXT))
    learnt = BetPolicy(config).init(key, values, jnp.ones((1, config.window), bool))["params"]
    return {**learnt, "bins": unfitted(config.bins, config.horizon, config.action_dim)}


def fit(config: BetConfig, params: Params, recorded: Recorded, seed: int) -> Params:
    """The bins' centres by k-means, and the weight of the offsets' loss.

    Raises MorphVlaError where the data has fewer different chunks than bins.
    """
    actions, mask = recorded.chunks(bins.SAMPLE)
    return {**params, "bins": bins.fitted(actions, mask, config.bins, config.gamma, seed)}


def loss(config: BetConfig, params: Params, drawn: Drawn, frozen_prefix: bool = False) -> Float[Array, "b a"]:
    """That of the kinds, of each row and value. Noise and times mean nothing here."""
    del frozen_prefix
    logits, offsets = predicted(config, params, drawn.observation)
    return bins.errors(logits, offsets, drawn.actions, params["bins"], config.gamma)


def ahead(config: BetConfig, params: Params, steps: int) -> None:
    """Nothing."""


def act(config: BetConfig, params: Params, ahead: None, asked: Asked, steps: int) -> Float[Array, "b h a"]:
    """A chunk of a bin that is drawn by its probability, from the first number of the noise."""
    logits, offsets = predicted(config, params, asked.observation)
    return bins.drawn(logits, offsets, asked.noise[:, 0, 0], params["bins"])


def body(config: BetConfig, robot: Robot) -> None:
    """The model knows nothing of the robot but its joint values."""


def real_time(config: BetConfig) -> bool:
    """Chunks do not go on from each other."""
    return False


def served_type(config: BetConfig, leaf: str) -> None:
    """Every leaf as it is."""
