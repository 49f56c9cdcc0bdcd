"""Parameters that tests draw."""

from typing import Any

import jax
import numpy as np

from morph_vla.pi05 import Pi05Config, init_params


def draw_params(config: Pi05Config, scale: float = 0.2, seed: int = 0) -> Any:
    """Parameters none of which is zero, drawn leaf by leaf in the order of their names."""
    shapes = jax.eval_shape(lambda: init_params(config, jax.random.key(0)))
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: (scale * rng.normal(size=x.shape)).astype(np.float32), shapes)
