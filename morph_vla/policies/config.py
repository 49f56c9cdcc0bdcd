"""The sizes of a model, of any family: what `model` in a recipe holds."""

import dataclasses
from typing import Annotated, ClassVar, Literal

from morph_vla.errors import ConfigError
from morph_vla.files.typed_yaml import OneOf
from morph_vla.morphology.config import BiasKind, MorphologyConfig
from morph_vla.pi05.config import Pi05Config, check_bins

Attention = Literal["none", "hard", "mix", "soft"]
BIASES: dict[Attention, BiasKind] = {"none": "none", "hard": "full", "mix": "mix", "soft": "spd-soft"}


@dataclasses.dataclass(frozen=True)
class StateConfig:
    """What the families that act on numbers share.

    What the trainer asks of a model with images has its answer here too.
    """

    cameras: ClassVar[tuple[str, ...]] = ()
    image_size: ClassVar[int] = 1
    max_tokens: ClassVar[int] = 0
    delay_max: ClassVar[int] = 0
    morphology: ClassVar[None] = None
    dtype: ClassVar[Literal["float32"]] = "float32"
    draws: ClassVar[bool] = False  # whether an answer depends on the noise

    action_dim: int = 8  # places for joints: robots are padded to as many
    horizon: int = 16
    environment: int = 14  # values of `observation.environment_state`

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        _check_positive(self, "action_dim", "horizon", "environment")

    @property
    def lags(self) -> tuple[int, ...]:
        """How many control steps back each row of the window is, the oldest first; () without a window."""
        return ()

    @property
    def tokens(self) -> dict[str, int]:
        """How many embeddings of each kind the layers have."""
        raise NotImplementedError

    def activations(self, rows: int) -> int:
        """Bytes that the backward pass reads for `rows` observations."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class LayersConfig(StateConfig):
    """What the families that learn share: embeddings, and layers that read them."""

    width: int = 128  # of an embedding
    depth: int = 6  # layers

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        super().check()
        _check_positive(self, "width", "depth")


@dataclasses.dataclass(frozen=True)
class NodeConfig(LayersConfig):
    """A node for every joint and one for all that is no joint's."""

    tokenizer: Literal["own", "shared"] = "own"  # (de)tokenizers: weights of each joint, or of all
    positions: bool = False  # a learnt vector a node, added to its embedding

    @property
    def nodes(self) -> int:
        """The root and the joints."""
        return 1 + self.action_dim

    @property
    def tokens(self) -> dict[str, int]:
        """The root and the joints."""
        return {"root": 1, "joint": self.action_dim}


@dataclasses.dataclass(frozen=True)
class WindowConfig(LayersConfig):
    """What the families that look back share: a window of rows, the present one last.

    The policy must be asked every `stride` control steps, or more often by a whole number.
    """

    window: int = 8  # rows
    stride: int = 8  # control steps from one row to the next

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        super().check()
        _check_positive(self, "window", "stride")

    @property
    def lags(self) -> tuple[int, ...]:
        """Rows are `stride` control steps apart; the last is the present one."""
        return tuple(self.stride * back for back in reversed(range(self.window)))


@dataclasses.dataclass(frozen=True)
class BodyConfig(NodeConfig):
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
        _check_layer(self)
        if self.graph == "random" and self.attention in ("none", "soft"):
            why = "uses no graph" if self.attention == "none" else "needs the body's distances"
            raise ConfigError(f"model.graph: 'random' makes no sense: attention '{self.attention}' {why}")
        if self.graph_seed and self.graph != "random":
            raise ConfigError(f"model.graph_seed: {self.graph_seed} has no effect without graph: random")

    def activations(self, rows: int) -> int:
        """Bytes that the backward pass reads for `rows` observations."""
        return 4 * rows * self.nodes * self.depth * _layer_values(self, self.nodes)

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
class MlpConfig(NodeConfig):
    """The baseline without a graph: the embeddings of all nodes, one after another, through dense layers."""

    family: Literal["mlp"] = "mlp"
    hidden: int = 512  # width of a layer

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        super().check()
        _check_positive(self, "hidden")

    def activations(self, rows: int) -> int:
        """Bytes that the backward pass reads for `rows` observations."""
        return 4 * rows * (2 * self.depth * self.hidden + 2 * self.nodes * self.width)


@dataclasses.dataclass(frozen=True)
class FourierConfig(WindowConfig):
    """Fourier controller (2024): low modes of each channel's past, and a feed-forward layer."""

    family: Literal["fourier"] = "fourier"
    depth: int = 4
    modes: int = 5  # of a window, the lowest
    mlp_dim: int = 256
    decoder: int = 128  # width of the layer before the actions

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        super().check()
        _check_positive(self, "modes", "mlp_dim", "decoder")
        most = 1 + self.window // 2
        if self.modes > most:
            raise ConfigError(f"model.modes: a window of {self.window} rows has {most}, not {self.modes}")

    @property
    def tokens(self) -> dict[str, int]:
        """The window's rows."""
        return {"row": self.window}

    def activations(self, rows: int) -> int:
        """Bytes that the backward pass reads for `rows` observations."""
        return 4 * rows * self.window * self.depth * (7 * self.width + 2 * self.mlp_dim)


@dataclasses.dataclass(frozen=True)
class BetConfig(WindowConfig):
    """Behavior Transformer (2022): draws one of `bins` kinds of action chunk, and adds an offset to it.

    Bins are of whole chunks, so that one answer is of one kind; with `horizon: 1` they are the paper's.
    """

    draws: ClassVar[bool] = True

    family: Literal["bet"] = "bet"
    bins: int = 64
    gamma: float = 2.0  # of the focal loss; 0 is cross entropy
    heads: int = 4
    mlp_dim: int = 512

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        super().check()
        _check_layer(self)
        check_bins("model", self.bins, self.gamma)

    @property
    def tokens(self) -> dict[str, int]:
        """The observations of the window."""
        return {"observation": self.window}

    def activations(self, rows: int) -> int:
        """Bytes that the backward pass reads for `rows` observations."""
        head = self.bins * (1 + self.horizon * self.action_dim)
        return 4 * rows * self.window * (self.depth * _layer_values(self, self.window) + head)


@dataclasses.dataclass(frozen=True)
class NearestConfig(StateConfig):
    """Nearest neighbours: the recorded rows answer, weighted by exp(-distance); nothing is learnt."""

    family: Literal["nearest"] = "nearest"
    neighbours: int = 1
    memory: int = 32_768  # rows that are kept, of as many bytes as four for each number seen and done

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that make no model."""
        super().check()
        _check_positive(self, "neighbours", "memory")
        if self.neighbours > self.memory:
            raise ConfigError(
                f"model.neighbours: {self.neighbours} are more than the {self.memory} rows of model.memory"
            )

    @property
    def tokens(self) -> dict[str, int]:
        """The rows that an observation is compared with."""
        return {"row": self.memory}

    def activations(self, rows: int) -> int:
        """Bytes of the distances of `rows` observations, and of one of them's differences."""
        return 4 * self.memory * (rows * (2 + self.action_dim) + self.environment)


def _check_positive(config: StateConfig, *keys: str) -> None:
    """Raise ConfigError, naming the key, for the first number below 1."""
    for key in keys:
        if getattr(config, key) < 1:
            raise ConfigError(f"model.{key}: must be at least 1, not {getattr(config, key)}")


def _check_layer(config: BodyConfig | BetConfig) -> None:
    """Raise ConfigError for a transformer's layer that there is none of."""
    if config.heads < 1 or config.width % config.heads:
        raise ConfigError(f"model.width: {config.width} is not a multiple of model.heads {config.heads}")
    if config.mlp_dim < 1:
        raise ConfigError(f"model.mlp_dim: must be at least 1, not {config.mlp_dim}")


def _layer_values(config: BodyConfig | BetConfig, seen: int) -> int:
    """Values of one token that a layer's backward pass reads, where it attends to `seen` tokens."""
    return 8 * config.width + 2 * config.mlp_dim + 2 * config.heads * seen


ModelConfig = Annotated[
    Pi05Config | BodyConfig | MlpConfig | FourierConfig | BetConfig | NearestConfig,
    OneOf("family", "pi05"),
]
"""A recipe without `family` is pi0.5's"""


def reads_numbers(config: ModelConfig) -> bool:
    """Whether a model reads state and environment as numbers."""
    return isinstance(config, StateConfig) or config.environment > 0


def joint_lags(config: ModelConfig) -> tuple[int, ...]:
    """How many control steps back tokens of joints look (`morphology.history`), the oldest first."""
    return () if config.morphology is None else config.morphology.lags


def reads_poses(config: ModelConfig) -> bool:
    """Whether a model reads where the joints are now (`morphology.poses: present`)."""
    plugin = config.morphology if isinstance(config, Pi05Config) else None
    return plugin is not None and plugin.poses == "present"
