"""An episode's light and cameras in MuJoCo, where all worlds of an engine share one model.

Before a world is rendered its lights and cameras are written into the model, and their poses are computed
again from the world's own links. A world whose episode varies in nothing is rendered without this.
"""

from types import ModuleType

import numpy as np

from morph_vla.engines.mujoco.scene import MjData, MjModel
from morph_vla.robots.geometry import product, quaternion_about
from morph_vla.suites.suite import InitialState
from morph_vla.suites.variation import turned

COLORS = ("ambient", "diffuse", "specular")
ARRAYS = (*(f"light_{name}" for name in (*COLORS, "dir")), "cam_pos", "cam_quat")  # of the model


class Looks:
    """The lights and cameras of `model` as the suite has them, and as an episode has them."""

    def __init__(self, mj: ModuleType, model: MjModel):
        self._mj, self._model, self._changed = mj, model, False
        self._arrays = {name: getattr(model, name).copy() for name in ARRAYS}
        self._headlight = {name: np.array(getattr(model.vis.headlight, name)) for name in COLORS}

    def put_on(self, data: MjData, state: InitialState | None) -> None:
        """Make the model look as `state`'s episode does, for the world of `data`."""
        varies = state is not None and (state.light is not None or bool(state.cameras))
        if not varies and not self._changed:
            return
        for name, values in self._arrays.items():
            getattr(self._model, name)[:] = values
        for name, values in self._headlight.items():
            setattr(self._model.vis.headlight, name, values)
        if state is not None and varies:
            self._light(state)
            self._move(state)
        self._changed = varies
        self._mj.mj_camlight(self._model, data)

    def _light(self, state: InitialState) -> None:
        if state.light is None:
            return
        for name in COLORS:
            getattr(self._model, f"light_{name}")[:] *= np.asarray(state.light.color, np.float32)
            setattr(self._model.vis.headlight, name, self._headlight[name] * np.asarray(state.light.color))
        for index, (x, y, z) in enumerate(self._arrays["light_dir"]):
            self._model.light_dir[index] = turned((float(x), float(y), float(z)), state.light.turn)

    def _move(self, state: InitialState) -> None:
        for name, shift in state.cameras.items():
            index = self._model.camera(name).id
            self._model.cam_pos[index] += np.asarray(shift.move)
            w, x, y, z = (float(value) for value in self._arrays["cam_quat"][index])
            self._model.cam_quat[index] = product((w, x, y, z), quaternion_about(shift.turn))
