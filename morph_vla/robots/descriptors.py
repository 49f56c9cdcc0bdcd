"""The 12 features of a joint that condition the policy, read from the URDF.

In this order: type_pris, type_rev, ax, ay, az, hard_lower, hard_upper, damping_log, friction_anchor,
lateral_friction, spinning_friction, stiffness_log. Source: joint-attribute conditioning of the method's
paper. The PyBullet Panda's joints 1, 3, 5 and 7 give

    0, 1, 0, 0, 1, -2.9671, 2.9671, 6.90776, 1, 1, 0.1, 10.30895

although only its two fingers carry `<contact>`: the contact features are those of the joint's child link,
else those of the robot (the first `<contact>` in the file), else the defaults.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from morph_vla.errors import ConfigError
from morph_vla.findings import Finding, Line, in_order
from morph_vla.robots.records import Contact, Joint, Urdf
from morph_vla.robots.rules import finding

NAMES = (
    "type_pris", "type_rev", "ax", "ay", "az", "hard_lower", "hard_upper", "damping_log", "friction_anchor",
    "lateral_friction", "spinning_friction", "stiffness_log",
)  # fmt: skip
UNLIMITED = {"revolute": math.pi, "continuous": math.pi, "prismatic": 1.0}
"""Half the range taken for a joint whose file states none: half a turn [rad] or a metre [m] each way."""
BOUNDLESS = 1e6
"""A limit beyond it [rad] or [m] stands for none: some programs write 1e16 or the largest float."""


@dataclass(frozen=True)
class ContactDefaults:
    """The contact features where a file states none: the values of PyBullet's Panda."""

    stiffness: float = 30000.0
    """[N/m]"""
    damping: float = 1000.0
    """[N s/m]"""
    lateral_friction: float = 1.0
    spinning_friction: float = 0.1
    friction_anchor: bool = True

    def __post_init__(self) -> None:
        for key in ("stiffness", "damping"):  # of which the logarithm is taken
            if not 0 < getattr(self, key) < math.inf:
                raise ConfigError(f"{key} is {getattr(self, key):g}; expected more than 0")
        for key in ("lateral_friction", "spinning_friction"):
            if not 0 <= getattr(self, key) < math.inf:
                raise ConfigError(f"{key} is {getattr(self, key):g}; expected at least 0")


def limits(joint: Joint) -> tuple[float, float]:
    """The lower and upper limit as used [rad] or [m].

    Without a `<limit>`, with lower above upper or one beyond `BOUNDLESS`, and for a continuous joint: plus
    and minus `UNLIMITED`. A bound that a `<limit>` leaves out is 0, the format's default.
    """
    wide = UNLIMITED.get(joint.type, 0.0)
    if joint.limit is None or joint.type == "continuous":
        return -wide, wide
    lower, upper = joint.limit.lower or 0.0, joint.limit.upper or 0.0
    return (lower, upper) if lower <= upper and max(-lower, upper) <= BOUNDLESS else (-wide, wide)


def descriptors(
    urdf: Urdf, chosen: Sequence[str], defaults: ContactDefaults | None = None
) -> tuple[Float[np.ndarray, "j 12"], tuple[Finding, ...]]:
    """The features of the chosen joints, rows in their order, and what was taken from the defaults.

    Axes are of length one, in the joint's frame; limits in [rad] or [m]; the two logarithms are natural, and
    a value that is missing or not positive takes the default before the logarithm.
    """
    defaults = ContactDefaults() if defaults is None else defaults
    contacts = {link.name: link.contact for link in urdf.links if link.contact is not None}
    robot_contact = next(iter(contacts.values()), None)
    findings: list[Finding] = []
    if chosen and robot_contact is None:
        findings.append(_no_contact(defaults, urdf.file))
    rows = []
    for name in chosen:
        joint, prismatic = urdf.by_name[name], urdf.by_name[name].type == "prismatic"
        contact = contacts.get(joint.child, robot_contact)
        anchor = (contact or defaults).friction_anchor
        damping, lateral, spinning, stiffness = (
            _contact_value(contact, key, defaults, urdf.file, findings) for key in _CONTACT_VALUES
        )
        kinematic = prismatic, not prismatic, *joint.unit_axis, *limits(joint)
        rows.append([*kinematic, math.log(damping), anchor, lateral, spinning, math.log(stiffness)])
    return np.array(rows, dtype=np.float32).reshape(len(chosen), len(NAMES)), in_order(findings)


_CONTACT_VALUES = ("damping", "lateral_friction", "spinning_friction", "stiffness")


def _contact_value(
    contact: Contact | None, key: str, defaults: ContactDefaults, file: str, findings: list[Finding]
) -> float:
    """The file's value, or the default with a finding; those whose logarithm is taken must be above 0."""
    positive = key in ("damping", "stiffness")
    given, default = getattr(contact, key, None), float(getattr(defaults, key))
    if contact is None:
        return default
    if given is not None and (given > 0 if positive else given >= 0):
        return given
    if given is not None:
        found = f"contact {key} is {given:g}"
    else:
        found = f"<contact> has no {key}"
    expected = f"expected {key} {'above 0' if positive else 'of 0 or more'}"
    used = f"the default {default:g} is used"
    findings.append(finding("contact-default", Line(file, contact.line), (key,), found, expected, used))
    return default


def _no_contact(defaults: ContactDefaults, file: str) -> Finding:
    """That no link has any of the values, once."""
    used = ", ".join(f"{key} {getattr(defaults, key):g}" for key in _CONTACT_VALUES)
    found, expected = "no <contact>", f"expected one with {', '.join(_CONTACT_VALUES)}"
    return finding("no-contact", Line(file, 1), (), found, expected, f"the defaults are used: {used}")
