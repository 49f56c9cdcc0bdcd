"""How far from the simulator's poses an estimator's are, task by task."""

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, UInt8

from morph_vla.perception.estimator import Estimator
from morph_vla.perception.frames import MEASURED, Frames, Rendering, render_task
from morph_vla.perception.network import ROLES, pixels_of
from morph_vla.suites.suite import Suite

QUANTILES = (50.0, 90.0, 97.0)


@dataclass(frozen=True)
class Measured:
    """Errors of every task and role, and the pictures they were measured on."""

    errors: tuple["Errors", ...]
    images: UInt8[np.ndarray, "n s s 3"]
    true: Float[np.ndarray, "n 2 2"]
    """The pixels (right, down) of object and target"""
    guessed: Float[np.ndarray, "n 2 2"]


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


def measure(estimator: Estimator, tasks: Sequence[Suite], attempts: int = 5, share: float = 0.2) -> Measured:
    """Errors along the scripted expert's attempts, which are other ones than an estimator is trained on.

    Raises MorphVlaError as `Estimator.view` and `frames.render_task`.
    """
    view = estimator.view(tasks)
    optics = view.optics(estimator.about.optics.size)
    rendering = Rendering(optics.size, estimator.about.camera, attempts, share, others=0, first=MEASURED)
    rows, frames, answers = [], [], []
    for task in tasks:
        shown = render_task(task, rendering)
        seen = estimator.seen(shown.images, shown.hands, shown.things, view)
        for place, role in enumerate(ROLES):
            true, guessed = shown.objects[:, place], seen[:, place]
            apart = 1000 * view.distance * np.linalg.norm(true[:, :3] - guessed[:, :3], axis=-1)
            rows.append(Errors(task.task_key, role, len(shown), _three(apart), _three(_turns(true, guessed))))
        frames.append(shown)
        answers.append(seen)
    every, seen = Frames.joined(frames), np.concatenate(answers)
    true, guessed = (
        np.asarray(pixels_of(jnp.asarray(values[..., :3]), optics)) for values in (every.objects, seen)
    )
    return Measured(tuple(rows), every.images, true, guessed)


def _turns(true: Float[np.ndarray, "n 9"], guessed: Float[np.ndarray, "n 9"]) -> Float[np.ndarray, "n"]:
    """[deg] between the first columns of two rotations: what a thing's own x axis is turned by."""
    a, b = (values[:, 3:6] / np.maximum(np.linalg.norm(values[:, 3:6], axis=1, keepdims=True), 1e-9)
            for values in (true, guessed))  # fmt: skip
    return np.degrees(np.arccos(np.clip((a * b).sum(axis=1), -1.0, 1.0)))


def _three(values: Float[np.ndarray, "n"]) -> tuple[float, float, float]:
    middle, most, nearly = (round(float(value), 2) for value in np.percentile(values, QUANTILES))
    return middle, most, nearly
