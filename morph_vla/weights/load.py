"""`load`: parameters from any source into the host's tree, strictly, with a report.

Memory: the leaves are read block by block, each straight into its place. So the most that is ever held is the
parameters themselves and one stored block; those stored in large blocks come first, while there is room.
"""

import contextlib
import ctypes
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from morph_vla.errors import MorphVlaError, nearest, reason
from morph_vla.findings import Finding
from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.serving import is_stack, layers
from morph_vla.weights import names, recognise
from morph_vla.weights.checkpoint import Checkpoint, assembled, flat, layers_of, nested, recipe_model
from morph_vla.weights.lora import lora_of, merge_lora, same_pairs
from morph_vla.weights.names import ALL, Piece, Shape
from morph_vla.weights.plugin import check_reads
from morph_vla.weights.report import Report, Row, is_under, problem, problems, refuse

Place = Callable[[str, np.ndarray], Any]
Types = str | Mapping[str, str] | Callable[[str], str]
TYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
# The host's; the other settings are not those of parameters.
SIZES = {"vocab", "image_size", "vit", "prefix", "expert", "depth", "heads", "kv_heads"}
SIZES |= {"head_dim", "action_dim"}
HEADS = ("heads", "kv_heads", "vit.heads")
"""Of which another number fits LeRobot's shapes as well: they join heads and head size"""
MOST = 2**31 - 1  # rows of an array; JAX indexes by int32
NO_SIZES = (KeyError, ValueError, IndexError, ZeroDivisionError, RecursionError)
"""What shapes and metadata of no pi0.5, or of a hostile file, end in"""
AT_ONCE = 2**24  # values looked at together when they are checked to be finite
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
SMALL, LARGE = 2**20, 32 * 2**20  # bytes


def load(
    source: str | Path,
    config: Pi05Config | None = None,
    *,
    dtype: Types = "float32",
    kind: recognise.Kind = "averaged",
    new: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    finite: bool = True,
    seed: int = 0,
    place: Place | None = None,
    by_layer: bool = False,
) -> tuple[dict[str, Any], Report]:
    """The parameters at `source` for the model `config`, and what became of every leaf.

    Args:
        source: `pi05-base`, `pi05-nano`, a path, `gs://...` or `hf://owner/name[/sub][@revision]`.
        config: The model. Without one its sizes are read off the checkpoint and the plugin's leaves are taken
            as they are.
        dtype: Type in memory: float32, bfloat16 or stored (as it is stored), for all, by part (of
            `pi05.parts`; parts not named are float32), or a function of a leaf's name.
        kind: Which parameters of our own checkpoints: "averaged" (to act) or "params" (as they were trained).
        new: Leaves, or what they begin with, that the checkpoint need not have; they start as `init_params`
            makes them with `seed`. None allows the plugin's, a head's, and those that make fewer image
            tokens, when the checkpoint has none of them.
        ignore: The checkpoint's entries that may be left out.
        finite: Refuse parameters that are not finite.
        seed: Of the new leaves.
        place: Called with each leaf's name and array; what it returns stands in the tree, so that leaves can
            go to a device one by one.
        by_layer: A stack is a list of its layers, each in memory of its own, and is never whole.

    A checkpoint's low-rank pairs that are not `config`'s are merged into their weights; those that only
    `config` has are new.

    Raises MorphVlaError that names every leaf that is missing, unexpected, or of another shape or type, and
    for a plugin that was trained to read something else of a joint.
    """
    opened = recognise.open_checkpoint(source, kind)
    put = place or (layers if by_layer else lambda _, value: value)
    stored = lora_of(opened)
    check_reads(opened, None if config is None else config.morphology)
    if config is not None and stored is not None and not same_pairs(stored, config.lora):
        as_stored = dataclasses.replace(config, lora=stored)
        params, report = load(
            source, as_stored, dtype=dtype, kind=kind, new=new, ignore=ignore, finite=finite, seed=seed
        )
        return _merged(merge_lora(params, stored), report, config, seed, put)
    shapes, fresh, plan = plan_of(opened, config, new)
    misfits = problems(opened, plan, (*ignore, *names.left_out(config)))
    heads = [size for size in _apart(opened, config) if size.subject[0] in HEADS]
    refuse(opened, misfits or heads, _hint(opened, config) if misfits else "")
    types = {leaf: _type(opened, leaf, plan.get(leaf), dtype) for leaf in shapes}
    values, bad = {}, []
    with returned_at_once():
        for leaf in sorted(plan, key=lambda leaf: _passing(opened, plan[leaf]), reverse=True):
            in_layers = by_layer and is_stack(leaf)
            parts = _arrays(opened, leaf, plan[leaf], shapes[leaf], types[leaf], in_layers)
            values[leaf] = parts if in_layers else put(leaf, parts[0])
            if finite and not all(map(is_finite, parts)):
                bad.append(problem("not-finite", opened.path, leaf, f"not finite: {leaf} {shapes[leaf]}"))
            del parts
    refuse(opened, bad)
    if fresh:
        assert config is not None
        for leaf, value in initial(config, fresh, seed).items():
            values[leaf] = put(leaf, value.astype(types[leaf]))
    report = _report(source, opened, shapes, plan, types)
    return nested({leaf: values[leaf] for leaf in shapes}), report


def _arrays(
    opened: Checkpoint, leaf: str, pieces: Sequence[Piece], shape: Shape, dtype: np.dtype, in_layers: bool
) -> list[np.ndarray]:
    """A leaf as one array, or as one a layer. Raises MorphVlaError where memory does not hold it."""
    try:
        return (
            [*layers_of(opened, pieces, shape, dtype)]
            if in_layers
            else [assembled(opened, pieces, shape, dtype)]
        )
    except MemoryError as error:
        what = f"{leaf} {shape} of {dtype}"
        raise MorphVlaError(f"{opened.path}: no memory left for {what} ({reason(error)})") from error


def _merged(
    params: dict[str, Any], report: Report, config: Pi05Config, seed: int, put: Place
) -> tuple[dict[str, Any], Report]:
    """Parameters whose pairs went into their weights, with new pairs where `config` has some."""
    values, rows = flat(params), [row for row in report.rows if not names.is_lora(row.leaf)]
    fresh = [name for name in leaf_shapes(config) if names.is_lora(name)] if config.lora else []
    for name, value in (initial(config, fresh, seed) if fresh else {}).items():
        values[name] = value
        rows.append(Row(name, value.shape, "", value.dtype.name, value.nbytes))
    placed = {name: put(name, value) for name, value in values.items()}
    merged = tuple(row.leaf for row in report.rows if names.is_lora(row.leaf))
    return nested(placed), dataclasses.replace(report, rows=tuple(rows), merged=merged)


def _init(config: Pi05Config, seed: int = 0) -> Callable[[], dict[str, Any]]:
    """`init_params` as a function to be traced, by leaf."""
    import jax

    from morph_vla.pi05 import init_params

    config = dataclasses.replace(config, dtype="float32", remat=False)  # no leaf depends on them
    return lambda: flat(init_params(config, jax.random.key(seed)))


def leaf_shapes(config: Pi05Config) -> dict[str, Shape]:
    """Name -> shape of every leaf of a model; nothing is computed."""
    from morph_vla.pi05.counts import shapes

    return {name: tuple(leaf.shape) for name, leaf in flat(shapes(config)).items()}


def initial(config: Pi05Config, leaves: Sequence[str], seed: int) -> dict[str, np.ndarray]:
    """Some leaves as `init_params` makes them; the others are never computed."""
    import jax

    make = _init(config, seed)
    chosen = jax.jit(lambda: {name: leaf for name, leaf in make().items() if name in leaves})()
    return {name: np.asarray(value) for name, value in chosen.items()}


def sizes_of(opened: Checkpoint) -> Pi05Config:
    """The host's sizes as the checkpoint has them. Raises MorphVlaError where they cannot be read off it."""
    try:
        for name, entry in opened.entries.items():
            if max(entry.shape, default=0) > MOST:
                raise ValueError(f"{name} {entry.shape} is longer than the {MOST:,} that JAX counts to")
        return opened.config()
    except NO_SIZES as error:
        check_family(opened)
        why = f"no {error}" if isinstance(error, KeyError) else error
        raise MorphVlaError(
            f"{opened.path} ({opened.format}): the sizes of a pi0.5 cannot be read off it ({why})"
        ) from error


def check_family(opened: Checkpoint) -> None:
    """Raise MorphVlaError for a checkpoint of ours whose family is not pi0.5's."""
    family = recipe_model(opened).get("family", Pi05Config.family)
    if family != Pi05Config.family:
        raise MorphVlaError(
            f"{opened.path} is a policy of model.family '{family}': only pi0.5 has layouts that other "
            "programs read and write; use the checkpoint as it is (`eval`, `serve`, `push`)"
        )


def plan_of(
    opened: Checkpoint, config: Pi05Config | None, new: Sequence[str] | None
) -> tuple[dict[str, Shape], list[str], dict[str, list[Piece]]]:
    """The shape of every leaf to be filled, those that are new, and the pieces of the others.

    Raises MorphVlaError when there is no config and as `sizes_of`.
    """
    shapes = leaf_shapes(config or sizes_of(opened))
    if config is None:
        as_they_are = (n for n in opened.entries if is_under(n, names.OURS) or names.is_lora(n))
        shapes |= {name: opened.entries[name].shape for name in as_they_are}
        if names.HEAD_LEAF in shapes:
            shapes = {name: shape for name, shape in shapes.items() if name in opened.entries}
    fresh = _new_leaves(opened, shapes, new)
    return shapes, fresh, {leaf: opened.pieces(leaf, s) for leaf, s in shapes.items() if leaf not in fresh}


def _hint(opened: Checkpoint, config: Pi05Config | None) -> str:
    """The sizes that differ, for the error of a checkpoint that does not fit."""
    sizes = _apart(opened, config)
    return f" ({'; '.join(size.found for size in sizes)})" if sizes else ""


def _apart(opened: Checkpoint, config: Pi05Config | None) -> list[Finding]:
    """The sizes that differ; none where the checkpoint does not tell its own."""
    try:
        return [] if config is None else differences(opened.config(config), config)
    except NO_SIZES:
        return []


def differences(stored: Pi05Config, config: Pi05Config) -> list[Finding]:
    """Which sizes of the host differ: "prefix.width is 24 in the checkpoint, 20 in the model", and so on."""
    blind = [not sizes.cameras for sizes in (stored, config)]
    keys = SIZES - ({"vit", "image_size"} if any(blind) else set())
    if stored.environment:
        keys |= {"environment"}
    old, new = (
        flat({key: value for key, value in dataclasses.asdict(sizes).items() if key in keys})
        for sizes in (stored, config)
    )
    apart = {key.replace("/", "."): (old[key], new[key]) for key in old if old[key] != new[key]}
    no_encoder = []
    if blind[0] != blind[1]:
        found = f"the {'checkpoint' if blind[0] else 'model'} has no cameras, and the other has some"
        no_encoder = [problem("size", "model.cameras", "cameras", found)]
    return no_encoder + [
        problem("size", f"model.{key}", key, f"{key} is {a} in the checkpoint, {b} in the model")
        for key, (a, b) in apart.items()
    ]


def is_finite(values: np.ndarray) -> bool:
    """Whether all values are; looked at some at a time, for the mask takes memory too."""
    line = values.reshape(-1)
    return all(bool(np.isfinite(line[i : i + AT_ONCE]).all()) for i in range(0, line.size, AT_ONCE))


def _new_leaves(opened: Checkpoint, shapes: Mapping[str, Shape], new: Sequence[str] | None) -> list[str]:
    """The leaves that are allowed to be missing and are."""
    pairs = () if any(map(names.is_lora, opened.entries)) else [n for n in shapes if names.is_lora(n)]
    for prefix in new or ():
        if not any(is_under(leaf, [prefix]) for leaf in shapes):
            tops = {"/".join(leaf.split("/")[:n]) for leaf in shapes for n in range(1, leaf.count("/") + 2)}
            raise MorphVlaError(f"new: the model has no leaf '{prefix}'{nearest(prefix, tops)}")
    if new is None:
        new = [top for top in names.OURS if not any(is_under(name, [top]) for name in opened.entries)]
    return [
        leaf
        for leaf, shape in shapes.items()
        if is_under(leaf, [*new, *pairs])
        and not any(piece.entry in opened.entries for piece in opened.pieces(leaf, shape))
    ]


def _type(opened: Checkpoint, leaf: str, pieces: Sequence[Piece] | None, dtype: Types) -> np.dtype:
    """The type a leaf has in memory. Raises MorphVlaError for an unknown part or type."""
    if isinstance(dtype, str):
        chosen = dtype
    elif callable(dtype):
        chosen = dtype(leaf)
    else:
        for part in dtype:
            if part not in ALL:
                raise MorphVlaError(f"dtype: no part '{part}'{nearest(part, ALL)} ({', '.join(ALL)})")
        chosen = dtype.get(names.part_of(leaf), "float32")
    if chosen == "stored":
        # The widest, where a leaf's pieces are of several types: no value may change.
        stored = [opened.type_of(piece.entry) for piece in pieces or ()]
        return functools.reduce(np.promote_types, stored) if stored else TYPES["float32"]
    if chosen not in TYPES:
        near = nearest(chosen, TYPES)
        raise MorphVlaError(f"dtype: '{chosen}' is not one of float32, bfloat16, stored{near}")
    return TYPES[chosen]


def _passing(opened: Checkpoint, pieces: Sequence[Piece]) -> tuple[int, int]:
    """What is held while a leaf is read and given back afterwards, in bytes; then the leaf itself."""
    blocks = [
        (opened.block(p.entry) if p.is_plain else p.shape, opened.entries[p.entry].dtype) for p in pieces
    ]
    largest = max(int(np.prod(shape)) * dtype.itemsize for shape, dtype in blocks)
    return largest, sum(opened.entries[p.entry].nbytes for p in pieces)


def _report(
    source: str | Path,
    opened: Checkpoint,
    shapes: Mapping[str, Shape],
    plan: Mapping[str, Sequence[Piece]],
    types: Mapping[str, np.dtype],
) -> Report:
    rows = []
    for leaf, shape in sorted(shapes.items()):
        stored = ", ".join(sorted({opened.entries[p.entry].dtype.name for p in plan.get(leaf, ())}))
        size = int(np.prod(shape, dtype=np.int64)) * types[leaf].itemsize
        rows.append(Row(leaf, shape, stored, types[leaf].name, size))
    used = {piece.entry for pieces in plan.values() for piece in pieces}
    return Report(str(source), opened.format, tuple(rows), tuple(sorted(opened.entries.keys() - used)))


@contextlib.contextmanager
def returned_at_once() -> Iterator[None]:
    """While inside, glibc takes every block of 1 MiB or more from the system and returns it when it is freed.

    By itself it soon keeps freed blocks of up to 32 MiB for later, once for each thread; of a loader that
    hands blocks from thread to thread, tens of megabytes remain. Afterwards that limit of 32 MiB is in force,
    which is where glibc's own adjustment ends. Other C libraries are left alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        yield
        return
    mallopt(MMAP_THRESHOLD, SMALL)
    try:
        yield
    finally:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, 2 * LARGE)
