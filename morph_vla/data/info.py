"""What a LeRobot dataset says of itself: meta/info.json, and where it keeps its files.

A dataset is somebody else's files: what is read is bounded, and paths in it cannot lead out of it.
"""

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError

MAX_INFO = 16 << 20  # bytes of info.json
MAX_FILES = 100_000


def load(root: Path) -> dict[str, Any]:
    """The contents of meta/info.json, with `features` even where it has none.

    Raises MorphVlaError when there is no dataset in `root`, or its info.json is too large or no JSON object.
    """
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


def version_of(root: Path, info: Mapping[str, Any]) -> str:
    """`v2.0`, `v2.1` or `v3.0`; raises MorphVlaError for a version other than 2.x and 3.x."""
    version = info.get("codebase_version")
    if not isinstance(version, str) or not re.fullmatch(r"v?[23]\.\d+", version):
        shown = version if version is not None else "without codebase_version"
        raise MorphVlaError(f"{root}: a LeRobot dataset {shown}; expected v2.0, v2.1 or v3.0")
    return f"v{version.lstrip('v')}"


def fps_of(root: Path, info: Mapping[str, Any]) -> float:
    """Frames per second [Hz]; raises MorphVlaError for anything but a positive number."""
    fps = info.get("fps")
    if isinstance(fps, bool) or not isinstance(fps, int | float) or not 0 < fps < 1e6:
        raise MorphVlaError(f"{root / 'meta' / 'info.json'}: fps is {fps!r}; expected frames per second")
    return float(fps)


def names_of(names: Any) -> tuple[str, ...]:
    """The names of a feature's values, () for none.

    They come flat, as a list within a list (Unitree's converter), or under a word (LeRobot v2.0).
    """
    while isinstance(names, dict) and len(names) == 1 and not isinstance(next(iter(names.values())), int):
        names = next(iter(names.values()))
    if isinstance(names, dict):  # name -> place, in any order
        places = [place if isinstance(place, int) else -1 for place in names.values()]
        numbered = sorted(places) == list(range(len(places)))
        names = sorted(names, key=names.__getitem__) if numbered else list(names)
    while isinstance(names, list) and len(names) == 1 and isinstance(names[0], list):
        names = names[0]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return ()
    return tuple(names)


_FIELD = re.compile(r"\{(\w+)(?::0?(\d{1,2})d)?\}")


def expand(root: Path, template: Any, fields: Mapping[str, int]) -> Path:
    """A path template of info.json; only whole numbers are filled in, and the result lies inside `root`."""
    where = root / "meta" / "info.json"
    if not isinstance(template, str):
        raise MorphVlaError(f"{where}: data_path is {template!r}; expected a path with {{episode_index}}")

    def fill(match: re.Match[str]) -> str:
        """The number of one field, in as many digits as it asks for."""
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


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    """What a folder holds by this pattern, sorted, at most MAX_FILES."""
    return sorted(itertools.islice(folder.glob(pattern), MAX_FILES)) if folder.is_dir() else []
