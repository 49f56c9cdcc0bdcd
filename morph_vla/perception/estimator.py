"""An estimator's file, and poses from pictures."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, UInt8

from morph_vla.errors import MorphVlaError
from morph_vla.files import dropin
from morph_vla.files.home import expanded
from morph_vla.files.writing import write_text
from morph_vla.perception import network
from morph_vla.perception.frames import CAMERA
from morph_vla.perception.view import LEVEL, Optics, View, view_of
from morph_vla.results.values import integer, mapping, number, read_as, text
from morph_vla.suites.suite import Suite
from morph_vla.weights import tensors

SHIPPED = "poses-exterior"
"""The estimator that comes with the package, for suites of `morph-vla suites new`"""
FOLDER = Path("bases") / "poses_exterior"
PARAMETERS, ABOUT = "estimator.safetensors", "estimator.json"
BATCH = 10  # pictures at once, filled up: an answer does not depend on its company
STEP, MOST = 16, 1024
"""Pixels of a picture's side: a multiple of so many, and at most so many"""
ROUNDING = 5e-4  # [rad] cameras of `suites new` stand alike to the digits that a suite is written with


@dataclasses.dataclass(frozen=True)
class About:
    """What an estimator says of itself."""

    optics: Optics
    camera: str = CAMERA
    objects: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The things it was shown being moved -> their shapes"""
    targets: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The things that it was shown them being moved to"""
    above: float | None = None
    """How high what the camera looks at lies above the table, in its distance; the first ones did not say"""
    robots: tuple[str, ...] = ()
    pictures: int = 0
    steps: int = 0
    seconds: float = 0.0
    command: str = ""
    start: str = ""
    """SHA-256 of the parameters that it began with; none where they were random"""

    def __str__(self) -> str:
        """What it was shown, for people."""
        things = dict.fromkeys([*self.objects, *self.targets])
        return f"{', '.join(things)} on {self.pictures} pictures, {self.steps} steps"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**dataclasses.asdict(self), "optics": self.optics._asdict(), "robots": list(self.robots)}


class Estimator:
    """Poses of the object and the target from a picture of one camera."""

    def __init__(self, params: network.Params, about: About, source: str = "estimator", sha256: str = ""):
        """`source` is its folder or SHIPPED, `sha256` that of its file of parameters."""
        self.params, self.about, self.source, self.sha256 = params, about, source, sha256
        self.name = Path(source).name
        self._estimate = jax.jit(network.estimate, static_argnames="optics")

    def view(self, tasks: Sequence[Suite]) -> View:
        """The camera of a suite's tasks, where the estimator knows what it will see.

        Raises MorphVlaError with both sides where it does not: another camera, or things it was never shown.
        """
        name, optics = self.about.camera, self.about.optics
        for task in tasks:
            if name not in task.cameras:
                has = ", ".join(task.cameras) or "none"
                raise MorphVlaError(
                    f"{task.label} has no camera '{name}', which {self.name} looks through (it has {has})"
                )
            if task.cameras[name] != tasks[0].cameras[name]:
                raise MorphVlaError(
                    f"camera '{name}' stands elsewhere in {task.label} than in {tasks[0].label}"
                )
            self._check_things(task)
        view = view_of(tasks[0].cameras[name], name)
        here = view.optics(optics.size)
        if not here.is_like(optics):
            raise MorphVlaError(
                f"camera '{name}' of {tasks[0].label} stands {here}, and {self.name} was trained with"
                f" one that stands {optics}: `morph-vla poses train` makes one for it"
            )
        for task in tasks:
            self._check_table(task, view.above(task.table.height))
        return view

    def _check_things(self, task: Suite) -> None:
        """Raise MorphVlaError for things of a shape that the estimator was never shown in their role."""
        if len(task.success.pairs) != 1:
            raise MorphVlaError(
                f"{task.label}: {len(task.success.pairs)} objects are put somewhere, and {self.name} sees one"
            )
        roles = (("moved", self.about.objects), ("moved to", self.about.targets))
        for thing, (how, shown) in zip(task.success.pairs[0], roles, strict=True):
            if (shape := task.objects[thing].shape) not in (known := {*shown.values()}):
                raise MorphVlaError(
                    f"{task.label}: {self.name} was never shown what '{thing}' is ({shape}) being {how}, as"
                    f" `morph-vla poses train` would; of these it knows {', '.join(sorted(known))}"
                )

    def _check_table(self, task: Suite, above: float) -> None:
        """Raise MorphVlaError where the table lies otherwise below what the camera looks at: a silent bias,
        for heights above it are learnt.
        """
        if (known := self.about.above) is not None and abs(above - known) > LEVEL:
            raise MorphVlaError(
                f"camera '{self.about.camera}' of {task.label} looks at a place {above:.1%} of its distance"
                f" above the table, and {self.name} was trained with one that looks {known:.1%} above it:"
                " `morph-vla poses train` makes one for it"
            )

    def poses(
        self,
        images: UInt8[np.ndarray, "b s s 3"],
        hands: Float[np.ndarray, "b 5"],
        things: Float[np.ndarray, "b 2 f"],
        view: View,
    ) -> Float[np.ndarray, "b 14"]:
        """Poses of object and target in the base frame, as `engine.environment_state`, float32.

        `things` say what they are (`things.things_of`).
        """
        seen = self.seen(images, hands, things, view)
        return np.stack([view.poses(objects).reshape(-1) for objects in seen])

    def seen(
        self,
        images: UInt8[np.ndarray, "b s s 3"],
        hands: Float[np.ndarray, "b 5"],
        things: Float[np.ndarray, "b 2 f"],
        view: View,
    ) -> Float[np.ndarray, "b 2 9"]:
        """The same as `View.objects_seen` has it."""
        optics, answers = self.about.optics, []
        here = view.optics(optics.size)
        if not here.is_like(optics, ROUNDING):
            optics = here  # a pixel lies on this camera's ray, not on that of those it was trained with
        for start in range(0, len(images), BATCH):
            some = slice(start, start + BATCH)
            count = len(images[some])
            fill = [(0, BATCH - count)]
            filled = (
                np.pad(values[some], [*fill, *([(0, 0)] * (values.ndim - 1))])
                for values in (images, hands, things)
            )
            answer = self._estimate(self.params, *filled, optics=optics)
            answers.append(np.asarray(answer)[:count])
        return np.concatenate(answers)


def save(folder: Path, params: network.Params, about: About) -> None:
    """Write an estimator: parameters in 16 bits, then what it says of itself.

    Raises MorphVlaError for parameters that 16 bits do not hold: a training that diverged.
    """
    for name, value in _flat(params).items():
        if not (np.abs(np.asarray(value)) <= np.finfo(np.float16).max).all():
            raise MorphVlaError(
                f"{folder}: {name} is not finite in 16 bits: the training diverged, and nothing is written"
            )
    folder.mkdir(parents=True, exist_ok=True)
    drafts = {
        name: tensors.Draft(value.shape, np.dtype(np.float16), lambda value=value: [value])
        for name, value in _flat(params).items()
    }
    unfinished = folder / f".{PARAMETERS}.unfinished"
    tensors.write(unfinished, drafts, {})
    unfinished.replace(folder / PARAMETERS)
    write_text(folder / ABOUT, json.dumps(about.to_json(), indent=1) + "\n")


def load(source: str | Path) -> Estimator:
    """The estimator in a folder, or the one that comes with the package (SHIPPED).

    Raises MorphVlaError, in one sentence, for what is none.
    """
    folder = _folder(source)
    if not (folder / ABOUT).is_file() or not (folder / PARAMETERS).is_file():
        raise MorphVlaError(
            f"{folder} is no estimator of poses: {ABOUT} and {PARAMETERS} are expected; `morph-vla poses"
            f" train` makes one, and {SHIPPED} comes with the package"
        )
    about = _about(folder / ABOUT)
    values, _ = tensors.read_header(folder / PARAMETERS)
    shapes = {
        name: value.shape for name, value in _flat(jax.eval_shape(lambda: network.init_params(0))).items()
    }
    if {name: tensor.shape for name, tensor in values.items()} != shapes:
        odd = sorted({*shapes} ^ {*values}) or [
            name for name, shape in shapes.items() if values[name].shape != shape
        ]
        raise MorphVlaError(f"{folder / PARAMETERS}: {odd[0]} is not as this version's estimator has it")
    params: network.Params = {}
    for name, tensor in values.items():
        part, layer, leaf = name.split("/")
        value = tensor.read().astype(np.float32)
        if not np.isfinite(value).all():
            raise MorphVlaError(f"{folder / PARAMETERS}: {name} has values that are not finite")
        params.setdefault(part, {}).setdefault(layer, {})[leaf] = value
    with (folder / PARAMETERS).open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Estimator(params, about, str(source), sha256)


def _folder(source: str | Path) -> Path:
    if str(source) != SHIPPED:
        return expanded(source)
    places = [place / FOLDER.name for place in dropin.packaged(FOLDER.parent.name)]
    return next((place for place in places if place.is_dir()), places[-1])


def size_problem(size: int) -> str:
    """Why there is no estimator of pictures of so many pixels a side; "" where there may be."""
    if size % STEP == 0 and STEP <= size <= MOST:
        return ""
    return f"pictures of {size} pixels: a side must be a multiple of {STEP}, and at most {MOST}"


def _about(path: Path) -> About:
    """Raises MorphVlaError for a file that says something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise MorphVlaError(f"{path} does not describe an estimator ({error})") from error
    about = mapping(content)
    optics = mapping(about.get("optics"))
    size, fovy, rise = integer(optics.get("size")), number(optics.get("fovy")), number(optics.get("rise"))
    things, targets = about.get("objects"), about.get("targets", about.get("objects"))
    camera, names = text(about.get("camera")), about.get("robots")
    if size is None or fovy is None or rise is None:
        problem = "its optics have no size, fovy and rise"
    elif not (0 < fovy < 180 and abs(rise) < math.pi / 2):
        problem = f"a camera that sees {fovy:g} degrees and stands {math.degrees(rise):g} degrees high"
    elif not (_are_shapes(things) and _are_shapes(targets)):
        problem = "objects are no names with what they are"
    elif camera is None or not isinstance(names, list):
        problem = "it names no camera and robots"
    else:
        problem = size_problem(size)
    if problem:
        raise MorphVlaError(f"{path} does not describe an estimator ({problem})")
    assert size is not None and fovy is not None and rise is not None  # noqa: PT018 (for the type checker)
    # The first ones knew no roles, nor where the table lies, nor what they began with.
    known = {"optics": Optics(size, fovy, rise), "objects": things, "targets": targets}
    counts = {key: integer(about.get(key)) or 0 for key in ("pictures", "steps")}
    measured = {"above": number(about.get("above")), "seconds": number(about.get("seconds")) or 0.0}
    return read_as(About, about, **known, **counts, **measured)


def _are_shapes(value: object) -> bool:
    """Whether it is names with what they are."""
    return isinstance(value, dict) and all(isinstance(shape, str) for shape in value.values())


def _flat(params: Any) -> dict[str, Any]:
    """`part/layer/leaf` -> its values."""
    return {
        f"{part}/{layer}/{leaf}": value
        for part, layers in params.items()
        for layer, leaves in layers.items()
        for leaf, value in leaves.items()
    }
