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
class Pi05Config:
    """pi0.5 with or without a body. The defaults are the full model (3,353,433,872 parameters)."""

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

    def check(self) -> None:
        """Raise ConfigError, naming the key, for sizes that do not fit together."""
        if self.image_size % self.vit.patch:
            raise ConfigError(
                f"model.image_size: {self.image_size} is not a multiple of model.vit.patch {self.vit.patch}"
            )
        if self.vit.width % self.vit.heads:
            raise ConfigError(
                f"model.vit.width: {self.vit.width} is not a multiple of model.vit.heads {self.vit.heads}"
            )
        if self.heads % self.kv_heads:
            raise ConfigError(
                f"model.heads: {self.heads} is not a multiple of model.kv_heads {self.kv_heads}"
            )
        if self.head_dim % 2:
            raise ConfigError(f"model.head_dim: {self.head_dim} must be even, for rotary positions")
        if self.expert.width % 2:
            raise ConfigError(f"model.expert.width: {self.expert.width} must be even, for the time embedding")
        if self.morphology is not None:
            self.morphology.check(self.horizon, self.action_dim)

    @property
    def patches(self) -> int:
        """Image tokens per camera."""
        return (self.image_size // self.vit.patch) ** 2
