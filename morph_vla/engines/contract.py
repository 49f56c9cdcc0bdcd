"""What every engine owes its callers, checked by measuring it: one list of problems for any `engine.Worlds`.

For whoever writes an engine (docs/engines.md), and for the tests of ours. `problems` makes engines of one
suite through `make(count)` and asks them. Tolerances are physical (a servo does not stand exactly where it is
commanded); what has to be equal is equal bit for bit.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from jaxtyping import Float

from morph_vla.engines import hands
from morph_vla.engines.engine import Worlds
from morph_vla.engines.mujoco.scene import look_at
from morph_vla.errors import MorphVlaError
from morph_vla.robots import ActionJoint
from morph_vla.robots.geometry import matrix_of
from morph_vla.suites.suite import InitialState, initial_states

PLACE, ANGLE, TRAVEL = 0.003, 0.03, 0.002  # [m] of an object, [rad] and [m] of a joint, after settling
VIEW = 2e-3  # [m] and of direction cosines, of a camera
STEPS = 3  # control steps that are looked at

Seen = dict[str, np.ndarray]  # camera, state or object -> pixels, values or pose
Make = Callable[[int], Worlds]


def problems(make: Make) -> list[str]:
    """Every way in which the engine does not keep the contract, a sentence each; empty when it does."""
    with contextlib.closing(make(3)) as first:
        states = dict(enumerate(initial_states(first.suite, 3, len(first.robot.joints), stream="contract")))
        sentences = [*_reset(first, states), *_units(first, states), *_cameras(first, states)]
        sentences += _leaks(first, states)
        alone = _trace(first, states, 2)
    with contextlib.closing(make(3)) as second:
        sentences += _different(alone, _trace(second, states, 2), "two instances differ")
    with contextlib.closing(make(1)) as single:
        sentence = "a world differs with the number of worlds beside it"
        sentences += _different(alone, _trace(single, {0: states[2]}, 0), sentence)
    return sentences


def _first(worlds: Worlds, state: InitialState) -> Float[np.ndarray, "j"]:
    return hands.first_posture(worlds.robot, worlds.suite, state)


def _hold(worlds: Worlds, targets: Mapping[int, Float[np.ndarray, "j"]]) -> None:
    """Worlds by their index, for a second towards joint values [rad | m]; raises what a step reports."""
    actions = {index: worlds.robot.to_dataset(target) for index, target in targets.items()}
    for _ in range(round(worlds.suite.control_rate)):
        for measured in worlds.step(actions).values():
            if isinstance(measured, MorphVlaError):
                raise measured


def _reset(worlds: Worlds, states: dict[int, InitialState]) -> Iterator[str]:
    worlds.reset(states)
    kinds = np.array([TRAVEL if joint.type == "prismatic" else ANGLE for joint in worlds.robot.joints])
    for index, state in states.items():
        off = np.abs(worlds.native(index) - _first(worlds, state)) / kinds
        if off.max() > 1:
            name, away = worlds.robot.names[int(off.argmax())], off.max() * kinds[off.argmax()]
            yield f"world {index}: after reset '{name}' is {away:.4f} from where it begins"
        for name, (x, y, _) in state.poses.items():
            away = float(np.hypot(*(worlds.pose(index, name)[0][:2] - (x, y))))
            if away > PLACE:
                yield f"world {index}: after reset '{name}' is {away:.4f} m from where it begins"


def _units(worlds: Worlds, states: dict[int, InitialState]) -> Iterator[str]:
    """Commanded to move in the dataset's units, a joint moves by that much, and it alone.

    Every world tries another joint, so that an engine whose worlds step together is done sooner.
    """
    robot, first = worlds.robot, _first(worlds, states[0])
    for start in range(0, len(robot.joints), worlds.count):
        tried = dict(enumerate(range(start, min(start + worlds.count, len(robot.joints)))))
        worlds.reset(dict.fromkeys(tried, states[0]))
        before = {index: worlds.native(index) for index in tried}
        steps = {index: _inwards(robot.joints[j], before[index][j]) for index, j in tried.items()}
        alone = np.eye(len(robot.joints))
        _hold(worlds, {index: first + steps[index] * alone[j] for index, j in tried.items()})
        for index, j in tried.items():
            native, step = worlds.native(index), steps[index]
            moved = native - before[index]
            others = np.delete(np.abs(moved), j).max(initial=0.0)
            if abs(moved[j] - step) > 0.2 * abs(step) or others > 0.3 * abs(step):
                by = f"{moved[j]:.3f}, others by {others:.3f}"
                yield f"'{robot.names[j]}' was commanded to move by {step:.3f} and moved by {by}"
            if not np.allclose(worlds.state(index), robot.to_dataset(native), rtol=1e-5, atol=1e-5):
                yield "the state is not the measured joint values in the dataset's units"


def _inwards(joint: ActionJoint, value: float) -> float:
    """A step of a joint [rad | m] from `value` towards the middle of its range, short enough for a second."""
    step = min(0.1, 0.2 * (joint.upper - joint.lower))
    return step if value < (joint.lower + joint.upper) / 2 else -step


def _cameras(worlds: Worlds, states: dict[int, InitialState]) -> Iterator[str]:
    """Cameras on links go where forward kinematics says, and see something else there; fixed ones stay."""
    worlds.reset({0: states[0]})
    robot, before = worlds.robot, worlds.observe(0)
    base_from_link_before = robot.forward_kinematics(worlds.native(0))
    target = _first(worlds, states[0])
    inwards = np.where(target < (robot.lower + robot.upper) / 2, 0.15, -0.15)
    _hold(worlds, {0: target + np.where(worlds.limb & ~hands.grippers(robot), inwards, 0.0)})
    after, base_from_link = worlds.observe(0), robot.forward_kinematics(worlds.native(0))
    for name, camera in worlds.suite.cameras.items():
        base_from_mount = base_from_link[camera.link] if camera.link else np.eye(4)
        expected = base_from_mount[:3, :3] @ np.asarray(camera.position) + base_from_mount[:3, 3]
        w, x, y, z = look_at(camera.position, camera.look_at)
        base_from_camera = base_from_mount[:3, :3] @ matrix_of((w, x, y, z))
        position, axes = worlds.camera_pose(0, name)
        off = max(float(np.abs(position - expected).max()), float(np.abs(axes - base_from_camera).max()))
        if off > VIEW:
            yield f"camera '{name}' is {off:.4f} from where forward kinematics has it"
        moved = camera.link and not np.allclose(
            base_from_mount, base_from_link_before[camera.link], atol=0.01
        )
        if moved and np.array_equal(before[f"images/{name}"], after[f"images/{name}"]):
            yield f"camera '{name}' sees the same picture though the arm has moved"


def _leaks(worlds: Worlds, states: dict[int, InitialState]) -> Iterator[str]:
    """What is done to one world is not seen in another."""
    still, busy = _trace(worlds, states, 2), _trace(worlds, states, 2, busy=True)
    yield from _different(still, busy, "a world sees another one's actions")
    seen = _seen(worlds, 2)
    worlds.place({0: states[1]})
    yield from _different([seen], [_seen(worlds, 2)], "resetting a world changes another one")


def _trace(worlds: Worlds, states: dict[int, InitialState], which: int, busy: bool = False) -> list[Seen]:
    """What is seen of world `which` over some steps; with `busy`, its neighbours are commanded to move."""
    worlds.reset(states)
    seen, away = [_seen(worlds, which)], (worlds.robot.lower + worlds.robot.upper) / 2
    for _ in range(STEPS):
        targets = {i: away if busy and i != which else _first(worlds, state) for i, state in states.items()}
        worlds.step({i: worlds.robot.to_dataset(target) for i, target in targets.items()})
        seen.append(_seen(worlds, which))
    return seen


def _seen(worlds: Worlds, index: int) -> Seen:
    observation = worlds.observe(index)
    arrays = {key: value for key, value in observation.items() if isinstance(value, np.ndarray)}
    return arrays | {name: np.concatenate(worlds.pose(index, name)) for name in worlds.suite.objects}


def _different(trace: list[Seen], other: list[Seen], sentence: str) -> Iterator[str]:
    """The first difference, and how large it is; bit for bit."""
    for step, (a, b) in enumerate(zip(trace, other, strict=True)):
        for key, value in a.items():
            if not np.array_equal(value, b[key]):
                gap = float(np.abs(value.astype(np.float64) - b[key].astype(np.float64)).max())
                yield f"{sentence}: '{key}' after {step} steps, by {gap:.3g}"
                return
