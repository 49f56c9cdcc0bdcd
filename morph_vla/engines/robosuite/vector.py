"""A world of robosuite as a vector environment of one episode, so that `gymnasium.stage` plays it.

An action is the joints' targets [rad], then the gripper's: 0 open .. 1 shut. What is observed, by key:

| key                        | shape     | what                                                            |
| -------------------------- | --------- | --------------------------------------------------------------- |
| `joints`                   | [joints]  | measured [rad]                                                  |
| `gripper`                  | [1]       | measured, 0 open .. 1 shut on air                               |
| `hand`                     | [3]       | the grasp point [m]; this and cubes in the frame of the base    |
| `cube`, `cubeA`, `cubeB`,  | [5]       | its centre [m]; cosine and sine of four times its yaw, of a can |
| `Can`, `quarter`           |           | and the quarter of the bin where it belongs that of 0           |
| `cube_pose`, ...           | [7]       | its centre [m] and quaternion (w, x, y, z), that of the equal   |
|                            |           | orientations (a cube has 24) which is the nearest to the base's |
| `agentview`, `eye_in_hand` | image     | robosuite's cameras, rendered when they are looked at           |
| `near`                     | image     | a camera of ours, so near that a cube is 10 of 96 pixels        |

and in `info`: the fields of `world.Judged`.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from morph_vla.engines.engine import Frame
from morph_vla.engines.mujoco.rendering import open_renderer
from morph_vla.engines.mujoco.scene import Renderer, mujoco
from morph_vla.engines.robosuite.world import RATE, World
from morph_vla.errors import MorphVlaError, nearest

VIEWS = {"agentview": "agentview", "eye_in_hand": "robot0_eye_in_hand", "near": None}
FILM = (288, 384)  # [pixels]
AZIMUTH, ELEVATION = 140.0, -35.0  # of our camera [deg]


class Look(NamedTuple):
    """Our camera."""

    at: tuple[float, float, float]
    """[m], in robosuite's world"""
    away: float
    """[m]"""
    film_away: float
    """[m] for films"""


TABLE, BINS = Look((-0.05, 0.0, 0.88), 0.45, 0.9), Look((0.05, 0.0, 0.92), 1.0, 1.5)


@dataclasses.dataclass(frozen=True)
class Scene:
    """What a suite's `kwargs` may say of robosuite's tasks."""

    arm: str = "Panda"
    size: int = 96
    """Height and width of the policy's images [pixels]."""

    @classmethod
    def of(cls, kwargs: Mapping[str, object]) -> "Scene":
        """The scene of a suite. Raises MorphVlaError for an unknown key and for a value of another type."""
        known = ("arm", "size")
        if unknown := [key for key in kwargs if key not in known]:
            raise MorphVlaError(f"kwargs.{unknown[0]}: no such key{nearest(unknown[0], known)}")
        arm, size = kwargs.get("arm", cls.arm), kwargs.get("size", cls.size)
        if not isinstance(arm, str):
            raise MorphVlaError(f"kwargs.arm: expected a name, got {arm!r}")
        if not isinstance(size, int) or size < 1:
            raise MorphVlaError(f"kwargs.size: expected a number of pixels, got {size!r}")
        return cls(arm, size)


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The ends of an action's values."""

    low: Float[np.ndarray, "a"]
    high: Float[np.ndarray, "a"]
    dtype: type = np.float64

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an action."""
        return self.low.shape


class ArmAtTable:
    """One episode at a time; see `gymnasium.making.VectorEnv`. Raises as `theirs.environment` does."""

    num_envs: int = 1
    render_mode: str | None = "rgb_array"
    metadata: Mapping[str, object] = {"render_fps": RATE}

    def __init__(self, task: str, scene: Scene):
        self.world, self._scene = World(task, scene.arm), scene
        low, high = self.world.limits
        self.single_action_space: object = Bounds(np.append(low, 0.0), np.append(high, 1.0))
        self._look = BINS if task == "PickPlaceCan" else TABLE
        self._mj: ModuleType = mujoco()
        self._renderers: dict[tuple[int, int], Renderer] = {}

    def reset(self, *, seed: list[int]) -> tuple[object, Mapping[str, object]]:
        """Begin where robosuite goes from the seed; what is seen there."""
        self.world.reset(seed[0])
        return self._seen(), {}

    def step(self, actions: np.ndarray) -> tuple[object, object, object, object, Mapping[str, object]]:
        """One control step; the reward is 1 where robosuite's own rule holds."""
        self.world.step(actions[0])
        judged = self.world.judged()
        info = {key: np.asarray([value]) for key, value in dataclasses.asdict(judged).items()}
        never = np.zeros(1, bool)
        return self._seen(), np.asarray([float(judged.instant)]), never, never, info

    def _seen(self) -> dict[str, np.ndarray]:
        world = self.world
        seen = {"joints": world.q(), "gripper": np.asarray([world.gripper()]), "hand": world.hand()[0]}
        for index, name in enumerate(world.things):
            turn = 4 * world.yaw(index)
            seen[name] = np.append(world.position(index), [np.cos(turn), np.sin(turn)])
            seen[f"{name}_pose"] = np.append(world.position(index), world.quaternion(index))
        return {key: value[None] for key, value in seen.items()}

    def view(self, name: str) -> Frame:
        """The frame of one of `VIEWS`, as a policy sees it."""
        camera = VIEWS[name] or self._free(self._look.away)
        return self._render(camera, self._scene.size, self._scene.size)

    def render(self) -> Sequence[object]:
        """The scene for a film."""
        return [self._render(self._free(self._look.film_away), *FILM)]

    def _render(self, camera: object, height: int, width: int) -> Frame:
        mj, model = self._mj, self.world.model
        if (height, width) not in self._renderers:
            model.vis.quality.offsamples, room = 0, model.vis.global_
            room.offheight, room.offwidth = max(room.offheight, height), max(room.offwidth, width)
            self._renderers[height, width] = renderer = open_renderer(model, height, width)
            renderer.scene.flags[mj.mjtRndFlag.mjRND_REFLECTION] = 0
        renderer, shown = self._renderers[height, width], mj.MjvOption()
        shown.geomgroup[:] = 0
        shown.geomgroup[1] = 1  # what is seen; 0 is what collides
        renderer.update_scene(self.world.data, camera, shown)
        return renderer.render().copy()

    def _free(self, away: float) -> object:
        """A camera of ours, so far from what it looks at [m]."""
        camera = self._mj.MjvCamera()
        camera.lookat[:] = self._look.at
        camera.distance, camera.azimuth, camera.elevation = away, AZIMUTH, ELEVATION
        return camera

    def get_attr(self, name: str) -> object:
        """The attribute's value."""
        return (getattr(self, name),)

    def set_attr(self, name: str, values: list[int]) -> None:
        """Set the attribute."""
        setattr(self, name, values[0])

    def close(self) -> None:
        """Give renderers and memory back."""
        for renderer in self._renderers.values():
            renderer.close()
        self._renderers = {}
        self.world.close()
