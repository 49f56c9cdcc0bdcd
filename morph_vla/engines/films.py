"""Films of episodes: what they show.

A film shows the scene as a person would look at it, with what the policy sees small in a corner. It is looked
at and never learnt from: no frame of it reaches a policy, and filming changes no episode.
"""

from collections.abc import Sequence

import numpy as np

from morph_vla.engines.engine import Frame, Worlds
from morph_vla.suites.suite import Camera, Suite

HEIGHT, WIDTH = 288, 384  # of a film [pixels]: sharp at the size of a page's column, cheap to render
INSET, BORDER = 64, 2  # height of the policy's frames in the corner, and the line around them [pixels]
# The camera: turned around the table, raised above it [rad], its field of view [deg]; then, in reaches of the
# robot to its objects: what it looks at (a share of the way to them, a height) and from how far away.
TURN, RISE, FOVY = np.deg2rad(38.0), np.deg2rad(27.0), 36.0
NEARER, ABOVE, AWAY = 0.62, 0.38, 2.7


def frame(worlds: Worlds, index: int) -> Frame | None:
    """What a film shows of world `index` now: the engine's own view for films, else its cameras in a row.

    None where there is neither.
    """
    views = [worlds.render(index, name) for name in worlds.suite.cameras]
    scene = worlds.scene_view(index)
    if scene is None:
        return in_a_row(views) if views else None
    return with_insets(scene, views)


def in_a_row(views: Sequence[Frame]) -> Frame:
    """All views side by side, cut to the height of the lowest."""
    height = min(view.shape[0] for view in views)
    return np.concatenate([view[:height] for view in views], axis=1)


def with_insets(scene: Frame, views: Sequence[Frame]) -> Frame:
    """The scene with the views in its lower left corner, a bright line around each."""
    film, left = scene.copy(), BORDER
    for view in views:
        small = shrunk(view, INSET)
        height, width = small.shape[:2]
        if left + width + BORDER > film.shape[1]:
            break
        bottom = film.shape[0] - BORDER
        film[bottom - height - BORDER : bottom + BORDER, left - BORDER : left + width + BORDER] = 235
        film[bottom - height : bottom, left : left + width] = small
        left += width + BORDER
    return film


def shrunk(view: Frame, height: int) -> Frame:
    """The view at a height [pixels] and a width in proportion: the nearest pixels."""
    width = max(1, round(view.shape[1] * height / view.shape[0]))
    rows = (np.arange(height) + 0.5) * view.shape[0] / height
    columns = (np.arange(width) + 0.5) * view.shape[1] / width
    return view[rows.astype(int)[:, None], columns.astype(int)]


def viewpoint(suite: Suite) -> Camera:
    """Where a film is taken from: across the table from the robot, a little to its left.

    Distances follow the objects' from the robot's base, so that a small arm fills the film like a large one.
    """
    middle = np.array(
        [np.mean([getattr(place, axis) for place in suite.placement.values()]) for axis in "xy"]
    )
    reach = max(float(np.hypot(*middle)), 0.2)
    heading = float(np.arctan2(middle[1], middle[0])) + TURN
    away = np.array([np.cos(heading) * np.cos(RISE), np.sin(heading) * np.cos(RISE), np.sin(RISE)])
    target = np.array([*(NEARER * middle), suite.table.height + ABOVE * reach])
    x, y, z = (float(value) for value in target + AWAY * reach * away)
    return Camera((x, y, z), (float(target[0]), float(target[1]), float(target[2])), FOVY, WIDTH, HEIGHT)
