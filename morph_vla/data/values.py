"""The values of one episode of a LeRobot dataset, v2.0, v2.1 or v3.0: no video is read, no LeRobot needed.

v2.x keeps one parquet file per episode, v3.0 many episodes per file and a table of them in `meta/episodes`.
A dataset is somebody else's files: what is read is bounded, paths in it cannot lead out of it, and what does
not fit is one sentence that names the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.data import info as info_file
from morph_vla.data import tables
from morph_vla.errors import MorphVlaError, nearest

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
    root = Path(root)
    info = info_file.load(root)
    version = info_file.version_of(root, info)
    wanted = _features(root, info, features)
    _check_index(root, info, index)
    path = _file_v3(root, info, index) if version.startswith("v3") else _file_v2(root, info, index)
    values, timestamps = _columns(path, wanted, index, shared=version.startswith("v3"))
    return Episode(
        root=root,
        version=version,
        index=index,
        fps=info_file.fps_of(root, info),
        robot_type=str(info.get("robot_type") or ""),
        values=values,
        names={name: info_file.names_of(info["features"][name].get("names")) for name in wanted},
        timestamps=timestamps,
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


def _features(root: Path, info: dict[str, Any], asked: Sequence[str]) -> tuple[str, ...]:
    known = {name: value for name, value in info["features"].items() if isinstance(value, dict)}
    for name in asked:
        if name not in known:
            there = nearest(name, known) or f" (there are {_some(known)})"
            raise MorphVlaError(f"{root}: no feature '{name}'{there}")
    wanted = tuple(asked) or tuple(name for name in FEATURES if name in known)
    if not wanted:
        raise MorphVlaError(
            f"{root}: meta/info.json has neither 'action' nor 'observation.state' (there are {_some(known)})"
        )
    return wanted


def _some(names: Mapping[str, Any]) -> str:
    shown = ", ".join(f"'{name}'" for name in list(names)[:12])
    return (shown + (", ..." if len(names) > 12 else "")) or "none"


def _check_index(root: Path, info: dict[str, Any], index: int) -> None:
    total = info.get("total_episodes")
    if index < 0 or (isinstance(total, int) and index >= total):
        have = f"0 to {total - 1}" if isinstance(total, int) and total > 0 else "counted from 0"
        raise MorphVlaError(f"{root}: no episode {index}; its episodes are {have}")


# ------------------------------------------------------------------------------------------- which file


def _file_v2(root: Path, info: dict[str, Any], index: int) -> Path:
    """One file per episode; where the template is wrong (GR00T's demo data), any chunk that has the file."""
    size = info.get("chunks_size")
    chunk = index // size if isinstance(size, int) and size > 0 else 0
    default = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    fields = {"episode_chunk": chunk, "episode_index": index}
    path = info_file.expand(root, info.get("data_path", default), fields)
    if path.is_file():
        return path
    for folder in info_file.listed(root / "data"):
        if (folder / path.name).is_file():
            return folder / path.name
    raise MorphVlaError(f"{root}: the file of episode {index} is missing ({path.relative_to(root)})")


def _file_v3(root: Path, info: dict[str, Any], index: int) -> Path:
    """The file that meta/episodes names for this episode."""
    found_in = info_file.listed(root / "meta" / "episodes", "*/*.parquet")
    if not found_in:
        raise MorphVlaError(f"{root}: v3.0 without the table of its episodes (meta/episodes is missing)")
    keys = ["episode_index", "data/chunk_index", "data/file_index"]
    for path in found_in:
        table = tables.table_of(path, keys, keys)
        rows = np.flatnonzero(tables.whole(path, table, "episode_index") == index)
        if len(rows):
            chunk, file = (int(tables.whole(path, table, key)[rows[0]]) for key in keys[1:])
            default = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
            fields = {"chunk_index": chunk, "file_index": file}
            found = info_file.expand(root, info.get("data_path", default), fields)
            if not found.is_file():
                missing = found.relative_to(root)
                raise MorphVlaError(f"{root}: the file of episode {index} is missing ({missing})")
            return found
    raise MorphVlaError(f"{root}: no episode {index} in meta/episodes")


def _columns(
    path: Path, features: Sequence[str], index: int, shared: bool
) -> tuple[dict[str, Float[np.ndarray, "n d"]], Float[np.ndarray, "n"] | None]:
    """The features of one episode, and its time stamps."""
    needed = [*features, "episode_index"] if shared else list(features)
    episode = index if shared else None
    table = tables.table_of(path, [*features, "episode_index", "timestamp"], needed, episode)
    if table.num_rows == 0:
        raise MorphVlaError(f"{path}: holds no frame of episode {index}")
    if not shared and "episode_index" in table.column_names:
        said = np.unique(tables.whole(path, table, "episode_index"))
        if said.tolist() != [index]:
            raise MorphVlaError(
                f"{path}: its rows are of episode {', '.join(map(str, said[:5].tolist()))}, not {index}"
            )
    values = {name: tables.matrix(path, table, name) for name in features}
    times = tables.matrix(path, table, "timestamp")[:, 0] if "timestamp" in table.column_names else None
    return values, times
