"""How far a row of a demonstration lies before the next grasp or release: by the gripper's commands alone.

28% of the demo's rows come before a grasp, 13% eight steps or more, and only those say how to find an
object from afar: later the arm's pose tells where it is going. A recipe that draws the far ones more often
(`phases`) learns to see in fewer steps (docs/method.md).
"""

import dataclasses

import numpy as np
from jaxtyping import Float, Int

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.robots.robot import Robot

SHUT = 0.5  # commands above are shut: share of a gripper's range
NONE, GRASP, RELEASE = 0, 1, 2


@dataclasses.dataclass(frozen=True)
class Shares:
    """Shares of the drawn rows that lie before a grasp, and before a release; 0 leaves them as recorded."""

    grasp: float = 0.0
    release: float = 0.0

    def check(self, where: str) -> None:
        """Raise ConfigError for shares below 0, or that leave nothing for all other rows."""
        if not (self.grasp >= 0 and self.release >= 0 and self.grasp + self.release < 1):  # also no NaN
            given = f"grasp {self.grasp:g} and release {self.release:g}"
            raise ConfigError(f"{where}: {given} must be shares whose sum is below 1")


AS_RECORDED = Shares()


@dataclasses.dataclass(frozen=True)
class Ahead:
    """Of every row, what the next change of a gripper's command is, and in how many rows."""

    kind: Int[np.ndarray, "n"]  # NONE, GRASP or RELEASE
    steps: Int[np.ndarray, "n"]  # 0 where nothing changes any more


def closing(robot: Robot, commands: Float[np.ndarray, "n j"]) -> Float[np.ndarray, "n g"]:
    """How far each gripper is commanded to close, 0 open to 1 closed; `commands` are in dataset units.

    Raises MorphVlaError for a robot without a gripper.
    """
    columns = [
        (column - joint.opened) / (joint.closed - joint.opened)
        for column, joint in zip(robot.to_native(commands).T, robot.joints, strict=True)
        if joint.opened is not None and joint.closed is not None
    ]
    if not columns:
        raise MorphVlaError(f"robot '{robot.name}' has no gripper, so that no row lies before a grasp")
    return np.stack(columns, axis=1)


def ahead(closed: Float[np.ndarray, "n g"], last: Int[np.ndarray, "n"]) -> Ahead:
    """The next change of each row within its episode, whose last row is `last`; the nearest of all grippers'.

    closed    0 0 1 1 0 0 1 1    one episode, one gripper
    kind      g g r r g g . .    g before a grasp, r before a release
    steps     2 1 2 1 2 1 . .
    """
    count = len(closed)
    rows, kind, steps = np.arange(count), np.full(count, NONE), np.zeros(count, int)
    for shut in (closed > SHUT).T:
        changes = np.append(shut[1:] != shut[:-1], False)  # row i + 1 has another command than row i
        # The first row with another command at or after each row; past the end where there is none.
        others = np.minimum.accumulate(np.where(changes, rows + 1, count)[::-1])[::-1]
        to_go = np.where(others <= last, others - rows, 0)
        nearer = (to_go > 0) & ((steps == 0) | (to_go < steps))
        kind = np.where(nearer, np.where(shut, RELEASE, GRASP), kind)
        steps = np.where(nearer, to_go, steps)
    return Ahead(kind, steps)


def of_robot(robot: Robot, commands: Float[np.ndarray, "n j"], last: Int[np.ndarray, "n"]) -> Ahead:
    """`ahead` of a dataset's actions, in the robot's dataset units; raises as `closing`."""
    return ahead(closing(robot, commands), last)


def drawn(rows: Int[np.ndarray, "_"], ahead: Ahead, shares: Shares) -> Int[np.ndarray, "_"]:
    """The rows of one pass: those before a grasp and a release make their `shares`, all others come once.

    Rows of a phase with a share are drawn in proportion to their steps to go: from afar the arm's pose tells
    least. `ahead` is of all rows.

    Raises MorphVlaError where a phase has a share and no row, or where no other row is left.
    """
    kind, steps, others, drawn = ahead.kind[rows], ahead.steps[rows], np.full(len(rows), True), []
    for name, phase, share in (("grasp", GRASP, shares.grasp), ("release", RELEASE, shares.release)):
        if share > 0:
            if not (kind == phase).any():
                raise MorphVlaError(f"no row lies before a {name}")
            others &= kind != phase
            drawn.append((kind == phase, share))
    if not others.any():
        raise MorphVlaError("no row lies outside the phases that have a share")
    parts = [rows[others]]
    for before, share in drawn:
        count = max(1, round(others.sum() * share / (1 - shares.grasp - shares.release)))
        ends = np.cumsum(steps[before]) / steps[before].sum()
        parts.append(rows[before][np.searchsorted(ends, (np.arange(count) + 0.5) / count)])
    return np.concatenate(parts)
