"""Fourier controller: low modes of what was, channel by channel, and a feed-forward layer, in every layer.

Tan et al., "Fourier Controller Networks for Real-Time Decision-Making in Embodied Learning" (ICML 2024),
Section 3.1. A window of rows (joint values, poses of objects, the task's text) goes in, the chunk that
follows its last row comes out:

    rows [w]   -> tokenizer      a linear layer                                         P
               -> encoder        y = gelu(convolution(norm(x))) + x, then mlp(norm(y)) + y, `depth` times
    last row   -> detokenizer    two layers, to the next H targets                      Q

Each channel has m x m complex weights of its own: with them the sizes of the paper's Table 5 make the 787,852
parameters of its Table 7, to the last one. Rows from before the episode count as zeros in every layer, as if
it had begun with the first row that is there.
"""

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from morph_vla.pi05.observation import Observation
from morph_vla.policies import spectral
from morph_vla.policies.config import FourierConfig
from morph_vla.policies.family import Asked, Drawn, Params, Recorded, as_trained
from morph_vla.policies.text import TEXT
from morph_vla.robots import Robot

ready = as_trained


class Layer(nn.Module):
    """The convolution over time and the feed-forward layer of each row, on many rows or on the next one."""

    config: FourierConfig

    def setup(self) -> None:
        config = self.config
        shape, scale = (2, config.modes, config.modes, config.width), config.modes**-0.5
        self.modes = self.param("modes", nn.initializers.normal(scale), shape)
        self.norm, self.mlp_norm = nn.LayerNorm(), nn.LayerNorm()
        self.mlp_in, self.mlp_out = nn.Dense(config.mlp_dim), nn.Dense(config.width)

    def __call__(self, x: Float[Array, "b w d"], real: Bool[Array, "b w"]) -> Float[Array, "b w d"]:
        """All rows at once; those that are not `real` are seen by none."""
        seen = jnp.where(real[:, :, None], self.norm(x), 0.0)
        window = self.config.window
        taps = spectral.taps(spectral.readout(jnp.asarray(self.modes), window), window)
        return self._forward(x, spectral.parallel(taps, seen))

    def next(
        self, expected: Float[Array, "d"], now: Float[Array, "d"], x: Float[Array, "d"]
    ) -> tuple[Float[Array, "d"], Float[Array, "d"]]:
        """What the convolution is to remember of the next row, and the row behind this layer."""
        seen = self.norm(x)
        return seen, self._forward(x, expected + now * seen)

    def _forward(self, x: Float[Array, "*b d"], mixed: Float[Array, "*b d"]) -> Float[Array, "*b d"]:
        y = nn.gelu(mixed) + x
        return self.mlp_out(nn.gelu(self.mlp_in(self.mlp_norm(y)))) + y


class Encoder(nn.Module):
    """The layers, one after another."""

    config: FourierConfig

    def setup(self) -> None:
        self.layers = [Layer(self.config, name=f"layer_{number}") for number in range(self.config.depth)]

    def __call__(self, x: Float[Array, "b w d"], real: Bool[Array, "b w"]) -> Float[Array, "b w d"]:
        """All rows at once."""
        for layer in self.layers:
            x = layer(x, real)
        return x

    def next(
        self, memory: spectral.Memory, readout: spectral.Readout, x: Float[Array, "d"]
    ) -> tuple[spectral.Memory, Float[Array, "d"]]:
        """The next row alone: the past of all layers is read before the first, and written after the last."""
        expected, rows = spectral.expected(memory, readout), []
        for number, layer in enumerate(self.layers):
            seen, x = layer.next(expected[number], readout.now[number], x)
            rows.append(seen)
        return spectral.accept(memory, jnp.stack(rows)), x


class Detokenizer(nn.Module):
    """Two layers, from an embedding to the values of a chunk."""

    config: FourierConfig

    @nn.compact
    def __call__(self, x: Float[Array, "*b d"]) -> Float[Array, "*b h a"]:
        """The chunk that follows each row."""
        config = self.config
        hidden = nn.gelu(nn.Dense(config.decoder, name="hidden")(x))
        values = nn.Dense(config.horizon * config.action_dim, name="out")(hidden)
        return values.reshape(*x.shape[:-1], config.horizon, config.action_dim)


class Controller(nn.Module):
    """Tokenizer, encoder, detokenizer."""

    config: FourierConfig

    def setup(self) -> None:
        self.tokenizer = nn.Dense(self.config.width)
        self.encoder = Encoder(self.config)
        self.detokenizer = Detokenizer(self.config)

    def __call__(self, rows: Float[Array, "b w s"], real: Bool[Array, "b w"]) -> Float[Array, "b w h a"]:
        """The chunks that follow each row, from all rows at once."""
        return self.detokenizer(self.encoder(self.tokenizer(rows), real))

    def last(self, rows: Float[Array, "b w s"], real: Bool[Array, "b w"]) -> Float[Array, "b h a"]:
        """The chunk that follows the last row."""
        return self.detokenizer(self.encoder(self.tokenizer(rows), real)[:, -1])

    def next(
        self, memory: spectral.Memory, readout: spectral.Readout, row: Float[Array, "s"]
    ) -> tuple[spectral.Memory, Float[Array, "h a"]]:
        """The chunk that follows the next row, in a time that does not depend on the window."""
        memory, x = self.encoder.next(memory, readout, self.tokenizer(row))
        return memory, self.detokenizer(x)


def begin(config: FourierConfig) -> spectral.Memory:
    """All layers' memory before the first row of an episode, for `Controller.next`."""
    return spectral.begin(config.window, config.modes, config.depth, config.width)


def readout(config: FourierConfig, params: Params) -> spectral.Readout:
    """What `Controller.next` reads of all layers' weights over time, computed once for all rows."""
    layers = [params["encoder"][f"layer_{number}"] for number in range(config.depth)]
    vectors = [spectral.readout(jnp.asarray(layer["modes"]), config.window) for layer in layers]
    return spectral.stepwise(jnp.stack(vectors, axis=1), config.window)


def init(config: FourierConfig, key: Array) -> Params:
    """Fresh parameters, float32."""
    config.check()
    rows = jnp.zeros((1, config.window, config.action_dim + config.environment + TEXT))
    return dict(Controller(config).init(key, rows, jnp.ones(rows.shape[:2], bool))["params"])


def loss(
    config: FourierConfig, params: Params, drawn: Drawn, frozen_prefix: bool = False
) -> Float[Array, "b a"]:
    """Squared error of the chunk, averaged over the horizon; noise and times mean nothing here."""
    del frozen_prefix
    return jnp.mean(jnp.square(_chunk(config, params, drawn.observation) - drawn.actions), axis=1)


def fit(config: FourierConfig, params: Params, recorded: Recorded, seed: int) -> Params:
    """Nothing is learnt before the first step."""
    return params


def ahead(config: FourierConfig, params: Params, steps: int) -> None:
    """Nothing."""


def act(
    config: FourierConfig, params: Params, ahead: None, asked: Asked, steps: int
) -> Float[Array, "b h a"]:
    """The chunk; the same whatever the noise."""
    return _chunk(config, params, asked.observation)


def body(config: FourierConfig, robot: Robot) -> None:
    """It knows nothing of the robot's body."""


def real_time(config: FourierConfig) -> bool:
    """Chunks do not go on from each other."""
    return False


def served_type(config: FourierConfig, leaf: str) -> None:
    """Every leaf as it is."""


def _chunk(config: FourierConfig, params: Params, observation: Observation) -> Float[Array, "b h a"]:
    assert observation.state is not None
    assert observation.environment is not None
    rows = jnp.concatenate([jnp.asarray(observation.state), jnp.asarray(observation.environment)], axis=2)
    real = jnp.asarray(observation.window_mask)
    return jnp.asarray(Controller(config).apply({"params": params}, rows, real, method="last"))
