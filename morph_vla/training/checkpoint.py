"""Checkpoints: everything needed to act, and everything needed to go on.

    checkpoints/1500/
        params/       orbax, {"params": tree} with openpi's names: what openpi and `weights` read
        averaged/     the same for the moving average, what a policy acts with
        state/        orbax: moments of the optimizer and the step, leaf by leaf
        leaves.json   the names of those leaves, in order
        recipe.json   the recipe it was trained by
        policy.json   statistics, robot, control rate, tokenizer: what makes parameters a policy

A checkpoint appears whole or not at all: it is written beside its place and renamed.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from morph_vla.errors import MorphVlaError, require
from morph_vla.robots.dropin import write_text
from morph_vla.training.step import State, averaged

KEEP = 2  # newest checkpoints kept while training, besides the first


def save(folder: Path, state: State, about: dict[str, Any]) -> Path:
    """Write the checkpoint of `state` under `folder`, remove those that are no longer needed; its path.

    Raises MorphVlaError when it cannot be written (a full disk); earlier checkpoints stay as they are.
    """
    step = int(state.step)
    final, unfinished = folder / str(step), folder / f"{step}.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        _fill(unfinished, state, about)
    except (OSError, ValueError) as error:  # tensorstore words a failed write as a ValueError
        shutil.rmtree(unfinished, ignore_errors=True)
        kept = [str(found) for found in steps(folder)]
        raise MorphVlaError(
            f"{final}: the checkpoint cannot be written ({' '.join(str(error).split())[:200]}); "
            f"kept are {', '.join(kept) or 'none'}: make room, and the same command goes on"
        ) from error
    shutil.rmtree(final, ignore_errors=True)
    unfinished.rename(final)
    for old in steps(folder)[1:-KEEP]:
        shutil.rmtree(folder / str(old))
    return final


def _fill(unfinished: Path, state: State, about: dict[str, Any]) -> None:
    """Everything a checkpoint holds, into a folder that is not one yet."""
    unfinished.mkdir(parents=True)
    _write(unfinished / "params", {"params": state.params})
    _write(unfinished / "averaged", {"params": averaged(state)})
    names, leaves = _named_leaves(state)
    _write(unfinished / "state", {f"{i:05d}": leaf for i, leaf in enumerate(leaves)})
    write_text(unfinished / "leaves.json", json.dumps(names))
    plain = dict(about)
    write_text(unfinished / "recipe.json", json.dumps(plain.pop("recipe"), indent=2))
    write_text(unfinished / "policy.json", json.dumps({**plain, "step": int(state.step)}, indent=2))


def steps(folder: Path) -> list[int]:
    """Steps of the complete checkpoints under `folder`, in order."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def restore(folder: Path, like: State) -> State:
    """The state saved in the checkpoint at `folder`, in the form of `like`.

    Raises MorphVlaError naming the first leaf that is missing, new or of another shape.
    """
    names, leaves = _named_leaves(like)
    saved = json.loads((folder / "leaves.json").read_text())
    stored = _read(folder / "state")
    found = [stored[f"{i:05d}"] for i in range(len(saved))]
    _compare(folder, dict(zip(saved, found, strict=True)), dict(zip(names, leaves, strict=True)))
    by_name = dict(zip(saved, found, strict=True))
    placed = [jax.numpy.asarray(by_name[name]) for name in names]
    rest = jax.tree.unflatten(jax.tree.structure(like._replace(params={})), placed)
    return rest._replace(params=load_params(folder, like.params, "params"))


def load_params(folder: Path, like: dict[str, Any], kind: str = "averaged") -> dict[str, Any]:
    """The parameters of the checkpoint at `folder`, checked against the tree `like` (arrays or shapes).

    Raises MorphVlaError naming the first leaf that does not fit, and when there is no checkpoint.
    """
    if not (folder / kind).is_dir():
        raise MorphVlaError(f"{folder}: no checkpoint here ('{kind}' is missing)")
    tree = _read(folder / kind)["params"]
    _compare(folder, _by_path(tree), _by_path(like))
    return jax.tree.map(jax.numpy.asarray, tree)


def about(folder: Path) -> dict[str, Any]:
    """What policy.json says of the checkpoint at `folder`."""
    path = folder / "policy.json"
    if not path.exists():
        raise MorphVlaError(f"{folder}: no checkpoint here (policy.json is missing)")
    return json.loads(path.read_text())


def _named_leaves(state: State) -> tuple[list[str], list[Any]]:
    """Names and values of every leaf but the parameters (those have a place of their own)."""
    pairs = jax.tree_util.tree_leaves_with_path(state._replace(params={}))
    return [jax.tree_util.keystr(path) for path, _ in pairs], [leaf for _, leaf in pairs]


def _by_path(tree: dict[str, Any]) -> dict[str, Any]:
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(str(key.key) for key in path): leaf for path, leaf in pairs}


def _compare(folder: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, leaf in wanted.items():
        if name not in saved:
            raise MorphVlaError(f"{folder}: the model's leaf '{name}' is not in the checkpoint")
        if tuple(np.shape(saved[name])) != tuple(leaf.shape):
            raise MorphVlaError(
                f"{folder}: leaf '{name}' has shape {tuple(np.shape(saved[name]))} in the checkpoint, "
                f"{tuple(leaf.shape)} in the model"
            )
    for name in saved:
        if name not in wanted:
            raise MorphVlaError(f"{folder}: the checkpoint's leaf '{name}' has no place in the model")


def _write(path: Path, tree: Any) -> None:
    checkpointer = require("orbax.checkpoint", "model").PyTreeCheckpointer()
    checkpointer.save(path.resolve(), jax.tree.map(np.asarray, tree))


def _read(path: Path) -> Any:
    ocp = require("orbax.checkpoint", "model")
    checkpointer = ocp.PyTreeCheckpointer()
    metadata = checkpointer.metadata(path.resolve())
    tree = getattr(metadata, "item_metadata", metadata)
    tree = getattr(tree, "tree", tree)
    arguments = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return checkpointer.restore(path.resolve(), restore_args=arguments)
