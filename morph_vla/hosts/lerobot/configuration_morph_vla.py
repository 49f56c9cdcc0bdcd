"""What `config.json` says of our policy: which checkpoint or server answers, and how it is asked."""

from dataclasses import dataclass

from lerobot.configs import PreTrainedConfig

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.sampler import Sampler


@PreTrainedConfig.register_subclass("morph_vla")
@dataclass
class MorphVlaConfig(PreTrainedConfig):
    """Options are given as `--policy.n_action_steps=16`."""

    checkpoint: str = "."
    """A checkpoint's folder, as seen from the one with config.json, or a server: ws://HOST:PORT."""
    robot: str = ""
    """Which one, of a checkpoint that was trained on several."""
    n_action_steps: int = 0
    """Actions executed before the policy is asked again; 0: those of 8/15 s at the rate it was trained at, 8
    where a server does not say that. A loaded policy's configuration says the number itself."""
    batch: int = 10
    """Observations that a checkpoint computes at once: `morph-vla eval` has 10, a single robot wants 1."""
    sampler_steps: int = Sampler.steps
    noise: float = Sampler.noise
    preset: str = ""
    """The keys of a server's requests, where it does not say them: one of `serving.keys.PRESETS`"""
    push_to_hub: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("n_action_steps", 0), ("batch", 1)):
            if getattr(self, name) < least:
                raise MorphVlaError(f"policy.{name} must be at least {least}, not {getattr(self, name)}")

    @property
    def observation_delta_indices(self) -> None:
        """LeRobot's: which earlier observations are needed; none."""

    @property
    def action_delta_indices(self) -> None:
        """LeRobot's: of training."""

    @property
    def reward_delta_indices(self) -> None:
        """LeRobot's: of training."""

    def get_optimizer_preset(self) -> None:
        """Raise MorphVlaError: LeRobot's trainer does not train this policy."""
        raise MorphVlaError("a morph_vla policy is trained by `morph-vla train`, not by lerobot-train")

    def get_scheduler_preset(self) -> None:
        """LeRobot's: of training."""

    def validate_features(self) -> None:
        """LeRobot's: nothing to add to what the policy says of an observation that lacks something."""
