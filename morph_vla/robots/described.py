"""The robots of the package robot_descriptions, by name: their files, licences and versions.

The package fetches a robot's git repository when the robot's module is imported; nothing else here touches
the network. A licence is looked at before that.
"""

import contextlib
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError, nearest, reason, require

SCHEME = "rd:"
"""What a robot of the package is called by: `rd:panda`."""
FREE = (
    "Apache-2.0", "BSD", "BSD-2-Clause", "BSD-3-Clause", "BSD-3-Clause-Clear", "CC-BY-4.0", "CC-BY-SA-4.0",
    "CC0-1.0", "Clear BSD", "GPL-2.0", "GPL-3.0", "ISC", "LGPL-2.1", "LGPL-3.0", "MIT", "MPL-2.0",
)  # fmt: skip
"""Licences, as the package spells them, that allow commercial use."""
_KINDS = ("_description", "_mj_description")


@dataclass(frozen=True)
class Described:
    """A robot's file in a clone of its repository."""

    name: str
    """Without the package's suffix: `panda`"""
    path: Path
    """A `.urdf`, or an MJCF file"""
    repository: Path
    """The clone; the file names no meshes outside of it"""
    source: str
    """A sentence for a side file: package, module, repository and commit"""
    licence: str
    """As the package spells it; "" where it does not say"""


def described(name: str, accept_license: bool = False) -> Described:
    """The robot `name` of robot_descriptions: the name of a module, or without `_description`.

    A URDF is taken where there is one, else MJCF. A licence that is not in `FREE` needs `accept_license`.

    Raises MissingExtraError without the package; MorphVlaError for an unknown name (naming the nearest), such
    a licence, a repository that cannot be fetched, and a robot that has neither URDF nor MJCF.
    """
    package = require("robot_descriptions", "descriptions")
    known: Mapping[str, Any] = package.DESCRIPTIONS
    module = next((name + kind for kind in ("", *_KINDS) if name + kind in known), None)
    if module is None:
        short = {_short(choice) for choice in known}
        raise MorphVlaError(f"no robot '{name}' in robot_descriptions{nearest(name, short)}")
    licence = known[module].license_spdx or ""
    if licence not in FREE and not accept_license:
        words = f"is '{licence}', which may forbid commercial use" if licence else "is not known"
        raise MorphVlaError(f"{SCHEME}{name}: its licence {words}; read it, then pass --accept-license")
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where the package reports what it fetches
            imported = importlib.import_module(f"robot_descriptions.{module}")
    except Exception as error:  # of git, of the network, of the package: all mean one thing
        raise MorphVlaError(f"{SCHEME}{name}: its repository cannot be fetched: {reason(error)}") from error
    path = next(
        (getattr(imported, key) for key in ("URDF_PATH", "MJCF_PATH") if hasattr(imported, key)), None
    )
    if path is None:
        xacro = getattr(imported, "XACRO_PATH", "")
        other = f"only the Xacro {xacro}; run it through xacro first" if xacro else "neither URDF nor MJCF"
        raise MorphVlaError(f"{SCHEME}{name} has {other}")
    repository = Path(imported.REPOSITORY_PATH)
    commit = _commit(repository) or "an unknown commit"
    source = f"robot_descriptions, {module}: {known[module].repository or repository.name} at {commit}"
    return Described(_short(module), Path(path), repository, source, licence)


def _short(module: str) -> str:
    for kind in reversed(_KINDS):
        module = module.removesuffix(kind)
    return module


def _commit(repository: Path) -> str:
    """The commit that a clone has checked out; "" where there is none to read."""
    git = repository / ".git"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        head = (git / "HEAD").read_text("utf-8").strip()
        return (git / head.removeprefix("ref: ")).read_text("utf-8").strip() if " " in head else head
    return ""
