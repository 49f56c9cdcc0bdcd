"""An estimator's file, and poses from pictures."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partial
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
from morph_vla.perception.view import Optics, View, view_of
from morph_vla.suites.suite import Suite
from morph_vla.weights import tensors

SHIPPED = "poses-exterior"
"""The estimator that comes with the package, for suites of `morph-vla suites new`"""
FOLDER = Path("bases") / "poses_exterior"
PARAMETERS, ABOUT = "estimator.safetensors", "estimator.json"
BATCH = 10  # pictures at once, filled up: an answer does not depend on its company


@dataclasses.dataclass(frozen=True)
class About:
    """What an estimator says of itself."""

    optics: Optics
    camera: str = CAMERA
    objects: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """The things it was shown -> their shapes"""
    robots: tuple[str, ...] = ()
    pictures: int = 0
    steps: int = 0
    seconds: float = 0.0
    command: str = ""
    start: str = ""
    """SHA-256 of the parameters that it began with; none where they were random"""

    def __str__(self) -> str:
        """What it was shown, for people."""
        return f"{', '.join(self.objects)} on {self.pictures} pictures, {self.steps} steps"

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**dataclasses.asdict(self), "optics": self.optics._asdict(), "robots": list(self.robots)}


class Estimator:
    """Poses of the object and the target from a picture of one camera."""

    def __init__(self, params: network.Params, about: About, source: str = "estimator", sha256: str = ""):
        """`source` is its folder or SHIPPED, `sha256` that of its file of parameters."""
        self.params, self.about, self.source, self.sha256 = params, about, source, sha256
        self.name = Path(source).name
        self._estimate = jax.jit(partial(network.estimate, optics=about.optics))

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
        return view

    def _check_things(self, task: Suite) -> None:
        """Raise MorphVlaError for things of a shape that the estimator was never shown."""
        if len(task.success.pairs) != 1:
            raise MorphVlaError(
                f"{task.label}: {len(task.success.pairs)} objects are put somewhere, and {self.name} sees one"
            )
        known = {*self.about.objects.values()}
        for thing in (name for pair in task.success.pairs for name in pair):
            if (shape := task.objects[thing].shape) not in known:
                raise MorphVlaError(
                    f"{task.label}: {self.name} was never shown what '{thing}' is ({shape}), as `morph-vla"
                    f" poses train` would; it knows {', '.join(sorted(known))}"
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
        seen = self.seen(images, hands, things)
        return np.stack([view.poses(objects).reshape(-1) for objects in seen])

    def seen(
        self,
        images: UInt8[np.ndarray, "b s s 3"],
        hands: Float[np.ndarray, "b 5"],
        things: Float[np.ndarray, "b 2 f"],
    ) -> Float[np.ndarray, "b 2 9"]:
        """The same as `View.objects_seen` has it."""
        answers = []
        for start in range(0, len(images), BATCH):
            some = slice(start, start + BATCH)
            count = len(images[some])
            fill = [(0, BATCH - count)]
            filled = (
                np.pad(values[some], [*fill, *([(0, 0)] * (values.ndim - 1))])
                for values in (images, hands, things)
            )
            answer = self._estimate(self.params, *filled)
            answers.append(np.asarray(answer)[:count])
        return np.concatenate(answers)


def save(folder: Path, params: network.Params, about: About) -> None:
    """Write an estimator: parameters in 16 bits, then what it says of itself."""
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
        params.setdefault(part, {}).setdefault(layer, {})[leaf] = tensor.read().astype(np.float32)
    with (folder / PARAMETERS).open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    return Estimator(params, about, str(source), sha256)


def _folder(source: str | Path) -> Path:
    if str(source) != SHIPPED:
        return expanded(source)
    places = [place / FOLDER.name for place in dropin.packaged(FOLDER.parent.name)]
    return next((place for place in places if place.is_dir()), places[-1])


def _about(path: Path) -> About:
    """Raises MorphVlaError for a file that says something else."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        optics = Optics(
            int(content["optics"]["size"]), *(float(content["optics"][k]) for k in ("fovy", "rise"))
        )
        if not (16 <= optics.size <= 1024 and optics.size % 16 == 0):
            raise ValueError(f"pictures of {optics.size} pixels")
        rest = {key: content[key] for key in ("camera", "objects", "pictures", "steps", "seconds", "command")}
        objects = rest["objects"]
        if not isinstance(objects, dict) or not all(isinstance(text, str) for text in objects.values()):
            raise ValueError("objects are no names with what they are")
        start = str(content.get("start", ""))  # the first ones did not say it
        return About(optics, robots=tuple(content["robots"]), start=start, **rest)
    except (ValueError, KeyError, TypeError) as error:
        raise MorphVlaError(f"{path} does not describe an estimator ({error})") from error


def _flat(params: Any) -> dict[str, Any]:
    """`part/layer/leaf` -> its values."""
    return {
        f"{part}/{layer}/{leaf}": value
        for part, layers in params.items()
        for layer, leaves in layers.items()
        for leaf, value in leaves.items()
    }
