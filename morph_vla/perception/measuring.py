"""How far from the simulator's poses an estimator's are, task by task."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from morph_vla.errors import MorphVlaError
from morph_vla.perception.estimator import Estimator
from morph_vla.perception.frames import MEASURED, Rendering, render_task
from morph_vla.perception.network import ROLES
from morph_vla.suites.suite import Suite

QUANTILES = (50.0, 90.0, 97.0)


@dataclass(frozen=True)
class Errors:
    """Of one role in one task."""

    task: str
    role: str
    pictures: int
    millimetres: tuple[float, float, float]
    """How far apart the places are: the median, and what nine and 97 in a hundred are within"""
    degrees: tuple[float, float, float]
    """The same of the turn"""


def measure(
    estimator: Estimator, tasks: Sequence[Suite], attempts: int = 5, share: float = 0.2
) -> list[Errors]:
    """Errors along the scripted expert's attempts, which are other ones than an estimator is trained on.

    Raises MorphVlaError as `Estimator.view`.
    """
    view = estimator.view(tasks)
    optics = estimator.about.optics
    rendering = Rendering(optics.size, estimator.about.camera, attempts, share, smaller=False, first=MEASURED)
    rows = []
    for task in tasks:
        frames = render_task(task, rendering)
        if not len(frames):
            raise MorphVlaError(f"{task.label}: not one picture: more attempts, or a larger share of them")
        seen = estimator.seen(frames.images, frames.hands)
        for place, role in enumerate(ROLES):
            true, guessed = frames.objects[:, place], seen[:, place]
            apart = 1000 * view.distance * np.linalg.norm(true[:, :3] - guessed[:, :3], axis=-1)
            rows.append(
                Errors(task.task_key, role, len(frames), _three(apart), _three(_turns(true, guessed)))
            )
    return rows


def _turns(true: Float[np.ndarray, "n 9"], guessed: Float[np.ndarray, "n 9"]) -> Float[np.ndarray, "n"]:
    """[deg] between the first columns of two rotations: what a thing's own x axis is turned by."""
    a, b = (values[:, 3:6] / np.maximum(np.linalg.norm(values[:, 3:6], axis=1, keepdims=True), 1e-9)
            for values in (true, guessed))  # fmt: skip
    return np.degrees(np.arccos(np.clip((a * b).sum(axis=1), -1.0, 1.0)))


def _three(values: Float[np.ndarray, "n"]) -> tuple[float, float, float]:
    middle, most, nearly = (round(float(value), 2) for value in np.percentile(values, QUANTILES))
    return middle, most, nearly
