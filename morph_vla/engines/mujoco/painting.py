"""An episode's own colours, and marks on its table: what of a model is painted, and how it is undone."""

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from morph_vla.engines.mujoco.scene import FLOOR, MARK, TABLE, MjData, MjModel
from morph_vla.suites.suite import InitialState
from morph_vla.suites.variation import Color, Mark, Paint

PLAIN = (0.5, 0.5, 0.5, 1.0)  # a geom's colour where only its material has one
ARRAYS = ("rgba", "matid", "pos", "quat", "size")  # of the model's geoms


class Painting:
    """The colours of a model that several worlds share, as an episode has them."""

    def __init__(self, model: MjModel, things: Iterable[str]):
        """`things`: the names of the bodies that are objects, each with a colour of its own."""
        self._model, objects = model, set(things)
        self._own = {name: getattr(model, f"geom_{name}").copy() for name in ARRAYS}
        self._colors = self._own["rgba"][:, :3].astype(float)
        of_material = (self._own["matid"] >= 0) & (self._own["rgba"] == PLAIN).all(axis=1)
        self._colors[of_material] = model.mat_rgba[self._own["matid"][of_material], :3]
        self._geoms: dict[str, list[int]] = {}
        for index in range(model.ngeom):
            geom, body = model.geom(index).name, model.body(int(model.geom_bodyid[index])).name
            owner = "robot"
            if body in objects:
                owner = body
            elif geom in (TABLE, FLOOR) or geom.startswith((MARK, "film/")):
                owner = geom
            self._geoms.setdefault(owner, []).append(index)

    def put_on(self, data: MjData, state: InitialState | None) -> None:
        """Paint everything as `state`'s episode has it, or as it was, for the world of `data`."""
        for name, values in self._own.items():
            getattr(self._model, f"geom_{name}")[:] = values
        if state is not None and state.paint is not None:
            self._paint(state.paint)
        for number, mark in enumerate(state.marks if state is not None else ()):
            self._lay(data, number, mark)

    def _paint(self, paint: Paint) -> None:
        named = {TABLE: paint.table, FLOOR: paint.floor, "robot": paint.robot, **paint.objects}
        for name, color in named.items():
            for index in self._geoms.get(name, ()):
                self._model.geom_rgba[index, :3] = self._mixed(index, color, paint.share)
                self._model.geom_matid[index] = -1

    def _mixed(self, index: int, color: Color, share: float) -> Float[np.ndarray, "3"]:
        return (1 - share) * self._colors[index] + share * np.asarray(color)

    def _lay(self, data: MjData, number: int, mark: Mark) -> None:
        """The model has a geom for each of the suite's marks; it cannot be seen until it is laid.

        Where it lies is written into the world as well: to compute its kinematics anew would move the arm on.
        """
        for index in self._geoms.get(f"{MARK}{number}", ()):
            self._model.geom_rgba[index] = [*mark.color, 1.0]
            self._model.geom_pos[index, :2] = mark.place
            self._model.geom_quat[index] = [math.cos(mark.yaw / 2), 0.0, 0.0, math.sin(mark.yaw / 2)]
            self._model.geom_size[index, :2] = np.asarray(mark.sides) / 2
            c, s = math.cos(mark.yaw), math.sin(mark.yaw)
            data.geom_xpos[index] = self._model.geom_pos[index]
            data.geom_xmat[index] = [c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 1.0]
