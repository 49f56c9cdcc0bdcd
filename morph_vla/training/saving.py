"""Writing checkpoints (`checkpoint` has their layout), in the background while training goes on."""

import json
import logging
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax

from morph_vla.errors import MorphVlaError, require
from morph_vla.files.writing import link_or_copy
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.pi05.serving import is_stack
from morph_vla.process import versions
from morph_vla.training.checkpoint import steps
from morph_vla.training.step import State
from morph_vla.weights import FROZEN, nested

CHUNK = 32 * 2**20
"""Bytes: what is stored together of a stack of layers, at most"""
ITEMS = ("params", "averaged", FROZEN, "state", "about")


class Saver:
    """Writes the checkpoints of one run. Use as a context manager: leaving waits for the last one."""

    def __init__(self, folder: Path, keep: int = 2, keep_every: int = 0):
        """Under `folder`, keeping the first, the newest `keep` and, if not 0, every `keep_every` steps."""
        ocp = require("orbax.checkpoint", "model")
        policy = require("orbax.checkpoint.checkpoint_managers", "model").preservation_policy
        kept = [policy.CustomSteps([0]), policy.LatestN(keep)]
        if keep_every:
            kept.append(policy.EveryNSteps(keep_every))
        self._folder, self._step, self._ocp = folder, None, ocp
        folder.mkdir(parents=True, exist_ok=True)
        if not steps(folder) and jax.process_index() == 0:  # of a run that ended before its first checkpoint
            for left in (folder / FROZEN, *folder.glob(f"{FROZEN}.*")):  # orbax would clear away the latter
                shutil.rmtree(left, ignore_errors=True)
        self._manager = ocp.CheckpointManager(
            folder.resolve(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policy.AnyPreservationPolicy(kept),
                enable_async_checkpointing=True,
                cleanup_tmp_directories=True,
            ),
            item_names=ITEMS,
            item_handlers={"about": _handlers().texts(), FROZEN: _handlers().links()},
        )

    def save(self, state: State, about: dict[str, Any]) -> None:
        """Write the checkpoint of `state`: values are copied now and written in the background.

        Raises MorphVlaError when this one or the one before cannot be written (a full disk); earlier
        checkpoints stay as they are.
        """
        self.wait()
        step, args = int(state.step), self._ocp.args
        names, leaves = named_leaves(state)
        plain = {**about, "step": step}
        files = {
            **{f"robots/{name}": file for name, file in plain.pop("files", {}).items()},
            "leaves.json": json.dumps(names).encode(),
            "data.json": json.dumps(plain.pop("data", {}), indent=2).encode(),
            "recipe.json": json.dumps(plain.pop("recipe"), indent=2).encode(),
            "policy.json": json.dumps(plain, indent=2).encode(),
            "versions.json": json.dumps(versions(), indent=2).encode(),
        }
        average = by_name(state.ema)
        learnt = {name: leaf for name, leaf in by_name(state.params).items() if name in average}
        items = {
            "params": _tree({"params": nested(learnt)}),
            "averaged": _tree({"params": nested(average)}),
            "state": args.PyTreeSave({f"{i:05d}": leaf for i, leaf in enumerate(leaves)}),
            "about": _handlers().save_texts(files),
        }
        self._step = step
        frozen = {name: leaf for name, leaf in by_name(state.params).items() if name not in average}
        if frozen:
            items[FROZEN] = _handlers().save_links(self._folder / FROZEN)
            self._guarded(lambda: self._write_frozen(frozen))
        self._guarded(lambda: self._manager.save(step, args=args.Composite(**items), force=True))

    def _write_frozen(self, frozen: dict[str, Any]) -> None:
        """Write the leaves that never change, unless an earlier checkpoint of the run did."""
        if not (self._folder / FROZEN).is_dir():
            with self._ocp.PyTreeCheckpointer() as checkpointer:
                tree = {"params": nested(frozen)}
                place = (self._folder / FROZEN).resolve()
                checkpointer.save(place, tree, save_args=stored_by_layers(tree))

    def wait(self) -> None:
        """Wait until everything is written. Raises MorphVlaError as `save` does."""
        self._guarded(self._manager.wait_until_finished)

    def newest(self) -> Path | None:
        """The newest checkpoint, once everything is written. Raises MorphVlaError as `save` does."""
        self.wait()
        saved = steps(self._folder)
        return self._folder / str(saved[-1]) if saved else None

    def _guarded(self, work: Callable[[], Any]) -> None:
        try:
            work()
        # tensorstore words a failed write as a ValueError
        except (OSError, ValueError, RuntimeError) as error:
            kept, reason = ", ".join(map(str, steps(self._folder))), " ".join(str(error).split())[:200]
            raise MorphVlaError(
                f"{self._folder / str(self._step)}: the checkpoint cannot be written "
                f"({reason}); kept are {kept or 'none'}: make room, "
                "and the same command goes on"
            ) from error

    def __enter__(self) -> "Saver":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.wait()
        finally:
            self._manager.close()


class _Handlers(NamedTuple):
    """Orbax's handlers of what we write ourselves, and the arguments that they save."""

    texts: type
    """of a few text files"""
    save_texts: type
    links: type
    """of a folder whose files are those of another"""
    save_links: type


@cache
def _handlers() -> _Handlers:
    """Made when used, from orbax's classes."""
    ocp = require("orbax.checkpoint", "model")
    # It warns of an item without arrays: where nothing learns, there are none.
    logging.getLogger("absl").addFilter(
        lambda record: "No per-process OCDBT checkpoint" not in str(record.msg)
    )

    class Texts(ocp.args.CheckpointArgs):
        def __init__(self, files: dict[str, bytes]):
            self.files = files

    class Links(ocp.args.CheckpointArgs):
        def __init__(self, source: Path):
            self.source = source

    class Handler(ocp.CheckpointHandler):
        def restore(self, directory: Any, args: Any = None) -> None:
            """Not needed: what they wrote is read as what it is."""

    class TextsHandler(Handler):
        def save(self, directory: Any, args: Texts) -> None:
            if jax.process_index() == 0:
                for name, content in args.files.items():
                    path = Path(directory) / name
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(content)

    class LinksHandler(Handler):
        def save(self, directory: Any, args: Links) -> None:
            if jax.process_index() == 0:
                shutil.copytree(args.source, directory, copy_function=link_or_copy, dirs_exist_ok=True)

    for handler, saved in ((TextsHandler, Texts), (LinksHandler, Links)):
        ocp.args.register_with_handler(handler, for_save=True)(saved)
        unused = type(f"No{saved.__name__}", (ocp.args.CheckpointArgs,), {})
        ocp.args.register_with_handler(handler, for_restore=True)(unused)
    return _Handlers(TextsHandler, Texts, LinksHandler, Links)


def _tree(tree: dict[str, Any]) -> Any:
    """The arguments that save a tree of parameters."""
    return require("orbax.checkpoint", "model").args.PyTreeSave(tree, save_args=stored_by_layers(tree))


def stored_by_layers(tree: dict[str, Any]) -> Any:
    """Orbax's arguments for each leaf: layers of a large stack are stored apart, so that each is read alone.

    By itself, orbax stores up to 2 GB together, which must be read together.
    """
    ocp = require("orbax.checkpoint", "model")
    layered = ocp.SaveArgs(chunk_byte_size=CHUNK, shard_axes=(0,))
    return {
        top: map_named(lambda name, _: layered if is_stack(name) else ocp.SaveArgs(), leaves)
        for top, leaves in tree.items()
    }


def named_leaves(state: State) -> tuple[list[str], list[Any]]:
    """Names and values of every leaf but the parameters and their average, which have places of their own."""
    pairs = jax.tree_util.tree_leaves_with_path(state._replace(params={}, ema={}))
    return [jax.tree_util.keystr(path) for path, _ in pairs], [leaf for _, leaf in pairs]
