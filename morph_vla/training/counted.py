"""What a recipe's model counts: parameters, tokens, operations and memory, also of its variants."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from morph_vla import policies
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, counts
from morph_vla.policies.config import StateConfig
from morph_vla.recipes.keys import Recipe, Training
from morph_vla.training import estimate, memory
from morph_vla.training.kinds import partition, parts_of
from morph_vla.wording import table

EULER_STEPS = 10
DEVICES = (1, 2, 4, 8, 16, 32, 64)
TERA = 1e12


@dataclasses.dataclass(frozen=True)
class Variant:
    """One variant of the plugin; see `pi05.counts` for what is counted as an operation."""

    variant: str
    new_parameters: int
    kinematic_tokens: int
    training_step_flop: int
    sampling_call_flop: int
    training_step_over_host: float
    """The share that it adds to the operations of the host alone"""
    sampling_call_over_host: float


@dataclasses.dataclass(frozen=True)
class Counted:
    """What `count` found."""

    parts: tuple[dict[str, Any], ...]
    """`part`, its `parameters`, and how many are `trainable`"""
    kinds: dict[str, dict[str, int]]
    """`trainable` and `frozen` in `expert` and `full` fine-tuning, and in the recipe's own kind"""
    tokens: dict[str, int]
    counted_for: dict[str, Any]
    """What operations are counted for: `kind`, `batch` and `flow_samples` of training, `steps` of sampling"""
    variants: tuple[Variant, ...]
    pairs: tuple[str, ...]
    """Parts with low-rank pairs, in words"""
    memory: dict[str, Any]
    """Bytes on one device by purpose, in all, in words, and what would save some"""

    def __str__(self) -> str:
        """Comment lines, so that what is printed below a recipe stays a recipe."""
        return "\n".join(_lines(self))


def count(recipe: Recipe) -> Counted:
    """Counts of a recipe's model, and of every variant of the plugin at its size; nothing is allocated."""
    model, training = recipe.model, recipe.training
    if isinstance(model, StateConfig):
        return _count_on_numbers(recipe, model)
    plain, tree = _shapes(recipe)
    with jax.numpy_dtype_promotion("standard"):
        trees = {kind: partition(plain, _of_kind(training, kind)) for kind in ("expert", "full")}
        trees[training.kind] = partition(tree, training)
        learnt = counts.parameters(trees[training.kind][0])
        variants = counts.variants(model)
        host, new = variants["host alone"], {k: _size(counts.plugin_shapes(v)) for k, v in variants.items()}

    def operations(each: Pi05Config) -> tuple[int, int]:
        in_training = counts.training_step(each, training.batch, training.flow_samples, training.kind)
        return in_training, counts.sampling_call(each, EULER_STEPS)

    def variant(name: str, each: Pi05Config) -> Variant:
        flop, alone = operations(each), operations(host)
        over = (mine / hosts - 1 for mine, hosts in zip(flop, alone, strict=True))
        return Variant(name, new[name], counts.tokens(each)["kinematic"], *flop, *over)

    about = {name: getattr(training, name) for name in ("kind", "batch", "flow_samples")}
    return Counted(
        parts=tuple(
            {"part": part, "parameters": size, "trainable": learnt.get(part, 0)}
            for part, size in counts.parameters(tree).items()
        ),
        kinds={
            kind: {"trainable": _size(trained), "frozen": _size(frozen)}
            for kind, (trained, frozen) in trees.items()
        },
        tokens=counts.tokens(model),
        counted_for={**about, "steps": EULER_STEPS if model.head is None else 0},
        variants=tuple(variant(name, each) for name, each in variants.items()),
        pairs=tuple(part for part in parts_of(tree, training) if "pairs of rank" in part),
        memory=_memory(recipe),
    )


def _count_on_numbers(recipe: Recipe, model: StateConfig) -> Counted:
    """Counts of a family that acts on numbers; it has no variants of the plugin."""
    parts = parts_of(policies.shapes(recipe.model), recipe.training)
    return Counted(
        parts=tuple(
            {"part": part, "parameters": sum(row.values()), "trainable": row["trainable"]}
            for part, row in parts.items()
        ),
        kinds={"full": {key: sum(row[key] for row in parts.values()) for key in ("trainable", "frozen")}},
        tokens=model.tokens,
        counted_for={"kind": "full", "batch": recipe.training.batch},
        variants=(),
        pairs=(),
        memory=_memory(recipe),
    )


def _memory(recipe: Recipe) -> dict[str, Any]:
    """Bytes on one device by purpose, in all, in words, and what would save some."""
    mesh = (recipe.training.mesh.data or 1, recipe.training.mesh.fsdp)  # 0: as many as there are
    needed = memory.estimate(recipe, *mesh)
    return {
        **dataclasses.asdict(needed),
        "total": needed.total,
        "words": [*memory.words(recipe, *mesh).split("\n"), memory.disk_words(recipe)],
        "levers": memory.levers(recipe, *mesh),
    }


def scaling(recipe: Recipe, machine: estimate.Machine = estimate.H200) -> list[estimate.Estimate]:
    """An estimated step on each number of devices that the recipe's batch can be split over."""
    model, training = recipe.model, recipe.training
    if isinstance(model, StateConfig):
        raise MorphVlaError(f"a step's time is estimated for pi0.5, not for model.family '{model.family}'")
    with jax.numpy_dtype_promotion("standard"):
        learnt, frozen = map(_size, partition(_shapes(recipe)[1], training))
    return [
        estimate.step_time(model, training, learnt, learnt + frozen, n, min(n, training.mesh.fsdp), machine)
        for n in DEVICES
        if training.batch % n == 0
    ]


def _lines(counted: Counted) -> Iterator[str]:
    about = counted.counted_for
    keys = ("parameters", "trainable")
    together = {"part": "together", **{key: sum(part[key] for part in counted.parts) for key in keys}}
    rows = [(row["part"], *(f"{row[key]:,}" for key in keys)) for row in (*counted.parts, together)]
    yield "# Counted without allocating anything:\n#"
    header = ("parameters", "all", f"trained ({about['kind']})")
    yield from table(header, rows, before="#   ", right=(1, 2))
    yield from (f"#   {pairs}" for pairs in counted.pairs)
    for kind, split in counted.kinds.items():
        yield f"#   kind: {kind}: {split['trainable']:,} trainable, {split['frozen']:,} frozen"
    yield from (f"#   {line}" for line in counted.memory["words"])
    yield "#   tokens: " + ", ".join(f"{size} {name}" for name, size in counted.tokens.items()) + "\n#"
    if not counted.variants:
        return
    lines = [
        (
            row.variant, f"{row.new_parameters:,}", row.kinematic_tokens,
            f"{row.training_step_flop / TERA:.4g}", f"{100 * row.training_step_over_host:+.2f}%",
            f"{row.sampling_call_flop / TERA:.4g}", f"{100 * row.sampling_call_over_host:+.2f}%",
        )
        for row in counted.variants
    ]  # fmt: skip
    steps = f"{about['steps']} Euler steps" if about["steps"] else "one pass"
    header = ("variant at this size", "new parameters", "tokens", "TFLOP/step", "", "TFLOP/call", "")
    yield from table(header, lines, before="#   ", right=range(1, 7))
    yield (
        f"#   step: kind {about['kind']}, batch {about['batch']}, {about['flow_samples']} noise draws; "
        f"call: {steps}, batch 1; matrix products only"
    )


def _shapes(recipe: Recipe) -> tuple[counts.Shapes, counts.Shapes]:
    """All parameters' shapes, without low-rank pairs and with those that the recipe has."""
    model = recipe.model
    assert isinstance(model, Pi05Config)
    with jax.numpy_dtype_promotion("standard"):
        plugin = {"morphology": counts.plugin_shapes(model)}
        host = dataclasses.replace(model, morphology=None)
        tree = {**counts.shapes(host), **plugin}
        if model.lora is None:
            return tree, tree
        return {**counts.shapes(dataclasses.replace(host, lora=None)), **plugin}, tree


def _of_kind(training: Training, kind: str) -> Any:
    return dataclasses.replace(training, kind=kind, lora=None)


def _size(tree: Any) -> int:
    return sum(int(leaf.size) for leaf in jax.tree.leaves(tree))
