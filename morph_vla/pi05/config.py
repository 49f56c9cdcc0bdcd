"""Sizes of pi0.5, from a toy on a laptop to the full model, in one type."""

import dataclasses
import operator
from typing import Literal

from morph_vla.errors import ConfigError
from morph_vla.morphology.config import MorphologyConfig

CAMERAS = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")  # openpi's names, in its order


@dataclasses.dataclass(frozen=True)
class VitConfig:
    """SigLIP. The defaults are So400m/14."""

    width: int = 1152
    depth: int = 27
    mlp_dim: int = 4304
    heads: int = 16
    patch: int = 14


@dataclasses.dataclass(frozen=True)
class GemmaConfig:
    """One expert's share of the transformer. The defaults are Gemma 2B, the VLM."""

    width: int = 2048
    mlp_dim: int = 16_384


@dataclasses.dataclass(frozen=True)
class LowRank:
    """Low-rank pairs beside one expert's weights: x W + (alpha / rank) (x A) B, with B zero at the start."""

    rank: int = 16
    alpha: float = 16.0
    targets: tuple[Literal["attention", "feed-forward"], ...] = ("attention", "feed-forward")

    @property
    def scale(self) -> float:
        """What the pair's product is multiplied by."""
        return self.alpha / self.rank

    def check(self, where: str) -> None:
        """Raise ConfigError for a rank, a factor or targets that make no pair."""
        if self.rank < 1:
            raise ConfigError(f"{where}.rank: must be at least 1, not {self.rank}")
        if not 0 < self.alpha < float("inf"):
            raise ConfigError(f"{where}.alpha: must be more than 0, not {self.alpha:g}")
        if not self.targets or len(set(self.targets)) < len(self.targets):
            raise ConfigError(f"{where}.targets: name attention, feed-forward or both, each once")


@dataclasses.dataclass(frozen=True)
class Lora:
    """Which parts learn through low-rank pairs, and which learn whole beside them (`training.lora`).

    The defaults are openpi's `gemma_2b_lora` with `gemma_300m_lora`, whose freeze filter leaves the vision
    encoder learning. Every other weight of a part is frozen; projections and plugin always learn.
    """

    language_model: LowRank | None = LowRank()
    action_expert: LowRank | None = LowRank(rank=32, alpha=32.0)
    whole: tuple[Literal["vision encoder", "language model", "action expert"], ...] = ("vision encoder",)

    def of(self, expert: int, target: str) -> LowRank | None:
        """The pairs beside a target's weights of an expert (0 the language model, 1 the action expert)."""
        pairs = self.action_expert if expert else self.language_model
        return pairs if pairs is not None and target in pairs.targets else None

    def check(self) -> None:
        """Raise ConfigError, naming the key, for parts that contradict each other."""
        for key in ("language_model", "action_expert"):
            pairs, part = getattr(self, key), key.replace("_", " ")
            if pairs is not None:
                pairs.check(f"training.lora.{key}")
            if pairs is not None and part in self.whole:
                raise ConfigError(
                    f"training.lora.whole: the {part} has low-rank pairs and its own weights are frozen; "
                    f"take it out, or set training.lora.{key}: null"
                )
        if self.language_model is None and self.action_expert is None:
            raise ConfigError(
                "training.lora: neither language_model nor action_expert has low-rank pairs; give one a "
                "rank, or choose training.kind: full or expert"
            )


Features = Literal["relu", "positive", "trigonometric", "hybrid"]  # of an attention kernel, `pi05.ranking`


@dataclasses.dataclass(frozen=True)
class ImageTokens:
    """Fewer tokens of every camera's image between SigLIP and the language model (`pi05.image_tokens`).

    `ranking` keeps those that attention ranks highest, `learnt` makes new ones of all, `average` pools
    squares, `random` keeps the same places of every image, chosen once.
    """

    keep: int  # tokens of an image
    how: Literal["ranking", "learnt", "average", "random"] = "ranking"
    features: Features = "relu"
    projections: int = 32  # random directions of the softmax kernel; the hybrid's angle has half as many
    width: int = 16  # of queries and keys
    normalized: bool = True  # queries and keys
    seed: int = 0  # of random directions, of the first queries and keys, and of `random`

    @property
    def learns(self) -> bool:
        """Whether it has parameters."""
        return self.how in ("ranking", "learnt")

    def check(self, side: int) -> None:
        """Raise ConfigError, naming the key, where `side` x `side` tokens cannot become so many."""
        where, count = "model.image_tokens", side**2
        if not 1 <= self.keep <= count:
            raise ConfigError(f"{where}.keep: {self.keep} is not between 1 and an image's {count} tokens")
        squares = [n**2 for n in range(1, side + 1) if side % n == 0]
        if self.how == "average" and self.keep not in squares:
            possible = ", ".join(map(str, squares))
            raise ConfigError(f"{where}.keep: {self.keep} are no equal squares of {count}; one of {possible}")
        for key in ("projections", "width"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{where}.{key}: must be at least 1, not {getattr(self, key)}")
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"{where}.seed: must be at least 0 and below 2**32, not {self.seed}")
        for key in self._unread:
            if getattr(self, key) != getattr(type(self), key):
                why = f"features: {self.features}" if self.learns else f"how: {self.how}"
                raise ConfigError(f"{where}.{key}: {getattr(self, key)} has no effect with {why}")

    @property
    def _unread(self) -> tuple[str, ...]:
        """Keys that mean nothing to this choice."""
        if not self.learns:
            unread = ("features", "projections", "width", "normalized")
            return unread if self.how == "random" else (*unread, "seed")
        return ("projections", "normalized") if self.features == "relu" else ()


def check_bins(where: str, bins: int, gamma: float) -> None:
    """Raise ConfigError for numbers of kinds of action chunk, or a focal loss, that cannot be learnt."""
    if bins < 1:
        raise ConfigError(f"{where}.bins: must be at least 1, not {bins}")
    if gamma and not 1 <= gamma < float("inf"):
        raise ConfigError(
            f"{where}.gamma: must be 0 (cross entropy) or at least 1, not {gamma:g}: between them the focal "
            "loss has no finite gradient"
        )


@dataclasses.dataclass(frozen=True)
class BinsHead:
    """The action expert names one of `bins` kinds of chunk, with an offset, and does not denoise (`head`)."""

    bins: int = 24
    gamma: float = 2.0  # of the focal loss; 0 is cross entropy


SIZES = (
    "vocab", "image_size", "vit.width", "vit.depth", "vit.mlp_dim", "vit.heads", "vit.patch", "prefix.width",
    "prefix.mlp_dim", "expert.width", "expert.mlp_dim", "depth", "heads", "kv_heads", "head_dim",
    "action_dim", "horizon", "max_tokens",
)  # fmt: skip
"""Keys of a model, each at least 1"""
MOST = 2**31  # an array's axis has fewer


@dataclasses.dataclass(frozen=True)
class Pi05Config:
    """pi0.5 with or without a body. The defaults are the full model (3,353,433,872 parameters)."""

    family: Literal["pi05"] = "pi05"
    vocab: int = 257_152
    image_size: int = 224
    cameras: tuple[str, ...] = CAMERAS
    vit: VitConfig = VitConfig()
    prefix: GemmaConfig = GemmaConfig()
    expert: GemmaConfig = GemmaConfig(width=1024, mlp_dim=4096)
    depth: int = 18
    heads: int = 8
    kv_heads: int = 1
    head_dim: int = 256
    action_dim: int = 32
    horizon: int = 16
    # real-time chunking: so many actions, at most, it learns to go on from, those that are executed until its
    # answer is there (`realtime`); 0: none. Serving gives them to it, and leads chunks of other models there
    delay_max: int = 0
    max_tokens: int = 200
    environment: int = 0  # values of observation.environment_state: a prefix token of them, one of the state
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    remat: bool = True  # recompute activations in the backward pass
    unroll: bool = False  # unroll the layers: faster on a CPU, slower to compile
    fused_attention: bool = False  # of prefix and images in one kernel; equal but for rounding (`fused`)
    prefix_float8: bool = False  # products of images and prefix of numbers of 8 bits; not exact (`float8`)
    init: Literal["openpi", "scratch"] = "openpi"  # scratch: image head not at zero, unit-size embeddings
    image_tokens: ImageTokens | None = None  # none: all of them
    morphology: MorphologyConfig | None = None
    head: BinsHead | None = None  # none: flow matching
    lora: Lora | None = None  # a recipe sets it through training.lora

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that do not fit together."""
        for key, least in {**dict.fromkeys(SIZES, 1), "environment": 0}.items():
            size = operator.attrgetter(key)(self)
            if not least <= size < MOST:
                limit = f"at least {least}" if size < least else "below 2**31"
                raise ConfigError(f"model.{key}: must be {limit}, not {size}")
        if len(set(self.cameras)) < len(self.cameras) or not all(self.cameras):
            listed = ", ".join(map(repr, self.cameras))
            raise ConfigError(f"model.cameras: {listed}; expected names, each once")
        for whole, size, part, divisor in (
            ("image_size", self.image_size, "vit.patch", self.vit.patch),
            ("vit.width", self.vit.width, "vit.heads", self.vit.heads),
            ("heads", self.heads, "kv_heads", self.kv_heads),
        ):
            if size % divisor:
                raise ConfigError(f"model.{whole}: {size} is not a multiple of model.{part} {divisor}")
        if not 0 <= self.delay_max < self.horizon:
            raise ConfigError(
                f"model.delay_max: {self.delay_max} actions are given of a chunk of {self.horizon} "
                f"(model.horizon); expected 0 to {self.horizon - 1}"
            )
        if self.head_dim % 2:
            raise ConfigError(f"model.head_dim: {self.head_dim} must be even, for rotary positions")
        if self.expert.width % 2:
            raise ConfigError(f"model.expert.width: {self.expert.width} must be even, for the time embedding")
        if self.image_tokens is not None:
            if not self.cameras:
                raise ConfigError("model.image_tokens: has no effect without model.cameras")
            self.image_tokens.check(self.image_size // self.vit.patch)
        if self.morphology is not None:
            self.morphology.check(self.horizon, self.action_dim)
        if self.head is not None:
            check_bins("model.head", self.head.bins, self.head.gamma)
            if self.delay_max:
                raise ConfigError(
                    f"model.delay_max: {self.delay_max} has no effect with model.head: kinds of whole chunks "
                    "do not go on from actions that are given; leave one of the two out"
                )
        if self.lora is not None:
            self.lora.check()

    @property
    def lags(self) -> tuple[int, ...]:
        """It looks at the present alone."""
        return ()

    @property
    def numbers(self) -> int:
        """Prefix tokens that are read from numbers: the environment's and the state's."""
        return 2 if self.environment else 0

    @property
    def patches(self) -> int:
        """Image tokens per camera, as the vision encoder makes them."""
        return (self.image_size // self.vit.patch) ** 2

    @property
    def kept(self) -> int:
        """Image tokens per camera that the language model reads."""
        return self.patches if self.image_tokens is None else self.image_tokens.keep
