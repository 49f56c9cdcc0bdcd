"""Meshes: which files are found and sound, and that a copied URDF takes its own with it."""

import logging
from pathlib import Path

import numpy as np
import pytest

from morph_vla.robots import adding, examine, meshes

ONE = (1.0, 1.0, 1.0)
CORNERS = np.array([(0.1, 0.0, 0.0), (0.0, 0.1, 0.0), (0.0, 0.0, 0.1), (0.0, 0.0, 0.0)])
FACES = ((0, 1, 2), (0, 3, 1), (1, 3, 2), (2, 3, 0))


def stl(corners: np.ndarray = CORNERS, faces: int | None = None, head: bytes = b"") -> bytes:
    """A binary STL of a tetrahedron; `faces` is what its head says."""
    triangles = b"".join(bytes(12) + corners[list(face)].astype("<f4").tobytes() + bytes(2) for face in FACES)
    return head.ljust(80, b"\0") + (faces or len(FACES)).to_bytes(4, "little") + triangles


def obj(corners: np.ndarray = CORNERS) -> bytes:
    lines = [f"v {x} {y} {z}" for x, y, z in corners] + [f"f {a + 1} {b + 1} {c + 1}" for a, b, c in FACES]
    return "\n".join(lines).encode()


FLAT = np.array([(0.1, 0.0, 0.0), (0.0, 0.1, 0.0), (0.1, 0.1, 0.0), (0.0, 0.0, 0.0)])
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("a.stl", stl(), ""),
        ("a.STL", stl(head=b"solid, and binary all the same"), ""),
        ("a.obj", obj(), ""),
        ("a.obj", obj().replace(b"f 1 2 3", b"# \xff\xfe no UTF-8\nf 1/1/1 2/2/2 3/3/3"), ""),
        ("a.dae", stl(), "is no .stl or .obj file"),
        ("a.stl", b"solid of text".ljust(84 + 50), "is text, or not whole: MuJoCo reads binary STL alone"),
        ("a.stl", stl()[:-50], "is text, or not whole: MuJoCo reads binary STL alone"),
        ("a.stl", stl() + b"\n", "is text, or not whole: MuJoCo reads binary STL alone"),
        ("a.stl", b"", "is text, or not whole: MuJoCo reads binary STL alone"),
        ("a.stl", bytes(84), "has fewer than four vertices, or no face"),
        ("a.stl", bytes(80) + b"\x41\x0d\x03\0" + bytes(200_001 * 50), "has 200001 faces, more than 200000"),
        ("a.stl", POINTER, "is kept elsewhere by Git LFS (git lfs pull)"),
        ("a.obj", POINTER, "is kept elsewhere by Git LFS (git lfs pull)"),
        ("a.obj", b"", "has fewer than four vertices, or no face"),
        ("a.obj", b"<html>404</html>", "has fewer than four vertices, or no face"),
        ("a.obj", obj().decode().encode("utf-16"), "has fewer than four vertices, or no face"),
        ("a.obj", obj().partition(b"f ")[0], "has fewer than four vertices, or no face"),
        ("a.obj", obj() + b"\nv one two three", "has a vertex that is no number"),
        ("a.obj", obj() + b"\nv nan 0 0", "has a vertex that is not finite"),
        ("a.obj", obj() + b"\nv 1e400 0 0", "has a vertex that is not finite"),
        (
            "a.obj",
            obj() + b"\nv 1e300 0 -1e300",
            "is 1e+300 m large (in millimetres? then scale='0.001 0.001 0.001')",
        ),
        ("a.obj", obj() + b"\nv 0.10000000000000000000000000000000000001e-1 0 0", ""),
        ("a.obj", obj(FLAT), "is flat"),
        ("a.stl", stl(FLAT), "is flat"),
        ("a.stl", stl(1000 * CORNERS), "is 100 m large (in millimetres? then scale='0.001 0.001 0.001')"),
    ],
)
def test_a_mesh_is_used_or_says_why_not(tmp_path: Path, name, data, why):
    (tmp_path / name).write_bytes(data)
    found = meshes.lookup(name, ONE, tmp_path / "arm.urdf")
    assert found.why == why
    assert (found.path, found.faces) == ((None, 0) if why else (tmp_path / name, 4))


def test_the_scale_counts(tmp_path: Path):
    (tmp_path / "a.stl").write_bytes(stl(1000 * CORNERS))
    urdf = tmp_path / "arm.urdf"
    assert meshes.file_of("a.stl", (0.001, 0.001, 0.001), urdf) == tmp_path / "a.stl"
    assert meshes.file_of("a.stl", (-0.001, 0.001, 0.001), urdf) == tmp_path / "a.stl"  # mirrored
    assert meshes.lookup("a.stl", (0.001, 0.0, 0.001), urdf).why == "is flat"


def test_a_file_that_changes_is_looked_at_again(tmp_path: Path):
    path, urdf = tmp_path / "a.stl", tmp_path / "arm.urdf"
    path.write_bytes(b"")
    assert meshes.file_of("a.stl", ONE, urdf) is None
    path.write_bytes(stl())
    assert meshes.file_of("a.stl", ONE, urdf) == path


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(meshes, "MOST_BYTES", 1 << 20)
    with (tmp_path / "a.stl").open("wb") as file:
        file.truncate((1 << 20) + 1)
    assert meshes.lookup("a.stl", ONE, tmp_path / "arm.urdf").why == "has 1 MiB, more than 1"


@pytest.mark.parametrize(
    "name",
    ["a b/m.stl", "a%20b/m.stl", "a b\\m.stl", "package://arm/a b/m.stl", "model://arm/a%20b/m.stl",
     "package://a b/m.stl", "../home/a b/m.stl", "{home}/a b/m.stl", "file://{home}/a b/m.stl"],
)  # fmt: skip
def test_a_mesh_is_found_however_its_path_is_written(tmp_path: Path, name):
    mesh = tmp_path / "home/a b/m.stl"
    mesh.parent.mkdir(parents=True)
    mesh.write_bytes(stl())
    found = meshes.file_of(name.format(home=tmp_path / "home"), ONE, tmp_path / "home/arm.urdf")
    assert found == mesh.resolve()


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("meshes/a.stl", "meshes/a.stl"),
        ("package://arm/meshes/a.stl", "arm/meshes/a.stl"),
        ("../../a.stl", "up/up/a.stl"),
        ("/etc/a.stl", "etc/a.stl"),
        ("file:///etc/../a.stl", "etc/up/a.stl"),
        ("C:\\arm\\a.stl", "arm/a.stl"),
        ("./a.stl", "a.stl"),
    ],
)
def test_a_copy_keeps_its_meshes_within_its_own_folder(name, place):
    assert meshes.place_in(name) == Path(place)


def write_arm(folder: Path, *names: str) -> Path:
    """An arm of two links, each with some of the meshes named, at `folder`/arm.urdf."""
    shapes = "".join(f'<visual><geometry><mesh filename="{name}"/></geometry></visual>' for name in names)
    path = folder / "arm.urdf"
    path.write_text(
        f'<robot name="arm"><link name="base">{shapes}</link><link name="tip">{shapes}</link><joint name="j" '
        'type="revolute"><parent link="base"/><child link="tip"/><origin xyz="0 0 0.5"/>'
        '<limit lower="-1" upper="1" effort="1" velocity="1"/></joint></robot>'
    )
    return path


def test_a_copied_robot_takes_its_meshes_with_it(tmp_path: Path, caplog):
    source, home = tmp_path / "downloads", tmp_path / "project/urdf_descriptors"
    (source / "meshes").mkdir(parents=True)
    (source / "meshes/a.stl").write_bytes(stl())
    (source / "b.obj").write_bytes(obj(2 * CORNERS))
    file = write_arm(source, "package://arm/meshes/a.stl", "b.obj")
    with caplog.at_level(logging.WARNING):
        added = adding.add(examine.examine(file), "mine", home)
    assert not caplog.records
    kept = home / "mine.meshes"
    assert sorted(path for path in home.rglob("*") if path.is_file()) == [
        kept / "arm/meshes/a.stl", kept / "b.obj", home / "mine.urdf"
    ]  # fmt: skip
    assert f"wrote {kept}: 2 mesh files" in str(added)
    assert (home / "mine.urdf").read_bytes() == file.read_bytes()
    named = meshes.of(added.robot.urdf, added.urdf)
    assert [each.path for each in named] == [kept / "arm/meshes/a.stl", kept / "b.obj"]
    # The same again writes nothing; another mesh of that name is never put in its place.
    assert adding.add(examine.examine(file), "mine", home).written == ()
    (source / "b.obj").write_bytes(obj(3 * CORNERS))
    with pytest.raises(adding.MorphVlaError, match=r"mine\.meshes/b\.obj exists and is another file: remove"):
        adding.add(examine.examine(file), "mine", home)


def test_a_mesh_that_cannot_be_used_is_said(tmp_path: Path, caplog):
    (tmp_path / "flat.stl").write_bytes(stl(FLAT))
    file = write_arm(tmp_path, "flat.stl", "none.stl")
    with caplog.at_level(logging.WARNING):
        adding.add(examine.examine(file), "mine", tmp_path / "robots")
    words = "mine: 2 of its 2 meshes cannot be used, and capsules stand in their place: "
    assert caplog.messages == [f"{words}'flat.stl' is flat, and 1 more"]
    assert not (tmp_path / "robots/mine.meshes").exists()


def test_many_triangles_are_said(tmp_path: Path, caplog, monkeypatch):
    (tmp_path / "a.stl").write_bytes(stl())
    monkeypatch.setattr(adding, "MANY_FACES", 3)
    with caplog.at_level(logging.WARNING):
        adding.add(examine.examine(write_arm(tmp_path, "a.stl")), "mine", tmp_path / "robots")
    assert caplog.messages == ["mine: its meshes have 4 triangles: pictures of them take longer"]


def test_an_arm_that_is_refused_leaves_no_mesh(tmp_path: Path, monkeypatch):
    (tmp_path / "meshes").mkdir()
    (tmp_path / "meshes/a.stl").write_bytes(stl())
    examined, home = examine.examine(write_arm(tmp_path, "meshes/a.stl")), tmp_path / "robots"
    monkeypatch.setattr(adding, "add_arm", lambda source, name, folder: adding.add(examined, name, folder))
    with pytest.raises(RuntimeError, match=r"^no table$"), adding.only_if_used(examined.path, "mine", home):
        raise RuntimeError("no table")
    assert list(home.iterdir()) == []


def test_an_added_robot_in_its_own_place_copies_nothing(tmp_path: Path):
    (tmp_path / "a.stl").write_bytes(stl())
    file = write_arm(tmp_path, "a.stl")
    added = adding.add(examine.examine(file), "arm", tmp_path)
    assert added.written == ()
