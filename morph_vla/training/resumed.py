"""Whether a run that is continued has the data and the robots that it began with."""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError, reason
from morph_vla.files.plain import to_plain
from morph_vla.training import meaning
from morph_vla.training.checkpoint import about as about_of
from morph_vla.training.part import Part

CLOSE = 1e-5  # a machine may add up statistics in another order


def data_digests(parts: Sequence[Part], robots: Iterable[str]) -> dict[str, str]:
    """`data_digest` and, where there are some, `poses_digest` of each robot.

    They have keys of their own: an earlier checkpoint says nothing of poses, which is not compared.
    """
    digests = {}
    for name in robots:
        digests[name] = data_digest(parts, name)
        if any(part.recordings.environment is not None for part in parts if part.asked.robot == name):
            digests[_poses(name)] = poses_digest(parts, name)
    return digests


def poses_digest(parts: Iterable[Part], robot: str) -> str:
    """SHA-256 of the objects' poses in a robot's datasets, and of what they are called."""
    digest = hashlib.sha256(b"morph_vla poses 1")
    for recordings in (part.recordings for part in parts if part.asked.robot == robot):
        if recordings.environment is not None:
            digest.update(json.dumps([recordings.environment_names, recordings.environment.shape]).encode())
            digest.update(np.ascontiguousarray(recordings.environment).tobytes())
    return digest.hexdigest()


def _poses(robot: str) -> str:
    return f"{robot}'s poses"


def data_digest(parts: Iterable[Part], robot: str) -> str:
    """SHA-256 of all that a robot's datasets hold but pictures and poses: values, episodes, tasks."""
    digest = hashlib.sha256(b"morph_vla data 1")
    for recordings in (part.recordings for part in parts if part.asked.robot == robot):
        digest.update(json.dumps([recordings.fps, recordings.tasks, recordings.state.shape[1:]]).encode())
        for values in (recordings.state, recordings.action, recordings.starts, recordings.task_of):
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def check_same_data(newest: Path, about: dict[str, Any]) -> None:
    """Raise MorphVlaError where the newest checkpoint of a run was trained on other data or other robots.

    Parameters that were learnt under one normalisation would be trained on, and kept, under another. What an
    earlier checkpoint does not say is not compared.
    """
    robots_then, robots_now = about_of(newest)["robots"], to_plain(about["robots"])
    for name, trained in robots_then.items():
        meaning.check_order(trained, name, newest)
    path = newest / "about" / "data.json"
    try:
        digests = about["data"] | (json.loads(path.read_text("utf-8")) if path.is_file() else {})
    except (ValueError, TypeError) as error:
        raise MorphVlaError(
            f"{path} is damaged ({reason(error)}): remove it, and data is not compared"
        ) from error
    changed = [f"robot {name}" for name in sorted(robots_then.keys() ^ robots_now.keys())]
    for name in sorted(robots_then.keys() & robots_now.keys()):
        then, now = robots_then[name], robots_now[name]
        keys = [key for key in then if key in now and not _close(then[key], now[key])]
        for key, what in ((name, "its recordings"), (_poses(name), "its objects' poses")):
            keys += [] if digests.get(key) == about["data"].get(key) else [what]
        changed += [f"{name}: {', '.join(keys)}"] if keys else []
    if changed:
        raise MorphVlaError(
            f"{newest} was trained on other data ({'; '.join(changed)}): bring them back, or begin a new run "
            f"with its weights (weights={newest})"
        )


def _close(then: Any, now: Any) -> bool:
    """Whether two plain values are the same, numbers up to how they were added up."""
    if isinstance(then, dict) and isinstance(now, dict):
        return all(_close(then[key], now[key]) for key in then.keys() & now.keys())
    if isinstance(then, list) and isinstance(now, list):
        return len(then) == len(now) and all(map(_close, then, now))
    if isinstance(then, float) and isinstance(now, float):
        return then == now or math.isclose(then, now, rel_tol=CLOSE, abs_tol=CLOSE)
    return then == now
