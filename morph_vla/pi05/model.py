"""pi0.5: flow matching over action chunks, with or without a body (openpi: `models/pi0.py`).

The prefix (images, prompt, state) never sees the suffix (actions, joints), so it is run once and its keys
and values are what the suffix reads: several noise draws share one prefix in training, all Euler steps share
it in sampling. The joint pass over both is kept as the reference that the cached one must equal.

Who sees whom (p prefix, a actions, k kinematic tokens; rows look at columns):

        p a k
    p   x . .
    a   x x x      (with `start: exact`, a softmax over p and a, and one over k behind a gate)
    k   x x b      b: plus the topology bias; padded tokens and joints are seen by none
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float

from morph_vla.errors import MorphVlaError
from morph_vla.morphology.arrays import Body, blank
from morph_vla.morphology.tokens import KinematicTokens
from morph_vla.pi05 import realtime
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.gemma import Cache, Gemma, Modulations, Streams
from morph_vla.pi05.observation import Observation, to_unit
from morph_vla.pi05.realtime import Previous
from morph_vla.pi05.siglip import Siglip

Params = dict[str, Any]


def time_embedding(time: Float[Array, "b"], width: int) -> Float[Array, "b d"]:
    """Sines and cosines of t at `width`/2 periods from 4e-3 to 4, geometrically spaced."""
    periods = 4e-3 * (4.0 / 4e-3) ** jnp.linspace(0.0, 1.0, width // 2)
    angles = jnp.einsum("b,d->bd", time, 2 * jnp.pi / periods, precision=jax.lax.Precision.HIGHEST)
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)


class PaliGemma(nn.Module):
    """Image encoder and transformer, under openpi's name."""

    config: Pi05Config

    def setup(self) -> None:
        config = self.config
        self.img = Siglip(
            config.vit,
            config.prefix.width,
            config.dtype,
            config.remat,
            config.unroll,
            config.init == "openpi",
        )
        self.llm = Gemma(config)


class Suffix(NamedTuple):
    """What is denoised, as the transformer takes it."""

    streams: Streams
    """action tokens followed by kinematic tokens; with `start: exact` the two apart"""
    mask: Bool[Array, "b t"]
    bias: Float[Array, "l b j j"] | None
    gate: Float[Array, "l n"] | None


class Pi05(nn.Module):
    """The whole model. Its parts are called through `apply(params, ..., method=...)`."""

    config: Pi05Config

    def setup(self) -> None:
        config, width = self.config, self.config.expert.width
        self.PaliGemma = PaliGemma(config)
        self.action_in_proj = nn.Dense(width)
        self.time_mlp_in = nn.Dense(width)
        self.time_mlp_out = nn.Dense(width)
        self.action_out_proj = nn.Dense(config.action_dim)
        if config.morphology is not None:
            self.morphology = KinematicTokens(config.morphology, width, config.depth, config.heads)

    def embed_prefix(self, observation: Observation) -> tuple[Float[Array, "b p d"], Bool[Array, "b p"]]:
        """Image tokens of the cameras that are there, in the config's order, then the prompt's."""
        tokens, masks = [], []
        # One call for all cameras: weights are shared, and one large product beats several small ones.
        names = [name for name in self.config.cameras if name in observation.images]
        if names:
            images = jnp.concatenate([to_unit(jnp.asarray(observation.images[name])) for name in names])
            for name, part in zip(names, jnp.split(self.PaliGemma.img(images), len(names)), strict=True):
                tokens.append(part)
                mask = jnp.asarray(observation.image_masks[name])
                masks.append(jnp.broadcast_to(mask[:, None], part.shape[:2]))
        tokens.append(self.PaliGemma.llm.embed(jnp.asarray(observation.tokens)))
        masks.append(jnp.asarray(observation.token_mask))
        joined = jnp.concatenate([t.astype(self.config.dtype) for t in tokens], axis=1)
        return joined, jnp.concatenate(masks, axis=1)

    def embed_suffix(self, actions: Float[Array, "b h a"], body: Body | None) -> Suffix:
        """Action tokens and kinematic tokens. Raises MorphVlaError for a body that is missing."""
        tokens = self.action_in_proj(actions)
        mask = jnp.ones(tokens.shape[:2], bool)
        if self.config.morphology is None:
            return Suffix([tokens], mask, None, None)
        if body is None:
            raise MorphVlaError("the model has kinematic tokens, but the observation carries no body")
        joints = self.morphology(actions, body)
        streams: Streams = [tokens, joints.tokens]
        if joints.gate is None:
            streams = [jnp.concatenate([tokens, joints.tokens], axis=1)]
        return Suffix(streams, jnp.concatenate([mask, joints.mask], axis=1), joints.bias, joints.gate)

    def condition(self, time: Float[Array, "b"]) -> Float[Array, "b d"]:
        """What adaRMS is conditioned on: the time, through two layers."""
        condition = nn.swish(self.time_mlp_in(time_embedding(time, self.config.expert.width)))
        return nn.swish(self.time_mlp_out(condition))

    def prefix(
        self, observation: Observation, forward_only: bool = False
    ) -> tuple[Cache, Bool[Array, "b p"]]:
        """Keys and values of every layer for the prefix, and which of its tokens are real.

        `forward_only` is for a language model that no gradient flows into: the same numbers, without what the
        last layer makes and nobody reads.
        """
        tokens, mask = self.embed_prefix(observation)
        positions = jnp.cumsum(mask, axis=1) - 1
        visible = jnp.broadcast_to(mask[:, None, :], (*mask.shape, mask.shape[1])) & mask[:, :, None]
        if forward_only:
            return self.PaliGemma.llm.keys_values(tokens, positions, visible), mask
        _, cache = self.PaliGemma.llm([tokens, None], positions, visible)
        return cache, mask

    def velocity(
        self,
        cache: Cache,
        prefix_mask: Bool[Array, "b p"],
        actions: Float[Array, "b h a"],
        time: Float[Array, "b"],
        body: Body | None = None,
        modulations: Modulations | None = None,
    ) -> Float[Array, "b h a"]:
        """v(x_t, t | prefix), the suffix alone reading the prefix's cache.

        `modulations` are those of `time`, where they were computed before.
        """
        suffix, mask = self.embed_suffix(actions, body), prefix_mask
        positions = jnp.sum(mask, axis=1)[:, None] + jnp.cumsum(suffix.mask, axis=1) - 1
        seen = jnp.concatenate([mask, suffix.mask], axis=1)
        visible = jnp.broadcast_to(seen[:, None, :], (*suffix.mask.shape, seen.shape[1]))
        streams, _ = self.PaliGemma.llm(
            [None, *suffix.streams],
            positions,
            visible,
            condition=self.condition(time) if modulations is None else None,
            cache=cache,
            bias=suffix.bias,
            gate=suffix.gate,
            modulations=modulations,
        )
        return self._velocity(streams)

    def velocity_joint(
        self, observation: Observation, actions: Float[Array, "b h a"], time: Float[Array, "b"]
    ) -> Float[Array, "b h a"]:
        """The same in one pass over prefix and suffix: the reference, and what creates the parameters."""
        prefix, prefix_mask = self.embed_prefix(observation)
        suffix = self.embed_suffix(actions, observation.body)
        mask = jnp.concatenate([prefix_mask, suffix.mask], axis=1)
        block = jnp.arange(mask.shape[1]) >= prefix.shape[1]  # False: prefix, True: suffix
        visible = (block[None, :] <= block[:, None]) & mask[:, None, :] & mask[:, :, None]
        positions = jnp.cumsum(mask, axis=1) - 1
        streams, _ = self.PaliGemma.llm(
            [prefix, *suffix.streams],
            positions,
            visible,
            condition=self.condition(time),
            bias=suffix.bias,
            gate=suffix.gate,
        )
        return self._velocity(streams)

    def _velocity(self, streams: Streams) -> Float[Array, "b h a"]:
        """Read from the action tokens alone."""
        out = streams[1]
        assert out is not None
        return self.action_out_proj(out[:, : self.config.horizon].astype(jnp.float32))


def example(
    config: Pi05Config, batch: int = 1
) -> tuple[Observation, Float[Array, "b h a"], Float[Array, "b"]]:
    """Zeros of the right shapes: an observation, actions and times."""
    size = (batch, config.image_size, config.image_size, 3)
    body = None if config.morphology is None else blank(config.morphology, batch)
    observation = Observation(
        {name: jnp.zeros(size) for name in config.cameras},
        {name: jnp.ones(batch, bool) for name in config.cameras},
        jnp.zeros((batch, config.max_tokens), jnp.int32),
        jnp.ones((batch, config.max_tokens), bool),
        body,
    )
    return observation, jnp.zeros((batch, config.horizon, config.action_dim)), jnp.ones(batch)


def init_params(config: Pi05Config, key: Array) -> Params:
    """Fresh parameters, a nested dictionary with openpi's names (and `morphology`), float32."""
    config.check()
    return _init(config, key) if isinstance(key, Tracer) else _initializer(config)(key)


def _init(config: Pi05Config, key: Array) -> Params:
    return nn.meta.unbox(Pi05(config).init(key, *example(config), method=Pi05.velocity_joint)["params"])


@cache
def _initializer(config: Pi05Config) -> Callable[[Array], Params]:
    """`_init` as one program without its forward pass: 4 s for the demo. Op by op, 180 programs take 12 s."""
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(partial(_init, config), compiler_options=quick)


def interpolate(
    actions: Float[Array, "*b h a"], noise: Float[Array, "*b h a"], time: Float[Array, "*b"]
) -> tuple[Float[Array, "*b h a"], Float[Array, "*b h a"]]:
    """x_t = t * noise + (1 - t) * actions, and the velocity to be learnt, noise - actions. t = 1 is noise."""
    t = time[..., None, None]
    return t * noise + (1 - t) * actions, noise - actions


def sample_time(key: Array, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Beta(1.5, 1) stretched to [0.001, 1]."""
    return jax.random.beta(key, 1.5, 1.0, shape) * 0.999 + 0.001


def loss(
    config: Pi05Config,
    params: Params,
    observation: Observation,
    actions: Float[Array, "b h a"],
    noise: Float[Array, "n b h a"],
    time: Float[Array, "n b"],
    frozen_prefix: bool = False,
) -> Float[Array, "n b h a"]:
    """Squared error of the velocity for n noise draws per observation, which share one prefix.

    `frozen_prefix`: nothing before the action expert learns; the prefix runs forward only.
    """
    cache, mask = _apply(config, params, Pi05.prefix, observation, frozen_prefix)
    if frozen_prefix:
        cache = jax.lax.stop_gradient(cache)
    return suffix_loss(config, params, cache, mask, observation.body, actions, noise, time)


def suffix_loss(
    config: Pi05Config,
    params: Params,
    cache: Cache,
    mask: Bool[Array, "b p"],
    body: Body | None,
    actions: Float[Array, "b h a"],
    noise: Float[Array, "n b h a"],
    time: Float[Array, "n b"],
) -> Float[Array, "n b h a"]:
    """The same, given the prefix's cache and which of its tokens are real."""
    draws, batch = time.shape
    x_t, target = interpolate(jnp.broadcast_to(actions, noise.shape), noise, time)
    keys, values = (jnp.tile(part, (1, draws, 1, 1, 1)) for part in cache)
    if body is not None:
        body = jax.tree.map(lambda x: _tile(jnp.asarray(x), draws), body)
    seen, rows = _tile(mask, draws), x_t.reshape(draws * batch, *x_t.shape[2:])
    velocity = _apply(config, params, Pi05.velocity, (keys, values), seen, rows, time.reshape(-1), body)
    return jnp.square(velocity.reshape(target.shape) - target)


def schedule(steps: int) -> Float[np.ndarray, "n"]:
    """The times of `steps` Euler steps from t = 1 towards t = 0, added up in float32 as openpi does."""
    times, dt = [np.float32(1.0)], np.float32(-1.0 / steps)
    for _ in range(steps - 1):
        times.append(times[-1] + dt)
    return np.array(times, np.float32)


def modulations(config: Pi05Config, params: Params, steps: int = 10) -> Modulations:
    """What adaRMS makes of the times of a schedule: all layers' scales, shifts and gates, [n l f] and [n f].

    The sampler's times never change, so one table serves every call with these parameters.
    """
    condition = _apply(config, params, Pi05.condition, jnp.asarray(schedule(steps))).astype(config.dtype)
    language = params["PaliGemma"]["llm"]

    def made(norm: Params) -> Array:
        dense = {name: jnp.asarray(leaf, config.dtype) for name, leaf in norm["Dense_0"].items()}
        return condition @ dense["kernel"] + dense["bias"][..., None, :]

    layers = [made(language["layers"][name]) for name in ("pre_attention_norm_1", "pre_ffw_norm_1")]
    before, after = (table.swapaxes(0, 1) for table in layers)
    return Modulations(before, after, made(language["final_norm_1"]))


def sample_actions(
    config: Pi05Config,
    params: Params,
    observation: Observation,
    noise: Float[Array, "b h a"],
    steps: int = 10,
    modulations: Modulations | None = None,
    real: Bool[Array | np.ndarray, "b a"] | None = None,
    previous: Previous | None = None,
) -> Float[Array, "b h a"]:
    """Integrate the velocity from noise at t = 1 to actions at t = 0 with `steps` Euler steps.

    `modulations` are `modulations(config, params, steps)`, where they were computed before: the same actions
    to rounding, without the adaRMS projections of every call.

    `real` says which action values a row's robot has; a model with kinematic tokens takes the body's joints
    where it is left out. The others are padding: 0 in training, so their x_t is t * noise there. They are
    held on that path, whatever the model says of them (`loss_over: real` never taught it), and end at 0.
    Without `real` and without a body all values are integrated, as openpi does.

    With `previous` the chunk goes on from the one that is being executed (`realtime`); a row of which no
    actions are given is what it is without, bit for bit.
    """
    if real is None and config.morphology is not None and observation.body is not None:
        real = joint_values(observation.body, config.action_dim)
    cache, mask = _apply(config, params, Pi05.prefix, observation, True)
    dt = -1.0 / steps

    def held(x: Array, time: Array | float) -> Array:
        return x if real is None else jnp.where(jnp.asarray(real)[:, None], x, time * noise)

    def velocity(x: Array, time: Array, table: Modulations | None) -> Array:
        times = jnp.broadcast_to(time, x.shape[:1])
        return _apply(config, params, Pi05.velocity, cache, mask, x, times, observation.body, table)

    times, pull, weights = schedule(steps), None, None
    if previous is not None:
        pull, weights = realtime.pull(previous, real), jnp.asarray(realtime.guidance_weights(times))

    def step(x: Array, now: tuple[Array, Modulations | None, Array | None]) -> tuple[Array, None]:
        time, table, weight = now
        x, at = held(x, time), partial(velocity, time=time, table=table)
        v = at(x) if pull is None or weight is None else realtime.guided(at, x, time, weight, pull)
        return x + dt * v, None

    x, _ = jax.lax.scan(step, noise, (jnp.asarray(times), modulations, weights), length=steps)
    return held(x, 0.0)


def joint_values(body: Body, action_dim: int) -> Bool[Array, "b a"]:
    """Which of `action_dim` action values belong to a real joint: value j is joint j's."""
    mask = jnp.asarray(body.joint_mask)
    return jnp.pad(mask, ((0, 0), (0, action_dim - mask.shape[1])))


def _apply(config: Pi05Config, params: Params, method: Any, *inputs: Any) -> Any:
    return Pi05(config).apply({"params": params}, *inputs, method=method)


def _tile(x: Array, times: int) -> Array:
    return jnp.tile(x, (times,) + (1,) * (x.ndim - 1))


def count(params: Params) -> int:
    """Number of parameters."""
    return sum(int(leaf.size) for leaf in jax.tree.leaves(params))
