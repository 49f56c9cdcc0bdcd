"""The parts of a training step, each against its floor in operations and bytes: a part of `make gpu`."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu_part import Asked, Result, milliseconds
from benchmarks.harness import take_turns
from benchmarks.subject import PARTS, Subject, compiled, recipe_of
from morph_vla.pi05 import counts
from morph_vla.pi05.config import Pi05Config
from morph_vla.training import memory

IN_A_ROW = 20  # products and copies of a program, so that starting one weighs nothing


def floors(asked: Asked) -> Result:
    """The parts of the action expert's step, each against its floor in operations and bytes."""
    recipe = recipe_of(asked.size, asked.batch)
    subject, (product, copy) = Subject(recipe), rates(asked)
    taken = take_turns({"step": subject.step().run, **subject.parts()}, asked.repeats)
    rows = []
    for name, (operations, nbytes) in work_of(recipe).items():
        floor, ms = 1e3 * max(operations / product, nbytes / copy), 1e3 * taken[name]
        rows.append(
            {
                "part": name,
                "ms": ms,
                "TFLOP": operations / 1e12,
                "GB": nbytes / 1e9,
                "floor ms": floor,
                "times the floor": ms / floor,
            }
        )
    return Result(
        rows, "images is a part of prefix, average of optimizer; a floor is one read of what is needed"
    )


def work_of(recipe: Any) -> dict[str, tuple[int, int]]:
    """Operations and bytes that each part of an action expert's step cannot do without."""
    model, rows = recipe.model, recipe.training.batch
    sizes, tokens, width = counts.parameters(counts.shapes(model)), counts.tokens(model), _width(model)
    learnt = sum(size for part, size in sizes.items() if part not in ("vision encoder", "language model"))
    pixels = rows * len(model.cameras) * model.image_size**2 * 3
    seen = rows * (tokens["image"] + tokens["prompt"])
    cache = 2 * model.depth * model.kv_heads * model.head_dim * width * seen
    language = sizes["language model"] - model.vocab * model.prefix.width  # of the table, a few rows
    images = rows * counts.vision(model), sizes["vision encoder"] * width + 4 * pixels
    forward = rows * counts.prefix(model, forward_only=True)
    whole = counts.training_step(model, rows, recipe.training.flow_samples, "expert")
    parts = {
        "data": (0, (1 + 4) * pixels),  # bytes in, float32 out
        "images": images,
        "prefix": (images[0] + forward, images[1] + language * width + cache),
        # Weights read forward and backward, gradients written; the cache read twice.
        "suffix": (whole - images[0] - forward, 12 * learnt + 2 * cache),
        "optimizer": (0, 44 * learnt),  # gradient twice, moments and weights and average read and written
        "average": (0, 12 * learnt),
    }
    parts = {name: parts[name] for name in PARTS}
    return parts | {
        "step": (whole, sum(parts[name][1] for name in ("data", "prefix", "suffix", "optimizer")))
    }


def _width(model: Pi05Config) -> int:
    return memory.WIDTHS[model.dtype]


def rates(asked: Asked) -> tuple[float, float]:
    """Operations per second of a bfloat16 product, bytes per second of a copy, each read and written."""
    large = asked.size == "full"
    side, count = (8192, 2**28) if large else (512, 2**20)
    matrix = jax.random.normal(jax.random.key(0), (side, side), jnp.bfloat16) / side**0.5
    values = jnp.ones(count, jnp.float32)

    def again(operation: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda x: jax.lax.fori_loop(0, IN_A_ROW, lambda _, y: operation(y), x)

    product = milliseconds(compiled(again(lambda a: a @ matrix), matrix).run, asked.repeats)
    copy = milliseconds(compiled(again(lambda x: x + 1), values).run, asked.repeats)
    return IN_A_ROW * 2 * side**3 / product * 1e3, IN_A_ROW * 2 * values.nbytes / copy * 1e3
