"""The command that installs something into the environment of this Python, for messages that name it."""

import importlib.metadata
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
DEMO_EXTRAS = ("model", "lerobot", "sim", "draw")
PYTHON = re.compile(r"python_version\s*(>=|==)\s*['\"](\d+)\.(\d+)['\"]")


def remedy(*extras: str) -> str:
    """How these extras of this package are installed here.

    That is `make setup` for those of the demo in a checkout's own environment, a command of pip or uv
    elsewhere; where an extra asks for another Python than this one, another environment.
    """
    listed = ",".join(extras)
    package = f"'morph-vla[{listed}]'"
    if wanted := next(filter(None, map(_other_python, extras)), ""):
        here = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return f"{package} needs Python {wanted} and this is {here}: install it in an environment of that"
    if _made_by_setup() and {*extras} <= {*DEMO_EXTRAS}:
        return "make setup"
    return command(package)


def distributions(extra: str) -> list[str]:
    """The packages an extra brings, as this package's own metadata says (so that they cannot drift apart)."""
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in _requirements(extra)]


def command(*words: str) -> str:
    """What installs `words` here: pip, or uv where the environment has no pip (`uv venv` makes none)."""
    return " ".join((_installer(), *words))


def _installer() -> str:
    if find_spec("pip"):
        pip = shutil.which("pip")
        ours = pip is not None and Path(pip).parent == Path(sys.executable).parent
        return "pip install" if ours else f"{_shown(sys.executable)} -m pip install"
    private = (CHECKOUT / ".tools/bin/uv", CHECKOUT / ".tools/target/bin/uv")
    uv = "uv" if shutil.which("uv") else next((_shown(path) for path in private if path.is_file()), "uv")
    return f"{uv} pip install --python {_shown(sys.executable)}"


def _shown(path: Path | str) -> str:
    """A path as it can be typed here: short where it lies below the current folder."""
    path = Path(path)
    return shlex.quote(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))


def _made_by_setup() -> bool:
    """Whether this is the environment `.venv` of a checkout."""
    return (CHECKOUT / "pyproject.toml").is_file() and Path(sys.prefix) == CHECKOUT / ".venv"


def _other_python(extra: str) -> str:
    """The Python that something of an extra asks for, where it isn't this one; else nothing."""
    for line in _requirements(extra):
        if marker := PYTHON.search(line):
            wanted, here = (int(marker[2]), int(marker[3])), sys.version_info[:2]
            if here < wanted or (marker[1] == "==" and here != wanted):
                return f"{wanted[0]}.{wanted[1]}{' or newer' if marker[1] == '>=' else ''}"
    return ""


def _requirements(extra: str) -> list[str]:
    """The lines of an extra; none where the package isn't installed but only on the path."""
    try:
        lines = importlib.metadata.requires("morph-vla") or []
    except importlib.metadata.PackageNotFoundError:
        return []
    return [line for line in lines if re.search(rf"extra\s*==\s*['\"]{re.escape(extra)}['\"]", line)]
