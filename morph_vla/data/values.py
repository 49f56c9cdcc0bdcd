"""The values of one episode of a LeRobot dataset, v2.0, v2.1 or v3.0: no video is read, no LeRobot needed.

v2.x keeps one parquet file per episode, v3.0 many episodes per file and a table of them in `meta/episodes`.
A dataset is somebody else's files: what is read is bounded, paths in it cannot lead out of it, and what does
not fit is one sentence that names the file.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError, nearest, require

FEATURES = ("action", "observation.state")
MAX_INFO = 16 << 20  # bytes of info.json
MAX_FRAMES = 1_000_000  # of an episode: nine hours at 30 Hz
MAX_BYTES = 2 << 30  # of the chosen columns of a file, unpacked
MAX_FILES = 100_000


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
    info = _info(root)
    version = info.get("codebase_version")
    if not isinstance(version, str) or not re.fullmatch(r"v?[23]\.\d+", version):
        shown = version if version is not None else "without codebase_version"
        raise MorphVlaError(f"{root}: a LeRobot dataset {shown}; expected v2.0, v2.1 or v3.0")
    wanted = _features(root, info, features)
    _check_index(root, info, index)
    path = _file_v3(root, info, index) if version.lstrip("v").startswith("3") else _file_v2(root, info, index)
    values, timestamps = _columns(path, wanted, index, shared=version.lstrip("v").startswith("3"))
    return Episode(
        root=root,
        version=version,
        index=index,
        fps=_fps(root, info),
        robot_type=str(info.get("robot_type") or ""),
        values=values,
        names={name: _names(info["features"][name].get("names")) for name in wanted},
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


# ------------------------------------------------------------------------------------------ meta/info.json


def _info(root: Path) -> dict[str, Any]:
    if not root.is_dir():
        raise MorphVlaError(f"{root}: {'not a folder' if root.exists() else 'no such folder'}")
    path = root / "meta" / "info.json"
    if not path.is_file():
        raise MorphVlaError(f"{root}: no LeRobot dataset here (meta/info.json is missing)")
    try:
        with path.open("rb") as file:
            text = file.read(MAX_INFO + 1)
        if len(text) > MAX_INFO:
            raise MorphVlaError(f"{path}: larger than {MAX_INFO >> 20} MiB")
        info = json.loads(text)
    except OSError as error:
        raise MorphVlaError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise MorphVlaError(f"{path}: not JSON: {error}") from error
    if not isinstance(info, dict) or not isinstance(info.get("features", {}), dict):
        raise MorphVlaError(f"{path}: expected an object that has 'features'")
    info.setdefault("features", {})
    return info


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


def _fps(root: Path, info: dict[str, Any]) -> float:
    fps = info.get("fps")
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < 1e6:
        raise MorphVlaError(f"{root / 'meta' / 'info.json'}: fps is {fps!r}; expected frames per second")
    return float(fps)


def _names(found: Any) -> tuple[str, ...]:
    """A flat list, a list within a list (Unitree's converter), or a list under a word (LeRobot v2.0)."""
    while isinstance(found, dict) and len(found) == 1:
        found = next(iter(found.values()))
    if isinstance(found, dict):  # name -> place
        found = list(found)
    while isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        return ()
    return tuple(found)


# ------------------------------------------------------------------------------------------- which file


_FIELD = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")


def _expand(root: Path, template: Any, fields: Mapping[str, int]) -> Path:
    """A path template of info.json; only whole numbers are filled in, and the result lies inside `root`."""
    where = root / "meta" / "info.json"
    if not isinstance(template, str):
        raise MorphVlaError(f"{where}: data_path is {template!r}; expected a path with {{episode_index}}")

    def fill(match: re.Match[str]) -> str:
        if match[1] not in fields:
            raise MorphVlaError(f"{where}: data_path '{template}': unknown field {match[0]}")
        return f"{fields[match[1]]:0{int(match[2] or 0)}d}"

    text = _FIELD.sub(fill, template)
    path = Path(text)
    if "{" in text or "}" in text or "\0" in text:
        raise MorphVlaError(f"{where}: data_path '{template}': expected fields such as {{episode_index:06d}}")
    if path.is_absolute() or ".." in path.parts:
        raise MorphVlaError(f"{where}: data_path '{template}' leads out of the dataset; it is not followed")
    return root / path


def _file_v2(root: Path, info: dict[str, Any], index: int) -> Path:
    """One file per episode; where the template is wrong (GR00T's demo data), any chunk that has the file."""
    size = info.get("chunks_size")
    chunk = index // size if isinstance(size, int) and size > 0 else 0
    default = "data/chunk-{episode_chunk:03d}/episode_{episode_index:06d}.parquet"
    fields = {"episode_chunk": chunk, "episode_index": index}
    path = _expand(root, info.get("data_path", default), fields)
    if path.is_file():
        return path
    for folder in _listed(root / "data"):
        if (folder / path.name).is_file():
            return folder / path.name
    raise MorphVlaError(f"{root}: the file of episode {index} is missing ({path.relative_to(root)})")


def _listed(folder: Path, pattern: str = "*") -> list[Path]:
    found: list[Path] = []
    if folder.is_dir():
        for path in folder.glob(pattern):
            found.append(path)
            if len(found) >= MAX_FILES:
                break
    return sorted(found)


def _file_v3(root: Path, info: dict[str, Any], index: int) -> Path:
    """The file that meta/episodes names for this episode."""
    tables = _listed(root / "meta" / "episodes", "*/*.parquet")
    if not tables:
        raise MorphVlaError(f"{root}: v3.0 without the table of its episodes (meta/episodes is missing)")
    keys = ["episode_index", "data/chunk_index", "data/file_index"]
    for path in tables:
        table = _table(path, keys, keys)
        rows = np.flatnonzero(_whole(path, table, "episode_index") == index)
        if len(rows):
            chunk, file = (int(_whole(path, table, key)[rows[0]]) for key in keys[1:])
            default = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
            fields = {"chunk_index": chunk, "file_index": file}
            found = _expand(root, info.get("data_path", default), fields)
            if not found.is_file():
                missing = found.relative_to(root)
                raise MorphVlaError(f"{root}: the file of episode {index} is missing ({missing})")
            return found
    raise MorphVlaError(f"{root}: no episode {index} in meta/episodes")


# --------------------------------------------------------------------------------------------- parquet


def _open(path: Path) -> Any:
    parquet = require("pyarrow.parquet", "lerobot")
    arrow = require("pyarrow", "lerobot")
    try:
        return parquet.ParquetFile(path)
    except (arrow.ArrowException, OSError) as error:
        reason = "; ".join(str(error).splitlines()[:1])
        raise MorphVlaError(f"{path}: cannot be read as parquet: {reason}") from error


def _groups(file: Any, columns: Sequence[str], path: Path) -> Iterator[Any]:
    """The row groups of a parquet file, of these columns alone, within bounds."""
    arrow = require("pyarrow", "lerobot")
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        held = [group.column(place) for place in range(group.num_columns)]
        chosen = [c for c in held if any(f"{c.path_in_schema}.".startswith(f"{name}.") for name in columns)]
        size = sum(column.total_uncompressed_size for column in chosen)
        if size > MAX_BYTES:
            raise MorphVlaError(f"{path}: more than {MAX_BYTES >> 30} GiB of values in one part of the file")
        try:
            yield file.read_row_group(number, columns=list(columns))
        except (arrow.ArrowException, OSError) as error:
            reason = "; ".join(str(error).splitlines()[:1])
            raise MorphVlaError(f"{path}: cannot be read as parquet: {reason}") from error


def _table(path: Path, columns: Sequence[str], needed: Sequence[str], episode: int | None = None) -> Any:
    """The columns that are there; with `episode`, only its rows. Raises for one that is needed and is not."""
    arrow = require("pyarrow", "lerobot")
    compute = require("pyarrow.compute", "lerobot")
    file = _open(path)
    there = set(file.schema_arrow.names)
    for name in needed:
        if name not in there:
            raise MorphVlaError(f"{path}: no column '{name}'{nearest(name, there)}")
    parts, rows = [], 0
    for part in _groups(file, [name for name in columns if name in there], path):
        kept = part
        if episode is not None:
            kept = part.filter(compute.equal(part.column("episode_index"), episode))
        rows += kept.num_rows
        if rows > MAX_FRAMES:
            raise MorphVlaError(f"{path}: more than {MAX_FRAMES} rows for one episode")
        parts.append(kept)
    if not parts:
        raise MorphVlaError(f"{path}: holds no rows")
    return arrow.concat_tables(parts)


def _columns(
    path: Path, features: Sequence[str], index: int, shared: bool
) -> tuple[dict[str, Float[np.ndarray, "n d"]], Float[np.ndarray, "n"] | None]:
    """The features of one episode, and its time stamps."""
    needed = [*features, "episode_index"] if shared else list(features)
    episode = index if shared else None
    table = _table(path, [*features, "episode_index", "timestamp"], needed, episode)
    if table.num_rows == 0:
        raise MorphVlaError(f"{path}: holds no frame of episode {index}")
    if not shared and "episode_index" in table.column_names:
        said = np.unique(_whole(path, table, "episode_index"))
        if said.tolist() != [index]:
            raise MorphVlaError(
                f"{path}: its rows are of episode {', '.join(map(str, said[:5].tolist()))}, not {index}"
            )
    values = {name: _matrix(path, table, name) for name in features}
    times = _matrix(path, table, "timestamp")[:, 0] if "timestamp" in table.column_names else None
    return values, times


def _whole(path: Path, table: Any, name: str) -> np.ndarray:
    types = require("pyarrow.types", "lerobot")
    column = table.column(name)
    if not types.is_integer(column.type) or column.null_count:
        raise MorphVlaError(f"{path}: column '{name}' holds {column.type}; expected whole numbers")
    return column.to_numpy()


def _matrix(path: Path, table: Any, name: str) -> Float[np.ndarray, "n d"]:
    """A column of numbers, or of lists of numbers all of one length, as float64; a missing number is NaN."""
    types = require("pyarrow.types", "lerobot")
    column = table.column(name).combine_chunks()
    count, inner, kind = len(column), column, column.type
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        if column.null_count:
            frame = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise MorphVlaError(f"{path}: '{name}' has nothing in frame {frame}")
        if not types.is_fixed_size_list(kind):
            sizes = column.value_lengths().to_numpy(zero_copy_only=False)
            odd = np.flatnonzero(sizes != sizes[0])
            if len(odd):
                raise MorphVlaError(
                    f"{path}: '{name}' has {sizes[odd[0]]} values in frame {odd[0]} and {sizes[0]} in frame 0"
                )
        inner, kind = column.flatten(), kind.value_type
    if not (types.is_floating(kind) or types.is_integer(kind)):
        raise MorphVlaError(f"{path}: '{name}' holds {column.type}; expected a list of numbers per frame")
    flat = np.asarray(inner.to_numpy(zero_copy_only=False), np.float64)
    if len(flat) == 0:
        raise MorphVlaError(f"{path}: '{name}' has no values")
    return flat.reshape(count, -1)
