"""Contacts that the solver had no room for: Newton prints a line and leaves them out; here an episode ends.

A world has room for so many rows of constraints. Contacts have one room for all worlds together: where it is
too small, any world may have lost some, and it is not known which.
"""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from morph_vla.engines.isaaclab import assets
from morph_vla.errors import require

Manager = Any  # Isaac Lab's of Newton's simulation, a class
# MuJoCo-Warp's bits for what did not fit: rows, their entries, pairs, contacts. Others: it stopped iterating.
LEFT_OUT = 0b1111


class Limits:
    """What was left out of a Newton simulation's worlds since each was put into its initial state."""

    def __init__(self, manager: Manager, worlds: int, steps: int, contacts: int):
        """A control step is `steps` physics steps; there is room for `contacts` per world."""
        self._manager, self._contacts, self._steps = manager, contacts, steps
        self._problems: list[str | None] = [None] * worlds
        self._warp = require("warp", assets.EXTRA)
        self._made = self._warp.zeros(steps, dtype=self._warp.int32, device=manager.get_device())
        self._step = 0
        # Called in every physics step between the search for contacts and the solver; what is counted is
        # overwritten afterwards. On a GPU the copy is recorded with the step.
        manager.register_post_actuator_callback(self._count)

    def _count(self) -> None:
        count = self._manager.get_contacts().rigid_contact_count
        self._warp.copy(self._made, count, dest_offset=self._step, count=1)
        self._step = (self._step + 1) % self._steps

    def forget(self, worlds: Iterable[int]) -> None:
        """These worlds begin anew."""
        overflow = self._manager._solver.mjw_data.overflow
        bits = overflow.numpy()
        for index in worlds:
            bits[index], self._problems[index] = 0, None
        overflow.assign(bits)

    def look(self) -> None:
        """Note what was left out in the control step that has just ended."""
        data = self._manager._solver.mjw_data
        made, shared = int(self._made.numpy().max()), None
        if made > data.naconmax:
            fitted = data.contact.worldid.numpy()[: min(int(data.nacon.numpy()[0]), data.naconmax)]
            by_world = np.bincount(fitted, minlength=len(self._problems))
            shared = too_many_contacts(made, int(data.naconmax), by_world.tolist(), self._contacts)
        for index, bits in enumerate(data.overflow.numpy()):
            rows = too_many_rows(int(data.njmax), self._contacts) if bits & LEFT_OUT else None
            self._problems[index] = self._problems[index] or shared or rows

    def problem(self, index: int) -> str | None:
        """What was left out of world `index`, a sentence; None where everything fitted."""
        return self._problems[index]


def too_many_contacts(made: int, room: int, by_world: list[int], contacts: int) -> str:
    """The error of every world's episode where the room that they share was too small.

    `by_world`: how many of those that fitted are of each world.
    """
    worlds, most = len(by_world), max(by_world)
    together = (
        f"the {worlds} worlds together made {made} contacts" if worlds > 1 else f"it made {made} contacts"
    )
    whose = f", of any world (world {by_world.index(most)} has most, {most})" if worlds > 1 else ""
    return (
        f"{together} and the solver has room for {room}: some were left out{whose}; "
        f"{_remedy(contacts, made / worlds)}"
    )


def too_many_rows(room: int, contacts: int) -> str:
    """The error of an episode whose world's contacts need too many rows of constraints."""
    return (
        f"this world's contacts need more than the {room} rows of constraints that the solver has room for: "
        f"some were left out; {_remedy(contacts)}"
    )


def _remedy(contacts: int, needed: float = 0.0) -> str:
    enough = 2 * max(contacts, math.ceil(needed))
    return f"make room with --engine isaaclab,contacts={enough} (per world; now {contacts})"
