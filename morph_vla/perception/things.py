"""What an estimator is told of the things it looks for: their shapes and sizes, as the suite has them.

Not their names, and not their colours: a thing of another name or paint is looked for alike, and where
several things lie on the table these say which are meant.
"""

from typing import get_args, get_type_hints

import numpy as np
from jaxtyping import Float

from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.suite import Suite

SHAPES: tuple[str, ...] = get_args(get_type_hints(ObjectSpec)["shape"])
FEATURES = len(SHAPES) + 3
"""Values of a thing: which shape it has (one is 1), three sizes in UNIT of the camera's distance"""
UNIT = 0.1


def things_of(task: Suite, distance: float) -> Float[np.ndarray, "2 f"]:
    """The object and the target of a task as an estimator is told of them, float32.

    `distance` [m] is that of its camera. Of a task that moves several objects it is the first one.
    """
    object_, target = task.success.pairs[0]
    return np.stack([features(task.objects[name], distance) for name in (object_, target)])


def features(thing: ObjectSpec, distance: float) -> Float[np.ndarray, "f"]:
    """One thing's values, float32."""
    shape = [float(name == thing.shape) for name in SHAPES]
    return np.asarray([*shape, *(length / distance / UNIT for length in thing.size)], np.float32)
