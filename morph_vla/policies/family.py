"""The contract of a policy family, and where a model's family is found."""

import importlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from morph_vla.morphology.arrays import Body
from morph_vla.pi05 import counts
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.observation import Observation
from morph_vla.pi05.parts import map_named
from morph_vla.pi05.realtime import Previous
from morph_vla.policies.config import ModelConfig
from morph_vla.robots import Robot

Params = dict[str, Any]
MODULES = {
    "pi05": "morph_vla.policies.pi05",
    "body": "morph_vla.policies.state",
    "mlp": "morph_vla.policies.state",
    "fourier": "morph_vla.policies.fourier",
    "bet": "morph_vla.policies.bet",
    "nearest": "morph_vla.policies.nearest",
}


class Pairs(NamedTuple):
    """Rows of demonstrations as they are trained on: what is seen, and the chunk that follows."""

    state: Float[np.ndarray, "n a"]
    environment: Float[np.ndarray, "n g"]
    actions: Float[np.ndarray, "n h a"]
    mask: Bool[np.ndarray, "n a"]
    """which action values the row's robot has"""
    of: int
    """how many rows there are"""


@runtime_checkable
class Recorded(Protocol):
    """What a run trains on, as a family may read it before the first step."""

    def chunks(self, most: int) -> tuple[Float[np.ndarray, "n h a"], Bool[np.ndarray, "n a"]]:
        """About so many normalised action chunks, and which values each row's robot has."""
        ...

    def pairs(self, most: int) -> Pairs:
        """The rows of one pass, or so many of them, evenly chosen; for models that read numbers."""
        ...


class Drawn(NamedTuple):
    """A batch with everything random about it drawn: what a loss is a function of."""

    observation: Observation
    actions: Float[Array, "b h a"]
    mask: Bool[Array, "b a"]
    """which action values the row's robot has"""
    noise: Float[Array, "b n h a"]
    """standard normal, for the families that learn to denoise"""
    time: Float[Array, "b n"]
    given: Int[Array, "b n"] | None = None
    """how many actions of the chunk are shown, by a model with `delay_max`"""


class Asked(NamedTuple):
    """What a policy is asked: a batch of observations."""

    observation: Observation
    noise: Float[Array, "b h a"]
    """standard normal, from (seed, episode, step) alone"""
    real: Bool[Array | np.ndarray, "b a"]
    """which action values the row's robot has"""
    previous: Previous | None
    """what the robot executes meanwhile, where answers go on from each other (`real_time`)"""


@runtime_checkable
class Family(Protocol):
    """What a family's module has. `config` is always its own dataclass of `policies.config`.

    Parameters are nested dictionaries whose top names no other family has (`parts.part_of`).
    """

    def real_time(self, config: Any) -> bool:
        """Whether `act` goes on from `Asked.previous`."""
        ...

    def init(self, config: Any, key: Array) -> Params:
        """Fresh parameters, float32."""
        ...

    def fit(self, config: Any, params: Params, recorded: Recorded, seed: int) -> Params:
        """`params` with what is learnt before the first step (`parts.FITTED`), a function of the seed."""
        ...

    def loss(
        self, config: Any, params: Params, drawn: Drawn, frozen_prefix: bool = False
    ) -> Float[Array, "b a"]:
        """The error of every row and action value.

        `frozen_prefix`: nothing before an action expert learns.
        """
        ...

    def ahead(self, config: Any, params: Params, steps: int) -> Any:
        """What of every answer depends on the parameters alone, computed once; `steps` of the sampler."""
        ...

    def act(self, config: Any, params: Params, ahead: Any, asked: Asked, steps: int) -> Float[Array, "b h a"]:
        """Chunks of normalised actions. `ahead` is what the function of that name gave."""
        ...

    def body(self, config: Any, robot: Robot) -> Body | None:
        """A robot as the model takes it; None for a model without a body."""
        ...

    def served_type(self, config: Any, leaf: str) -> str | None:
        """The type that a leaf is served in; None leaves it as it is."""
        ...

    def ready(self, config: Any, leaves: Iterable[tuple[str, Any]]) -> Params:
        """Parameters as `ahead` and `act` take them soonest, from all leaves, which are let go one by one."""
        ...


def of(config: ModelConfig) -> Family:
    """The family of a model."""
    return cast(Family, importlib.import_module(MODULES[config.family]))


def shapes(config: ModelConfig) -> Params:
    """The shapes and types of a model's parameters; nothing is allocated."""
    if isinstance(config, Pi05Config):
        return counts.shapes(config)
    return jax.tree.map(lambda leaf: leaf, _shapes(config))  # whoever asks may change what it got


@lru_cache(64)
def _shapes(config: ModelConfig) -> Params:
    return jax.eval_shape(lambda: of(config).init(config, jax.random.key(0)))


def as_trained(config: Any, leaves: Iterable[tuple[str, Any]]) -> Params:
    """`ready` of a family that acts on the tree it is trained as."""
    values = {name: jnp.asarray(leaf) for name, leaf in leaves}
    return map_named(lambda name, _: values[name], shapes(config))
