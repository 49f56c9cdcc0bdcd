"""What `morph-vla record` kept of the suites that a dataset was recorded in: where their cameras stood."""

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from morph_vla.robots.views import Stands

SUMMARY = "recording.json"
MAX_BYTES = 16 << 20  # of it; ours have some kilobytes


@dataclasses.dataclass(frozen=True)
class Scene:
    """Of one suite: its cameras, where its arm begins, and where its table is."""

    cameras: Mapping[str, Stands]
    start: Mapping[str, float]  # joint -> [rad | m]; the others begin at rest
    middle: tuple[float, float]  # [m] of the table, in the base's frame


def scenes(root: Path) -> tuple[Scene, ...]:
    """The scenes of the dataset in a folder; none where it is not of ours, or says it otherwise."""
    path = root / SUMMARY
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            return ()
        suites = json.loads(json.loads(path.read_bytes())["fingerprint"])[0]
        return tuple(_scene(suite) for suite in suites)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, OSError):
        return ()


def _scene(suite: Mapping[str, Any]) -> Scene:
    """Raises ValueError, TypeError, KeyError or AttributeError for anything but a suite."""
    cameras = {
        str(name): (_link(camera["link"]), _numbers(camera["position"], 3), _numbers(camera["look_at"], 3))
        for name, camera in suite["cameras"].items()
    }
    start = {str(name): _numbers([value], 1)[0] for name, value in suite["start"].items()}
    x, y = _numbers(suite["table"]["center"], 2)
    return Scene(cameras, start, (x, y))


def _link(name: object) -> str | None:
    if name is not None and not isinstance(name, str):
        raise ValueError("a link is a name")
    return name


def _numbers(values: Any, count: int) -> list[float]:
    numbers = [float(value) for value in values]
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise ValueError(f"expected {count} numbers")
    return numbers
