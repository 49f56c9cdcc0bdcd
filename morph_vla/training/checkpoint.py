"""Checkpoints: everything needed to act, and everything needed to go on.

    checkpoints/1500/
        params/       orbax, {"params": tree} with openpi's names: what openpi and `weights` read
        averaged/     the same for the moving average, what a policy acts with
        state/        orbax: moments of the optimizer and the step, leaf by leaf
        about/
            leaves.json   the names of those leaves, in order
            recipe.json   the recipe it was trained by
            policy.json   statistics, robots, control rates, tokenizer: what makes parameters a policy
            versions.json of Python and the packages it was trained with
            robots/       each robot's URDF and side file as they were

Orbax's manager writes them: in the background while training goes on, every process its own shards, under
another name until all is there. So a checkpoint appears whole or not at all, whenever the run is killed.

To be shared, a checkpoint is packed: `about` and `averaged.safetensors` (`weights.packed`), nothing to go on.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np

from morph_vla import robots, weights
from morph_vla.errors import MorphVlaError, require
from morph_vla.pi05.parts import by_name
from morph_vla.process import versions
from morph_vla.robots import Robot
from morph_vla.training.step import State, averaged
from morph_vla.weights import packed

ITEMS = ("params", "averaged", "state", "about")
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
        self._manager = ocp.CheckpointManager(
            folder.resolve(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=policy.AnyPreservationPolicy(kept),
                enable_async_checkpointing=True,
                cleanup_tmp_directories=True,
            ),
            item_names=ITEMS,
            item_handlers={"about": _texts()[0]()},
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
        items = args.Composite(
            params=args.PyTreeSave({"params": state.params}),
            averaged=args.PyTreeSave({"params": averaged(state)}),
            state=args.PyTreeSave({f"{i:05d}": leaf for i, leaf in enumerate(leaves)}),
            about=_texts()[1](files),
        )
        self._step = step
        self._guarded(lambda: self._manager.save(step, args=items, force=True))

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


@cache
def _texts() -> tuple[type, type]:
    """An orbax handler for a few small files, and the arguments it saves; made from its classes."""
    ocp = require("orbax.checkpoint", "model")

    class Files(ocp.args.CheckpointArgs):
        def __init__(self, files: dict[str, bytes]):
            self.files = files

    class Nothing(ocp.args.CheckpointArgs):
        pass

    class Handler(ocp.CheckpointHandler):
        def save(self, directory: Any, args: Files) -> None:
            if jax.process_index() == 0:
                for name, content in args.files.items():
                    path = Path(directory) / name
                    path.parent.mkdir(exist_ok=True)
                    path.write_bytes(content)

        def restore(self, directory: Any, args: Any = None) -> None:
            """Not needed: they are read as what they are."""

    ocp.args.register_with_handler(Handler, for_save=True)(Files)
    ocp.args.register_with_handler(Handler, for_restore=True)(Nothing)
    return Handler, Files


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
    structure = jax.tree.structure(like._replace(params={}))
    rest = jax.tree.unflatten(structure, [values[name] for name in names])
    return rest._replace(params=load_params(folder, like.params, "params"))


def load_params(folder: Path, like: dict[str, Any], kind: str = "averaged") -> dict[str, Any]:
    """The parameters of the checkpoint at `folder`, checked against the tree `like` (arrays or shapes).

    They are placed as the arrays of `like`, or on this process's first device for shapes. Raises
    MorphVlaError naming the first leaf that does not fit, and when there is no checkpoint.
    """
    if (folder / packed.FILE).is_file():
        return _load_packed(folder, like, kind)
    if not (folder / kind).is_dir():
        raise MorphVlaError(f"{folder}: no checkpoint here ('{kind}' is missing)")
    _compare(folder, by_name(_shapes(folder / kind)["params"]), by_name(like))
    return _read(folder / kind, {"params": like})["params"]


def _load_packed(folder: Path, like: dict[str, Any], kind: str) -> dict[str, Any]:
    opened, wanted = packed.PackedCheckpoint(folder, kind), by_name(like)
    _compare(folder, opened.entries, wanted)
    leaves = {
        name: jax.device_put(opened.read(name, (), opened.entries[name].dtype), _placed(leaf))
        for name, leaf in wanted.items()
    }
    return weights.nested(leaves)


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
    """Names and values of every leaf but the parameters (those have a place of their own)."""
    pairs = jax.tree_util.tree_leaves_with_path(state._replace(params={}))
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


def _placed(leaf: Any) -> Any:
    """Where an array lies; of a shape, this process's first device."""
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return getattr(leaf, "sharding", None) or here


def _read(path: Path, like: Any) -> Any:
    """An orbax item, every leaf placed as that of `like`, read by each process as far as it needs it."""
    ocp = _orbax()

    def asked(leaf: Any) -> Any:
        return ocp.ArrayRestoreArgs(sharding=_placed(leaf), global_shape=tuple(np.shape(leaf)))

    arguments = jax.tree.map(asked, like)
    return ocp.PyTreeCheckpointer().restore(path.resolve(), restore_args=arguments)
