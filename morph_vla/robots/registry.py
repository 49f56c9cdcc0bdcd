"""Robots by name: the drop-in folder `urdf_descriptors/`.

A robot's name is its file's name. The folders searched, and in which order, are those of
`dropin.search_path`.
"""

from collections.abc import Sequence
from pathlib import Path

from morph_vla.files import dropin
from morph_vla.robots.examine import from_file
from morph_vla.robots.robot import Robot


def load(name_or_path: str | Path, folders: Sequence[Path | str] = (), joints: Sequence[str] = ()) -> Robot:
    """The robot registered under a name, or of the URDF at a path.

    `folders` are searched before the others; `joints` chooses other action joints than the side file does,
    by names or patterns.

    Raises MorphVlaError when there is no such robot (naming the nearest), and as `examine.from_file`.
    """
    return from_file(dropin.find("robots", str(name_or_path), folders), joints)


def available(folders: Sequence[Path | str] = ()) -> dict[str, Path]:
    """Every registered robot: name -> URDF, sorted by name."""
    return dropin.available("robots", folders)
