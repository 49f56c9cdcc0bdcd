"""The ready-made configurations: files of `configs/openpi/`, which `configs` makes openpi's TrainConfigs of.

Needs no openpi.
"""

import dataclasses
from pathlib import Path
from typing import Literal

from morph_vla.errors import ConfigError, MorphVlaError, nearest
from morph_vla.files import dropin, typed_yaml
from morph_vla.morphology import MorphologyConfig

BASE = "gs://openpi-assets/checkpoints/pi05_base"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One configuration, named by its file. `cameras` are the dataset's, in the order of openpi's three."""

    robot: str
    data: Literal["droid", "lerobot", "fake"]
    morphology: MorphologyConfig = dataclasses.field(default_factory=MorphologyConfig)
    horizon: int = 16
    cameras: tuple[str | None, str | None, str | None] = (None, None, None)
    state: str = "observation.state"
    actions: str = "action"
    repo_id: str = ""  # of the dataset, as LeRobot names it; --data.repo-id replaces it
    grippers: int = 1  # the last joints, whose actions stay absolute where those of the others become deltas
    steps: int = 20_000
    batch: int = 32

    def __post_init__(self) -> None:
        """Raise ConfigError for numbers that train nothing, and where images would have no name."""
        for key in ("horizon", "steps", "batch"):
            if getattr(self, key) < 1:
                raise ConfigError(f"{key}: expected at least 1, got {getattr(self, key)}")
        if self.grippers < 0:
            raise ConfigError(f"grippers: expected at least 0, got {self.grippers}")
        if self.data == "fake" and self.repo_id:
            raise ConfigError("repo_id: has no effect with data: fake; leave it out")
        if self.data == "lerobot" and not any(self.cameras):
            raise ConfigError(
                "cameras: name at least one of the dataset's for openpi's three, the others null"
            )


def available() -> dict[str, Path]:
    """Every file by name; the first of a name wins, as among our own recipes."""
    folders = [folder / dropin.OF_OPENPI for folder in dropin.search_path("recipes")]
    paths = [path for folder in reversed(folders) for path in folder.glob("*.yaml")]
    paths = [path for path in paths if path.is_file() and not path.name.startswith(".")]  # an editor's own
    return {path.stem: path for path in sorted(paths, key=lambda path: path.stem)}


def load(name: str) -> Recipe:
    """The recipe of an available name. Raises ConfigError that names every wrong key."""
    return typed_yaml.read(available()[name], Recipe)


def check_name(name: str, known: list[str]) -> None:
    """Raise MorphVlaError, naming the nearest, for a configuration that is not `known`."""
    if name not in known:
        raise MorphVlaError(
            f"no configuration '{name}'{nearest(name, known)} "
            "(see python -m morph_vla.hosts.openpi list, and openpi's own)"
        )
