"""Pictures of a suite's tasks, with where the objects and the hand are: what an estimator learns from.

They are rendered along the scripted expert's attempts, those included that fail and those that begin after a
mistake (`demonstrations.beginnings`), so that objects stand, fall, hang in the hand and hide behind it. Each
task is seen as it is, and then in other ways (`otherwise`): from nearer or farther, so that hand and objects
are larger or smaller beside the camera's distance, as another arm's are; with smaller objects; through a
camera that stands a little elsewhere than it is said to, for then only the hand says where things are; and
most of them in other colours and light, with marks on the table and other things beside. It is all
simulation, and any arms will do.
"""

import concurrent.futures
import dataclasses
import io
import math
import multiprocessing
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from morph_vla import process, robots
from morph_vla.data.space import tools_of
from morph_vla.demonstrations import beginnings
from morph_vla.demonstrations.attempts import demonstration
from morph_vla.engines import by_name as engines
from morph_vla.engines.engine import environment_state
from morph_vla.errors import MorphVlaError
from morph_vla.files.dropin import add_to_path
from morph_vla.files.writing import write_bytes
from morph_vla.perception.things import FEATURES, things_of
from morph_vla.perception.view import SEEN, View, view_of
from morph_vla.robots import Robot
from morph_vla.robots.geometry import POSE
from morph_vla.robots.parallel_jaw import PANDA_OPENING
from morph_vla.robots.standpoint import metre
from morph_vla.robots.tool import TOOL
from morph_vla.suites.objects import ObjectSpec
from morph_vla.suites.suite import Camera, Placement, Suite, field
from morph_vla.termination import ending_workers

CAMERA = "exterior"
HAND = 5
"""Values of a hand as it is seen: its place, how far it is closed (0 to 1), how far it opens"""
FARTHER = (0.55, 2.2)  # in other showings the camera's distance is so many times its own
SMALLEST = 0.38  # and objects are at least so many times their size,
LEAST = 0.3  # and so many times as large as they were beside the camera's distance
BESIDE = 0.06  # the camera stands so far beside its place along x and y at most, in its distance
# What differs in them from episode to episode (`suites.variation`): at most so much, drawn for each showing.
LIGHT, COLORS, MARKS, BESIDES = 0.3, 1.0, 8, 3
PLAIN = 0.4  # of them the share that looks as the suite does, else that look says how far the camera is
ASIDE = 0.02  # how far off its place a camera stands, in its distance, and is turned [rad]
FIRST, MEASURED = 1000, 5000  # of the expert's attempts to learn from, to measure on; recordings begin at 0


class Frames(NamedTuple):
    """Pictures, and what is in them."""

    images: UInt8[np.ndarray, "n s s 3"]
    objects: Float[np.ndarray, "n 2 9"]
    """The object and the target, as `View.objects_seen`"""
    hands: Float[np.ndarray, "n 5"]
    things: Float[np.ndarray, "n 2 f"]
    """What object and target are (`things`)"""

    def __len__(self) -> int:
        return len(self.images)

    @classmethod
    def joined(cls, parts: Sequence["Frames"]) -> "Frames":
        """Several one after the other."""
        return cls(*(np.concatenate(values) for values in zip(*parts, strict=True)))


@dataclasses.dataclass(frozen=True)
class Rendering:
    """How many pictures, and of what."""

    size: int = 128
    """Pixels of a side"""
    camera: str = CAMERA
    attempts: int = 3
    """Of the expert, in each showing of a task"""
    share: float = 0.3
    """Of their control steps of which a picture is kept"""
    others: int = 5
    """How many other showings each task has, beside the one as it is"""
    seed: int = 0
    first: int = FIRST
    """Number of the first attempt"""


def hand_seen(robot: Robot, view: View, states: Float[np.ndarray, "b j"]) -> Float[np.ndarray, "b 5"]:
    """Where the hand of a robot with these joint values (dataset units) is, as the camera has it; float32."""
    values = tools_of(robot).seen(np.asarray(states, np.float32)).astype(np.float64)
    closed = values[:, len(TOOL) :][:, :1] if values.shape[1] > len(TOOL) else np.zeros((len(values), 1))
    opening = np.full((len(values), 1), PANDA_OPENING / metre(robot) / view.distance)
    return np.concatenate([view.seen(values[:, :3]), closed, opening], axis=1).astype(np.float32)


def render_task(
    task: Suite, rendering: Rendering, number: int = 0, besides: Mapping[str, ObjectSpec] | None = None
) -> Frames:
    """Pictures of one task; `number` is where their random numbers come from, beside the seed.

    `besides`: things of which some lie on the table too, in other showings than that of the task as it is.
    Raises MorphVlaError where there is none, and says what ended the first attempt.
    """
    rng = np.random.default_rng([rendering.seed, number])
    task = with_camera(task, rendering.camera, rendering.size)
    others = (otherwise(task, rendering.camera, rng, besides or {}) for _ in range(rendering.others))
    ended: list[str] = []
    frames = Frames.joined([_rendered(showing, rendering, rng, ended) for showing in (task, *others)])
    if not len(frames):
        why = ended[0] if ended else "more attempts, or a larger share of them"
        raise MorphVlaError(f"{task.label}: not one picture: {why}")
    return frames


def _rendered(task: Suite, rendering: Rendering, rng: np.random.Generator, ended: list[str]) -> Frames:
    """Pictures along the expert's attempts, as the task is; why attempts ended early goes into `ended`."""
    view = view_of(task.cameras[rendering.camera], rendering.camera)
    images: list[np.ndarray] = []
    objects: list[np.ndarray] = []
    states: list[np.ndarray] = []
    worlds = engines.worlds(task, 1)

    def see(action: np.ndarray) -> None:
        """Keep a picture of some control steps."""
        if rng.uniform() < rendering.share:
            images.append(worlds.render(0, rendering.camera))
            poses = environment_state(worlds, 0).reshape(-1, len(POSE)).astype(np.float64)
            objects.append(view.objects_seen(poses))
            states.append(worlds.state(0))

    try:
        for attempt in range(rendering.first, rendering.first + rendering.attempts):
            try:
                demonstration(worlds, attempt, beginnings.kind_of(task.expert.begin, attempt), see)
            except MorphVlaError as error:  # its physics diverged; pictures so far are good ones
                ended.append(str(error))
    finally:
        worlds.close()
    size = rendering.size
    if not images:
        nothing = ((0, size, size, 3), (0, 2, SEEN), (0, HAND), (0, 2, FEATURES))
        kinds = (np.uint8, np.float32, np.float32, np.float32)
        return Frames(*(np.zeros(shape, kind) for shape, kind in zip(nothing, kinds, strict=True)))
    things = np.tile(things_of(task, view.distance), (len(images), 1, 1))
    return Frames(
        np.stack(images), np.stack(objects), hand_seen(worlds.robot, view, np.stack(states)), things
    )


def render(
    tasks: Sequence[Suite],
    rendering: Rendering,
    folder: Path,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    folders: Sequence[Path] = (),
) -> Frames:
    """Pictures of all tasks, kept in `folder` task by task: what an earlier call has rendered is read back.

    `progress` is called with (tasks done, tasks). Raises MorphVlaError as `check` does, and for a task of
    which there is no picture.
    """
    check(tasks, rendering.camera)
    paths = [folder / f"{number:04d}.npz" for number in range(len(tasks))]
    missing = [number for number, path in enumerate(paths) if not path.exists()]
    done = len(tasks) - len(missing)
    context = multiprocessing.get_context("spawn")  # renderers do not survive a fork
    count = min(workers or os.cpu_count() or 1, len(missing)) or 1
    start = {"initializer": _start, "initargs": (tuple(folders),)}
    with concurrent.futures.ProcessPoolExecutor(count, mp_context=context, **start) as pool:
        waiting = [
            pool.submit(_render_into, tasks[n], rendering, n, paths[n], _others(tasks[n], tasks))
            for n in missing
        ]
        try:
            with ending_workers():
                for future in concurrent.futures.as_completed(waiting):
                    future.result()
                    done += 1
                    if progress:
                        progress(done, len(tasks))
        finally:
            pool.shutdown(cancel_futures=True)  # what is rendered is kept, most of what waits is not begun
    parts = [_read(path) for path in paths]
    for task, path, part in zip(tasks, paths, parts, strict=True):
        if not len(part):  # an earlier version kept that
            raise MorphVlaError(f"{task.label}: not one picture in {path}: remove the file")
    return Frames.joined(parts)


def check(tasks: Sequence[Suite], camera: str) -> None:
    """Raise MorphVlaError for tasks of which no estimator learns."""
    for task in tasks:
        if camera not in task.cameras:
            cameras = ", ".join(task.cameras) or "none"
            raise MorphVlaError(f"{task.label}: no camera '{camera}' (it has {cameras})")
        view_of(task.cameras[camera], camera)
        if len(tools := tools_of(robots.load(task.robot)).tools) > 1:
            raise MorphVlaError(
                f"{task.label}: robot '{task.robot}' has {len(tools)} hands; an estimator is told of one"
            )
        if len(task.success.pairs) != 1:
            raise MorphVlaError(
                f"{task.label}: {len(task.success.pairs)} objects are put somewhere; an estimator sees one"
            )


def with_camera(task: Suite, camera: str, size: int) -> Suite:
    """A task seen through one camera alone, in pictures of so many pixels a side."""
    return dataclasses.replace(
        task, cameras={camera: dataclasses.replace(task.cameras[camera], width=size, height=size)}
    )


def otherwise(task: Suite, camera: str, rng: np.random.Generator, besides: Mapping[str, ObjectSpec]) -> Suite:
    """A task with smaller objects, from elsewhere; mostly in looks that differ, with other things beside."""
    size = float(rng.uniform(SMALLEST, 1.0))
    names = rng.permutation(sorted(besides))[: rng.integers(0, BESIDES + 1)]
    plain = rng.uniform() < PLAIN
    crowded = task if plain else with_things(task, {str(name): besides[str(name)] for name in names})
    factor = float(np.exp(rng.uniform(*np.log(FARTHER))))
    size = max(size, LEAST * factor)
    seen = farther(task.cameras[camera], task.table.height, factor, rng.uniform(-BESIDE, BESIDE, 2))
    aside = float(rng.uniform(0, ASIDE))
    colors, marks = float(rng.uniform(0, COLORS)), int(rng.integers(0, MARKS + 1))
    looks = {} if plain else {"light": LIGHT, "colors": colors, "marks": marks}
    variation = dataclasses.replace(
        crowded.variation, camera_position=aside * view_of(seen).distance, camera_angle=aside, **looks
    )
    return dataclasses.replace(resized(crowded, size), cameras={camera: seen}, variation=variation)


def with_things(task: Suite, things: Mapping[str, ObjectSpec]) -> Suite:
    """A task with other things on the table: anywhere in the field of its own things, and a fifth beyond.

    Those that look like the object or the target are left out: nothing would say which one is meant.
    """
    shapes = {task.objects[name].shape for pair in task.success.pairs for name in pair}
    chosen = {
        name: thing
        for name, thing in things.items()
        if thing.shape not in shapes and name not in task.objects
    }
    there = {name: thing for name, thing in task.distractors.items() if name in task.objects}
    places = (place for name, place in task.placement.items() if name not in task.distractors)
    x, y = ((low - 0.2 * (high - low), high + 0.2 * (high - low)) for low, high in field(places))
    placement = {**task.placement, **{name: Placement(x, y, (-math.pi, math.pi)) for name in chosen}}
    variation = dataclasses.replace(task.variation, distractors=len(there) + len(chosen))
    beside = {**there, **chosen}
    beside |= {name: thing for name, thing in task.distractors.items() if name not in beside}
    objects = {**task.objects, **chosen}
    return dataclasses.replace(
        task, objects=objects, distractors=beside, placement=placement, variation=variation
    )


def _others(task: Suite, tasks: Sequence[Suite]) -> dict[str, ObjectSpec]:
    """The things of the other tasks of the same robot."""
    others = (other for other in tasks if other.robot == task.robot)
    return {
        name: thing for other in others for name, thing in other.objects.items() if name not in task.objects
    }


def farther(camera: Camera, table: float, factor: float, beside: Float[np.ndarray, "2"]) -> Camera:
    """A camera `factor` times as far from what it looks at, and that as high above the table, moved beside.

    In the camera's distance the table lies as it did, and everything on it is 1 / factor times as large:

        factor 1    o              factor 2            o
                      .                             .
        table  _____[]_*___                      .
                                       _________[]*________
    """
    eye, goal = np.asarray(camera.position), np.asarray(camera.look_at)
    away = factor * (eye - goal)
    goal = np.array([*goal[:2], table + factor * (goal[2] - table)])
    goal[:2] += np.linalg.norm(away) * np.asarray(beside)
    place, look_at = (tuple(float(value) for value in values) for values in (goal + away, goal))
    return dataclasses.replace(camera, position=place, look_at=look_at)


def resized(task: Suite, factor: float) -> Suite:
    """A task whose objects are `factor` times as large, at the same places; heights of the expert follow."""
    objects = {
        name: dataclasses.replace(
            spec,
            size=tuple(factor * length for length in spec.size),
            mass=factor**3 * spec.mass,
            **({"wall": factor * spec.wall} if spec.wall else {}),
        )
        for name, spec in task.objects.items()
    }
    lengths = ("hover", "release_height", "carry", "retreat", "clearance", "behind")
    expert = dataclasses.replace(task.expert, **{key: factor * getattr(task.expert, key) for key in lengths})
    corners = {key: tuple(factor * value for value in getattr(task.success, key)) for key in ("low", "high")}
    return dataclasses.replace(
        task, objects=objects, expert=expert, success=dataclasses.replace(task.success, **corners),
        min_distance=factor * task.min_distance,
    )  # fmt: skip


def _start(folders: Sequence[Path]) -> None:
    process.end_with_parent()
    for place in folders:
        add_to_path(place)


def _render_into(
    task: Suite, rendering: Rendering, number: int, path: Path, besides: Mapping[str, ObjectSpec]
) -> None:
    """A task's pictures, as a file of plain arrays that appears whole."""
    content = io.BytesIO()
    np.savez(content, **render_task(task, rendering, number, besides)._asdict())
    write_bytes(path, content.getvalue())


def _read(path: Path) -> Frames:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return Frames(*(arrays[name] for name in Frames._fields))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise MorphVlaError(f"{path}: pictures that cannot be read ({error}); remove the file") from error
