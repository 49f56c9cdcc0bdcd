"""The sizes of a model, of any family: what `model` in a recipe holds."""

import dataclasses
from typing import Annotated, ClassVar, Literal

from morph_vla.errors import ConfigError
from morph_vla.files.typed_yaml import OneOf
from morph_vla.morphology.config import BiasKind, MorphologyConfig
from morph_vla.pi05.config import Pi05Config

Attention = Literal["none", "hard", "mix", "soft"]
BIASES: dict[Attention, BiasKind] = {"none": "none", "hard": "full", "mix": "mix", "soft": "spd-soft"}


@dataclasses.dataclass(frozen=True)
class StateConfig:
    """What the families that act on numbers share: a node for every joint and one for all that is no joint's.

    What the trainer asks of a model with images has its answer here too.
    """

    cameras: ClassVar[tuple[str, ...]] = ()
    image_size: ClassVar[int] = 1
    max_tokens: ClassVar[int] = 0
    morphology: ClassVar[None] = None
    dtype: ClassVar[Literal["float32"]] = "float32"

    action_dim: int = 8  # places for joints: robots are padded to as many
    horizon: int = 16
    environment: int = 14  # values of `observation.environment_state`
    width: int = 128  # of a node's embedding
    depth: int = 6  # layers
    tokenizer: Literal["own", "shared"] = "own"  # (de)tokenizers: weights of each joint, or of all
    positions: bool = False  # a learnt vector a node, added to its embedding

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        for key in ("action_dim", "horizon", "environment", "width", "depth"):
            if getattr(self, key) < 1:
                raise ConfigError(f"model.{key}: must be at least 1, not {getattr(self, key)}")

    @property
    def nodes(self) -> int:
        """The root and the joints."""
        return 1 + self.action_dim


@dataclasses.dataclass(frozen=True)
class BodyConfig(StateConfig):
    """Body Transformer (2024): attention between joints that follows the robot's graph.

    `attention`: `hard` masks every layer, `mix` layers 0, 2, 4, ..., `soft` learns a bias per layer and
    length of the shortest path, `none` is the plain transformer. `graph: random` puts a random graph with as
    many edges in the body's place.
    """

    family: Literal["body"] = "body"
    attention: Attention = "mix"
    graph: Literal["body", "random"] = "body"
    graph_seed: int = 0
    heads: int = 4
    mlp_dim: int = 256

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes and choices that do not fit together."""
        super().check()
        if self.heads < 1 or self.width % self.heads:
            raise ConfigError(f"model.width: {self.width} is not a multiple of model.heads {self.heads}")
        if self.mlp_dim < 1:
            raise ConfigError(f"model.mlp_dim: must be at least 1, not {self.mlp_dim}")
        if self.graph == "random" and self.attention in ("none", "soft"):
            why = "uses no graph" if self.attention == "none" else "needs the body's distances"
            raise ConfigError(f"model.graph: 'random' makes no sense: attention '{self.attention}' {why}")
        if self.graph_seed and self.graph != "random":
            raise ConfigError(f"model.graph_seed: {self.graph_seed} has no effect without graph: random")

    @property
    def bias(self) -> MorphologyConfig:
        """The topology bias between nodes, in the plugin's words."""
        return MorphologyConfig(
            max_joints=self.nodes,
            bias=BIASES[self.attention],
            max_distance=max(2, self.action_dim),
            film=False,
            control="random" if self.graph == "random" else "none",
            control_seed=self.graph_seed,
        )


@dataclasses.dataclass(frozen=True)
class MlpConfig(StateConfig):
    """The baseline without a graph: the embeddings of all nodes, one after another, through dense layers."""

    family: Literal["mlp"] = "mlp"
    hidden: int = 512  # width of a layer

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        super().check()
        if self.hidden < 1:
            raise ConfigError(f"model.hidden: must be at least 1, not {self.hidden}")


ModelConfig = Annotated[Pi05Config | BodyConfig | MlpConfig, OneOf("family", "pi05")]
"""A recipe without `family` is pi0.5's"""


def reads_poses(config: ModelConfig) -> bool:
    """Whether a model reads where the joints are now (`morphology.poses: present`)."""
    plugin = config.morphology if isinstance(config, Pi05Config) else None
    return plugin is not None and plugin.poses == "present"
