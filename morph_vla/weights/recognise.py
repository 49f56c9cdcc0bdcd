"""Which format lies at a place: looked at, never asked for.

model.safetensors, or its index        lerobot
averaged.safetensors                   morph_vla, our own, packed to be shared
params/_METADATA and averaged/         morph_vla, our own; with frozen/, what does not learn is there
params/_METADATA                       openpi
_METADATA                              openpi: the `params` folder itself
"""

from pathlib import Path
from typing import Literal

from morph_vla.errors import MorphVlaError
from morph_vla.files.remote import resolve
from morph_vla.weights.checkpoint import Checkpoint
from morph_vla.weights.lerobot import FILE, INDEX, LerobotCheckpoint
from morph_vla.weights.openpi import FROZEN, METADATA, OrbaxCheckpoint
from morph_vla.weights.packed import FILE as PACKED
from morph_vla.weights.packed import PackedCheckpoint

Kind = Literal["averaged", "params"]
PICKLED = {".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle"}
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
INSIDE = "pretrained_model"  # where LeRobot's trainer puts the policy in its checkpoints


def open_checkpoint(source: str | Path, kind: Kind = "averaged") -> Checkpoint:
    """Open what `source` names (see `remote.resolve`).

    Raises MorphVlaError when there is nothing, or nothing that is recognised, and for an adapter of PEFT's.
    """
    path = resolve(source)
    if path.is_file() and path.suffix == ".safetensors":
        return LerobotCheckpoint(path)
    if path.is_file():
        raise MorphVlaError(_strange_file(path))
    if not path.is_dir():
        raise MorphVlaError(f"{path}: there is no such file or folder")
    if (path / PACKED).is_file():
        return PackedCheckpoint(path, open_checkpoint, kind)
    for folder in (path, path / INSIDE):
        if adapter := next((name for name in ADAPTER if (folder / name).is_file()), ""):
            raise MorphVlaError(
                f"{folder} has a PEFT adapter ({adapter}), which is not read, and its base alone is another "
                "policy; merge it first (PEFT's merge_and_unload, then save_pretrained)"
            )
        if (folder / FILE).is_file() or (folder / INDEX).is_file():
            return LerobotCheckpoint(folder)
    if (path / METADATA).is_file():
        return OrbaxCheckpoint(path, "openpi", path)
    if (path / "averaged" / METADATA).is_file() and (path / "params" / METADATA).is_file():
        frozen = [path / FROZEN] if (path / FROZEN / METADATA).is_file() else []
        return OrbaxCheckpoint(path, "morph_vla", path / kind, *frozen)
    if (path / "params" / METADATA).is_file():
        if (path / "averaged").exists():  # ours, copied by half: what is not averaged acts otherwise
            raise MorphVlaError(f"{path / 'averaged'} is damaged: it has no {METADATA}; copy it again")
        return OrbaxCheckpoint(path, "openpi", path / "params")
    raise MorphVlaError(_strange_folder(path))


def _strange_file(path: Path) -> str:
    if path.suffix in PICKLED:
        return (
            f"{path} is a pickle, and reading one may run any program in it: convert it to safetensors where "
            "you trust it, and give that"
        )
    return f"{path} is not a checkpoint; expected a safetensors file or a folder"


def _strange_folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    pickled = [name for name in names if Path(name).suffix in PICKLED]
    if pickled:
        return _strange_file(path / pickled[0])
    patterns = (f"*/{FILE}", f"*/*/{FILE}", f"*/params/{METADATA}", f"*/*/params/{METADATA}")
    files = [file.parent.relative_to(path) for pattern in patterns for file in path.glob(pattern)]
    below = sorted({str(folder).removesuffix("/params") for folder in files})
    if below:
        return f"{path} is not a checkpoint, but contains some: {', '.join(below)}"
    listed = ", ".join([*names[:8], *(["..."] if len(names) > 8 else [])]) or "nothing"
    return f"{path} is not a checkpoint: expected {FILE} or params/{METADATA}, found {listed}"
