"""Sizes of pi0.5, from a toy on a laptop to the full model, in one type."""

import dataclasses
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
    max_tokens: int = 200
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    remat: bool = True  # recompute activations in the backward pass
    unroll: bool = False  # unroll the layers: faster on a CPU, slower to compile
    init: Literal["openpi", "scratch"] = "openpi"  # scratch: image head not at zero, unit-size embeddings
    morphology: MorphologyConfig | None = None
    lora: Lora | None = None  # a recipe sets it through training.lora

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that do not fit together."""
        for whole, size, part, divisor in (
            ("image_size", self.image_size, "vit.patch", self.vit.patch),
            ("vit.width", self.vit.width, "vit.heads", self.vit.heads),
            ("heads", self.heads, "kv_heads", self.kv_heads),
        ):
            if size % divisor:
                raise ConfigError(f"model.{whole}: {size} is not a multiple of model.{part} {divisor}")
        if self.head_dim % 2:
            raise ConfigError(f"model.head_dim: {self.head_dim} must be even, for rotary positions")
        if self.expert.width % 2:
            raise ConfigError(f"model.expert.width: {self.expert.width} must be even, for the time embedding")
        if self.morphology is not None:
            self.morphology.check(self.horizon, self.action_dim)
        if self.lora is not None:
            self.lora.check()

    @property
    def patches(self) -> int:
        """Image tokens per camera."""
        return (self.image_size // self.vit.patch) ** 2
