"""The host model: pi0.5 in Flax, parameters named and shaped as openpi's.

Semantics are openpi's (public repository, JAX): `src/openpi/models/{pi0,gemma,siglip}.py`, read as a
reference.
"""

from morph_vla.pi05.config import GemmaConfig, Pi05Config, VitConfig
from morph_vla.pi05.gemma import Modulations
from morph_vla.pi05.model import Pi05, init_params, loss
from morph_vla.pi05.observation import Observation
from morph_vla.pi05.realtime import Previous
from morph_vla.pi05.sampling import modulations, sample_actions

__all__ = [
    "GemmaConfig",
    "Modulations",
    "Observation",
    "Pi05",
    "Pi05Config",
    "Previous",
    "VitConfig",
    "init_params",
    "loss",
    "modulations",
    "sample_actions",
]
