"""The folders a user drops files into, and where what comes with the package lies.

One rule for robots, recipes, suites and grids alike: a file in the folder is registered and its name is
its file name. The folders are searched in this order, and the first file of a name wins: those given by
the caller, those of the environment variable MORPH_VLA_PATH, the current directory's, and the ones
shipped with the package.
"""

import os
from collections.abc import Sequence
from pathlib import Path

from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.home import expanded

KINDS = {
    "robots": ("urdf_descriptors", ".urdf"),
    "recipes": ("configs", ".yaml"),
    "suites": ("eval", ".yaml"),
    "grids": ("configs/evidence", ".yaml"),
}
OF_OPENPI = "openpi"
"""Within a folder of recipes: the configurations of openpi's trainer"""
PATH_VARIABLE = "MORPH_VLA_PATH"
_PACKAGE = Path(__file__).resolve().parents[1]


def search_path(kind: str, folders: Sequence[Path | str] = ()) -> tuple[Path, ...]:
    """The existing folders searched for `kind` ("robots", "recipes", "suites", "grids"), in order.

    An entry of `folders` or of MORPH_VLA_PATH (separated by os.pathsep) is either such a folder itself or a
    parent holding one, for example a project with its own `urdf_descriptors/` and `eval/`.

    Raises MorphVlaError for an unknown kind, and for a folder in `folders` that does not exist (one of the
    environment variable is passed over, as in PATH).
    """
    if kind not in KINDS:
        raise MorphVlaError(f"no such kind of file '{kind}'{nearest(kind, KINDS)} ({', '.join(KINDS)})")
    folder, _ = KINDS[kind]
    for path in folders:
        if not expanded(path).is_dir():
            raise MorphVlaError(f"no such folder: {path}")
    entries = [*folders, *filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep))]
    given = [path for path in map(_known, entries) if path is not None]
    candidates = [path / folder if (path / folder).is_dir() else path for path in given]
    candidates += [Path.cwd() / folder, *packaged(folder)]
    seen: dict[Path, Path] = {}
    for candidate in candidates:
        if candidate.is_dir():
            seen.setdefault(candidate.resolve(), candidate)
    return tuple(seen.values())


def _known(entry: Path | str) -> Path | None:
    """A folder to look in; None for one of a home that nobody knows, which is as good as not there."""
    try:
        return expanded(entry)
    except MorphVlaError:
        return None


def packaged(folder: str) -> list[Path]:
    """Where a folder that comes with the package may be: inside a wheel's, or at the root of a checkout."""
    places = [_PACKAGE / "shipped" / folder]
    if (_PACKAGE.parent / "pyproject.toml").is_file():  # else the neighbours are other packages: eval may be
        places.append(_PACKAGE.parent / folder)
    return places


def check_name(name: str, what: str) -> None:
    """Raise MorphVlaError for a name that a file in such a folder is not found by: what would be a path."""
    if not name or name.startswith(".") or any(letter in name for letter in "/\\:"):
        raise MorphVlaError(
            f"the {what}'s name is '{name}'; expected one without '/', ':' or a dot before it"
        )


def add_to_path(folder: Path) -> None:
    """Search a folder before those of MORPH_VLA_PATH, in this process and in those that it starts."""
    entries = [str(folder.resolve()), *filter(None, os.environ.get(PATH_VARIABLE, "").split(os.pathsep))]
    os.environ[PATH_VARIABLE] = os.pathsep.join(dict.fromkeys(entries))


def available(kind: str, folders: Sequence[Path | str] = ()) -> dict[str, Path]:
    """Every registered file of `kind`: name -> path, sorted by name; the first hit of a name wins."""
    files: dict[str, Path] = {}
    for folder in search_path(kind, folders):
        for path in folder.glob(f"*{KINDS[kind][1]}"):
            if path.is_file() and not path.name.startswith(".") and not _is_side_file(path):
                files.setdefault(path.stem, path)
    return dict(sorted(files.items()))


def _is_side_file(path: Path) -> bool:
    """Whether it is a robot's: no recipe and no suite, in a folder that holds all three."""
    return path.suffix == ".yaml" and path.with_suffix(".urdf").is_file()


def about(path: Path) -> str:
    """The first line of the comment a file begins with, or nothing."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline().strip()
    return first.lstrip("# ") if first.startswith("#") else ""


def name_of(kind: str, given: str) -> str:
    """What is called so, or lies at that path: its name, without folders and the kind's suffix.

    `name_of("robots", "arms/panda.v2.urdf")` and `name_of("robots", "panda.v2")` are `panda.v2`.
    """
    path, suffix = Path(given), KINDS[kind][1]
    return path.stem if path.suffix.lower() == suffix else path.name


def find(kind: str, name: str, folders: Sequence[Path | str] = ()) -> Path:
    """The file of a registered `name`, or `name` itself when it is the path to a file.

    Raises MorphVlaError that names the nearest registered one, all of them, and where they were looked for.
    """
    choices = available(kind, folders)
    if name in choices:
        return choices[name]
    suffix = KINDS[kind][1]
    given = expanded(name)
    if given.is_file():
        if given.suffix.lower() != suffix:  # .URDF too
            raise MorphVlaError(f"{given} is not a {suffix} file")
        return given
    if given.is_dir() and given.name != name:
        raise MorphVlaError(f"{name} is a folder; expected a {suffix} file, or the name of one")
    if given.suffix == suffix or given.name != name:
        raise MorphVlaError(f"no such file: {name}{nearest(given.stem, choices)}")
    if (beside := Path(f"{name}{suffix}")).is_file():
        raise MorphVlaError(f"no {kind[:-1]} '{name}'; for the file here, give its whole name: {beside}")
    host = f"{OF_OPENPI}/{name}{suffix}"
    if kind == "recipes" and any((folder / host).is_file() for folder in search_path(kind, folders)):
        raise MorphVlaError(
            f"'{name}' is a configuration of openpi's trainer, no recipe of ours; see docs/hosts.md"
        )
    known = f"the {kind} are {', '.join(choices)}" if choices else f"there are no {kind}"
    searched = ", ".join(str(folder) for folder in search_path(kind, folders)) or "no folder"
    raise MorphVlaError(f"no {kind[:-1]} '{name}'{nearest(name, choices)} ({known}; searched {searched})")
