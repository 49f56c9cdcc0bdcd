"""What is rendered of MuJoCo's worlds: an episode's own light, cameras, colours; and the view for films."""

import atexit
import weakref
from collections.abc import Iterable
from types import ModuleType

import numpy as np
from jaxtyping import Float

from morph_vla.engines import films
from morph_vla.engines.engine import Frame
from morph_vla.engines.mujoco.painting import Painting
from morph_vla.engines.mujoco.scene import (
    FLOOR,
    MjData,
    MjModel,
    MjSpec,
    Renderer,
    build_spec,
    compiled,
    look_at,
    mujoco,
    no_renderer,
)
from morph_vla.errors import MorphVlaError
from morph_vla.robots import Robot
from morph_vla.robots.geometry import product, quaternion_about
from morph_vla.suites.suite import Camera, InitialState, Suite
from morph_vla.suites.variation import turned

COLORS = ("ambient", "diffuse", "specular")
ARRAYS = (*(f"light_{name}" for name in (*COLORS, "dir")), "cam_pos", "cam_quat")  # of the model
CAMERA = "film/view"  # no camera of a suite has such a name
WALL, GROUND = (0.93, 0.94, 0.95), (0.55, 0.56, 0.57)  # colours of the room, before it is lit


def open_renderer(model: MjModel, height: int, width: int) -> Renderer:
    """A renderer without shadows, off screen. Raises MorphVlaError, with the remedy, where EGL is missing."""
    mj = mujoco()
    try:
        renderer = mj.Renderer(model, height, width)
    except (mj.FatalError, RuntimeError, AttributeError, ImportError, OSError) as error:
        raise MorphVlaError(f"{no_renderer()} ({error})") from error
    renderer.scene.flags[mj.mjtRndFlag.mjRND_SHADOW] = 0
    # Registered after EGL's own, so it runs before it: a renderer outliving EGL prints a traceback.
    atexit.register(_close, weakref.ref(renderer))
    return renderer


def _close(renderer: weakref.ref) -> None:
    if (alive := renderer()) is not None:
        alive.close()


class Looks:
    """Lights, cameras and colours of `model`, which all worlds of an engine share, as an episode has them.

    Before a world is rendered they are written into the model, and their poses are computed again from the
    world's own links. A world whose episode varies in nothing is rendered without this.
    """

    def __init__(self, mj: ModuleType, model: MjModel, things: Iterable[str]):
        self._mj, self._model, self._changed = mj, model, False
        self._painting = Painting(model, things)
        self._arrays = {name: getattr(model, name).copy() for name in ARRAYS}
        self._headlight = {name: np.array(getattr(model.vis.headlight, name)) for name in COLORS}

    def put_on(self, data: MjData, state: InitialState | None) -> None:
        """Make the model look as `state`'s episode does, for the world of `data`."""
        varies = state is not None and any((state.light, state.cameras, state.paint, state.marks))
        if not varies and not self._changed:
            return
        for name, values in self._arrays.items():
            getattr(self._model, name)[:] = values
        for name, values in self._headlight.items():
            setattr(self._model.vis.headlight, name, values)
        self._painting.put_on(data, state)
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
            index = self._mj.mj_name2id(self._model, self._mj.mjtObj.mjOBJ_CAMERA, name)
            if index < 0:  # the policy looks through others of the suite's
                continue
            self._model.cam_pos[index] += np.asarray(shift.move)
            w, x, y, z = (float(value) for value in self._arrays["cam_quat"][index])
            self._model.cam_quat[index] = product((w, x, y, z), quaternion_about(shift.turn))


class SceneView:
    """A suite's scene as a person would like to see it: a wide view, smooth edges, a bright room.

    It is drawn from a model of its own, which a world's joint and object coordinates are copied into, so that
    nothing of it reaches the physics or the frames that a policy sees. An episode's own light is not shown.
    """

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
        self._model = compiled(spec, robot)
        self._data = mj.MjData(self._model)
        self._painting = Painting(self._model, suite.objects)
        self._renderer = open_renderer(self._model, camera.height, camera.width)
        self.close = self._renderer.close

    def of(self, coordinates: Float[np.ndarray, "q"], state: InitialState | None) -> Frame:
        """The scene with a world's coordinates [q] in an episode that began so, RGB."""
        self._data.qpos[:] = coordinates
        self._painting.put_on(self._data, state)
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
    if spec.geom(FLOOR):  # one that is painted as the episode's is
        return
    spec.worldbody.add_geom(
        name="film/floor", size=[9.0, 9.0, 0.01], pos=[*target[:2], table - 0.9], rgba=[*GROUND, 1.0], **box
    )
