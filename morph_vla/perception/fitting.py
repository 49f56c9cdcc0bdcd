"""Training an estimator of poses on rendered pictures: AdamW, a step a batch, exact to resume.

The coarse part and the fine ones share no parameters: they are trained one after the other.
"""

import dataclasses
import io
import json
import math
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Bool, Int

from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_bytes, write_text
from morph_vla.perception import estimator as estimators
from morph_vla.perception import frames as pictures
from morph_vla.perception import network
from morph_vla.perception.estimator import About, Estimator, size_problem
from morph_vla.perception.frames import Frames, Rendering
from morph_vla.perception.view import LEVEL, Optics, view_of
from morph_vla.suites.suite import Suite

SETTINGS, STATES, FRAMES = "settings.json", "states", "frames"
HELD_OUT, MEASURED = 31, 256  # every so many-th picture is not trained on, and so many are measured
NINE = 0.9  # in ten


@dataclasses.dataclass(frozen=True)
class Settings:
    """How long it trains."""

    steps: int = 4000
    """Of the fine parts; of the coarse one LONGER times as many"""
    batch: int = 64
    rate: float = 2e-3
    """The highest: it rises for WARMUP steps and falls as half a cosine to a hundredth"""
    weight_decay: float = 1e-4
    seed: int = 0
    keep_every: int = 500
    """Steps between two states that an interrupted training goes on from"""
    say_every: int = 50
    """Steps between two lines of progress"""

    @property
    def coarse_steps(self) -> int:
        """Of the coarse part."""
        return round(LONGER * self.steps)

    @property
    def of_both(self) -> int:
        """Steps of all parts."""
        return self.steps + self.coarse_steps


WARMUP, LONGER = 100, 1.25
AGAIN = 0.5  # of the rate, for parameters that are trained already
COARSE, FINE = "coarse", "fine"
AS_DEFAULT, OF_RENDERING = Settings(), Rendering()


class Line(NamedTuple):
    """How a training stands."""

    step: int
    """Of both parts together"""
    loss: float
    """Mean since the last line"""
    apart: float
    """How far held-out objects are from where they are estimated, when a state was last kept: what nine in
    ten are within, in camera distances (of the coarse part, across the picture); nan before the first"""

    @property
    def words(self) -> dict[str, str]:
        """What stands beside a bar."""
        apart = {} if math.isnan(self.apart) else {"apart": f"{self.apart:.2%}"}
        return {"loss": f"{self.loss:.3f}", **apart}


class Listeners(NamedTuple):
    """Who is told of progress."""

    rendered: Callable[[int, int], None] | None = None
    """(tasks, of how many)"""
    trained: Callable[[Line, int], None] | None = None
    """(line, of how many steps)"""


def train(
    tasks: Sequence[Suite],
    folder: Path,
    settings: Settings = AS_DEFAULT,
    rendering: Rendering = OF_RENDERING,
    *,
    workers: int | None = None,
    folders: Sequence[Path] = (),
    start: Estimator | None = None,
    listeners: Listeners = Listeners(),  # noqa: B008 (a tuple)
    command: str = "",
) -> Estimator:
    """Render pictures of the tasks, train on them, and write the estimator into `folder`.

    It begins with the parameters of `start`, or with random ones. Ctrl-C loses at most `keep_every` steps:
    the same call goes on, to the same parameters bit for bit. Raises MorphVlaError as `frames.check`, for
    cameras that stand unlike, also that of `start`, and for a folder of other settings.
    """
    optics, above = _optics(tasks, rendering), _above(tasks, rendering)
    if start is not None:
        _check_start(start, optics, above, rendering)
        settings = dataclasses.replace(settings, rate=AGAIN * settings.rate)
    _claim(folder, tasks, settings, rendering, start)
    frames = pictures.render(
        tasks, rendering, folder / FRAMES, workers=workers, progress=listeners.rendered, folders=folders
    )
    began, first = time.monotonic(), start.params if start else None
    if (folder / estimators.ABOUT).exists():  # of this training, as `_claim` has seen: it is done
        return estimators.load(folder)
    params = fit(frames, optics, settings, folder / STATES, listeners.trained, first)
    before = start.about if start else About(optics)
    about = About(
        optics,
        rendering.camera,
        objects=_known(before.objects, tasks, 0),
        targets=_known(before.targets, tasks, 1),
        above=above,
        robots=tuple(dict.fromkeys([*before.robots, *(task.robot for task in tasks)])),
        pictures=len(frames),
        steps=settings.steps,
        seconds=round(time.monotonic() - began, 1),
        command=command,
        start=start.sha256 if start else "",
    )
    estimators.save(folder, params, about)
    return estimators.load(folder)


def _known(before: Mapping[str, str], tasks: Sequence[Suite], place: int) -> dict[str, str]:
    """What an estimator has seen, name -> shape: `before`, and what these tasks take (0), or where to (1).

    Two tasks may call different things alike: the second one's name has its shape behind it.
    """
    known = dict(before)
    for task in tasks:
        name = task.success.pairs[0][place]
        shape = task.objects[name].shape
        if known.setdefault(name, shape) != shape:
            known[f"{name} ({shape})"] = shape
    return known


def fit(
    frames: Frames,
    optics: Optics,
    settings: Settings = AS_DEFAULT,
    states: Path | None = None,
    progress: Callable[[Line, int], None] | None = None,
    start: network.Params | None = None,
) -> network.Params:
    """Parameters trained on pictures; with `states` kept there on the way, and gone on from.

    They are random before the first step, or those of `start`.
    """
    params = network.init_params(settings.seed) if start is None else start
    parts = (COARSE, network.coarse_loss, settings.coarse_steps), (FINE, network.fine_loss, settings.steps)
    before = 0
    for name, loss, count in parts:
        of_part = {role: part for role, part in params.items() if (role == COARSE) == (name == COARSE)}

        def listen(line: Line, before: int = before) -> None:
            """Say how both parts stand."""
            if progress:
                progress(line._replace(step=before + line.step), settings.of_both)

        part = Part(name, partial(loss, optics=optics), partial(_apart, name, optics, params), count)
        state = states / f"{name}.npz" if states else None
        params = {**params, **_fit(part, of_part, frames, settings, state, listen)}
        before += count
    return params


class Part(NamedTuple):
    """What is trained at once."""

    name: str
    loss: Callable[..., Any]
    apart: Callable[[network.Params, Frames], float]
    steps: int


def _fit(
    part: Part,
    params: network.Params,
    frames: Frames,
    settings: Settings,
    state: Path | None,
    progress: Callable[[Line], None],
) -> network.Params:
    """A part's parameters, trained."""
    schedule = optax.warmup_cosine_decay_schedule(
        0.0, settings.rate, WARMUP, max(part.steps, WARMUP + 1), settings.rate / 100
    )
    optimizer = optax.adamw(schedule, weight_decay=settings.weight_decay)
    carried, first = (params, optimizer.init(params)), 0
    if state is not None and state.exists():
        carried, first = _restored(state, carried)
    key, held_out = jax.random.key(settings.seed), _held_out(len(frames))
    trained = np.flatnonzero(~held_out)
    measured = _spread(np.flatnonzero(held_out), MEASURED)
    shown = Frames(*(values[measured] for values in frames))

    @jax.jit
    def update(carried: Any, batch: network.Batch, step: Any) -> Any:
        """One step of AdamW."""
        params, memory = carried
        drawn = jax.random.fold_in(key, step)
        value, slope = jax.value_and_grad(part.loss)(params, batch, key=drawn)
        with jax.numpy_dtype_promotion("standard"):  # optax's schedules need it
            change, memory = optimizer.update(slope, memory, params)
        return (optax.apply_updates(params, change), memory), value

    losses: list[Any] = []
    apart = float("nan")
    for step in range(first, part.steps):
        rng = np.random.default_rng([settings.seed, step])
        chosen = trained[rng.integers(0, len(trained), settings.batch)]
        batch = network.Batch(*(jnp.asarray(values[chosen]) for values in frames))
        carried, value = update(carried, batch, np.uint32(step))
        losses.append(value)
        last = step + 1 == part.steps
        if (step + 1) % settings.keep_every == 0 or last:
            if state is not None:
                _keep(state, carried, step + 1)
            apart = part.apart(carried[0], shown) if len(shown) else apart
        if (step + 1) % settings.say_every == 0 or last:
            progress(Line(step + 1, float(np.mean(losses)), apart))
            losses = []
    return carried[0]


def _optics(tasks: Sequence[Suite], rendering: Rendering) -> Optics:
    """What the pictures have in common. Raises MorphVlaError where cameras stand at other angles."""
    pictures.check(tasks, rendering.camera)
    if problem := size_problem(rendering.size):
        raise MorphVlaError(problem)
    every = [view_of(task.cameras[rendering.camera]).optics(rendering.size) for task in tasks]
    for task, optics in zip(tasks, every, strict=True):
        if not optics.is_like(every[0]):
            raise MorphVlaError(
                f"camera '{rendering.camera}' of {task.label} stands {optics}, and that of {tasks[0].label}"
                f" {every[0]}: train two estimators"
            )
    return every[0]


def _above(tasks: Sequence[Suite], rendering: Rendering) -> float:
    """How high above the table the cameras look. Raises MorphVlaError where they look at other heights."""
    every = [view_of(task.cameras[rendering.camera]).above(task.table.height) for task in tasks]
    for task, above in zip(tasks, every, strict=True):
        if abs(above - every[0]) > LEVEL:
            raise MorphVlaError(
                f"camera '{rendering.camera}' of {task.label} looks at a place {above:.1%} of its distance"
                f" above the table, and that of {tasks[0].label} {every[0]:.1%}: train two estimators"
            )
    return every[0]


def _check_start(start: Estimator, optics: Optics, above: float, rendering: Rendering) -> None:
    """Raise MorphVlaError for an estimator that looks otherwise than the one that is to come of it."""
    shown = start.about
    if shown.camera != rendering.camera:
        raise MorphVlaError(
            f"{start.name} looks through camera '{shown.camera}', and this one is to look through"
            f" '{rendering.camera}': begin without it"
        )
    if shown.optics.size != optics.size or not shown.optics.is_like(optics):
        raise MorphVlaError(
            f"{start.name} has pictures of {shown.optics.size} pixels from a camera that stands"
            f" {shown.optics}, and this one {optics.size} from one that stands {optics}: begin without it"
        )
    if shown.above is not None and abs(shown.above - above) > LEVEL:
        raise MorphVlaError(
            f"{start.name} has pictures from a camera that looks at a place {shown.above:.1%} of its distance"
            f" above the table, and this one {above:.1%}: begin without it"
        )


def _claim(
    folder: Path, tasks: Sequence[Suite], settings: Settings, rendering: Rendering, start: Estimator | None
) -> None:
    """Keep what a training's result depends on. Raises MorphVlaError where the folder has another's."""
    what: dict[str, object] = {"tasks": [{**to_plain(task), "path": task.path.name} for task in tasks]}
    files = [robots.load(task.robot) for task in tasks]
    what |= {"robots": [[robot.urdf_sha256, robot.side_sha256] for robot in files]}
    what |= {"settings": to_plain(settings), "rendering": to_plain(rendering)}
    what |= {"start": start.sha256 if start else ""}
    text = json.dumps(what, sort_keys=True, default=str)
    path = folder / SETTINGS
    if path.exists():
        if path.read_text(encoding="utf-8") != text:
            raise MorphVlaError(
                f"{folder} holds another estimator's training, or an earlier version's: give another folder "
                "or remove it"
            )
    elif folder.exists() and any(folder.iterdir()):
        raise MorphVlaError(
            f"{folder} is not empty and holds no training of an estimator: give another folder"
        )
    else:
        write_text(path, text)


def _spread(places: Int[np.ndarray, "n"], most: int) -> Int[np.ndarray, "m"]:
    """At most so many of them, evenly from the first to the last: pictures lie task by task."""
    return places[np.linspace(0, len(places) - 1, min(most, len(places))).round().astype(int)]


def _held_out(count: int) -> Bool[np.ndarray, "n"]:
    """Which pictures are not trained on; none of a handful."""
    return (np.arange(count) % HELD_OUT == HELD_OUT - 1) if count > HELD_OUT else np.zeros(count, bool)


def _apart(name: str, optics: Optics, others: network.Params, params: network.Params, shown: Frames) -> float:
    """How far nine in ten objects are from where they are estimated at most, in camera distances."""
    images, hands, things = (jnp.asarray(values) for values in (shown.images, shown.hands, shown.things))
    objects = jnp.asarray(shown.objects[:, 0, :3])
    if name == COARSE:
        maps = network.coarse(params[COARSE], network.as_picture(images), hands, things, optics)
        away = (network.peaks(maps)[:, 0] - network.pixels_of(objects, optics)) / optics.focal
    else:
        seen = network.estimate({**others, **params}, images, hands, things, optics)
        away = seen[:, 0, :3] - objects
    return float(np.quantile(np.linalg.norm(away, axis=-1), NINE))


def _keep(path: Path, carried: Any, step: int) -> None:
    """Parameters and the optimizer's memory, leaf by leaf, as a file of plain arrays."""
    content = io.BytesIO()
    leaves = {f"{i:03d}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(carried))}
    arrays: dict[str, Any] = {"step": np.asarray(step), **leaves}
    np.savez(content, **arrays)
    write_bytes(path, content.getvalue())


def _restored(path: Path, like: Any) -> tuple[Any, int]:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            leaves = [jnp.asarray(arrays[f"{i:03d}"]) for i in range(len(arrays.files) - 1)]
            return jax.tree.unflatten(jax.tree.structure(like), leaves), int(arrays["step"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise MorphVlaError(
            f"{path}: a state of training that cannot be read ({error}); remove the file"
        ) from error
