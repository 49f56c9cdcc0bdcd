"""Checkpoints: everything needed to act, and everything needed to go on.

    checkpoints/
        frozen/           orbax, {"params": tree} with openpi's names: what does not learn, written once
        1500/
            params/       the same for the leaves that learn
            averaged/     their moving average, what a policy acts with
            frozen/       hard links to the files above: a checkpoint can be copied or moved alone
            state/        orbax: moments of the optimizer and the step, leaf by leaf
            about/
                leaves.json   the names of those leaves, in order
                recipe.json   the recipe it was trained by
                policy.json   statistics, robots, control rates, tokenizer: what makes parameters a policy
                data.json     a digest of what each robot's datasets hold: a run goes on with the same alone
                versions.json of Python and the packages it was trained with
                robots/       each robot's URDF and side file as they were

Where everything learns there is no `frozen`, and openpi reads `params` as it is; otherwise `morph-vla weights
convert` joins the two for it. Orbax's manager writes checkpoints: in the background while training goes on,
every process its own shards, under another name until all is there. So a checkpoint appears whole or not at
all, whenever the run is killed.

To be shared, a checkpoint is packed: `about` and `averaged.safetensors` (`weights.packed`), nothing to go on.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla import robots
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files.dropin import name_of
from morph_vla.files.remote import NAMES
from morph_vla.robots import Robot
from morph_vla.training import known as known_of


def steps(folder: Path) -> list[int]:
    """Steps of the complete checkpoints under `folder`, in order."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def about(folder: Path) -> dict[str, Any]:
    """What policy.json says of the checkpoint at `folder`.

    Raises MorphVlaError when there is no checkpoint, and for a file that does not say what a policy needs.
    """
    try:
        known = json.loads(text(folder, "policy.json"))
        known_of.check(known)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise MorphVlaError(f"{folder}: about/policy.json is not a policy's ({why})") from error
    return known


def digest(known: Mapping[str, Any], leaves: Iterable[Any]) -> str:
    """SHA-256 of what policy.json says and of the averaged leaves, in the order of a tree's.

    Two policies that share it act the same.
    """
    sha256 = Digest(known)
    for leaf in leaves:
        sha256.add(leaf)
    return sha256.hexdigest()


class Digest:
    """`digest` of leaves that come one by one."""

    def __init__(self, known: Mapping[str, Any]):
        self._sha256 = hashlib.sha256(json.dumps(known, sort_keys=True).encode())

    def add(self, leaf: Any) -> None:
        """The next leaf, or the next layer of one."""
        self._sha256.update(np.ascontiguousarray(leaf).reshape(-1).view(np.uint8).data)

    def through(self, leaves: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
        """The same names and leaves, each added as it passes; none is kept.

        Of a stack that comes layer by layer, each layer is; nobody may skip one.
        """
        for name, leaf in leaves:
            if isinstance(leaf, Iterator):
                yield name, self._layers(leaf)
                assert next(leaf, None) is None, f"{name}: layers that nobody took"
            else:
                self.add(leaf)
                yield name, leaf
            del leaf

    def _layers(self, stack: Iterator[Any]) -> Iterator[Any]:
        for layer in stack:
            self.add(layer)
            yield layer
            del layer

    def hexdigest(self) -> str:
        """Of all that was added."""
        return self._sha256.hexdigest()


def robot(folder: Path, name: str, trained: Mapping[str, Any]) -> Robot:
    """The robot `name` as the checkpoint at `folder` was trained on it.

    `trained` is what policy.json says of it. An earlier checkpoint does not have its files; then it is this
    machine's robot of that name. Raises MorphVlaError where either is another body than the one that it was
    trained on, which parameters and limits were learnt for.
    """
    kept = folder / "about" / "robots" / f"{name_of('robots', name)}.urdf"
    known = robots.load(kept if kept.is_file() else name)
    now = {".urdf": ("urdf_sha256", known.urdf_sha256), ".yaml": ("side_sha256", known.side_sha256)}
    for suffix, (key, sha256) in now.items():
        if trained.get(key, sha256) == sha256:
            continue
        place = f"about/robots/{kept.stem}"
        what = f"{place}{suffix} is missing or not the one it was trained with"
        if not kept.is_file():
            what = f"{place}.urdf is missing, and {known.urdf_path} is another robot than it was trained on"
        raise MorphVlaError(f"{folder}: {what}; copy the whole checkpoint again")
    return known


def text(folder: Path, name: str) -> str:
    """A text file of the checkpoint at `folder`. Raises MorphVlaError when there is no checkpoint."""
    path = folder / "about" / name
    if (folder / name).exists():
        raise MorphVlaError(f"{folder}: a checkpoint of an earlier morph_vla; train it again")
    if not folder.exists():
        raise MorphVlaError(f"{folder}: no such folder{nearest(str(folder), NAMES)}")
    if not path.exists():
        raise MorphVlaError(f"{folder}: no checkpoint here (about/{name} is missing)")
    return path.read_text(encoding="utf-8")
