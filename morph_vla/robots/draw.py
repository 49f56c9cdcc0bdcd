"""The picture of a robot: its skeleton in the rest pose, its joint graph, and the steps between its joints.

The same colour stands for the same joint in all three panels. Drawn with matplotlib's Figure, without
pyplot's global state and without a display.
"""

import io
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from morph_vla.errors import MorphVlaError, require
from morph_vla.files.writing import write_bytes
from morph_vla.robots import graph
from morph_vla.robots.geometry import transform
from morph_vla.robots.records import Geometry, Shape
from morph_vla.robots.robot import Robot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, SOFT, FAINT, BONE, PAPER = "#26323f", "#6b7885", "#cdd4dc", "#93a0ad", "#ffffff"
_AROUND = 24  # sides of a cylinder; enough for a picture a few hundred pixels high


def write(robot: Robot, path: Path | str) -> Path:
    """Draw a robot into an image file (the format is that of the suffix: png, svg, pdf); returns its path.

    Raises MissingExtraError without matplotlib, and as `save`.
    """
    # matplotlib scales a 3-D axis before it holds anything, over infinite limits.
    with np.errstate(over="ignore", invalid="ignore"):
        drawn = figure(robot)
    return save(drawn, path, dpi=160)


def save(drawn: "Figure", path: Path | str, dpi: int) -> Path:
    """Write a matplotlib Figure into an image file, the same bytes every time; returns its path.

    Two dollar signs in a name are two dollar signs. Raises MorphVlaError if the file cannot be written.
    """
    from matplotlib.text import Text

    path = Path(path)
    for text in drawn.findobj(Text):
        text.set_parse_math(False)
    # A date or a version in the file would make two drawings of one robot differ.
    metadata, content = {"Software": None} if path.suffix == ".png" else None, io.BytesIO()
    try:
        drawn.savefig(content, format=path.suffix[1:], dpi=dpi, facecolor=PAPER, metadata=metadata)
        write_bytes(path, content.getvalue())
    except (OSError, ValueError) as error:  # ValueError: a suffix that matplotlib does not know
        raise MorphVlaError(f"{path}: the picture cannot be written: {error}") from error
    return path


def figure(robot: Robot) -> "Figure":
    """The picture as a matplotlib Figure of three panels."""
    require("matplotlib", "draw")
    from matplotlib.figure import Figure

    drawn, count, colours = Figure(figsize=(15.5, 6.2)), len(robot.joints), _colours(robot)
    skeleton: Any = drawn.add_axes((0.01, 0.0, 0.33, 0.85), projection="3d", computed_zorder=False)
    _skeleton(skeleton, robot, colours)
    _joint_graph(drawn.add_axes((0.35, 0.04, 0.24, 0.78)), robot, colours)
    _matrix(drawn.add_axes((0.70, 0.07, 0.29, 0.75)), robot, colours)
    edges = int(robot.adjacency.sum() - count) // 2
    rate = f"   ·   {robot.control_rate:g} Hz" if robot.control_rate else ""
    subtitle = f"{count} action joints   ·   {edges} edges{rate}"
    drawn.text(0.02, 0.94, robot.name, fontsize=19, fontweight="bold", color=INK)
    drawn.text(0.02, 0.895, subtitle, fontsize=10.5, color=SOFT)
    for middle, title in ((0.17, "rest pose"), (0.47, "joint graph"), (0.845, "steps between joints")):
        drawn.text(middle, 0.84, title, fontsize=12, color=INK, ha="center")
    return drawn


def write_sheet(robots: Sequence[Robot], path: Path | str) -> Path:
    """Draw the rest poses of several robots side by side into an image file; returns its path.

    Raises MissingExtraError without matplotlib, and as `save`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        drawn = sheet(robots)
    return save(drawn, path, dpi=110)


def sheet(robots: Sequence[Robot]) -> "Figure":
    """The rest poses of several robots, each with its name, as a matplotlib Figure."""
    require("matplotlib", "draw")
    from matplotlib.figure import Figure

    columns = min(len(robots), max(3, math.ceil(math.sqrt(len(robots)))))
    rows = math.ceil(len(robots) / columns)
    drawn = Figure(figsize=(2.9 * columns, 3.2 * rows))
    for index, robot in enumerate(robots):
        row, column = divmod(index, columns)
        left, bottom = column / columns, 1 - (row + 1) / rows
        place = (left, bottom, 1 / columns, 0.92 / rows)
        _skeleton(drawn.add_axes(place, projection="3d", computed_zorder=False), robot, _colours(robot))
        middle, top = left + 0.5 / columns, bottom + 0.95 / rows
        drawn.text(middle, top, robot.name, fontsize=8, color=INK, ha="center", va="center")
    return drawn


def _colours(robot: Robot) -> list[Any]:
    """A colour for each joint, from the base's blue to the tip's red."""
    from matplotlib import colormaps

    last = max(len(robot.joints) - 1, 1)
    return [colormaps["turbo"](0.08 + 0.82 * index / last) for index in range(len(robot.joints))]


def skeleton(robot: Robot) -> Float[np.ndarray, "b 2 3"]:
    """The bones of the rest pose: both ends of every joint's link in the root's frame [m]."""
    poses = robot.forward_kinematics(robot.rest)
    ends = [(poses[joint.parent][:3, 3], poses[joint.child][:3, 3]) for joint in robot.urdf.joints]
    return np.array(ends, dtype=np.float64).reshape(-1, 2, 3)


def _skeleton(axes: Any, robot: Robot, colours: list[Any]) -> None:
    """The body where its shapes are primitive, bones between frames, a line along each joint's axis."""
    root_from_link = robot.forward_kinematics(robot.rest)
    bones = skeleton(robot)
    points = bones.reshape(-1, 3)
    body = _body(axes, robot, root_from_link)
    size = float(np.ptp(points, axis=0).max()) or 1.0
    width, alpha = (1.6, 0.5) if len(body) else (4.2, 1.0)
    for bone in bones:
        axes.plot(*bone.T, color=BONE, lw=width, alpha=alpha, solid_capstyle="round", zorder=2)
    for joint, colour in zip(robot.joints, colours, strict=True):
        pose = root_from_link[robot.urdf.by_name[joint.name].child]
        along = 0.075 * size * pose[:3, :3] @ np.array(joint.axis)
        axes.plot(*np.stack([pose[:3, 3] - along, pose[:3, 3] + along]).T, color=colour, lw=2.4, zorder=3)
        axes.scatter(*pose[:3, 3], s=36, color=colour, edgecolor=PAPER, linewidth=0.9, zorder=4)
    _frame(axes, np.concatenate([points, body]) if len(body) else points)


def _body(
    axes: Any, robot: Robot, root_from_link: dict[str, Float[np.ndarray, "4 4"]]
) -> Float[np.ndarray, "p 3"]:
    """Draw every primitive visual shape, lit from above the viewer; returns the corners [m]."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    faces, shades = [], []
    light = np.array([0.25, -0.55, 0.8])
    for link in robot.urdf.links:
        turn, shift = root_from_link[link.name][:3, :3], root_from_link[link.name][:3, 3]
        for shape in link.visuals:
            colour = np.array(shape.rgba or (0.8, 0.82, 0.85, 1.0))[:3]
            for face in polygons(shape):
                placed = face @ turn.T + shift
                normal = np.cross(placed[1] - placed[0], placed[2] - placed[1])
                normal /= max(float(np.linalg.norm(normal)), 1e-12)
                bright = 0.62 + 0.38 * float(np.clip(normal @ light, -0.6, 1.0))
                faces.append(placed)
                shades.append((*np.clip(colour * bright + 0.06, 0, 1), 1.0))
    if not faces:
        return np.zeros((0, 3))
    # An edge of the face's own colour hides the seams between neighbouring polygons.
    body = Poly3DCollection(faces, facecolors=shades, edgecolors=shades, lw=0.3, zorder=1)
    # Limits are set in `_frame`; matplotlib's own would also read the memory it pads short polygons with.
    axes.add_collection3d(body, autolim=False)
    return np.concatenate(faces)


def _frame(axes: Any, points: Float[np.ndarray, "p 3"]) -> None:
    """Equal scales, no box; a floor grid under the robot for depth."""
    low, high = points.min(axis=0), points.max(axis=0)
    middle, half = (low + high) / 2, 0.5 * float((high - low).max() or 1.0)
    for setter, centre in zip((axes.set_xlim, axes.set_ylim, axes.set_zlim), middle, strict=True):
        setter(centre - half, centre + half)
    reach = np.linspace(-1.0, 1.0, 9) * half
    floor = [low[2]] * 2
    for offset in reach:
        x, y = [middle[0] + offset] * 2, [middle[1] + offset] * 2
        axes.plot(x, middle[1] + reach[[0, -1]], floor, color=FAINT, lw=0.6, zorder=0)
        axes.plot(middle[0] + reach[[0, -1]], y, floor, color=FAINT, lw=0.6, zorder=0)
    axes.set_box_aspect((1, 1, 1), zoom=1.28)
    axes.view_init(elev=18, azim=-58)
    axes.set_axis_off()


def polygons(shape: Shape) -> list[Float[np.ndarray, "p 3"]]:
    """The faces of a shape in its link's frame [m], anticlockwise from outside; none for a mesh."""
    pose = transform(shape.origin)
    return [face @ pose[:3, :3].T + pose[:3, 3] for face in _faces(shape.geometry)]


def _faces(geometry: Geometry) -> list[Float[np.ndarray, "p 3"]]:
    match geometry.kind:
        case "box":
            return _box(np.array(geometry.size) / 2)
        case "cylinder":
            radius, length = geometry.size
            return _turned(np.array([[0, -0.5], [1, -0.5], [1, 0.5], [0, 0.5]]) * [radius, length])
        case "sphere" | "capsule":
            radius, length = (*geometry.size, 0.0)[:2]
            angles = np.linspace(-np.pi / 2, np.pi / 2, 12)
            profile = radius * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            profile[:, 1] += np.where(angles < 0, -0.5, 0.5) * length
            return _turned(profile)
    return []


def _box(half: Float[np.ndarray, "3"]) -> list[Float[np.ndarray, "p 3"]]:
    faces = []
    for axis in range(3):
        for sign in (-1.0, 1.0):
            square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], dtype=np.float64)
            face = np.insert(square, axis, sign, axis=1) * half
            # The normal of a square inserted at y points to -y; the others to plus their axis.
            faces.append(face if (sign > 0) == (axis != 1) else face[::-1])
    return faces


def _turned(profile: Float[np.ndarray, "p 2"]) -> list[Float[np.ndarray, "q 3"]]:
    """The faces of a body of revolution about z from its outline (radius, height), bottom to top."""
    angles = np.linspace(0, 2 * np.pi, _AROUND + 1)
    rim = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    faces = []
    for (r0, z0), (r1, z1) in pairwise(profile):
        if r0 < 1e-9 or r1 < 1e-9:
            radius, height = max(r0, r1), z1 if r0 < r1 else z0
            tip = z0 if r0 < r1 else z1
            if abs(tip - height) < 1e-9:  # a flat lid, one polygon
                disc = np.column_stack([radius * rim[:-1], np.full(_AROUND, height)])
                faces.append(disc[::-1] if r0 < r1 else disc)
                continue
        for here, there in pairwise(rim):
            corners = [[*(r0 * here), z0], [*(r0 * there), z0], [*(r1 * there), z1], [*(r1 * here), z1]]
            faces.append(np.array(corners))
    return faces


def _joint_graph(axes: "Axes", robot: Robot, colours: list[Any]) -> None:
    """A dot per joint, numbered in action order, a line between neighbours; squares are prismatic joints."""
    spots = layout(robot.distances)
    for first, second in zip(*np.nonzero(np.triu(robot.adjacency, 1)), strict=True):
        axes.plot(*spots[[first, second]].T, color=BONE, linewidth=2.2, zorder=1)
    count = len(robot.joints)
    size = float(np.clip(5200 / count, 130, 620))
    chain = float(np.ptp(spots[:, 0])) < 0.2  # an upright line leaves room for the names
    for index, joint in enumerate(robot.joints):
        x, y = spots[index]
        colour, marker = colours[index], "s" if joint.type == "prismatic" else "o"
        axes.scatter(x, y, s=size, marker=marker, color=colour, edgecolor=PAPER, lw=1.5, zorder=2)
        font = float(np.clip(90 / count, 6.5, 11))
        weight: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontweight": "bold"}
        axes.text(x, y, str(index), fontsize=font, color=_readable(colour), zorder=3, **weight)
        if chain:
            axes.text(x + 0.16, y, joint.name, fontsize=font, color=_darker(colour), va="center_baseline")
    axes.set_aspect("equal")
    axes.set_xlim((-0.45, 1.55) if chain else (-1.12, 1.12))
    axes.set_ylim(-1.12, 1.12)
    axes.set_axis_off()


def layout(steps: Int[np.ndarray, "j j"]) -> Float[np.ndarray, "j 2"]:
    """Places in the plane whose distances are near the numbers of steps, about the unit square.

    Stress majorisation (Gansner, Koren and North, 2004) from the two leading coordinates of classical
    scaling, with weights 1/d^2; deterministic. Parts that nothing joins are placed as if a little further
    than the longest path.
    """
    count = len(steps)
    if count == 1:
        return np.zeros((1, 2))
    far = int(steps[steps < graph.UNREACHABLE].max()) + 2
    wanted = np.minimum(steps, far).astype(np.float64)
    centre = np.eye(count) - 1 / count
    values, vectors = np.linalg.eigh(-0.5 * centre @ wanted**2 @ centre)
    spots = vectors[:, [-1, -2]] * np.sqrt(np.maximum(values[[-1, -2]], 0))
    spots *= np.sign(spots[np.abs(spots).argmax(axis=0), [0, 1]]) + (spots == 0).all(axis=0)
    # A chain lies on a line, where stress has a saddle: a shallow arc lets branches open to both sides.
    spots[:, 1] += 0.002 * np.sin(np.arange(count) * 2.399)
    weights = 1 / np.where(wanted == 0, np.inf, wanted) ** 2
    laplacian = np.diag(weights.sum(axis=1)) - weights
    inverse = np.linalg.pinv(laplacian)
    for _ in range(200):
        apart = np.linalg.norm(spots[:, None] - spots[None], axis=-1)
        pull = weights * wanted / np.where(apart < 1e-9, np.inf, apart)
        spots = inverse @ ((np.diag(pull.sum(axis=1)) - pull) @ spots)
    return _upright(spots)


def _upright(spots: Float[np.ndarray, "j 2"]) -> Float[np.ndarray, "j 2"]:
    """Turned so that the long side stands up and the first joint is low; within the square of -1..1."""
    spots = spots - (spots.min(axis=0) + spots.max(axis=0)) / 2
    _, _, axes = np.linalg.svd(spots, full_matrices=False)
    spots = spots @ axes[::-1].T
    middle = spots - spots.mean(axis=0)
    spots = spots * np.where(middle[0] > 1e-6, -1.0, 1.0)
    spots = spots - (spots.min(axis=0) + spots.max(axis=0)) / 2
    return spots / max(float(np.abs(spots).max()), 1e-9)


def _readable(colour: Any) -> str:
    red, green, blue = colour[:3]
    return INK if 0.3 * red + 0.59 * green + 0.11 * blue > 0.55 else PAPER


def _matrix(axes: "Axes", robot: Robot, colours: list[Any]) -> None:
    """Steps between joints; neighbours framed, parts that nothing joins left empty."""
    count = len(robot.joints)
    steps = np.where(robot.distances == graph.UNREACHABLE, np.nan, robot.distances)
    axes.imshow(steps, cmap="Blues_r", vmin=-0.5, vmax=max(float(np.nanmax(steps)), 1.0) * 1.25)
    size = float(np.clip(88 / count, 4.5, 10.5))
    for row in range(count):
        for column in range(count):
            value = steps[row, column]
            text = "–" if np.isnan(value) else f"{int(value)}"
            dark = not np.isnan(value) and value < 0.55 * float(np.nanmax(steps))
            colour = PAPER if dark else INK
            axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
    axes.set_xticks(np.arange(count) - 0.5, minor=True)
    axes.set_yticks(np.arange(count) - 0.5, minor=True)
    axes.grid(which="minor", color=PAPER, linewidth=1.2)
    axes.tick_params(which="both", length=0)
    axes.set_xticks(range(count), [str(index) for index in range(count)], fontsize=size, color=INK)
    labels = [f"{joint.name}  {index}" for index, joint in enumerate(robot.joints)]
    axes.set_yticks(range(count), labels, fontsize=float(np.clip(150 / count, 6.0, 9.5)))
    for index, label in enumerate(axes.get_yticklabels()):
        label.set_color(_darker(colours[index]))
    axes.spines[:].set_visible(False)


def _darker(colour: Any) -> tuple[float, float, float]:
    red, green, blue = (0.72 * float(value) for value in colour[:3])
    return red, green, blue
