"""Which format lies at a place: looked at, never asked for.

model.safetensors, or its index        lerobot
params/_METADATA and averaged/         morph_vla, our own
params/_METADATA                       openpi
_METADATA                              openpi: the `params` folder itself
"""

from pathlib import Path
from typing import Literal

from morph_vla.errors import MorphVlaError
from morph_vla.weights.checkpoint import Checkpoint
from morph_vla.weights.lerobot import FILE, INDEX, LerobotCheckpoint
from morph_vla.weights.openpi import METADATA, OrbaxCheckpoint
from morph_vla.weights.remote import resolve

Kind = Literal["averaged", "params"]
FORMATS = ("openpi", "lerobot", "morph_vla")
PICKLED = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
INSIDE = "pretrained_model"  # where LeRobot's trainer puts the policy in its checkpoints


def open_checkpoint(source: str | Path, kind: Kind = "averaged") -> Checkpoint:
    """Open what `source` names (see `remote.resolve`).

    Raises MorphVlaError when there is nothing, or nothing that is recognised.
    """
    path = resolve(source)
    if path.is_file() and path.suffix == ".safetensors":
        return LerobotCheckpoint(path)
    if path.is_file():
        raise MorphVlaError(_strange_file(path))
    if not path.is_dir():
        raise MorphVlaError(f"{path}: there is no such file or folder")
    for folder in (path, path / INSIDE):
        if (folder / FILE).is_file() or (folder / INDEX).is_file():
            return LerobotCheckpoint(folder)
    if (path / METADATA).is_file():
        return OrbaxCheckpoint(path, "openpi", path)
    if (path / "averaged" / METADATA).is_file() and (path / "params" / METADATA).is_file():
        return OrbaxCheckpoint(path, "morph_vla", path / kind)
    if (path / "params" / METADATA).is_file():
        return OrbaxCheckpoint(path, "openpi", path / "params")
    raise MorphVlaError(_strange_folder(path))


def _strange_file(path: Path) -> str:
    if path.suffix in PICKLED:
        return (
            f"{path} is a pickle, and reading one may run any program in it: convert it to safetensors where "
            f"you trust it, and give that"
        )
    return f"{path} is no checkpoint: a safetensors file or a folder is wanted"


def _strange_folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    pickled = [name for name in names if Path(name).suffix in PICKLED]
    if pickled:
        return _strange_file(path / pickled[0])
    below = sorted(
        str(file.parent.relative_to(path)).removesuffix("/params")
        for pattern in (f"*/{FILE}", f"*/*/{FILE}", f"*/params/{METADATA}", f"*/*/params/{METADATA}")
        for file in path.glob(pattern)
    )
    if below:
        return f"{path} is no checkpoint; there are some below it: {', '.join(dict.fromkeys(below))}"
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "nothing"
    return f"{path} is no checkpoint: neither {FILE} nor params/{METADATA} is there, but {listed}"
