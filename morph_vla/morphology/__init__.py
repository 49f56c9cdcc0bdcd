"""What the plugin adds to an action expert: kinematic tokens, topology bias, FiLM. Knows nothing of pi0.5.

Source: "Embedding Morphology into Transformers for Cross-Robot Policy Learning" (2026), Section 2.
"""

from morph_vla.morphology.arrays import Body, body_of, stack
from morph_vla.morphology.config import MorphologyConfig
from morph_vla.morphology.tokens import KinematicTokens

__all__ = ["Body", "KinematicTokens", "MorphologyConfig", "body_of", "stack"]
