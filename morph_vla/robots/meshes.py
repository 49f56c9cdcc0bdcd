"""The meshes that a URDF names: where their files are, and whether a simulator can use them."""

import functools
import os.path
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

import numpy as np
from jaxtyping import Float

from morph_vla.robots.records import Urdf

FORMATS = (".stl", ".obj")  # those that MuJoCo reads
MOST_FACES = 200_000  # of an STL file that MuJoCo reads
MOST_BYTES = 1 << 27  # of one file; a larger one is no link's shape
LARGEST = 10.0  # [m] of a link; what is larger was drawn in millimetres, without a scale
FLAT = 1e-5  # of the largest spread of vertices the smallest: below, MuJoCo finds no volume
LFS_POINTER = b"version https://git-lfs"
SCHEMES = ("package://", "model://", "file://")
VERTEX = re.compile(rb"^v[ \t]+(\S+)[ \t]+(\S+)[ \t]+(\S+)", re.MULTILINE)
FACE = re.compile(rb"^f[ \t]", re.MULTILINE)


class Unusable(Exception):
    """Why a file is no mesh that a simulator can use: the end of a sentence that begins with its name."""


@dataclass(frozen=True)
class Lookup:
    """A mesh that a URDF names, and what became of it."""

    name: str
    path: Path | None
    """The file that is used"""
    why: str = ""
    """Of one that is not used"""
    faces: int = 0


def kept_beside(urdf: Path) -> Path:
    """The folder of a copied URDF's meshes: `my_arm.meshes` beside `my_arm.urdf`."""
    return urdf.with_suffix(".meshes")


def place_in(name: str) -> Path:
    """Where a mesh of that name lies in `kept_beside`, whatever it is: within that folder."""
    parts = re.split(r"[/\\]", re.sub(r"^\w+:/*", "", name))
    return Path(*("up" if part == ".." else part for part in parts if part not in ("", ".")))


def file_of(name: str, scale: tuple[float, ...], urdf: Path) -> Path | None:
    """The file of a mesh; None where it is not at hand, or cannot be used. As `lookup`."""
    return lookup(name, scale, urdf).path


def lookup(name: str, scale: tuple[float, ...], urdf: Path) -> Lookup:
    """Seek a mesh beside a URDF's file: where a copy keeps it, in its folder, and in three above it.

    `package://my_robot/meshes/a.stl` is `my_robot/meshes/a.stl` or `meshes/a.stl` there. Not used is what
    MuJoCo does not read or refuses to build: COLLADA, an STL file as text or of more than `MOST_FACES`, what
    stands in place of a file that Git LFS keeps elsewhere, vertices that are flat or not finite.
    """
    if Path(name).suffix.lower() not in FORMATS:
        return Lookup(name, None, f"is no {' or '.join(FORMATS)} file")
    why = "is not there"
    for path in filter(os.path.isfile, _places(name, urdf)):  # `Path.is_file` raises for names that are long
        faces, why = _judged(path.resolve(), scale, path.stat().st_mtime_ns)
        if not why:
            return Lookup(name, path.resolve(), faces=faces)
    return Lookup(name, None, why)


def of(urdf: Urdf, file: Path) -> list[Lookup]:
    """Every mesh of a robot's links, once, sought beside `file`."""
    shapes = [shape for link in urdf.links for shape in (*link.visuals, *link.collisions)]
    wanted = [(shape.geometry.mesh, shape.geometry.size) for shape in shapes if shape.geometry.kind == "mesh"]
    return [lookup(name or "", scale, file) for name, scale in dict.fromkeys(wanted)]


def _places(name: str, urdf: Path) -> Iterator[Path]:
    yield kept_beside(urdf) / place_in(name)
    scheme = next((scheme for scheme in SCHEMES if name.startswith(scheme)), "")
    plain = name.removeprefix(scheme)
    ways = [plain, plain.partition("/")[2]] if scheme else [plain]
    ways += [unquote(way) for way in ways] + [way.replace("\\", "/") for way in ways]
    for above in (urdf.parent, *list(urdf.parent.resolve().parents)[:3]):
        yield from (above / way for way in dict.fromkeys(ways) if way)


@functools.lru_cache(maxsize=1024)
def _judged(path: Path, scale: tuple[float, ...], changed_ns: int) -> tuple[int, str]:
    """A file's faces, and why it is not used; as it was when it was last changed."""
    try:
        vertices, faces = _read(path)
        _check(vertices, faces, scale)
    except Unusable as error:
        return 0, str(error)
    except OSError:
        return 0, "cannot be read"
    return faces, ""


def _check(vertices: Float[np.ndarray, "v 3"], faces: int, scale: tuple[float, ...]) -> None:
    """Raise Unusable where MuJoCo would not build a mesh, or no link can be of that size."""
    if len(vertices) < 4 or not faces:
        raise Unusable("has fewer than four vertices, or no face")
    with np.errstate(over="ignore", invalid="ignore"):
        vertices = vertices * np.array(scale)
        size = float(np.ptp(vertices, axis=0).max())
    if not np.isfinite(vertices).all():
        raise Unusable("has a vertex that is not finite")
    if size > LARGEST:
        raise Unusable(f"is {size:.4g} m large (in millimetres? then scale='0.001 0.001 0.001')")
    spread = np.sqrt(np.maximum(np.linalg.eigvalsh(np.cov(vertices.T)), 0.0))
    if spread[0] <= FLAT * spread[2]:
        raise Unusable("is flat")


def _read(path: Path) -> tuple[Float[np.ndarray, "v 3"], int]:
    """The vertices in a file, in its own unit, and how many faces it has. Raises Unusable for no mesh."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise Unusable(f"has {size >> 20} MiB, more than {MOST_BYTES >> 20}")
    data = path.read_bytes()
    if data.startswith(LFS_POINTER):
        raise Unusable("is kept elsewhere by Git LFS (git lfs pull)")
    return _stl(data) if path.suffix.lower() == ".stl" else _obj(data)


def _stl(data: bytes) -> tuple[Float[np.ndarray, "v 3"], int]:
    """Of a binary STL: 80 bytes, the number of faces, and 50 bytes for each."""
    faces = int.from_bytes(data[80:84], "little")
    if len(data) != 84 + 50 * faces:
        raise Unusable("is text, or not whole: MuJoCo reads binary STL alone")
    if faces > MOST_FACES:
        raise Unusable(f"has {faces} faces, more than {MOST_FACES}")
    rows = np.frombuffer(data, np.uint8, offset=84).reshape(faces, 50)
    corners = np.ascontiguousarray(rows[:, 12:48]).view("<f4").reshape(-1, 3)
    return np.unique(corners, axis=0).astype(np.float64), faces


def _obj(data: bytes) -> tuple[Float[np.ndarray, "v 3"], int]:
    try:
        vertices = np.array([[float(value) for value in row] for row in VERTEX.findall(data)]).reshape(-1, 3)
    except ValueError as error:
        raise Unusable("has a vertex that is no number") from error
    return vertices, len(FACE.findall(data))
