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
from jaxtyping import Array, Bool, Float, Int

from morph_vla.errors import MorphVlaError
from morph_vla.morphology.arrays import Body, blank
from morph_vla.morphology.tokens import KinematicTokens, known_tokens
from morph_vla.pi05 import realtime
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.flow import interpolate, schedule, time_embedding
from morph_vla.pi05.gemma import Cache, Gemma, Given, Modulations, Streams
from morph_vla.pi05.image_tokens import FewerTokens
from morph_vla.pi05.observation import Observation, to_unit
from morph_vla.pi05.realtime import Previous
from morph_vla.pi05.siglip import Siglip

Params = dict[str, Any]


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
    given: Given | None
    """Which tokens of [prefix, *streams] are of given actions, where there are such (`realtime`)"""


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
        if config.environment:
            self.environment_in_proj = nn.Dense(config.prefix.width)
            self.state_in_proj = nn.Dense(config.prefix.width)
        if config.image_tokens is not None:
            self.image_tokens = FewerTokens(config.image_tokens, config.patches)
        if config.morphology is not None:
            self.morphology = KinematicTokens(config.morphology, width, config.depth, config.heads)

    def embed_prefix(self, observation: Observation) -> tuple[Float[Array, "b p d"], Bool[Array, "b p"]]:
        """Tokens of the cameras that are there, in the config's order, of numbers, of the prompt."""
        tokens, masks = [], []
        # One call for all cameras: weights are shared, and one large product beats several small ones.
        names = [name for name in self.config.cameras if name in observation.images]
        if names:
            images = jnp.concatenate([to_unit(jnp.asarray(observation.images[name])) for name in names])
            seen = self.PaliGemma.img(images)
            if self.config.image_tokens is not None:
                seen = self.image_tokens(seen)
            for name, part in zip(names, jnp.split(seen, len(names)), strict=True):
                tokens.append(part)
                mask = jnp.asarray(observation.image_masks[name])
                masks.append(jnp.broadcast_to(mask[:, None], part.shape[:2]))
        if self.config.environment:
            tokens.append(self.embed_numbers(observation))
            masks.append(jnp.ones(tokens[-1].shape[:2], bool))
        tokens.append(self.PaliGemma.llm.embed(jnp.asarray(observation.tokens)))
        masks.append(jnp.asarray(observation.token_mask))
        joined = jnp.concatenate([t.astype(self.config.dtype) for t in tokens], axis=1)
        return joined, jnp.concatenate(masks, axis=1)

    def embed_numbers(self, observation: Observation) -> Float[Array, "b 2 d"]:
        """A token of the environment's values and one of the state's, which the prompt rounds.

        Raises MorphVlaError for an observation without them.
        """
        if observation.environment is None or observation.state is None:
            raise MorphVlaError("the model reads environment and state as numbers; the observation has none")
        environment = self.environment_in_proj(jnp.asarray(observation.environment))
        return jnp.stack([environment, self.state_in_proj(jnp.asarray(observation.state))], axis=1)

    def embed_suffix(
        self, actions: Float[Array, "b h a"], body: Body | None, given: Int[Array, "b"] | None = None
    ) -> Suffix:
        """Action tokens and kinematic tokens. Raises MorphVlaError for a body that is missing.

        The first `given` rows of `actions` are known, and so are the joints' tokens that read nothing else.
        """
        tokens, plugin = self.action_in_proj(actions), self.config.morphology
        mask = jnp.ones(tokens.shape[:2], bool)
        known = None if given is None else realtime.rows_of(given, actions.shape[1])
        if plugin is None:
            return Suffix([tokens], mask, None, None, known if known is None else [None, known])
        if body is None:
            raise MorphVlaError("the model has kinematic tokens, but the observation carries no body")
        joints = self.morphology(actions, body)
        streams: Streams = [tokens, joints.tokens]
        of_streams: Given | None = None
        if joints.gate is None:
            streams = [jnp.concatenate([tokens, joints.tokens], axis=1)]
        if known is not None:
            both = [known, known_tokens(known, plugin)]
            of_streams = [None, jnp.concatenate(both, axis=1)] if joints.gate is None else [None, *both]
        mask = jnp.concatenate([mask, joints.mask], axis=1)
        return Suffix(streams, mask, joints.bias, joints.gate, of_streams)

    def condition(self, time: Float[Array, "b"]) -> Float[Array, "b d"]:
        """What adaRMS is conditioned on: the time, through two layers."""
        condition = nn.swish(self.time_mlp_in(time_embedding(time, self.config.expert.width)))
        return nn.swish(self.time_mlp_out(condition))

    def conditions(self, time: Float[Array, "b"], given: Int[Array, "b"] | None) -> Float[Array, "b *k d"]:
        """`condition` of the time; where rows are given two, [b 2 d], of which the second is theirs, of 0."""
        condition = self.condition(time)
        if given is None:
            return condition
        clean = self.condition(jnp.zeros(1, time.dtype))
        return jnp.stack([condition, jnp.broadcast_to(clean, condition.shape)], axis=1)

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
        given: Int[Array, "b"] | None = None,
    ) -> Float[Array, "b h a"]:
        """v(x_t, t | prefix), the suffix alone reading the prefix's cache.

        `modulations` are those of `time`, where they were computed before. The first `given` rows of
        `actions` are actions, not on their way to them; with them modulations are pairs, as `conditions`.
        """
        suffix, mask = self.embed_suffix(actions, body, given), prefix_mask
        positions = jnp.sum(mask, axis=1)[:, None] + jnp.cumsum(suffix.mask, axis=1) - 1
        seen = jnp.concatenate([mask, suffix.mask], axis=1)
        visible = jnp.broadcast_to(seen[:, None, :], (*suffix.mask.shape, seen.shape[1]))
        streams, _ = self.PaliGemma.llm(
            [None, *suffix.streams],
            positions,
            visible,
            condition=self.conditions(time, given) if modulations is None else None,
            cache=cache,
            bias=suffix.bias,
            gate=suffix.gate,
            modulations=modulations,
            given=suffix.given,
        )
        return self._velocity(streams)

    def velocity_joint(
        self,
        observation: Observation,
        actions: Float[Array, "b h a"],
        time: Float[Array, "b"],
        given: Int[Array, "b"] | None = None,
    ) -> Float[Array, "b h a"]:
        """The same in one pass over prefix and suffix: the reference, and what creates the parameters."""
        prefix, prefix_mask = self.embed_prefix(observation)
        suffix = self.embed_suffix(actions, observation.body, given)
        mask = jnp.concatenate([prefix_mask, suffix.mask], axis=1)
        block = jnp.arange(mask.shape[1]) >= prefix.shape[1]  # False: prefix, True: suffix
        visible = (block[None, :] <= block[:, None]) & mask[:, None, :] & mask[:, :, None]
        positions = jnp.cumsum(mask, axis=1) - 1
        streams, _ = self.PaliGemma.llm(
            [prefix, *suffix.streams],
            positions,
            visible,
            condition=self.conditions(time, given),
            bias=suffix.bias,
            gate=suffix.gate,
            given=suffix.given,
        )
        return self._velocity(streams)

    def _velocity(self, streams: Streams) -> Float[Array, "b h a"]:
        """Read from the action tokens; with `readout: joints` from each joint's own tokens, too."""
        out, plugin, horizon = streams[1], self.config.morphology, self.config.horizon
        assert out is not None
        velocity = self.action_out_proj(out[:, :horizon].astype(jnp.float32))
        if plugin is None or plugin.readout == "actions":
            return velocity
        joints = out[:, horizon:] if len(streams) == 2 else streams[2]
        assert joints is not None
        of_joints = self.morphology.velocity(joints, horizon)
        padding = self.config.action_dim - of_joints.shape[-1]
        return velocity + jnp.pad(of_joints, ((0, 0), (0, 0), (0, padding)))


def example(
    config: Pi05Config, batch: int = 1
) -> tuple[Observation, Float[Array, "b h a"], Float[Array, "b"]]:
    """Zeros of the right shapes: an observation, actions and times."""
    size = (batch, config.image_size, config.image_size, 3)
    body = None if config.morphology is None else blank(config.morphology, batch)
    widths = (config.action_dim, config.environment) if config.environment else ()
    numbers = [jnp.zeros((batch, width)) for width in widths]
    observation = Observation(
        {name: jnp.zeros(size) for name in config.cameras},
        {name: jnp.ones(batch, bool) for name in config.cameras},
        jnp.zeros((batch, config.max_tokens), jnp.int32),
        jnp.ones((batch, config.max_tokens), bool),
        body,
        *numbers,
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
    given: Int[Array, "n b"] | None = None,
) -> Float[Array, "n b h a"]:
    """Squared error of the velocity for n noise draws per observation, which share one prefix.

    `frozen_prefix`: nothing before the action expert learns; the prefix runs forward only.
    The first `given` rows of a draw are shown as they are, at time 0, and have no error.
    """
    cache, mask = _apply(config, params, Pi05.prefix, observation, frozen_prefix)
    if frozen_prefix:
        cache = jax.lax.stop_gradient(cache)
    return suffix_loss(config, params, cache, mask, observation.body, actions, noise, time, given)


def suffix_loss(
    config: Pi05Config,
    params: Params,
    cache: Cache,
    mask: Bool[Array, "b p"],
    body: Body | None,
    actions: Float[Array, "b h a"],
    noise: Float[Array, "n b h a"],
    time: Float[Array, "n b"],
    given: Int[Array, "n b"] | None = None,
) -> Float[Array, "n b h a"]:
    """The same, given the prefix's cache and which of its tokens are real."""
    draws, batch = time.shape
    x_t, target = interpolate(jnp.broadcast_to(actions, noise.shape), noise, time)
    known = None if given is None else realtime.rows_of(given, noise.shape[2])[..., None]
    if known is not None:
        x_t = jnp.where(known, actions, x_t)
    keys, values = (jnp.tile(part, (1, draws, 1, 1, 1)) for part in cache)
    if body is not None:
        body = jax.tree.map(lambda x: _tile(jnp.asarray(x), draws), body)
    seen, rows = _tile(mask, draws), x_t.reshape(draws * batch, *x_t.shape[2:])
    of_rows = (time.reshape(-1), body, None, None if given is None else given.reshape(-1))
    velocity = _apply(config, params, Pi05.velocity, (keys, values), seen, rows, *of_rows)
    squares = jnp.square(velocity.reshape(target.shape) - target)
    return squares if known is None else jnp.where(known, np.float32(0), squares)


def modulations(config: Pi05Config, params: Params, steps: int = 10) -> Modulations:
    """What adaRMS makes of the times of a schedule: all layers' scales, shifts and gates, [n l f] and [n f].

    The sampler's times never change, so one table serves every call with these parameters. Where rows may be
    given (`delay_max`), n is one more than `steps`: the last is of their time, 0.
    """
    times = np.append(schedule(steps), np.float32(0)) if config.delay_max else schedule(steps)
    condition = _apply(config, params, Pi05.condition, jnp.asarray(times)).astype(config.dtype)
    language = params["PaliGemma"]["llm"]

    def made(norm: Params) -> Array:
        dense = {name: jnp.asarray(leaf, config.dtype) for name, leaf in norm["Dense_0"].items()}
        return condition @ dense["kernel"] + dense["bias"][..., None, :]

    def of_layers(norm: str) -> Array:
        if "layers" in language:
            return made(language["layers"][norm]).swapaxes(0, 1)
        return jnp.stack([made(language[f"layers_{i}"][norm]) for i in range(config.depth)], axis=1)

    before, after = of_layers("pre_attention_norm_1"), of_layers("pre_ffw_norm_1")
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

    With `previous` the chunk goes on from the one that is being executed (`realtime`): led there, or, by a
    model that was trained to (`delay_max`), given its first actions, which come back as they are. A row of
    which no actions are given is what it is without, bit for bit.
    """
    if real is None and config.morphology is not None and observation.body is not None:
        real = joint_values(observation.body, config.action_dim)
    cache, mask = _apply(config, params, Pi05.prefix, observation, True)
    dt, times, pull, weights, given = -1.0 / steps, schedule(steps), None, None, None
    if previous is not None and config.delay_max:
        given = realtime.given(previous, config.delay_max)
    elif previous is not None:
        pull, weights = realtime.pull(previous, real), jnp.asarray(realtime.guidance_weights(times))
    if modulations is not None and config.delay_max:
        modulations = _paired(modulations, given is not None)

    def held(x: Array, time: Array | float) -> Array:
        x = x if real is None else jnp.where(jnp.asarray(real)[:, None], x, time * noise)
        return x if previous is None or given is None else realtime.kept(x, previous, given, real)

    def velocity(x: Array, time: Array, table: Modulations | None) -> Array:
        of_rows = (jnp.broadcast_to(time, x.shape[:1]), observation.body, table, given)
        return _apply(config, params, Pi05.velocity, cache, mask, x, *of_rows)

    def step(x: Array, now: tuple[Array, Modulations | None, Array | None]) -> tuple[Array, None]:
        time, table, weight = now
        x, at = held(x, time), partial(velocity, time=time, table=table)
        v = at(x) if pull is None or weight is None else realtime.guided(at, x, time, weight, pull)
        return x + dt * v, None

    x, _ = jax.lax.scan(step, noise, (jnp.asarray(times), modulations, weights), length=steps)
    return held(x, 0.0)


def _paired(table: Modulations, given: bool) -> Modulations:
    """Of a table whose last row is that of time 0: the others, and with `given` each beside the last."""
    times = jax.tree.map(lambda leaf: leaf[:-1], table)
    if not given:
        return times
    clean = jax.tree.map(lambda leaf, last: jnp.broadcast_to(last[-1:], leaf.shape), times, table)
    return jax.tree.map(lambda leaf, last: jnp.stack([leaf, last], axis=-2), times, clean)


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
