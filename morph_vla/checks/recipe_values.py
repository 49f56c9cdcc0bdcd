"""What recorded values say against the robot and the kind of actions that a recipe names."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.checks import playback, playback_rules
from morph_vla.checks.rules import problem
from morph_vla.data import presets
from morph_vla.data.actions import Kind
from morph_vla.data.layout import Rows
from morph_vla.data.stats import MIN_SPAN
from morph_vla.findings import Feature, Finding, Severity, Source
from morph_vla.robots.robot import Robot
from morph_vla.training.statistics import Degenerate

PLAYED = 5  # episodes of a dataset that are played on the robot
NEARER = 0.25  # recorded actions this much nearer to the state's steps than to the state are differences
MOVES = 1e-6
TURN = np.radians(30)  # more than an arm turns about its foot between two frames


@dataclass(frozen=True, eq=False)
class Recorded:
    """A dataset's values, and the robot in whose order and units they are."""

    robot: Robot
    where: str
    """The dataset"""
    names: Mapping[str, Sequence[str]]
    """The dataset's names of the values of `action` and `observation.state`"""
    action: Float[np.ndarray, "n a"]
    state: Float[np.ndarray, "n s"]
    rows: Rows
    fps: float
    recorded_on: str = ""
    """The robot that the dataset says it is of"""

    @property
    def features(self) -> dict[str, Float[np.ndarray, "n d"]]:
        """The values by the names that `names` has for them."""
        return {"action": self.action, "observation.state": self.state}


def played(recorded: Recorded, kind: Kind) -> Iterator[Finding]:
    """Some episodes on the robot's joints: names, order, units, signs, limits, grippers, rate.

    What is said of several episodes is said once, with the first of them.
    """
    robot, rows, fps = recorded.robot, recorded.rows, recorded.fps
    indices = np.unique(rows.episode)
    chosen = indices[np.linspace(0, len(indices) - 1, min(PLAYED, len(indices))).round().astype(int)]
    episodes_of: dict[tuple[object, ...], tuple[Finding, list[int]]] = {}
    for index in chosen.tolist():
        inside = rows.episode == index
        pieces, findings = [], []
        for feature, values in recorded.features.items():
            names = recorded.names[feature]
            piece, on_names = playback.play(robot, feature, values[inside], names, fps, recorded.recorded_on)
            pieces += [piece] if piece is not None else []
            findings += on_names
        findings += playback_rules.judge(robot, pieces, fps, None)
        for finding in playback.merged(findings):
            episodes_of.setdefault(finding.identity, (finding, []))[1].append(index)
    other_width = recorded.action.shape[1] != len(robot.joints)  # the caller says so, as an error
    for finding, episodes in episodes_of.values():
        if finding.code == "not-finite":  # it is said of the whole dataset
            continue
        several = f" (in {len(episodes)} of {len(chosen)} episodes played)" if len(chosen) > 1 else ""
        feature = f"{finding.where}: " if finding.where != Feature() else ""
        found = f"{feature}{finding.found}, {finding.expected}{several if finding.subject else ''}"
        place = Source(recorded.where, episodes[0] if finding.subject else None)
        about_width = other_width and finding.code in ("values-left-over", "wrong-width")
        severity = "note" if about_width else _severity(finding, kind)
        subject = (str(finding.where), *finding.subject)
        yield Finding(finding.code, severity, place, subject, found, "", finding.consequence)


def _severity(finding: Finding, kind: Kind) -> Severity:
    """As it is, where training agrees: it goes by place, and needs no state that is like an action."""
    if finding.code == "names-in-another-order":
        return "error"
    of_state = finding.where == Feature("observation.state")
    return "note" if finding.severity == "error" and of_state and kind == "absolute" else finding.severity


@dataclass(frozen=True, eq=False)
class _Motion:
    """Of every row but an episode's last: the state, its change to the next row, and the recorded action."""

    now: Float[np.ndarray, "n a"]
    change: Float[np.ndarray, "n a"]
    action: Float[np.ndarray, "n a"]
    moving: Bool[np.ndarray, "a"]
    """Which joints of the arm move, and are not where the action says"""

    def most(self, nearer: Float[np.ndarray, "n a"], farther: Float[np.ndarray, "n a"]) -> bool:
        """Whether of the moving joints more than half are four times as near to the one as to the other."""
        near, far = (np.median(np.abs(self.action - values), axis=0) for values in (nearer, farther))
        return bool(self.moving.any() and (near < NEARER * far)[self.moving].mean() > 0.5)


def _motion(recorded: Recorded) -> _Motion | None:
    """None where states are not like actions, or nothing can be said."""
    action, state, joints = recorded.action, recorded.state, recorded.robot.joints
    if action.shape != state.shape or action.shape[1] != len(joints) or len(action) < 3:
        return None
    arm = np.array([not joint.is_gripper for joint in joints])
    finite = np.asarray(np.isfinite(np.concatenate([action, state], axis=1)).all(axis=1))
    inside = (np.diff(recorded.rows.episode) == 0) & finite[:-1] & finite[1:]
    if not inside.any() or not arm.any():
        return None
    now, change, target = state[:-1][inside], np.diff(state, axis=0)[inside], action[:-1][inside]
    moving = arm & (np.ptp(now, axis=0) > MOVES) & (np.median(np.abs(target - now), axis=0) > MOVES)
    return _Motion(now, change, target, moving)


def kinds(recorded: Recorded, kind: Kind) -> Iterator[Finding]:
    """Actions that look like differences or velocities where absolute targets are expected.

    Rule: of the joints that move, those whose actions lie four times nearer to the state's own steps (or
    steps times the rate, or DROID's velocities) than to the state; more than half of them decide.
    """
    motion = _motion(recorded)
    if motion is None:
        return
    velocities = presets.PRESETS["droid_velocity"]
    readings: dict[str, float | Float[np.ndarray, "a"]] = {
        "differences from the state": 1.0,
        "velocities": recorded.fps,
        f"DROID's velocities (preset: droid_velocity, {velocities.step:g} rad a step)": 1
        / presets.sizes(recorded.robot, velocities.step),
    }
    errors = {
        called: float(np.abs(motion.action - scale * motion.change)[:, motion.moving].sum())
        for called, scale in readings.items()
        if motion.most(scale * motion.change, motion.now)
    }
    if errors:
        nearest = min(errors, key=errors.__getitem__)
        found = f"the recorded actions look like {nearest}, and {kind} ones are learnt from absolute targets"
        severity = "warning" if kind == "absolute" else None
        yield problem("not-absolute", recorded.where, found, severity=severity)


def positions(recorded: Recorded, step: float) -> Iterator[Finding]:
    """Actions that look like positions where steps of `step` rad are expected; `action` is as recorded.

    Rule: as in `kinds`, with the state in the place of its steps.
    """
    motion = _motion(recorded)
    if motion is not None and motion.most(motion.now, motion.change / presets.sizes(recorded.robot, step)):
        found = f"the recorded actions look like joint positions, not like steps of {step:g} rad"
        yield problem("not-steps", recorded.where, found)


def still(recorded: Recorded, degenerate: Degenerate) -> Iterator[Finding]:
    """Values that hardly move over the whole dataset: widened before they are normalised, or refused."""
    robot, refused = recorded.robot, degenerate == "refuse"
    for feature, values in recorded.features.items():
        finite = values[np.isfinite(values).all(axis=1)]
        if not len(finite):
            continue
        low, high = np.quantile(finite, [0.01, 0.99], axis=0)
        narrow: list[int] = np.flatnonzero(high - low < MIN_SPAN).tolist()
        if narrow:
            known: Sequence[str] = recorded.names[feature]
            if not known and len(robot.names) == values.shape[1]:
                known = robot.names
            names = [known[d] if known else f"value {d}" for d in narrow]
            found = f"{feature}: {playback.some(names)} hardly move{'s' if len(names) == 1 else ''}"
            remedy = f"q99 - q01 is below {MIN_SPAN:g}"
            wide = " and is widened to that (data.degenerate)"
            remedy += ", and data.degenerate is refuse; widen would train" if refused else wide
            severity = "error" if refused else None
            yield problem(
                "narrow", recorded.where, found, subject=(feature,), remedy=remedy, severity=severity
            )


def turning(where: str, turn: Float[np.ndarray, "n"], episode: Int[np.ndarray, "n"]) -> Iterator[Finding]:
    """A frame of `data.space: hand` whose heading [rad] jumps, as the mean of tools near the root's axis."""
    steps = np.abs((np.diff(turn) + np.pi) % (2 * np.pi) - np.pi)[np.diff(episode) == 0]
    if steps.size and (steps > TURN).any():
        found = (
            f"in data.space hand the frame turns by up to {np.degrees(steps.max()):.0f} degrees between two "
            f"frames ({int((steps > TURN).sum())} of {steps.size} steps)"
        )
        yield problem("frame-turns", where, found)
