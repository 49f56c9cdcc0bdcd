"""What the tests of the embedded engine do in its three worlds."""

import numpy as np

from morph_vla.engines.engine import Worlds
from morph_vla.suites.suite import InitialState, initial_state


def state_of(worlds: Worlds, episode: int) -> InitialState:
    """A row of its suite's table."""
    return initial_state(worlds.suite, episode, len(worlds.robot.joints))


def wave(step: int) -> np.ndarray:
    """Actions that move every joint, dataset units."""
    rest = np.array([0.0, -0.628, 0.0, -2.513, 0.0, 1.885, 0.0, 0.0])
    return rest + 0.2 * np.sin(0.3 * step + np.arange(8)) * np.array([1.0] * 7 + [0.0])
