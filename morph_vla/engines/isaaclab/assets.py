"""What Isaac Lab spawns: USD files of a robot's URDF and of a suite's objects, in a cache keyed by content.

The robot goes through `urdf-usd-converter`, after the joints that no action drives have been made fixed: they
stand at 0, as in `scene`. An object is one rigid body with a collider per primitive; mass, centre of mass and
inertia are written out, so that no engine has to guess them. Nothing is written outside the cache folder.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import os
import shutil
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError, require
from morph_vla.files.cache import cache_folder
from morph_vla.robots import Robot, bodies
from morph_vla.robots.geometry import product
from morph_vla.robots.text import urdf_text
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.shapes import Part, composed, parts, principal, rolls, touches
from morph_vla.suites.suite import Vector3

Stage = Any  # of USD, which is imported when it is first used
Prim = Any
EXTRA = "isaaclab"
BOXES = 4  # that stand for a cylinder
LAYOUT = 5  # raised when what is written into the cache changes
TORSIONAL, ROLLING = 0.02, 0.001  # [m] friction of a contact about its normal and of rolling, as in `scene`


def _folder(name: str, content: str, cache: Path | None) -> Path:
    """Where the files made of `content` are kept."""
    digest = hashlib.sha256(f"{LAYOUT}\n{content}".encode()).hexdigest()[:16]
    return (cache or cache_folder() / "usd") / f"{name}-{digest}"


@contextlib.contextmanager
def _filling(folder: Path) -> Iterator[Path]:
    """A new folder beside `folder`, which takes its place when the block ends without an error."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        yield unfinished
        if not folder.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def frozen_urdf(robot: Robot) -> str:
    """The robot's URDF, with a gripper of ours if it has one; joints that no action drives are fixed.

    They stand at 0, at their offset where they mimic another one, or where the side file says.
    """
    driven, origins = {name for name, *_ in robot.drives()}, bodies.frozen(robot)
    # What is movable in the file and fixed in the record was moved there by `robots.standing`.
    origins |= {joint.name: joint.origin for joint in robot.urdf.joints if joint.type == "fixed"}
    root = ET.fromstring(robot.urdf_path.read_bytes())  # in whatever encoding it says
    if not driven <= {
        joint.get("name") for joint in root.findall("joint")
    }:  # a gripper of ours is in no file
        root = ET.fromstring(urdf_text(robot.urdf))
    for joint in root.findall("joint"):
        if joint.get("name") not in driven and joint.get("type") != "fixed":
            joint.set("type", "fixed")
            for tag in ("axis", "limit", "dynamics", "mimic", "safety_controller", "calibration"):
                for item in joint.findall(tag):
                    joint.remove(item)
            if moved := origins.get(joint.get("name", "")):
                origin = joint.find("origin")
                origin = ET.SubElement(joint, "origin") if origin is None else origin
                for key, values in (("xyz", moved.xyz), ("rpy", moved.rpy)):
                    origin.set(key, " ".join(map(repr, values)))
    return ET.tostring(root, encoding="unicode")


def robot_usd(robot: Robot, cache: Path | None = None) -> Path:
    """The USD file of a robot, converted when it is not in the cache yet."""
    converter = require("urdf_usd_converter", EXTRA)
    text = frozen_urdf(robot)
    folder = _folder(robot.name, text, cache)
    if not folder.is_dir():
        with _filling(folder) as unfinished, quiet():
            urdf = unfinished / f"{robot.name}.urdf"
            urdf.write_text(text, encoding="utf-8")
            made = converter.Converter(layer_structure=True, scene=False).convert(
                str(urdf), str(unfinished / "usd")
            )
            (unfinished / "root").write_text(str(Path(made.path).resolve().relative_to(unfinished.resolve())))
    return folder / (folder / "root").read_text()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Nothing on standard output and error while building, C and C++ included; said when it fails."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        failed = True
        try:
            yield
            failed = False
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, copy in enumerate(kept, start=1):
                os.dup2(copy, number)
                os.close(copy)
            if failed:
                log.seek(0)
                sys.stderr.write(log.read().decode(errors="replace"))


def link_paths(usd: Path) -> dict[str, str]:
    """Link name -> its prim's path below the robot's root: bodies are nested in the converter's files."""
    Usd = require("pxr.Usd", EXTRA)
    UsdGeom = require("pxr.UsdGeom", EXTRA)
    stage = Usd.Stage.Open(str(usd))
    root = stage.GetDefaultPrim().GetPath()
    paths: dict[str, str] = {}
    for prim in stage.Traverse():
        if prim.IsA(UsdGeom.Xform) and prim.GetPath() != root:
            path = str(prim.GetPath().MakeRelativePath(root))
            # A name that USD would not take has a suffix there; the display name is the URDF's.
            paths.setdefault(prim.GetDisplayName() or prim.GetName(), path)
    return paths


def linear(color: Vector3) -> Vector3:
    """A colour as USD has it, linear in light, of one as screens show it (the suite's)."""
    red, green, blue = (v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in color)
    return red, green, blue


def object_usd(thing: ObjectSpec, cache: Path | None = None) -> Path:
    """The USD file of an object: one rigid body with a collider per primitive.

    Raises MorphVlaError for one that touches nothing.
    """
    if not touches(thing):
        raise MorphVlaError(f"the engine isaaclab has no objects of the shape '{thing.shape}' yet")
    folder = _folder(thing.shape, json.dumps(dataclasses.asdict(thing), sort_keys=True), cache)
    if not folder.is_dir():
        with _filling(folder) as unfinished:
            _write_object(unfinished / "object.usda", thing)
    return folder / "object.usda"


def _write_object(path: Path, thing: ObjectSpec) -> None:
    Usd, UsdGeom, UsdPhysics = (require(f"pxr.{name}", EXTRA) for name in ("Usd", "UsdGeom", "UsdPhysics"))
    Gf = require("pxr.Gf", EXTRA)
    made = parts(thing)
    stage = Usd.Stage.CreateNew(str(path))
    UsdGeom.SetStageUpAxis(stage, UsdGeom.Tokens.z)
    UsdGeom.SetStageMetersPerUnit(stage, 1.0)
    root = UsdGeom.Xform.Define(stage, "/object").GetPrim()
    stage.SetDefaultPrim(root)
    UsdPhysics.RigidBodyAPI.Apply(root)
    mass, centre, matrix = composed(made)
    moments, axes = principal(matrix)
    properties = UsdPhysics.MassAPI.Apply(root)
    properties.CreateMassAttr(mass)
    properties.CreateCenterOfMassAttr(Gf.Vec3f(*map(float, centre)))
    properties.CreateDiagonalInertiaAttr(Gf.Vec3f(*map(float, moments)))
    properties.CreatePrincipalAxesAttr(Gf.Quatf(*axes))
    material = _material(stage, thing)
    for number, part in enumerate(boxed(made)):
        prim = _collider(stage, f"/object/part{number}", part, thing)
        binding = require("pxr.UsdShade", EXTRA).MaterialBindingAPI.Apply(prim)
        binding.Bind(material, materialPurpose="physics")
    stage.GetRootLayer().Save()


def boxed(made: Sequence[Part]) -> list[Part]:
    """The parts with crossing boxes in place of each cylinder: as many as make a polygon of its area.

    MuJoCo-Warp 3.12 finds one contact between a cylinder and a box or another cylinder, a convex mesh does
    no better, and what stands on it wobbles for ever: a cube in a bowl turned on its corner at 2 rad/s.
    """
    boxes = []
    for part in made:
        if part.kind != "cylinder":
            boxes.append(part)
            continue
        radius, height, _ = part.size
        half = math.pi / (2 * BOXES)  # the angle that half a side of the polygon is seen under
        reach = radius * math.sqrt(math.pi / (2 * BOXES * math.tan(half)))
        size, mass = (2 * reach, 2 * reach * math.tan(half), height), part.mass / BOXES
        for number in range(BOXES):
            turn = math.pi * number / BOXES
            turned = product(part.quaternion, (math.cos(turn / 2), 0.0, 0.0, math.sin(turn / 2)))
            boxes.append(Part(f"{part.name}/{number}", "box", size, mass, part.position, turned))
    return boxes


def _material(stage: Stage, thing: ObjectSpec) -> Prim:
    """Friction as `scene` has it; what UsdPhysics has no word for, in Newton's."""
    UsdPhysics, UsdShade, Sdf = (require(f"pxr.{name}", EXTRA) for name in ("UsdPhysics", "UsdShade", "Sdf"))
    material = UsdShade.Material.Define(stage, "/object/friction")
    api = UsdPhysics.MaterialAPI.Apply(material.GetPrim())
    api.CreateStaticFrictionAttr(thing.friction)
    api.CreateDynamicFrictionAttr(thing.friction)
    api.CreateRestitutionAttr(0.0)
    rolling = thing.rolling_friction if rolls(thing) else ROLLING
    for name, value in (("torsionalFriction", TORSIONAL), ("rollingFriction", rolling)):
        material.GetPrim().CreateAttribute(f"newton:{name}", Sdf.ValueTypeNames.Float).Set(value)
    return material


def _collider(stage: Stage, path: str, part: Part, thing: ObjectSpec) -> Prim:
    """One primitive, seen and felt: a box (of size 1: its scale makes it), a sphere, or a capsule along z."""
    UsdGeom, UsdPhysics, Gf = (require(f"pxr.{name}", EXTRA) for name in ("UsdGeom", "UsdPhysics", "Gf"))
    scale = (1.0, 1.0, 1.0)
    if part.kind == "box":
        shape, scale = UsdGeom.Cube.Define(stage, path), part.size
        shape.CreateSizeAttr(1.0)
    else:
        shape = getattr(UsdGeom, part.kind.capitalize()).Define(stage, path)
        shape.CreateRadiusAttr(part.size[0])
    if part.kind == "capsule":
        shape.CreateHeightAttr(part.size[1])
        shape.CreateAxisAttr("Z")
    shape.AddTranslateOp().Set(Gf.Vec3d(*part.position))
    shape.AddOrientOp().Set(Gf.Quatf(*part.quaternion))
    shape.AddScaleOp().Set(Gf.Vec3f(*scale))
    shape.CreateDisplayColorAttr([Gf.Vec3f(*linear(thing.color))])
    UsdPhysics.CollisionAPI.Apply(shape.GetPrim())
    return shape.GetPrim()
