"""Recorded chunks alone, for the families that ask for no more before the first step."""

from dataclasses import dataclass

import numpy as np

from morph_vla.policies import Pairs


@dataclass
class OfChunks:
    """A `policies.Recorded`."""

    actions: np.ndarray
    mask: np.ndarray

    def chunks(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        return self.actions[:most], self.mask[:most]

    def pairs(self, most: int) -> Pairs:
        raise AssertionError("what is seen was asked for")
