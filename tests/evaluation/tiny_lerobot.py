"""The tiny environment as a type of `lerobot.envs`, registered when imported."""

import dataclasses

import tiny_environment
from lerobot.envs.configs import EnvConfig


@EnvConfig.register_subclass("tiny")
@dataclasses.dataclass
class TinyConfig(EnvConfig):
    task: str | None = "Tiny-v0"
    fault: str = ""
    ends: bool = True

    @property
    def package_name(self) -> str:
        return tiny_environment.__name__

    @property
    def gym_id(self) -> str:
        return "Tiny-v0"

    @property
    def gym_kwargs(self) -> dict:
        return {"fault": self.fault, "ends": self.ends}
