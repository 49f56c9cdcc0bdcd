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
import logging
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from morph_vla import robots
from morph_vla.errors import MorphVlaError, require
from morph_vla.files.writing import link_or_copy
from morph_vla.pi05.parts import by_name, map_named
from morph_vla.process import versions
from morph_vla.robots import Robot
from morph_vla.training.step import State
from morph_vla.weights import FROZEN, nested, open_checkpoint, packed

ITEMS = ("params", "averaged", FROZEN, "state", "about")
OF_A_ROBOT = (  # what policy.json says of each
    "joints", "control_rate", "actions", "relative", "cameras", "state_stats", "action_stats"
)  # fmt: skip


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
            shutil.rmtree(folder / FROZEN, ignore_errors=True)
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
        names, leaves = _named_leaves(state)
        plain = {**about, "step": step}
        files = {
            **{f"robots/{name}": file for name, file in plain.pop("files", {}).items()},
            "leaves.json": json.dumps(names).encode(),
            "recipe.json": json.dumps(plain.pop("recipe"), indent=2).encode(),
            "policy.json": json.dumps(plain, indent=2).encode(),
            "versions.json": json.dumps(versions(), indent=2).encode(),
        }
        average = by_name(state.ema)
        learnt = {name: leaf for name, leaf in by_name(state.params).items() if name in average}
        items = {
            "params": args.PyTreeSave({"params": nested(learnt)}),
            "averaged": args.PyTreeSave({"params": nested(average)}),
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
                checkpointer.save((self._folder / FROZEN).resolve(), {"params": nested(frozen)})

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


def steps(folder: Path) -> list[int]:
    """Steps of the complete checkpoints under `folder`, in order."""
    if not folder.is_dir():
        return []
    return sorted(int(path.name) for path in folder.iterdir() if path.name.isdecimal())


def restore(folder: Path, like: State) -> State:
    """The state saved in the checkpoint at `folder`, its leaves placed as those of `like`.

    Raises MorphVlaError naming the first leaf that is missing, new or of another shape.
    """
    names, leaves = _named_leaves(like)
    saved = json.loads(text(folder, "leaves.json"))
    shapes = _shapes(folder / "state")
    stored = {name: shapes[f"{i:05d}"] for i, name in enumerate(saved)}
    wanted = dict(zip(names, leaves, strict=True))
    _compare(folder, stored, wanted)
    read = _read(folder / "state", {f"{i:05d}": wanted[name] for i, name in enumerate(saved)})
    values = {name: read[f"{i:05d}"] for i, name in enumerate(saved)}
    structure = jax.tree.structure(like._replace(params={}, ema={}))
    rest = jax.tree.unflatten(structure, [values[name] for name in names])
    params = load_params(folder, like.params, "params")
    return rest._replace(params=params, ema=_read_named(folder / "averaged", like.ema))


def load_params(
    folder: Path,
    like: dict[str, Any],
    kind: str = "averaged",
    types: Callable[[str], str | None] = lambda _: None,
) -> dict[str, Any]:
    """The parameters of the checkpoint at `folder`, checked against the tree `like` (arrays or shapes).

    They are placed as the arrays of `like`, or on this process's first device for shapes. `types` gives the
    type that a leaf of a name is rounded to as it is read, or None for the one it is stored in. Raises
    MorphVlaError naming the first leaf that does not fit, and when there is no checkpoint.
    """
    if (folder / packed.FILE).is_file():
        return _load_packed(folder, like, kind, types)
    if not (folder / kind).is_dir():
        raise MorphVlaError(f"{folder}: no checkpoint here ('{kind}' is missing)")
    items = [folder / item for item in (kind, FROZEN) if (folder / item).is_dir()]
    stored = {item: by_name(_shapes(item)["params"]) for item in items}
    wanted, values = by_name(like), {}
    _compare(folder, {name: leaf for leaves in stored.values() for name, leaf in leaves.items()}, wanted)
    for item, leaves in stored.items():
        values |= by_name(_read_named(item, nested({name: wanted[name] for name in leaves}), types))
    return map_named(lambda name, _: values[name], like)


def _load_packed(
    folder: Path, like: dict[str, Any], kind: str, types: Callable[[str], str | None]
) -> dict[str, Any]:
    opened, wanted = packed.PackedCheckpoint(folder, open_checkpoint, kind), by_name(like)
    _compare(folder, opened.entries, wanted)
    leaves = {}
    for name, leaf in wanted.items():
        dtype = np.dtype(types(name) or opened.entries[name].dtype)
        leaves[name] = jax.device_put(opened.read(name, (), dtype), _placed(leaf))
    return nested(leaves)


def about(folder: Path) -> dict[str, Any]:
    """What policy.json says of the checkpoint at `folder`.

    Raises MorphVlaError when there is no checkpoint, and for a file that lacks what a policy needs.
    """
    content = text(folder, "policy.json")
    try:
        known = json.loads(content)
        missing = [key for robot in known["robots"].values() for key in OF_A_ROBOT if key not in robot]
        if missing or not known["robots"]:
            raise ValueError(f"no {missing[0] if missing else 'robot'}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise MorphVlaError(f"{folder}: about/policy.json is not a policy's ({why})") from error
    return known


def digest(known: Mapping[str, Any], leaves: Iterable[Any]) -> str:
    """SHA-256 of what policy.json says and of the averaged leaves, in the order of a tree's.

    Two policies that share it act the same.
    """
    sha256 = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
    for leaf in leaves:
        sha256.update(np.asarray(leaf).tobytes())
    return sha256.hexdigest()


def robot(folder: Path, name: str) -> Robot:
    """The robot `name` as the checkpoint at `folder` was trained on it.

    An earlier checkpoint does not have its files; then it is this machine's robot of that name.
    """
    kept = folder / "about" / "robots" / f"{Path(name).stem}.urdf"
    return robots.load(kept if kept.is_file() else name)


def text(folder: Path, name: str) -> str:
    """A text file of the checkpoint at `folder`. Raises MorphVlaError when there is no checkpoint."""
    path = folder / "about" / name
    if (folder / name).exists():
        raise MorphVlaError(f"{folder}: a checkpoint of an earlier morph_vla; train it again")
    if not path.exists():
        raise MorphVlaError(f"{folder}: no checkpoint here (about/{name} is missing)")
    return path.read_text(encoding="utf-8")


def _named_leaves(state: State) -> tuple[list[str], list[Any]]:
    """Names and values of every leaf but the parameters and their average, which have places of their own."""
    pairs = jax.tree_util.tree_leaves_with_path(state._replace(params={}, ema={}))
    return [jax.tree_util.keystr(path) for path, _ in pairs], [leaf for _, leaf in pairs]


def _compare(folder: Path, saved: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, leaf in wanted.items():
        if name not in saved:
            raise MorphVlaError(f"{folder}: the model's leaf '{name}' is not in the checkpoint")
        if tuple(saved[name].shape) != tuple(leaf.shape):
            raise MorphVlaError(
                f"{folder}: leaf '{name}' has shape {tuple(saved[name].shape)} in the checkpoint, "
                f"{tuple(leaf.shape)} in the model"
            )
    for name in saved:
        if name not in wanted:
            raise MorphVlaError(f"{folder}: the checkpoint's leaf '{name}' has no place in the model")


@cache
def _orbax() -> Any:
    """The door to orbax for reading."""
    # It warns that an item has no metadata file of its own; its checkpoint has one for all.
    expected = "Metadata file does not exist"
    logging.getLogger("absl").addFilter(lambda record: not record.getMessage().startswith(expected))
    return require("orbax.checkpoint", "model")


def _shapes(path: Path) -> Any:
    """The tree of an orbax item as shapes and types; nothing is read."""
    metadata = _orbax().PyTreeCheckpointer().metadata(path.resolve())
    tree = getattr(metadata, "item_metadata", metadata)
    return getattr(tree, "tree", tree)


def _read_named(
    path: Path, like: dict[str, Any], types: Callable[[str], str | None] = lambda _: None
) -> dict[str, Any]:
    """An item of parameters; where `like` has None, so has the result."""
    asked = {name: _asked(leaf, types(name)) for name, leaf in by_name(like).items()}
    values = by_name(_restored(path, {"params": nested(asked)})["params"])
    return map_named(lambda name, _: values[name], like)


def _placed(leaf: Any) -> Any:
    """Where an array lies; of a shape, this process's first device."""
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return getattr(leaf, "sharding", None) or here


def _read(path: Path, like: Any) -> Any:
    """An orbax item, every leaf placed as that of `like`, read by each process as far as it needs it."""
    return _restored(path, jax.tree.map(_asked, like))


def _asked(leaf: Any, dtype: str | None = None) -> Any:
    """What orbax is asked for in the place of an array, or of a shape."""
    named = {} if dtype is None else {"dtype": np.dtype(dtype)}
    return _orbax().ArrayRestoreArgs(sharding=_placed(leaf), global_shape=tuple(np.shape(leaf)), **named)


def _restored(path: Path, asked: Any) -> Any:
    return _orbax().PyTreeCheckpointer().restore(path.resolve(), restore_args=asked)
