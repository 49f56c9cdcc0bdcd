"""pi0.5 with a body as a model of openpi's: its configuration and its module.

The model is `morph_vla.pi05.Pi05`, and openpi sees its parameters as its own: an nnx module whose state has
openpi's names and shapes and, beside them, `morphology/...`. What openpi's trainer does with a model's state
(freezing, casting what is frozen to bfloat16, moving averages, sharding, checkpoints) it does with this one.
The prefix is computed once: with the vision-language model frozen it is run forward only.
"""

import contextlib
import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import openpi.models.gemma as _gemma
import openpi.models.model as _model
import openpi.models.pi0_config as _pi0_config
import openpi.shared.array_typing as at
import openpi.training.sharding as _sharding
from flax import nnx

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.hosts.openpi import packing
from morph_vla.morphology import MorphologyConfig
from morph_vla.morphology.arrays import features_of
from morph_vla.pi05 import GemmaConfig, Observation, Pi05, Pi05Config, VitConfig, modulations, sample_actions
from morph_vla.pi05 import model as pi05
from morph_vla.pi05.gemma import Block


@dataclasses.dataclass(frozen=True)
class MorphPi0Config(_pi0_config.Pi0Config):
    """The Pi0Config of openpi, with a body: the plugin's keys, and the image encoder's sizes.

    `frozen_prefix`: nothing before the action expert learns (`MorphTrainConfig` reads it off its filter). The
    prefix then runs forward only, without what its last layer makes and nobody reads.
    """

    pi05: bool = True
    action_horizon: int = 16
    frozen_prefix: bool = False
    morphology: MorphologyConfig = dataclasses.field(default_factory=MorphologyConfig)
    vit: VitConfig = dataclasses.field(default_factory=VitConfig)

    def __post_init__(self) -> None:
        """Raises ConfigError, naming the key, for settings that exclude each other."""
        super().__post_init__()
        if not self.pi05:
            raise ConfigError("model.pi05: kinematic tokens are made for pi0.5; leave model.pi05 true")
        for key in ("paligemma_variant", "action_expert_variant"):
            if "lora" in getattr(self, key):
                raise ConfigError(
                    f"model.{key}: '{getattr(self, key)}' has adapters, which this model has not; choose "
                    f"'{getattr(self, key).removesuffix('_lora')}' and freeze with the configuration's filter"
                )
        if self.morphology.poses != "none":
            raise ConfigError(
                f"model.morphology.poses: '{self.morphology.poses}' needs joint positions, and openpi's "
                "state is normalised; choose poses: none, or train with morph_vla"
            )
        if self.morphology.history is not None:
            raise ConfigError(
                "model.morphology.history: needs where the joints were, and openpi's batches have the "
                "present alone; leave it out, or train with morph_vla"
            )
        self.host().check()

    def host(self) -> Pi05Config:
        """The same sizes as a configuration of ours."""
        prefix = _gemma.get_config(self.paligemma_variant)
        expert = _gemma.get_config(self.action_expert_variant)
        return Pi05Config(
            vocab=_gemma.PALIGEMMA_VOCAB_SIZE,
            image_size=_model.IMAGE_RESOLUTION[0],
            cameras=tuple(_model.IMAGE_KEYS),
            vit=self.vit,
            prefix=GemmaConfig(prefix.width, prefix.mlp_dim),
            expert=GemmaConfig(expert.width, expert.mlp_dim),
            depth=prefix.depth,
            heads=prefix.num_heads,
            kv_heads=prefix.num_kv_heads,
            head_dim=prefix.head_dim,
            action_dim=self.action_dim,
            horizon=self.action_horizon,
            max_tokens=self.max_token_len,
            dtype=self.dtype,  # pyright: ignore[reportArgumentType]
            morphology=self.morphology,
        )

    def create(self, rng: Any) -> "MorphPi0":
        """A model with fresh parameters."""
        return MorphPi0(self, rng)

    def load_pytorch(self, train_config: Any, weight_path: str) -> Any:
        """The PyTorch model of openpi has no body. Raises MorphVlaError."""
        raise MorphVlaError(
            f"{weight_path} is for openpi's PyTorch model, which has no kinematic tokens; "
            "convert it first: morph-vla weights convert"
        )

    def inputs_spec(self, *, batch_size: int = 1) -> tuple[Any, Any]:
        """As openpi has it, with the robot behind the state."""
        observation, actions = super().inputs_spec(batch_size=batch_size)
        features = len(features_of(self.morphology))
        state = (batch_size, self.action_dim + packing.width(self.morphology.max_joints, features))
        with at.disable_typechecking():  # shapes in the place of arrays
            observation = dataclasses.replace(observation, state=jax.ShapeDtypeStruct(state, jnp.float32))
        return observation, actions


class MorphPi0(_model.BaseModel):
    """pi0.5 with a body; openpi's losses and actions where `morphology` changes nothing."""

    def __init__(self, config: MorphPi0Config, rng: Any):
        super().__init__(config.action_dim, config.action_horizon, config.max_token_len)
        self.host, self.frozen_prefix = config.host(), config.frozen_prefix
        for name, tree in pi05.init_params(self.host, rng).items():
            setattr(self, name, _as_nnx(tree))
        self.deterministic = True  # set by model.train() and model.eval(); there is no dropout

    def params(self) -> pi05.Params:
        """The parameters as nested dictionaries, under openpi's names."""
        return nnx.state(self, nnx.Param).to_pure_dict()

    def observe(self, observation: Any) -> Observation:
        """An observation of openpi's as ours. Raises MorphVlaError when it carries no robot."""
        plugin = self.host.morphology
        assert plugin is not None
        features = len(features_of(plugin))
        body = packing.unpack(observation.state, self.action_dim, plugin.max_joints, features)
        return Observation(
            dict(observation.images),
            dict(observation.image_masks),
            observation.tokenized_prompt,
            observation.tokenized_prompt_mask,
            body,
        )

    def compute_loss(self, rng: Any, observation: Any, actions: Any, *, train: bool = False) -> Any:
        """The mean squared error of the velocity [b h], from the same keys as openpi draws it."""
        preprocess_key, noise_key, time_key = jax.random.split(rng, 3)
        observation = _model.preprocess_observation(preprocess_key, observation, train=train)
        noise = jax.random.normal(noise_key, actions.shape)
        time = jax.random.beta(time_key, 1.5, 1, actions.shape[:-2]) * 0.999 + 0.001
        with sharded_blocks():
            drawn = (actions, noise[None], time[None], self.frozen_prefix)
            error = pi05.loss(self.host, self.params(), self.observe(observation), *drawn)
        return jnp.mean(error[0], axis=-1)

    def sample_actions(
        self, rng: Any, observation: Any, *, num_steps: Any = 10, noise: Any | None = None
    ) -> Any:
        """Actions [b h a] by `num_steps` Euler steps; the number may be traced, as in openpi's server.

        All values are integrated, padded ones too, as openpi does: its loss covers all of them.
        """
        observation = _model.preprocess_observation(None, observation, train=False)
        if noise is None:
            shape = (observation.state.shape[0], self.action_horizon, self.action_dim)
            noise = jax.random.normal(rng, shape)
        seen = self.observe(observation)
        with sharded_blocks():
            if isinstance(num_steps, int):
                every, params = jnp.ones((noise.shape[0], self.action_dim), bool), self.params()
                # Of all times in one product: adaRMS's weights are read once a call, not once a step.
                table = modulations(self.host, params, num_steps)
                return sample_actions(self.host, params, seen, noise, num_steps, table, every)
            return self._sample(seen, noise, num_steps)

    def _sample(self, seen: Observation, noise: Any, num_steps: Any) -> Any:
        """The same with a number of steps that is known only when it runs."""
        model: Any = Pi05(self.host).bind({"params": self.params()})
        cache, mask = model.prefix(seen, forward_only=True)
        dt = -1.0 / num_steps

        def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
            x, time = carry
            times = jnp.broadcast_to(time, x.shape[:1])
            v = model.velocity(cache, mask, x, times, seen.body)
            return x + dt * v, time + dt

        # Half a step of room, because times are added up.
        x, _ = jax.lax.while_loop(lambda carry: carry[1] >= -dt / 2, step, (noise, jnp.float32(1.0)))
        return x


def _as_nnx(tree: Any) -> Any:
    """Nested dictionaries of arrays as nnx modules whose state has the same names."""
    if isinstance(tree, dict):
        return nnx.Dict({name: _as_nnx(branch) for name, branch in tree.items()})
    return nnx.Param(tree)


def sharded_blocks() -> contextlib.AbstractContextManager[None]:
    """Within it every layer's tokens lie on devices as openpi's do; without a mesh it does nothing."""

    def constrain(inner: Any, args: Any, kwargs: Any, context: Any) -> Any:
        if not isinstance(context.module, Block) or context.method_name != "__call__":
            return inner(*args, **kwargs)
        experts, *rest = args
        experts, seen = inner(_sharding.activation_sharding_constraint(experts), *rest, **kwargs)
        return _sharding.activation_sharding_constraint(experts), seen

    return nn.intercept_methods(constrain)
