"""A suite's scene as a person would like to see it: a wide view, smooth edges, round shapes, a bright room.

It is drawn from a model of its own, which a world's joint and object coordinates are copied into, so that
nothing of it reaches the physics or the frames that a policy sees. An episode's own light is not shown.
"""

from types import ModuleType

import numpy as np
from jaxtyping import Float

from morph_vla.engines import films
from morph_vla.engines.engine import Frame
from morph_vla.engines.mujoco.scene import MjSpec, build_spec, look_at, mujoco, open_renderer
from morph_vla.robots import Robot
from morph_vla.suites.suite import Camera, Suite

CAMERA = "film"
WALL, FLOOR = (0.93, 0.94, 0.95), (0.55, 0.56, 0.57)  # colours of the room, before it is lit


class SceneView:
    """The renderer of one suite's films."""

    def __init__(self, robot: Robot, suite: Suite):
        mj = self._mj = mujoco()
        spec = build_spec(robot, suite)
        camera = films.viewpoint(suite)
        quaternion = look_at(camera.position, camera.look_at)
        spec.worldbody.add_camera(name=CAMERA, pos=list(camera.position), quat=quaternion, fovy=camera.fovy)
        _add_room(mj, spec, camera, suite.table.height)
        spec.visual.quality.offsamples = 4
        spec.visual.quality.numslices, spec.visual.quality.numstacks = 24, 12
        spec.visual.global_.offwidth = max(spec.visual.global_.offwidth, camera.width)
        spec.visual.global_.offheight = max(spec.visual.global_.offheight, camera.height)
        self._model = spec.compile()
        self._data = mj.MjData(self._model)
        self._renderer = open_renderer(self._model, camera.height, camera.width)
        self.close = self._renderer.close

    def of(self, coordinates: Float[np.ndarray, "q"]) -> Frame:
        """The scene with a world's coordinates [q], RGB."""
        self._data.qpos[:] = coordinates
        self._mj.mj_kinematics(self._model, self._data)
        self._mj.mj_comPos(self._model, self._data)
        self._mj.mj_camlight(self._model, self._data)
        self._renderer.update_scene(self._data, CAMERA)
        return self._renderer.render().copy()


def _add_room(mj: ModuleType, spec: MjSpec, camera: Camera, table: float) -> None:
    """A wall behind the robot and a floor under the table: without them the film's background is black.

    Nothing collides with them: this model's physics is never stepped.
    """
    eye, target = np.asarray(camera.position), np.asarray(camera.look_at)
    ahead = target[:2] - eye[:2]
    heading = float(np.arctan2(ahead[1], ahead[0]))
    back = target[:2] + 3.5 * ahead / np.linalg.norm(ahead)
    turned = [np.cos(heading / 2), 0.0, 0.0, np.sin(heading / 2)]
    # A bit that nothing else has: what has none at all is left out of a model made of a URDF.
    box = {"type": mj.mjtGeom.mjGEOM_BOX, "contype": 4, "conaffinity": 0}
    spec.worldbody.add_geom(
        name="film/wall", size=[0.01, 9.0, 5.0], pos=[*back, table], quat=turned, rgba=[*WALL, 1.0], **box
    )
    spec.worldbody.add_geom(
        name="film/floor", size=[9.0, 9.0, 0.01], pos=[*target[:2], table - 0.9], rgba=[*FLOOR, 1.0], **box
    )
