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
from morph_vla.pi05.flow import interpolate, time_embedding
from morph_vla.pi05.gemma import Cache, Gemma, GivenMasks, Modulations, Streams
from morph_vla.pi05.head import Head, Kinds, unfitted
from morph_vla.pi05.image_tokens import FewerTokens
from morph_vla.pi05.inputs import check_actions, check_body, check_observation
from morph_vla.pi05.observation import Observation, to_unit
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
            config.fused_attention,
            config.prefix_float8,
        )
        self.llm = Gemma(config)


class Suffix(NamedTuple):
    """What is denoised, as the transformer takes it."""

    streams: Streams
    """action tokens followed by kinematic tokens; with `start: exact` the two apart"""
    mask: Bool[Array, "b t"]
    bias: Float[Array, "l b j j"] | None
    gate: Float[Array, "l n"] | None
    given: GivenMasks | None
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
        if config.head is None:
            self.action_out_proj = nn.Dense(config.action_dim)
        else:
            self.head = Head(config.head, config.horizon, config.action_dim)
        if config.environment:
            self.environment_in_proj = nn.Dense(config.prefix.width)
            self.state_in_proj = nn.Dense(config.prefix.width)
        if config.image_tokens is not None:
            self.image_tokens = FewerTokens(config.image_tokens, config.patches)
        if config.morphology is not None:
            self.morphology = KinematicTokens(config.morphology, width, config.depth, config.heads)

    def embed_prefix(self, observation: Observation) -> tuple[Float[Array, "b p d"], Bool[Array, "b p"]]:
        """Tokens of the cameras that are there, in the config's order, of numbers, of the prompt.

        Raises MorphVlaError for an observation that is not the model's.
        """
        check_observation(self.config, observation)
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
        """Action tokens and kinematic tokens. Raises MorphVlaError for a body that is missing or another's.

        The first `given` rows of `actions` are known, and so are the joints' tokens that read nothing else.
        """
        tokens, plugin = self.action_in_proj(actions), self.config.morphology
        mask = jnp.ones(tokens.shape[:2], bool)
        known = None if given is None else realtime.rows_of(given, actions.shape[1])
        if plugin is None:
            return Suffix([tokens], mask, None, None, known if known is None else [None, known])
        if body is None:
            raise MorphVlaError("the model has kinematic tokens, but the observation carries no body")
        check_body(plugin, body, actions.shape[0])
        joints = self.morphology(actions, body)
        streams: Streams = [tokens, joints.tokens]
        of_streams: GivenMasks | None = None
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
        of_rows = (time, body, modulations, given)
        return self._velocity(self._streams(cache, prefix_mask, actions, *of_rows))

    def kinds(
        self,
        cache: Cache,
        prefix_mask: Bool[Array, "b p"],
        body: Body | None = None,
        modulations: Modulations | None = None,
    ) -> Kinds:
        """What the head reads, in one pass of the suffix; `modulations` are those of t = 1."""
        asked = self.head.asked(prefix_mask.shape[0])
        return self._kinds(self._streams(cache, prefix_mask, *asked, body, modulations))

    def _streams(
        self,
        cache: Cache,
        prefix_mask: Bool[Array, "b p"],
        actions: Float[Array, "b h a"],
        time: Float[Array, "b"],
        body: Body | None,
        modulations: Modulations | None,
        given: Int[Array, "b"] | None = None,
    ) -> Streams:
        """The suffix behind the last layer."""
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
        return streams

    def velocity_joint(
        self,
        observation: Observation,
        actions: Float[Array, "b h a"],
        time: Float[Array, "b"],
        given: Int[Array, "b"] | None = None,
    ) -> Float[Array, "b h a"]:
        """`velocity` in one pass over prefix and suffix: the reference, and what creates the parameters."""
        return self._velocity(self._joint_streams(observation, actions, time, given))

    def kinds_joint(self, observation: Observation) -> Kinds:
        """`kinds` in one pass over prefix and suffix."""
        asked = self.head.asked(observation.tokens.shape[0])
        return self._kinds(self._joint_streams(observation, *asked))

    def _joint_streams(
        self,
        observation: Observation,
        actions: Float[Array, "b h a"],
        time: Float[Array, "b"],
        given: Int[Array, "b"] | None = None,
    ) -> Streams:
        """Prefix and suffix behind the last layer."""
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
        return streams

    def _velocity(self, streams: Streams) -> Float[Array, "b h a"]:
        """Read from the action tokens; with `readout: joints` from each joint's own tokens, too."""
        velocity, of_joints = self.action_out_proj(self._of_actions(streams)), self._of_joints(streams)
        return velocity if of_joints is None else velocity + of_joints

    def _kinds(self, streams: Streams) -> Kinds:
        """The same for the head; what joints' own tokens say is added to the offset of every kind."""
        kinds, of_joints = self.head(self._of_actions(streams)), self._of_joints(streams)
        return kinds if of_joints is None else Kinds(kinds.logits, kinds.offsets + of_joints[:, None])

    def _of_actions(self, streams: Streams) -> Float[Array, "b h d"]:
        """The action tokens, float32."""
        out = streams[1]
        assert out is not None
        return out[:, : self.config.horizon].astype(jnp.float32)

    def _of_joints(self, streams: Streams) -> Float[Array, "b h a"] | None:
        """What `readout: joints` reads from each joint's own tokens."""
        plugin, horizon = self.config.morphology, self.config.horizon
        if plugin is None or plugin.readout == "actions":
            return None
        out = streams[-1]
        assert out is not None
        joints = out if len(streams) > 2 else out[:, horizon:]
        of_joints = self.morphology.velocity(joints, horizon)
        padding = self.config.action_dim - of_joints.shape[-1]
        return jnp.pad(of_joints, ((0, 0), (0, 0), (0, padding)))


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
    inputs, head = example(config), config.head
    if head is None:
        return nn.meta.unbox(Pi05(config).init(key, *inputs, method=Pi05.velocity_joint)["params"])
    learnt = nn.meta.unbox(Pi05(config).init(key, inputs[0], method=Pi05.kinds_joint)["params"])
    return {**learnt, "bins": unfitted(head.bins, config.horizon, config.action_dim)}


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
    cache, mask = _prefix(config, params, observation, frozen_prefix)
    return suffix_loss(config, params, cache, mask, observation.body, actions, noise, time, given)


def kinds(
    config: Pi05Config,
    params: Params,
    observation: Observation,
    frozen_prefix: bool = False,
    modulations: Modulations | None = None,
) -> Kinds:
    """What a model with a head says of kinds of chunk; the arguments as in `loss` and `Pi05.kinds`."""
    cache, mask = _prefix(config, params, observation, frozen_prefix)
    return apply(config, params, Pi05.kinds, cache, mask, observation.body, modulations)


def _prefix(
    config: Pi05Config, params: Params, observation: Observation, frozen: bool
) -> tuple[Cache, Bool[Array, "b p"]]:
    """`Pi05.prefix`; through a frozen one no gradient flows."""
    cache, mask = apply(config, params, Pi05.prefix, observation, frozen)
    return (jax.lax.stop_gradient(cache) if frozen else cache), mask


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
    """`loss`, from the prefix's cache and which of its tokens are real [b p].

    Raises MorphVlaError for actions or noise that are not a chunk for every row, and for another's body.
    """
    draws, batch = time.shape
    check_actions(config, {"actions": actions, "noise": noise}, batch)
    x_t, target = interpolate(jnp.broadcast_to(actions, noise.shape), noise, time)
    known = None if given is None else realtime.rows_of(given, noise.shape[2])[..., None]
    if known is not None:
        x_t = jnp.where(known, actions, x_t)
    keys, values = (jnp.tile(part, (1, draws, 1, 1, 1)) for part in cache)
    if body is not None:
        if config.morphology is not None:
            check_body(config.morphology, body, batch)  # before it is one of every draw
        body = jax.tree.map(lambda x: _tile(jnp.asarray(x), draws), body)
    seen, rows = _tile(mask, draws), x_t.reshape(draws * batch, *x_t.shape[2:])
    of_rows = (time.reshape(-1), body, None, None if given is None else given.reshape(-1))
    velocity = apply(config, params, Pi05.velocity, (keys, values), seen, rows, *of_rows)
    squares = jnp.square(velocity.reshape(target.shape) - target)
    return squares if known is None else jnp.where(known, np.float32(0), squares)


def apply(config: Pi05Config, params: Params, method: Any, *inputs: Any) -> Any:
    """A method of `Pi05`, of these parameters."""
    return Pi05(config).apply({"params": params}, *inputs, method=method)


def _tile(x: Array, times: int) -> Array:
    return jnp.tile(x, (times,) + (1,) * (x.ndim - 1))


def count(params: Params) -> int:
    """Number of parameters."""
    return sum(int(leaf.size) for leaf in jax.tree.leaves(params))
