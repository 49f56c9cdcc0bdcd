"""Tasks for any arm: objects, where they must end and how the expert moves, for a gripper that opens by 8 cm.

Another gripper gets everything larger or smaller by one factor, masses by its cube. The first three are
those of `eval/droid_panda.yaml`.
"""

from dataclasses import dataclass
from typing import Literal

from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.suite import Range, Vector3


@dataclass(frozen=True)
class Template:
    """A task: the object, what it goes into, onto or to, and the box around it, in the target's frame."""

    text: str
    """The prompt"""
    object: tuple[str, ObjectSpec]
    target: tuple[str, ObjectSpec]
    low: Vector3
    """[m]"""
    high: Vector3
    """[m]"""
    min_distance: float
    """[m] between the centres"""
    hover: float
    """[m] as the expert's other lengths"""
    release_height: float
    carry: float
    retreat: float
    clearance: float = 0.006
    max_spin: float = 0.3
    """[rad/s]"""
    yaw: float = 0.0
    """[rad] the most that the object is turned"""
    kind: Literal["pick_and_place", "push"] = "pick_and_place"
    behind: float = 0.0
    begins: tuple[Range, Range] = ((-1.0, 1.0), (-1.0, -0.1))
    """Where the object is put: shares of a field's depth and width, as `Field.ranges`"""
    ends: tuple[Range, Range] = ((-0.7, 0.7), (0.45, 1.0))
    """Likewise the target"""

    @property
    def round(self) -> bool:
        """Whether the object looks the same from every side, so that any turn of the gripper fits."""
        return self.object[1].shape in ("sphere", "cylinder")


TEMPLATES = {
    "cube_in_bowl": Template(
        "put the cube in the bowl",
        ("cube", ObjectSpec("box", (0.04, 0.04, 0.04), 0.1, (0.85, 0.12, 0.1))),
        ("bowl", ObjectSpec("bowl", (0.075, 0.055, 0.006), 0.6, (0.15, 0.35, 0.8))),
        (-0.06, -0.06, 0.0), (0.06, 0.06, 0.06),
        min_distance=0.15, hover=0.13, release_height=0.13, carry=0.04, retreat=0.08, yaw=0.25,
    ),
    "can_in_mug": Template(
        "put the can in the mug",
        ("can", ObjectSpec("cylinder", (0.024, 0.07, 0.0), 0.12, (0.1, 0.6, 0.3))),
        ("mug", ObjectSpec("mug", (0.045, 0.075, 0.006), 0.5, (0.75, 0.1, 0.35))),
        (-0.035, -0.035, 0.02), (0.035, 0.035, 0.075),
        min_distance=0.15, hover=0.15, release_height=0.1, carry=0.06, retreat=0.1, clearance=0.015,
    ),
    "banana_in_bin": Template(
        "put banana in the bin",
        ("banana", ObjectSpec("banana", (0.16, 0.034, 0.025), 0.12, (0.95, 0.85, 0.2))),
        ("bin", ObjectSpec("open_box", (0.24, 0.19, 0.08), 0.9, (0.35, 0.4, 0.45), wall=0.006)),
        (-0.105, -0.08, 0.005), (0.105, 0.08, 0.06),
        min_distance=0.22, hover=0.15, release_height=0.1, carry=0.07, retreat=0.1, clearance=0.0, yaw=0.5,
    ),
    "orange_on_plate": Template(
        "Grab orange and place into plate",
        ("orange", ObjectSpec("sphere", (0.025, 0.0, 0.0), 0.06, (0.95, 0.45, 0.05))),
        ("plate", ObjectSpec("plate", (0.055, 0.012, 0.004), 0.4, (0.9, 0.92, 0.95))),
        (-0.055, -0.055, 0.015), (0.055, 0.055, 0.045),
        min_distance=0.15, hover=0.1, release_height=0.045, carry=0.05, retreat=0.08, clearance=0.0,
        max_spin=0.8,
    ),
    "stack": Template(
        "stack the red block on the green block",
        ("red_block", ObjectSpec("box", (0.04, 0.04, 0.04), 0.1, (0.85, 0.12, 0.1))),
        ("green_block", ObjectSpec("box", (0.06, 0.06, 0.04), 0.4, (0.15, 0.6, 0.25))),
        (-0.025, -0.025, 0.03), (0.025, 0.025, 0.05),
        min_distance=0.13, hover=0.13, release_height=0.047, carry=0.06, retreat=0.1, yaw=0.25,
    ),
    # Wider than the opening; from far enough inside the field that the hand has room behind it.
    "push": Template(
        "push the puck onto the yellow square",
        ("puck", ObjectSpec("cylinder", (0.05, 0.04, 0.0), 0.15, (0.15, 0.3, 0.75))),
        ("square", ObjectSpec("area", (0.13, 0.13, 0.001), 0.1, (0.95, 0.8, 0.1))),
        (-0.065, -0.065, 0.0), (0.065, 0.065, 0.035),
        min_distance=0.11, hover=0.12, release_height=0.0, carry=0.06, retreat=0.08, clearance=0.004,
        kind="push", behind=0.095, begins=((-0.4, 0.4), (-0.45, -0.05)), ends=((-0.4, 0.4), (0.45, 0.8)),
    ),
}  # fmt: skip
GROUPS = {"pick_and_place": ("cube_in_bowl", "can_in_mug", "banana_in_bin", "orange_on_plate")}
"""Several tasks by one name. A name more here is a task more in every suite that is written by that name."""
DISTRACTING = ("cube_in_bowl", "can_in_mug", "banana_in_bin", "orange_on_plate")
"""Tasks whose objects lie beside those of the others where a suite is asked for distractors."""
