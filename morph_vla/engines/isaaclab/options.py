"""What can be chosen of Isaac Lab: who simulates and renders, on what device, how much room contacts have.

Newton does both without Isaac Sim. PhysX and RTX run in Isaac Sim's Kit; OvPhysX and OVRTX are the same two
as libraries, without it. Kit and these libraries cannot be in one process.
"""

import dataclasses
import importlib.util
import re
from collections.abc import Mapping

from morph_vla import installing
from morph_vla.errors import MorphVlaError, nearest

PHYSICS, RENDERERS = ("newton", "physx", "ovphysx"), ("newton", "rtx", "ovrtx")
KIT, LIBRARIES = ("physx", "rtx"), ("ovphysx", "ovrtx")
# What a choice needs: the module that is looked for, and its name.
NEEDS = {
    "physx": ("isaacsim", "Isaac Sim"),
    "rtx": ("isaacsim", "Isaac Sim"),
    "ovphysx": ("ovphysx", "OvPhysX"),
    "ovrtx": ("ovrtx", "OVRTX"),
}


@dataclasses.dataclass(frozen=True)
class Options:
    """As `--engine isaaclab,KEY=VALUE,...` has them."""

    physics: str = "newton"
    renderer: str = "newton"
    device: str = "cpu"
    contacts: int = 200
    """That the solver has room for, per world; Newton's alone."""

    @property
    def deterministic(self) -> bool:
        """Whether bit-equal repetition has to be asked for: on a processor it comes by itself."""
        return self.device != "cpu"

    def check(self) -> None:
        """Raise MorphVlaError for an unknown choice, or where the program it needs is not installed."""
        for key, choices in (("physics", PHYSICS), ("renderer", RENDERERS)):
            value = getattr(self, key)
            if value not in choices:
                raise MorphVlaError(
                    f"engine isaaclab: {key} is '{value}'{nearest(value, choices)}; "
                    f"it can be {', '.join(choices[:-1])} or {choices[-1]}"
                )
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise MorphVlaError(f"engine isaaclab: device is '{self.device}'; it can be cpu, cuda or cuda:N")
        self._check_together()
        for key in ("physics", "renderer"):
            module, name = NEEDS.get(getattr(self, key), ("", ""))
            if module and importlib.util.find_spec(module) is None:
                remedy = (
                    "; install it beside Isaac Lab (docs/isaaclab.md)"
                    if module == "isaacsim"
                    else ": " + installing.command(f"'isaaclab[{module}]'")
                )
                raise MorphVlaError(
                    f"engine isaaclab: {key}={getattr(self, key)} needs {name}, which is not installed"
                    f"{remedy}, or use {key}=newton"
                )

    def _check_together(self) -> None:
        chosen = {self.physics: "physics", self.renderer: "renderer"}
        if any(name in chosen for name in KIT) and any(name in chosen for name in LIBRARIES):
            inside, outside = (
                next(f"{key}={name}" for name, key in chosen.items() if name in names)
                for names in (KIT, LIBRARIES)
            )
            raise MorphVlaError(
                f"engine isaaclab: {inside} runs inside Isaac Sim and {outside} only outside it; "
                "use physx with rtx, or ovphysx with ovrtx, or newton for one of them"
            )


def read(given: Mapping[str, str]) -> Options:
    """Options of a command line's. Raises MorphVlaError for an unknown key or value."""
    known = tuple(field.name for field in dataclasses.fields(Options))
    for key in given:
        if key not in known:
            raise MorphVlaError(
                f"engine isaaclab has no option '{key}'{nearest(key, known)}; there are {', '.join(known)}"
            )
    chosen: dict[str, str | int] = dict(given)
    if "contacts" in given:
        if not given["contacts"].isdigit() or int(given["contacts"]) < 1:
            raise MorphVlaError(
                f"engine isaaclab: contacts is '{given['contacts']}'; it must be a whole number, 1 or more"
            )
        chosen["contacts"] = int(given["contacts"])
    options = dataclasses.replace(Options(), **chosen)
    options.check()
    if "contacts" in given and options.physics != "newton":
        raise MorphVlaError(
            f"engine isaaclab: contacts is for physics=newton, and physics is {options.physics}; leave it out"
        )
    return options
