"""What recorded values say against the robot and the kind of actions that a recipe names."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Float

from morph_vla.checks import playback, playback_rules
from morph_vla.checks.dataset import Problem, Severity
from morph_vla.data.actions import Kind
from morph_vla.data.layout import Rows
from morph_vla.data.stats import MIN_SPAN
from morph_vla.robots.robot import Robot
from morph_vla.training.statistics import Degenerate

PLAYED = 5  # episodes of a dataset that are played on the robot
NEARER = 0.25  # recorded actions this much nearer to the state's steps than to the state are differences
MOVES = 1e-6


def played(
    robot: Robot,
    where: str,
    names: Mapping[str, Sequence[str]],
    action: Float[np.ndarray, "n a"],
    state: Float[np.ndarray, "n s"],
    rows: Rows,
    fps: float,
    kind: Kind,
) -> Iterator[Problem]:
    """Some episodes on the robot's joints: names, order, units, signs, limits, grippers, rate.

    What is said of several episodes is said once, with the first of them.
    """
    indices = np.unique(rows.episode)
    chosen = indices[np.linspace(0, len(indices) - 1, min(PLAYED, len(indices))).round().astype(int)]
    said: dict[tuple[object, ...], tuple[playback.Remark, list[int]]] = {}
    for index in chosen.tolist():
        here = rows.episode == index
        pieces, remarks = [], []
        for feature, values in (("action", action), ("observation.state", state)):
            one, more = playback.play(robot, feature, values[here], names[feature], fps)
            pieces += [one] if one is not None else []
            remarks += more
        remarks += playback_rules.judge(robot, pieces, fps, None)
        for remark in playback.merged(remarks):
            told = remark.severity, remark.feature, remark.joints, remark.expected, remark.short
            said.setdefault(told, (remark, []))[1].append(index)
    for remark, episodes in said.values():
        if remark.short == "not finite":  # it is said of the whole dataset
            continue
        several = f" (in {len(episodes)} of {len(chosen)} episodes played)" if len(chosen) > 1 else ""
        feature = f"{remark.feature}: " if remark.feature else ""
        text = f"{feature}{remark.found}, {remark.expected}{several if remark.joints else ''}"
        place = episodes[0] if remark.joints else None
        width_told = action.shape[1] != len(robot.joints) and " values for " in remark.found
        severity = "note" if width_told else _severity(remark, kind)  # its error is said by the caller
        yield Problem(severity, where, text, remark.consequence, place)


def _severity(remark: playback.Remark, kind: Kind) -> Severity:
    """As the remark's, where training agrees: it goes by place, and needs no state that is like an action."""
    if remark.short == "order" and remark.found.startswith("the names are in another order"):
        return "error"
    if remark.severity == "error" and remark.feature == "observation.state" and kind == "absolute":
        return "note"
    return "error" if remark.severity == "error" else "warning" if remark.severity == "warning" else "note"


def kinds(
    kind: Kind,
    robot: Robot,
    where: str,
    action: Float[np.ndarray, "n a"],
    state: Float[np.ndarray, "n s"],
    rows: Rows,
    fps: float,
) -> Iterator[Problem]:
    """Actions that look like differences or velocities where absolute targets are expected.

    Rule: of the joints that move, those whose actions lie four times nearer to the state's own steps (or
    steps times the rate) than to the state; more than half of them decide.
    """
    if action.shape != state.shape or action.shape[1] != len(robot.joints) or len(action) < 3:
        return
    arm = np.array([not joint.is_gripper for joint in robot.joints])
    finite = np.asarray(np.isfinite(np.concatenate([action, state], axis=1)).all(axis=1))
    inside = (np.diff(rows.episode) == 0) & finite[:-1] & finite[1:]
    if not inside.any() or not arm.any():
        return
    now, step, told = state[:-1][inside], np.diff(state, axis=0)[inside], action[:-1][inside]
    absolute = np.median(np.abs(told - now), axis=0)
    moving = arm & (np.ptp(now, axis=0) > MOVES) & (absolute > MOVES)
    readings = {"differences from the state": step, "velocities": step * fps}
    for called, reading in readings.items():
        nearer = np.median(np.abs(told - reading), axis=0) < NEARER * absolute
        if moving.any() and nearer[moving].mean() > 0.5:
            text = f"the recorded actions look like {called}, and {kind} ones are learnt of absolute targets"
            remedy = "name the key that holds targets with `action`, or the state's with `action: [...]`"
            yield Problem("warning" if kind == "absolute" else "error", where, text, remedy)
            return


def still(
    robot: Robot,
    where: str,
    names: Mapping[str, Sequence[str]],
    action: Float[np.ndarray, "n a"],
    state: Float[np.ndarray, "n s"],
    degenerate: Degenerate,
) -> Iterator[Problem]:
    """Values that hardly move over the whole dataset: widened before they are normalised, or refused."""
    for feature, values in (("action", action), ("observation.state", state)):
        finite = values[np.isfinite(values).all(axis=1)]
        if not len(finite):
            continue
        low, high = np.quantile(finite, [0.01, 0.99], axis=0)
        narrow = np.flatnonzero(high - low < MIN_SPAN)
        if len(narrow):
            joints = robot.names if len(robot.names) == values.shape[1] else ()
            known = tuple(names[feature]) or joints or tuple(f"value {d}" for d in range(values.shape[1]))
            called = [known[d] for d in narrow]
            text = f"{feature}: {playback.some(called)} hardly move{'s' if len(called) == 1 else ''}"
            remedy = f"q99 - q01 is below {MIN_SPAN:g} and is widened to that (data.degenerate)"
            if degenerate == "refuse":
                remedy = f"q99 - q01 is below {MIN_SPAN:g}, and data.degenerate is refuse; widen would train"
            yield Problem("error" if degenerate == "refuse" else "warning", where, text, remedy)
