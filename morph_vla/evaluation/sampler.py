"""How a policy draws its actions: what `morph-vla eval` may ask for, and a record says."""

import dataclasses
import math

from morph_vla.errors import MorphVlaError


@dataclasses.dataclass(frozen=True)
class Sampler:
    """The flow is integrated over `steps` from Gaussian noise times `noise`.

    With noise 1 what was learnt is sampled; 0 always starts from zeros, so that one observation has one
    answer, close to the mean of the actions. Raises MorphVlaError for less than one step, and for noise that
    is negative or not finite.
    """

    steps: int = 10
    noise: float = 1.0

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise MorphVlaError(f"the sampler's steps must be at least 1, not {self.steps}")
        if not (math.isfinite(self.noise) and self.noise >= 0):
            raise MorphVlaError(
                f"the sampler's noise must be a finite number of at least 0, not {self.noise:g}"
            )

    def options(self) -> list[str]:
        """The options of `morph-vla eval` that ask for this sampler; none for the default one."""
        noise = [] if self.noise == Sampler.noise else ["--noise", f"{self.noise:g}"]
        return noise + ([] if self.steps == Sampler.steps else ["--sampler-steps", str(self.steps)])
