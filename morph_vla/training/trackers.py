"""The log's numbers for TensorBoard and Weights & Biases, beside the JSON lines that are always written.

Both are given the same names: `loss`, `loss/panda`, `held_out/panda/loss`, `held_out/panda/panda_joint1`,
`lr`, `gradient_norm`, `gradient_norm/action_expert`, `samples_per_s`, `waiting`. A resumed run
writes the steps that it repeats again.
"""

import contextlib
import dataclasses
import json
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from morph_vla.errors import require
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text
from morph_vla.recipes.keys import Recipe
from morph_vla.training.progress import Report
from morph_vla.training.sharding import is_first


@runtime_checkable
class Tracker(Protocol):
    """Something that is given every line of the log."""

    def add(self, step: int, values: dict[str, float]) -> None:
        """The numbers after `step` steps."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


@contextlib.contextmanager
def opened(
    folder: Path, recipe: Recipe, tensorboard: bool = False, wandb: str | None = None
) -> Iterator[list[Tracker]]:
    """TensorBoard, and Weights & Biases under the project `wandb`, where asked for and only in process 0."""
    chosen: list[Tracker] = []
    try:
        if tensorboard and is_first():
            chosen.append(TensorBoard(folder))
        if wandb and is_first():
            chosen.append(Wandb(folder, wandb, to_plain(recipe)))
        yield chosen
    finally:
        for tracker in chosen:
            tracker.close()


def numbers(report: Report) -> dict[str, float]:
    """A line of the log as flat names and numbers; what was not measured is left out."""
    values: dict[str, float] = {}
    for name, value in dataclasses.asdict(report).items():
        if name == "robots":
            values |= {f"loss/{robot}": loss for robot, loss in value.items()}
        elif name == "gradient_norms":
            values |= {f"gradient_norm/{part.replace(' ', '_')}": norm for part, norm in value.items()}
        elif name == "held_out":
            for robot, row in (value or {}).items():
                values |= {f"held_out/{robot}/{joint}": loss for joint, loss in row.items()}
        elif name not in ("step", "steps") and value is not None:
            values[name] = float(value)
    return values


class TensorBoard:
    """Event files in FOLDER/tensorboard: `tensorboard --logdir FOLDER`."""

    def __init__(self, folder: Path):
        writer = require("tensorboardX", "trackers").SummaryWriter
        self._writer = writer(str(folder / "tensorboard"))

    def add(self, step: int, values: dict[str, float]) -> None:
        """See `Tracker`."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """See `Tracker`."""
        self._writer.close()


class Wandb:
    """A run of Weights & Biases, its files in FOLDER/wandb.

    Online or not is wandb's own setting: WANDB_MODE=offline writes here, and `wandb sync` sends it later. The
    run's name there is kept in FOLDER/wandb/run.json, so that a resumed run continues there too.
    """

    def __init__(self, folder: Path, project: str, config: dict[str, Any]):
        wandb = require("wandb", "trackers")
        known = folder / "wandb" / "run.json"
        known.parent.mkdir(parents=True, exist_ok=True)
        name = json.loads(known.read_text())["id"] if known.exists() else secrets.token_hex(4)
        write_text(known, json.dumps({"id": name}))
        self._run = wandb.init(
            project=project, name=folder.name, id=name, resume="allow", dir=str(folder), config=config
        )

    def add(self, step: int, values: dict[str, float]) -> None:
        """See `Tracker`."""
        self._run.log(values, step=step)

    def close(self) -> None:
        """See `Tracker`."""
        self._run.finish()
