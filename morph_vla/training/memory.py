"""What a training run needs of a device's memory, by formula: before anything is allocated or compiled.

    parameters   what learns in float32, what is frozen in the model's type
    gradients    float32, of what learns; twice while microbatches are added up
    optimizer    AdamW's two moments, float32, of what learns
    average      float32, of what learns
    activations  what the backward pass reads, or what the forward pass of a frozen part holds at once,
                 whichever is more; with `remat` a layer's input per layer and one layer whole

All but activations are divided by the FSDP axis; rows are divided by both axes. Fused kernels hold less, a
compiler's copies more: on small models the total is within a factor of two of what XLA reports for the
compiled step, arguments and temporaries (tests/training/test_memory_estimate.py; nine steps on a CPU: 0.65 to
1.19 of it).

While a checkpoint is written, a copy of what learns, of its average and of the moments is in the host's
memory. A CPU is its own host, so that its peak is there and not in the step.

Measured at full size: the temporary memory of an H200's step (action expert, batch 32) was 5.2 GB, and 3.9
with fused attention, where gradients and activations here make 5.5 (docs/scale.md). On a CPU, the whole
process peaked at 18.8 GB with the action expert and at 21.0 GB with LoRA (scripts/full_size.py); predicted
were 19.6 and 20.9.
"""

import dataclasses
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from morph_vla import policies
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import counts
from morph_vla.pi05.config import GemmaConfig, Pi05Config
from morph_vla.pi05.parts import by_name
from morph_vla.policies.config import ModelConfig, StateConfig
from morph_vla.recipes.keys import Recipe, Training
from morph_vla.training.kinds import learns, reached

GB = 1e9
HOST = "this machine"
WIDTHS = {"float32": 4, "bfloat16": 2}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """Bytes on one device."""

    parameters: int
    gradients: int
    optimizer: int
    average: int
    activations: int
    saving: int
    """The copy in the host's memory while a checkpoint is written"""

    @property
    def state(self) -> int:
        """What is there between two steps."""
        return self.parameters + self.optimizer + self.average

    @property
    def total(self) -> int:
        """All that the device holds in a step."""
        return self.state + self.gradients + self.activations

    @property
    def on_a_cpu(self) -> int:
        """The most that is held where the device's memory is the host's: in a step, or while saving."""
        return max(self.total, self.state + self.saving)


@dataclasses.dataclass(frozen=True)
class Lever:
    """A change of the recipe, and the bytes that it saves on one device."""

    change: str
    saves: int


def estimate(recipe: Recipe, data: int = 1, fsdp: int = 1) -> Estimate:
    """What one of `data` x `fsdp` devices holds while `recipe` trains."""
    training, model = recipe.training, recipe.model
    learnt, frozen = _sizes(recipe)
    rows = -(-training.batch // (training.accumulate * data * fsdp))
    sums = 2 if training.accumulate > 1 else 1
    images = -(-training.batch // (data * fsdp)) * len(model.cameras) * 3 * model.image_size**2
    return Estimate(
        (4 * learnt + WIDTHS[model.dtype] * frozen) // fsdp,
        sums * 4 * learnt // fsdp,
        8 * learnt // fsdp,
        4 * learnt // fsdp,
        activations(model, training, rows) + 4 * images,  # augmented, float32
        16 * learnt,
    )


def _sizes(recipe: Recipe) -> tuple[int, int]:
    """How many parameters learn, and how many are frozen."""
    sizes = {True: 0, False: 0}
    for name, leaf in by_name(policies.shapes(recipe.model)).items():
        sizes[learns(name, recipe.training)] += int(leaf.size)
    return sizes[True], sizes[False]


@dataclasses.dataclass(frozen=True)
class Disk:
    """Bytes that a run's checkpoints take."""

    frozen: int
    """What does not learn, written once"""
    each: int
    """A checkpoint beside it: what learns, its average and two moments of the optimizer, float32"""
    most: int
    """Checkpoints at a time: those that are kept, and the one being written"""

    @property
    def total(self) -> int:
        """All of it."""
        return self.frozen + self.most * self.each


def disk(recipe: Recipe) -> Disk:
    """What the checkpoints of `recipe` take of a disk; decoded frames come on top (`data.frames`)."""
    training, (learnt, frozen) = recipe.training, _sizes(recipe)
    every = training.keep_every and training.steps // training.keep_every
    first = 0 if recipe.weights else 1  # from weights, the step before the first is not written
    written = -(-training.steps // training.checkpoint_every) + first
    if recipe.evaluation.suites:  # each is of a checkpoint; some are at the same step as the others
        written += training.steps // recipe.evaluation.every
    most = min(written, first + training.keep + every + 1)
    return Disk(WIDTHS[recipe.model.dtype] * frozen, 16 * learnt, most)


def disk_words(recipe: Recipe, folder: Path | None = None) -> str:
    """The estimate in a line; with the folder of the run, whether there is room."""
    needed = disk(recipe)
    parts = f"{needed.frozen / GB:.3g} frozen, {needed.most} checkpoints of {needed.each / GB:.3g}"
    words = f"disk: about {needed.total / GB:.3g} GB of checkpoints ({parts})"
    if folder is None:
        return words
    place = next(parent for parent in (folder, *folder.absolute().parents) if parent.is_dir())
    free = shutil.disk_usage(place).free
    if free < needed.total:
        words += "; too little: fewer training.keep, or another disk"
    return f"{words}; {free / GB:.3g} GB are free"


def activations(model: ModelConfig, training: Training, rows: int) -> int:
    """Bytes of the activations of `rows` observations with their noise draws."""
    if isinstance(model, StateConfig):
        return model.activations(rows)
    count, flows = counts.tokens(model), reached(training, model.environment)
    seen, own = count["image"] + model.numbers + count["prompt"], count["action"] + count["kinematic"]
    suffixes = rows * training.flow_samples
    cache = 2 * model.depth * model.kv_heads * model.head_dim * WIDTHS[model.dtype]
    cached = cache * seen * (rows + (suffixes if training.flow_samples > 1 else 0))
    vision = rows * len(model.cameras) * model.patches * _vision(model, flows["vision encoder"])
    language = rows * seen * _expert(model, model.prefix, seen, flows["language model"])
    suffix = suffixes * own * _expert(model, model.expert, seen + own, True)
    sizes = [(vision, flows["vision encoder"]), (language, flows["language model"])]
    kept = [size for size, flow in sizes if flow]
    passing = [size for size, flow in sizes if not flow]
    return cached + max(sum(kept) + suffix, *passing, 0)


def _expert(model: Pi05Config, size: GemmaConfig, keys: int, backward: bool) -> int:
    """Bytes per token of one expert's layers."""
    width, heads = WIDTHS[model.dtype], model.heads * model.head_dim
    own = 8 * size.width + 4 * heads + 2 * model.kv_heads * model.head_dim
    attention = model.heads * keys * (4 + width)
    if not backward:  # attention and feed-forward have their turns
        return size.width * width + max(3 * size.mlp_dim * width, attention + 3 * heads * width)
    layer = own * width + 4 * size.width + attention + 7 * size.mlp_dim * width
    return model.depth * size.width * width + layer if model.remat else model.depth * layer


def _vision(model: Pi05Config, backward: bool) -> int:
    """Bytes per patch of the vision encoder's layers."""
    width, vit = WIDTHS[model.dtype], model.vit
    attention = vit.heads * model.patches * (4 + width)
    if not backward:
        return vit.width * width + max(2 * vit.mlp_dim * width, attention + 3 * vit.width * width)
    layer = 9 * vit.width * width + 4 * vit.width + attention + 4 * vit.mlp_dim * width
    return vit.depth * vit.width * width + layer if model.remat else vit.depth * layer


def levers(recipe: Recipe, data: int = 1, fsdp: int = 1) -> list[Lever]:
    """What would save memory, in the order to try, each alone; none that saves nothing."""
    before = estimate(recipe, data, fsdp).total
    changes = _changes(recipe, data, fsdp)
    saved = [Lever(change, before - estimate(other, data, more).total) for change, other, more in changes]
    return [lever for lever in saved if lever.saves > 0]


def _changes(recipe: Recipe, data: int, fsdp: int) -> Iterator[tuple[str, Recipe, int]]:
    training, model = recipe.training, recipe.model

    def trained(**keys: Any) -> Recipe:
        """With other keys of training, and without the pairs of a model whose kind may change."""
        plain = dataclasses.replace(model, lora=None)
        return dataclasses.replace(recipe, training=dataclasses.replace(training, **keys), model=plain)

    def modelled(**keys: Any) -> Recipe:
        """With other keys of the model."""
        return dataclasses.replace(recipe, model=dataclasses.replace(model, **keys))

    half = training.batch // 2
    halves = half > 0 and half % (data * fsdp) == 0  # as many rows on every device
    if isinstance(model, StateConfig):
        if halves:
            fewer = dataclasses.replace(training, batch=half, accumulate=1)
            yield f"training.batch: {half}", dataclasses.replace(recipe, training=fewer), fsdp
        return
    if training.kind != "expert":
        yield "training.kind: expert", trained(kind="expert", lora=None), fsdp
    if training.kind == "full":
        yield "training.kind: lora", trained(kind="lora", lora=None), fsdp
    most = training.batch // (data * fsdp)
    if most > training.accumulate:
        yield f"training.accumulate: {most}", trained(accumulate=most), fsdp
    if not model.remat:
        yield "model.remat: true", modelled(remat=True), fsdp
    if halves:
        yield f"training.batch: {half}", trained(batch=half, accumulate=1), fsdp
    yield f"training.mesh.fsdp: {8 * fsdp}", recipe, 8 * fsdp
    if model.dtype == "float32":
        yield "model.dtype: bfloat16", modelled(dtype="bfloat16"), fsdp


def device_memory() -> tuple[str, int] | None:
    """The name of the device that JAX would use and its bytes, where they are known."""
    device = jax.devices()[0]
    stats = device.memory_stats() if device.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return device.device_kind, int(stats["bytes_limit"])
    if device.platform == "cpu" and hasattr(os, "sysconf"):
        return HOST, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def check(recipe: Recipe, data: int = 1, fsdp: int = 1) -> None:
    """Raise MorphVlaError, naming the levers, for a recipe whose state alone does not fit into a device.

    Parameters, optimizer and average are counted exactly; gradients and activations come on top, but as they
    are estimated, they alone refuse nothing.
    """
    needed, device = estimate(recipe, data, fsdp), device_memory()
    if device is not None and needed.state > device[1]:
        raise MorphVlaError(
            f"parameters, optimizer and average alone take {needed.state / GB:.3g} GB a device\n"
            f"{words(recipe, data, fsdp)}"
        )


def words(recipe: Recipe, data: int = 1, fsdp: int = 1) -> str:
    """The estimate in a few lines; where it does not fit, or no device is known, the levers as well."""
    needed, device = estimate(recipe, data, fsdp), device_memory()
    sizes = {name: size for name, size in dataclasses.asdict(needed).items() if name != "saving"}
    parts = ", ".join(f"{name} {size / GB:.3g}" for name, size in sizes.items())
    lines = [f"memory: about {needed.total / GB:.3g} GB a device ({parts})"]
    if data * fsdp > 1:
        lines[0] += f", on {data} x {fsdp} devices (data x fsdp)"
    lines.append(f"while a checkpoint is written, a copy of {needed.saving / GB:.3g} GB in the host's memory")
    most = needed.total
    if device is not None:
        if device[0] == HOST:
            most = needed.on_a_cpu
            lines[-1] += f": {most / GB:.3g} GB at most"
        fits = "fits" if most <= device[1] else "does not fit"
        slow = ", a CPU (a full-size model takes minutes a step)" if device[0] == HOST else ""
        lines.append(f"{fits} into the {device[1] / GB:.3g} GB of {device[0]}{slow}")
    if device is None or most > device[1]:
        lines.append("what would save memory, each alone, in the order to try:")
        lines += [f"  {lever.change} saves {lever.saves / GB:.3g} GB" for lever in levers(recipe, data, fsdp)]
    return "\n".join(lines)
