"""The picture of a robot: its skeleton in the rest pose, its joint graph, and the steps between its joints.

The same colour stands for the same joint in all three panels. Drawn with matplotlib's Figure, without
pyplot's global state and without a display.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from morph_vla.errors import require
from morph_vla.robots import graph, solids
from morph_vla.robots.robot import Robot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#26323f"
SOFT = "#6b7885"
FAINT = "#cdd4dc"
BONE = "#93a0ad"
PAPER = "#ffffff"


def write(robot: Robot, path: Path | str) -> Path:
    """Draw a robot into an image file (the format is that of the suffix: png, svg, pdf); returns its path.

    The bytes of a png are the same every time. Raises MissingExtraError without matplotlib.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # matplotlib scales a 3-D axis before it holds anything, over infinite limits.
    with np.errstate(over="ignore", invalid="ignore"):
        drawn = figure(robot)
    # A date or a version in the file would make two drawings of one robot differ.
    metadata = {"Software": None} if path.suffix == ".png" else None
    drawn.savefig(path, dpi=160, facecolor=PAPER, metadata=metadata)
    return path


def figure(robot: Robot) -> "Figure":
    """The picture as a matplotlib Figure of three panels."""
    require("matplotlib", "draw")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(15.5, 6.2))
    FigureCanvasAgg(drawn)
    colours = _colours(len(robot.joints))
    skeleton: Any = drawn.add_axes((0.01, 0.0, 0.33, 0.85), projection="3d", computed_zorder=False)
    _skeleton(skeleton, robot, colours)
    _joint_graph(drawn.add_axes((0.35, 0.04, 0.24, 0.78)), robot, colours)
    _matrix(drawn.add_axes((0.70, 0.07, 0.29, 0.75)), robot, colours)
    drawn.text(0.02, 0.94, robot.name, fontsize=19, fontweight="bold", color=INK)
    drawn.text(0.02, 0.895, _subtitle(robot), fontsize=10.5, color=SOFT)
    for middle, title in ((0.17, "rest pose"), (0.47, "joint graph"), (0.845, "steps between joints")):
        drawn.text(middle, 0.84, title, fontsize=12, color=INK, ha="center")
    return drawn


def _subtitle(robot: Robot) -> str:
    edges = int(robot.adjacency.sum() - len(robot.joints)) // 2
    rate = f"   ·   {robot.control_rate:g} Hz" if robot.control_rate else ""
    return f"{len(robot.joints)} action joints   ·   {edges} edges{rate}"


def _colours(count: int) -> list[Any]:
    from matplotlib import colormaps

    return [colormaps["turbo"](0.08 + 0.82 * index / max(count - 1, 1)) for index in range(count)]


# ------------------------------------------------------------------------------------------------- skeleton


def _skeleton(axes: Any, robot: Robot, colours: list[Any]) -> None:
    """The body where its shapes are primitive, bones between frames, a line along each joint's axis."""
    poses = robot.forward_kinematics(robot.rest)
    ends = [(poses[joint.parent][:3, 3], poses[joint.child][:3, 3]) for joint in robot.urdf.joints]
    points = np.array([point for pair in ends for point in pair])
    body = _body(axes, robot, poses)
    size = float(np.ptp(points, axis=0).max()) or 1.0
    for pair in ends:
        width, alpha = (1.6, 0.5) if len(body) else (4.2, 1.0)
        axes.plot(*np.stack(pair).T, color=BONE, lw=width, alpha=alpha, solid_capstyle="round", zorder=2)
    child = {joint.name: joint.child for joint in robot.urdf.joints}
    for joint, colour in zip(robot.joints, colours, strict=True):
        pose = poses[child[joint.name]]
        along = 0.075 * size * pose[:3, :3] @ np.array(joint.axis)
        axes.plot(*np.stack([pose[:3, 3] - along, pose[:3, 3] + along]).T, color=colour, lw=2.4, zorder=3)
        axes.scatter(*pose[:3, 3], s=36, color=colour, edgecolor=PAPER, linewidth=0.9, zorder=4)
    _frame(axes, np.concatenate([points, body]) if len(body) else points)


def _body(axes: Any, robot: Robot, poses: dict[str, Float[np.ndarray, "4 4"]]) -> Float[np.ndarray, "p 3"]:
    """Draw every primitive visual shape, lit from above the viewer; returns the corners [m]."""
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    faces, shades = [], []
    light = np.array([0.25, -0.55, 0.8])
    for link in robot.urdf.links:
        turn, shift = poses[link.name][:3, :3], poses[link.name][:3, 3]
        for shape in link.visuals:
            colour = np.array(shape.rgba or (0.8, 0.82, 0.85, 1.0))[:3]
            for face in solids.polygons(shape):
                placed = face @ turn.T + shift
                normal = np.cross(placed[1] - placed[0], placed[2] - placed[1])
                normal /= max(float(np.linalg.norm(normal)), 1e-12)
                bright = 0.62 + 0.38 * float(np.clip(normal @ light, -0.6, 1.0))
                faces.append(placed)
                shades.append((*np.clip(colour * bright + 0.06, 0, 1), 1.0))
    if not faces:
        return np.zeros((0, 3))
    # An edge of the face's own colour hides the seams between neighbouring polygons.
    polygons = Poly3DCollection(faces, facecolors=shades, edgecolors=shades, lw=0.3, zorder=1)
    # Limits are set in `_frame`; matplotlib's own would also read the memory it pads short polygons with.
    axes.add_collection3d(polygons, autolim=False)
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


# ---------------------------------------------------------------------------------------------- joint graph


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


# --------------------------------------------------------------------------------------------------- matrix


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
