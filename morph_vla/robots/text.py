"""The text of a URDF from its records, for robots that are made here: read back, it gives the same records.

What is no link and no joint (transmissions, comments) is not written, and lines are numbered anew.
"""

from collections.abc import Iterator
from xml.sax.saxutils import quoteattr

from morph_vla.robots.records import Contact, Geometry, Inertial, Joint, Link, Pose, Shape, Urdf

_MOMENTS = ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
_SIZES = {"cylinder": ("radius", "length"), "capsule": ("radius", "length"), "sphere": ("radius",)}


def urdf_text(urdf: Urdf) -> str:
    """The URDF, an element a line; numbers as Python writes them, so that none is rounded."""
    body = [line for link in urdf.links for line in _link(link)]
    body += [line for joint in urdf.joints for line in _joint(joint)]
    head = ['<?xml version="1.0"?>', f"<robot{_words(name=urdf.name)}>"]
    return "\n".join([*head, *(f"  {line}" for line in body), "</robot>"]) + "\n"


def _link(link: Link) -> Iterator[str]:
    yield f"<link{_words(name=link.name)}>"
    if link.contact is not None:
        yield from _indented(_contact(link.contact))
    if link.inertial is not None:
        yield from _indented(_inertial(link.inertial))
    for tag, shapes in (("visual", link.visuals), ("collision", link.collisions)):
        for shape in shapes:
            yield from _indented(_shape(tag, shape))
    yield "</link>"


def _contact(contact: Contact) -> Iterator[str]:
    yield "<contact>"
    if contact.friction_anchor:
        yield "  <friction_anchor/>"
    for tag in ("stiffness", "damping", "lateral_friction", "spinning_friction"):
        if (value := getattr(contact, tag)) is not None:
            yield f"  <{tag}{_words(value=value)}/>"
    yield "</contact>"


def _inertial(inertial: Inertial) -> Iterator[str]:
    yield "<inertial>"
    yield f"  {_origin(inertial.origin)}"
    if inertial.mass is not None:
        yield f"  <mass{_words(value=inertial.mass)}/>"
    yield f"  <inertia{_words(**dict(zip(_MOMENTS, inertial.inertia, strict=True)))}/>"
    yield "</inertial>"


def _shape(tag: str, shape: Shape) -> Iterator[str]:
    yield f"<{tag}>"
    yield f"  {_origin(shape.origin)}"
    yield f"  <geometry>{_geometry(shape.geometry)}</geometry>"
    if shape.rgba is not None:
        rgba = _numbers(shape.rgba)  # a name of its own, for readers that share materials by their names
        yield f"  <material{_words(name=rgba)}><color{_words(rgba=rgba)}/></material>"
    yield f"</{tag}>"


def _geometry(geometry: Geometry) -> str:
    size = _numbers(geometry.size)
    if geometry.kind == "nothing":  # what the reader says of an empty <geometry>
        return ""
    if geometry.kind == "mesh":
        return f"<mesh{_words(filename=geometry.mesh, scale=size)}/>"
    if geometry.kind == "box":
        return f"<box{_words(size=size)}/>"
    keys = _SIZES.get(geometry.kind, ())
    return f"<{geometry.kind}{_words(**dict(zip(keys, geometry.size, strict=True)))}/>"


def _joint(joint: Joint) -> Iterator[str]:
    yield f"<joint{_words(name=joint.name, type=joint.type)}>"
    yield f"  {_origin(joint.origin)}"
    yield f"  <parent{_words(link=joint.parent)}/>"
    yield f"  <child{_words(link=joint.child)}/>"
    if joint.axis is not None:
        yield f"  <axis{_words(xyz=_numbers(joint.axis))}/>"
    if (limit := joint.limit) is not None:
        bounds = _words(lower=limit.lower, upper=limit.upper, effort=limit.effort, velocity=limit.velocity)
        yield f"  <limit{bounds}/>"
    if (mimic := joint.mimic) is not None:
        follows = _words(joint=mimic.joint, multiplier=mimic.multiplier, offset=mimic.offset)
        yield f"  <mimic{follows}/>"
    if dynamics := _words(damping=joint.damping, friction=joint.friction):
        yield f"  <dynamics{dynamics}/>"
    if soft := _words(soft_lower_limit=joint.soft_lower, soft_upper_limit=joint.soft_upper):
        # The format requires a k_velocity; the records have none.
        yield f'  <safety_controller{soft} k_velocity="0"/>'
    yield "</joint>"


def _origin(pose: Pose) -> str:
    return f"<origin{_words(xyz=_numbers(pose.xyz), rpy=_numbers(pose.rpy))}/>"


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(repr(float(value) + 0.0) for value in values)  # never -0.0


def _words(**attributes: str | float | None) -> str:
    """The attributes, each after a space; those that are None are left out."""
    words = []
    for key, value in attributes.items():
        if value is not None:
            words.append(f" {key}={quoteattr(value if isinstance(value, str) else _numbers((value,)))}")
    return "".join(words)


def _indented(lines: Iterator[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
