"""The values of one episode of a LeRobot dataset of any version, as `layout` reads them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from jaxtyping import Float

from morph_vla.data import info as info_file
from morph_vla.data import layout as layouts
from morph_vla.errors import MorphVlaError

FEATURES = ("action", "observation.state")


@dataclass(frozen=True)
class Episode:
    """n frames of one episode; what is not finite is kept."""

    root: Path
    version: str
    index: int
    fps: float
    """Frames per second [Hz], as meta/info.json says"""
    robot_type: str
    values: Mapping[str, Float[np.ndarray, "n d"]]
    """feature -> values in the dataset's units, float64"""
    names: Mapping[str, tuple[str, ...]]
    """feature -> the names of its values; () where the dataset has none"""
    timestamps: Float[np.ndarray, "n"] | None
    """[s]; None when the file has none"""

    @property
    def frames(self) -> int:
        """Number of frames."""
        return len(next(iter(self.values.values())))


def read(root: Path | str, index: int = 0, features: Sequence[str] = ()) -> Episode:
    """Episode `index` of the dataset in the folder `root`.

    `features` are those wanted; for none, `action` and `observation.state`, of which one may be missing.

    Raises MorphVlaError when there is no dataset, no such episode or feature (the nearest is named), or a
    file that cannot be read or holds something else; MissingExtraError without pyarrow.
    """
    dataset = layouts.read(root)
    for name in features:
        if name not in dataset.features:
            raise MorphVlaError(f"{root}: {dataset.no_feature(name)}")
    wanted = tuple(features) or tuple(name for name in FEATURES if name in dataset.features)
    if not wanted:
        listed = ", ".join(f"'{name}'" for name in list(dataset.features)[:12]) or "none"
        neither = "neither 'action' nor 'observation.state'"
        raise MorphVlaError(f"{root}: meta/info.json has {neither} (there are {listed})")
    path = dataset.entry(index).data
    if not path.is_file():
        missing = path.relative_to(dataset.root)
        raise MorphVlaError(f"{root}: the file of episode {index} is missing ({missing})")
    rows = layouts.rows(dataset, wanted, path, index=index)
    if not len(rows.episode):
        raise MorphVlaError(f"{path}: holds no frame of episode {index}")
    return Episode(
        root=dataset.root,
        version=dataset.version,
        index=index,
        fps=dataset.fps,
        robot_type=dataset.robot_type,
        values=rows.values,
        names={name: info_file.names_of(dataset.features[name].get("names")) for name in wanted},
        timestamps=rows.timestamp,
    )


def joined(episode: Episode, parts: Mapping[str, Sequence[str]]) -> Episode:
    """The same frames, with each feature of `parts` put together from others, side by side in their order.

    The values of a part without names go without names, and so does the whole.
    """
    values = {name: np.concatenate([episode.values[key] for key in keys], 1) for name, keys in parts.items()}
    names = {}
    for name, keys in parts.items():
        known = all(len(episode.names[key]) == episode.values[key].shape[1] for key in keys)
        names[name] = tuple(word for key in keys for word in episode.names[key]) if known else ()
    return replace(episode, values=values, names=names)
