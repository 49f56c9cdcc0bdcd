"""One world of robosuite: an arm at a table, absolute joint targets, a settled start, a verdict that lasts.

Its own loop is left out because it is six times slower; its gripper command because it is a speed added to a
hidden state, another one for each hand; its verdict is one instant, in which a thrown cube is lifted. The law
of the arm is that of robosuite's joint-position controller, critically damped:

    torque = M(q) (kp (target - q) - 2 sqrt(kp) qvel) + bias(q, qvel),   clipped to what the motors can give

Positions are in the frame of the arm's base [m], joint values in rad.
"""

import dataclasses
import itertools
from types import ModuleType

import numpy as np
from jaxtyping import Float

from morph_vla.engines.engine import Diverged
from morph_vla.engines.episode import UNSETTLED
from morph_vla.engines.mujoco.scene import MjData, MjModel, mujoco
from morph_vla.engines.robosuite.theirs import PLACES, TASKS, environment, reset
from morph_vla.robots.geometry import Quaternion, quaternion_of
from morph_vla.suites.environment import ROBOSUITE_RATE

RATE, SUBSTEPS = ROBOSUITE_RATE, 25  # [Hz]; physics steps of 2 ms in a control step
KP = 150.0  # [1/s^2]; the most at which motors are hardly ever saturated
SLEW = 0.2  # of the gripper's range -1 .. 1 in a control step
SETTLE, SETTLE_OF = (
    10,
    {"Jaco": 40},
)  # control steps before an episode begins: objects fall 1 cm, fingers open
AT_REST, SPIN = 0.05, 0.5  # [m/s], [rad/s]: an object that is slower is at rest
ON_TOP = 0.02  # [m] between the centres of two cubes, seen from above
# Pad to pad [m]: open, and shut on air.
OPENINGS = {
    "Panda": (0.085, 0.008),
    "Sawyer": (0.070, 0.021),
    "IIWA": (0.129, 0.022),
    "Kinova3": (0.110, 0.015),
    "UR5e": (0.110, 0.015),
    "XArm7": (0.093, 0.008),
    "Jaco": (0.111, 0.003),  # from the finger to the middle of the other two
}
CUBE = np.stack(
    [
        matrix
        for order in itertools.permutations(np.eye(3))
        for signs in itertools.product((1.0, -1.0), repeat=3)
        if np.linalg.det(matrix := np.stack(order) * signs) > 0
    ]
)
"""The 24 rotations that a cube has [24 3 3]"""
ROUND = {"Can"}  # looks the same however it is turned about its axis, and upside down
PADS = {"XArm7": ("gripper0_right_left_finger_pad_1", "gripper0_right_right_finger_pad_1")}


@dataclasses.dataclass(frozen=True)
class Judged:
    """How the task stands at one instant."""

    instant: bool
    """robosuite's own rule."""
    success: bool
    """That, with the object at rest; of a stack and a can also released, and one cube above the other."""
    touched: bool
    """Whether a finger touches the object."""
    lifted: bool
    """Whether the object is 2 cm higher than it began."""
    distance: float
    """[m] from the hand to the object."""


class World:
    """One task with one arm. Raises MorphVlaError as `theirs.environment` does."""

    def __init__(self, task: str, arm: str):
        self.task, self.arm = task, arm
        self._env = environment(task, arm, seed=0)
        robot = self._env.robots[0]
        self._mj = mujoco()
        self.model: MjModel = self._env.sim.model._model
        self.data: MjData = self._env.sim.data._data
        self.joints = tuple(name.removeprefix("robot0_") for name in robot.robot_joints)
        self.rest = np.asarray(robot.init_qpos, np.float64)
        """[rad] Where episodes begin, but for noise"""
        self.site: int = robot.eef_site_id["right"]
        self.positions = np.asarray(robot._ref_joint_pos_indexes)
        self.velocities = np.asarray(robot._ref_joint_vel_indexes)
        self._motors = np.asarray(robot._ref_arm_joint_actuator_indexes)
        self._fingers = np.asarray(robot._ref_joint_gripper_actuator_indexes["right"])
        gripper = robot.gripper["right"]
        self._closing = np.sign(np.atleast_1d(gripper.format_action(np.ones(1))))
        pads = PADS.get(arm) or [
            gripper.important_geoms[f"{side}_fingerpad"][0] for side in ("left", "right")
        ]
        self._pads = [self.model.geom(name).id for name in pads]
        self._hand = {self.model.geom(name).id for name in gripper.contact_geoms}
        self.things = TASKS[task] + PLACES.get(task, ())
        """What has a pose: objects by their numbers, then places"""
        self._bodies = [self.model.body(f"{name}_main").id for name in TASKS[task]]
        self._quarter = self._env.target_bin_placements[self._env.object_id] if task in PLACES else None
        self._base = self.model.body("robot0_base").id
        self._inertia = np.zeros((self.model.nv, self.model.nv))
        self._grip, self._began = -1.0, 0.0

    @property
    def limits(self) -> tuple[Float[np.ndarray, "j"], Float[np.ndarray, "j"]]:
        """Lower and upper ends of the arm's joints [rad]; infinite where a joint turns without end."""
        ids = [self.model.joint(f"robot0_{name}").id for name in self.joints]
        limited = self.model.jnt_limited[ids].astype(bool)
        low, high = self.model.jnt_range[ids].T
        return np.where(limited, low, -np.inf), np.where(limited, high, np.inf)

    def reset(self, seed: int) -> None:
        """Begin where robosuite goes from `seed`, with an open gripper and all at rest.

        Raises Diverged where the physics diverges before all is at rest.
        """
        reset(self._env, seed)
        self._grip = -1.0
        start = self.q()
        for _ in range(SETTLE_OF.get(self.arm, SETTLE)):
            self._advance(start)
        if self._has_diverged():
            raise Diverged(UNSETTLED)
        self._began = float(self.position(0)[2])

    def step(self, action: Float[np.ndarray, "a"]) -> None:
        """One control step towards joint targets [rad] and, last, the gripper's: 0 open .. 1 shut.

        Raises Diverged where the physics does.
        """
        goal = 2 * float(np.clip(action[-1], 0, 1)) - 1
        self._grip += float(np.clip(goal - self._grip, -SLEW, SLEW))
        self._advance(np.asarray(action[:-1], np.float64))
        if self._has_diverged():
            raise Diverged("the physics diverged: a joint or object moves faster than 1000 per second")

    def _has_diverged(self) -> bool:
        return not np.isfinite(self.data.qpos).all() or not np.abs(self.data.qvel).max() <= 1e3

    def _advance(self, target: Float[np.ndarray, "j"]) -> None:
        mj, model, data, speeds = self._mj, self.model, self.data, self.velocities
        weakest, strongest = model.actuator_ctrlrange[self._motors].T
        low, high = model.actuator_ctrlrange[self._fingers].T
        fingers = (low + high) / 2 + (high - low) / 2 * self._closing * self._grip
        among_arm = np.ix_(speeds, speeds)
        for _ in range(SUBSTEPS):
            mj.mj_step1(model, data)
            _full_inertia(mj, model, data, self._inertia)
            pull = KP * (target - data.qpos[self.positions]) - 2 * np.sqrt(KP) * data.qvel[speeds]
            torque = self._inertia[among_arm] @ pull + data.qfrc_bias[speeds]
            data.ctrl[self._motors] = np.clip(torque, weakest, strongest)
            data.ctrl[self._fingers] = fingers
            mj.mj_step2(model, data)

    def q(self) -> Float[np.ndarray, "j"]:
        """Measured joint values [rad]."""
        return self.data.qpos[self.positions].copy()

    def gap(self) -> float:
        """[m] between the centres of the two finger pads."""
        left, right = (self.data.geom_xpos[pad] for pad in self._pads)
        return float(np.linalg.norm(left - right))

    def gripper(self) -> float:
        """Measured, 0 open .. 1 shut on air; one number for hands of any kind."""
        wide, shut = OPENINGS[self.arm]
        return (wide - self.gap()) / (wide - shut)

    def tool(self) -> tuple[str, Float[np.ndarray, "4 4"]]:
        """The body that carries the grasp point, and in its frame the point: z ahead, y from pad to pad."""
        body, turned = int(self.model.site_bodyid[self.site]), self.data.site_xmat[self.site].reshape(3, 3)
        left, right = (self.data.geom_xpos[pad] for pad in self._pads)
        z = turned[:, 2]
        y = left - right - z * (z @ (left - right))
        y = y / np.linalg.norm(y)
        pose, world_from_body = np.eye(4), self.data.xmat[body].reshape(3, 3)
        pose[:3, :3] = world_from_body.T @ np.stack([np.cross(y, z), y, z], axis=1)
        pose[:3, 3] = world_from_body.T @ (self.data.site_xpos[self.site] - self.data.xpos[body])
        return self.model.body(body).name, pose

    def closing_axis(self) -> Float[np.ndarray, "3"]:
        """The direction from pad to pad, in the base frame."""
        left, right = (self.data.geom_xpos[pad] for pad in self._pads)
        axis = self._turned(left - right)
        return axis / np.linalg.norm(axis)

    def hand(self, data: MjData | None = None) -> tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3 3"]]:
        """Position and axes (columns) of the grasp point, of this world's state or of another one."""
        state = self.data if data is None else data
        rotation = self._turned(state.site_xmat[self.site].reshape(3, 3))
        return self._turned(state.site_xpos[self.site] - state.xpos[self._base]), rotation

    def jacobian(self, data: MjData) -> Float[np.ndarray, "6 j"]:
        """Of `hand`, by the arm's joints: position [m], then orientation [rad], per rad."""
        rows = np.zeros((2, 3, self.model.nv))
        self._mj.mj_jacSite(self.model, data, rows[0], rows[1], self.site)
        return np.concatenate([self._turned(part[:, self.velocities]) for part in rows])

    def position(self, index: int) -> Float[np.ndarray, "3"]:
        """Of that one of `things`; of a quarter of a bin its middle, on the floor."""
        there = self._quarter if self._is_place(index) else self.data.xpos[self._bodies[index]]
        return self._turned(there - self.data.xpos[self._base])

    def yaw(self, index: int) -> float:
        """Turn of a cube's nearest horizontal face about the vertical [rad], to a quarter turn; or 0."""
        if self._is_place(index) or self.things[index] in ROUND:
            return 0.0
        axes = self._turned(self.data.xmat[self._bodies[index]].reshape(3, 3))
        level = axes[:, int(np.argmin(np.abs(axes[2])))]
        return float(np.arctan2(level[1], level[0]))

    def quaternion(self, index: int) -> Quaternion:
        """(w, x, y, z): of the orientations in which it looks the same the one that turns the least."""
        if self._is_place(index):
            return 1.0, 0.0, 0.0, 0.0
        axes = self._turned(self.data.xmat[self._bodies[index]].reshape(3, 3))
        return upright(axes[:, 2]) if self.things[index] in ROUND else quaternion_of(least_turned(axes))

    def _is_place(self, index: int) -> bool:
        return index >= len(self._bodies)

    def _turned(self, vector: Float[np.ndarray, "3 *n"]) -> Float[np.ndarray, "3 *n"]:
        """From the world's axes to the base's."""
        return self.data.xmat[self._base].reshape(3, 3).T @ vector

    def judged(self) -> Judged:
        """How the task stands now."""
        velocity = np.zeros(6)
        self._mj.mj_objectVelocity(
            self.model, self.data, self._mj.mjtObj.mjOBJ_BODY, self._bodies[0], velocity, 0
        )
        resting = np.linalg.norm(velocity[3:]) < AT_REST and np.linalg.norm(velocity[:3]) < SPIN
        instant, touched = bool(self._env._check_success()), self._touched()
        success = instant and bool(resting)
        if self.task == "Stack":
            apart = float(np.linalg.norm((self.position(0) - self.position(1))[:2]))
            success = success and not touched and apart < ON_TOP
        if self.task == "PickPlaceCan":
            success = success and not touched
        place = self.position(0)
        distance = float(np.linalg.norm(self.hand()[0] - place))
        return Judged(instant, success, touched, bool(place[2] > self._began + 0.02), distance)

    def _touched(self) -> bool:
        """Whether the hand touches the first object."""
        pairs = self.data.contact.geom[: self.data.ncon]
        bodies = self.model.geom_bodyid[pairs]
        others = pairs[:, ::-1][bodies == self._bodies[0]]
        return not self._hand.isdisjoint(int(geom) for geom in others)

    def close(self) -> None:
        """Give memory back."""
        self._env.close()


def least_turned(axes: Float[np.ndarray, "3 3"]) -> Float[np.ndarray, "3 3"]:
    """Of the orientations in which a cube with these axes (columns) looks the same, the least turned."""
    alike = axes @ CUBE
    return alike[np.argmax(np.trace(alike, axis1=1, axis2=2))]


def upright(axis: Float[np.ndarray, "3"]) -> Quaternion:
    """The least turn (w, x, y, z) that takes the vertical to a line along `axis`, whichever end is up."""
    x, y, z = axis if axis[2] >= 0 else -axis
    whole = float(np.sqrt(2 + 2 * z))  # of (1 + z, -y, x, 0)
    return (1 + float(z)) / whole, -float(y) / whole, float(x) / whole, 0.0


def _full_inertia(mj: ModuleType, model: MjModel, data: MjData, matrix: Float[np.ndarray, "v v"]) -> None:
    """Write M(q) into `matrix`; the arguments changed in MuJoCo 3.12."""
    if hasattr(data, "qM"):
        mj.mj_fullM(model, matrix, data.qM)
    else:
        mj.mj_fullM(model, data, matrix)
