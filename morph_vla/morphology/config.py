"""The plugin's settings, as a recipe writes them."""

import dataclasses
from typing import Literal

from morph_vla.errors import ConfigError

BiasKind = Literal["none", "full", "mix"]
Encoder = Literal["linear", "linear-swiglu-linear"]


@dataclasses.dataclass(frozen=True)
class MorphologyConfig:
    """Kinematic tokens (paper, Section 2.1), topology bias (2.2), joint-attribute conditioning (2.3)."""

    max_joints: int = 32  # J: robots are padded to this many joints
    chunks: int = 1  # G: time chunks of the horizon, each with one token per joint
    encoder: Encoder = "linear-swiglu-linear"
    hidden: int = 0  # width inside the encoder; 0 takes the expert's width
    bias: BiasKind = "mix"
    film: bool = True

    def check(self, horizon: int, action_dim: int) -> None:
        """Raise ConfigError for a combination that makes no sense."""
        if self.chunks < 1 or horizon % self.chunks:
            divisors = [n for n in range(1, horizon + 1) if horizon % n == 0]
            raise ConfigError(
                f"morphology.chunks: {self.chunks} does not divide the horizon {horizon}; "
                f"choose one of {', '.join(map(str, divisors))}"
            )
        if not 1 <= self.max_joints <= action_dim:
            raise ConfigError(
                f"morphology.max_joints: {self.max_joints} must lie between 1 and the model's "
                f"{action_dim} action values: a kinematic token reads one of them"
            )

    @property
    def tokens(self) -> int:
        """Number of kinematic tokens, J * G."""
        return self.max_joints * self.chunks
