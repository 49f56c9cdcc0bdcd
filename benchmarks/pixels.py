"""`morph-vla bench pixels`: what fewer image tokens save, and what ranking them costs.

First the trainer's step (`subject`) and a sampling call with a share of every image's tokens, by each way to
choose them, against all of them, on random weights. Then ranking alone, against attention that is written
out, by the number of tokens: Figure 1 and 4 of "Unlocking Pixels for Reinforcement Learning via Implicit
Attention" (19,200 tokens are those of a 240 x 320 picture in patches of 2 x 2). Written-out attention goes a
block of rows at a time: whole, it would be slower, and 1.5 GB at that length.
"""

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from benchmarks.harness import Ratio, Work, add_common, check_names, load, measure, show_ratios
from benchmarks.subject import SIZES, Subject, add_sizes, config_of, recipe_of
from morph_vla.errors import ConfigError
from morph_vla.pi05 import ranking
from morph_vla.pi05.config import Features, ImageTokens

EXAMPLES = """
  morph-vla bench pixels
  morph-vla bench pixels --how ranking --how average --repeats 9
  morph-vla bench pixels --lengths 19200 --how none      # ranking alone
  morph-vla bench pixels --size full --keep 64 --json     # on a GPU: 768 image tokens to 192
"""
WAYS = ("ranking", "learnt", "average", "random")
BLOCK = 300
WIDTH, CHOSEN = 16, 10  # of queries and keys; tokens that are chosen
# Features, random directions and signs; (10, 5) is the paper's.
KERNELS: dict[str, tuple[Features, int, int]] = {
    "relu": ("relu", 1, 0),
    "positive, 32": ("positive", 32, 0),
    "trigonometric, 16": ("trigonometric", 16, 0),
    "hybrid (10, 5)": ("hybrid", 10, 5),
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench pixels`."""
    add_sizes(parser)
    parser.add_argument("--keep", type=int, default=0, metavar="N", help="of an image (default a quarter)")
    ways = f"of {', '.join(WAYS)}, or none; may repeat (default all)"
    parser.add_argument("--how", action="append", default=[], metavar="HOW", help=ways)
    parser.add_argument(
        "--lengths", type=int, nargs="*", default=[1200, 4800, 19_200], metavar="N", help="tokens to rank"
    )
    add_common(parser, run, repeats=5)


def run(arguments: argparse.Namespace) -> None:
    """Print one row per comparison. Raises ConfigError for an unknown way, and for a length of no blocks."""
    check_names("way", arguments.how, (*WAYS, "none"))
    for length in arguments.lengths:
        if length < BLOCK or length % BLOCK:
            raise ConfigError(f"--lengths: {length} is not a multiple of {BLOCK}")
    ways = [how for how in arguments.how or WAYS if how != "none"]
    keep, before = arguments.keep or config_of(arguments.size).patches // 4, load()
    rows: list[Ratio] = []
    with jax.numpy_dtype_promotion("standard"):
        if ways:
            host = Subject(recipe_of(arguments.size, arguments.batch or SIZES[arguments.size], plugin=None))
            rows += steps_and_calls(host, ways, keep, arguments.repeats)
        rows += rankings(arguments.lengths, arguments.repeats)
    found = {
        "device": jax.devices()[0].device_kind,
        "image_tokens": f"{keep} of {config_of(arguments.size).patches} a camera",
        "repeats": arguments.repeats,
        "load_before": before,
        "load_after": load(),
        **{f"{name}_grows_as_tokens_to": exponent(rows, name) for name in (*KERNELS, "brute force")},
        "rows": rows,
    }
    show_ratios(found, as_json=arguments.json)


def steps_and_calls(host: Subject, ways: Sequence[Any], keep: int, repeats: int) -> Iterator[Ratio]:
    """Each way against all tokens."""
    step, call = host.step(), host.sampling()
    for how in ways:
        side = host.with_image_tokens(ImageTokens(keep, how))
        yield measure(f"training step, {how}", side.step().run, "all tokens", step.run, repeats=repeats)
        yield measure(f"sampling, {how}", side.sampling().run, "all tokens", call.run, repeats=repeats)


def rankings(lengths: Sequence[int], repeats: int) -> Iterator[Ratio]:
    """Each kernel's ranking against its attention written out."""
    for length in lengths:
        rng = np.random.default_rng(length)
        rows = [jnp.asarray(rng.normal(size=(length, WIDTH)), jnp.float32) for _ in range(2)]
        for name, kernel in KERNELS.items():
            works = [_work(by(kernel), rows) for by in (implicit, written_out)]
            yield measure(f"ranking {length}, {name}", works[0], "brute force", works[1], repeats=repeats)


def implicit(kernel: tuple[Features, int, int]) -> Callable[[Any, Any], Array]:
    """Scores by features."""
    kind, projections, signs = kernel
    gaussians = ranking.draw(0, WIDTH, projections, signs)

    def scores(queries: Float[Array, "t d"], keys: Float[Array, "t d"]) -> Float[Array, "t"]:
        return ranking.scores_of(kind, queries, keys, gaussians)

    return scores


def written_out(kernel: tuple[Features, int, int]) -> Callable[[Any, Any], Array]:
    """Scores by attention, `BLOCK` rows at a time."""

    def scores(queries: Float[Array, "t d"], keys: Float[Array, "t d"]) -> Float[Array, "t"]:
        if kernel[0] == "relu":
            left, right = jax.nn.relu(queries), jax.nn.relu(keys)
        else:
            left, right = (
                x * WIDTH**0.25 / jnp.linalg.norm(x, axis=-1, keepdims=True) for x in (queries, keys)
            )

        def add(total: Array, block: Array) -> tuple[Array, None]:
            logits = block @ right.T
            return total + (logits if kernel[0] == "relu" else jnp.exp(logits)).sum(axis=0), None

        blocks = left.reshape(-1, BLOCK, WIDTH)
        return jax.lax.scan(add, jnp.zeros(len(keys)), blocks)[0] / len(queries)

    return scores


def _work(scores: Callable[[Any, Any], Array], rows: Sequence[Array]) -> Work:
    """The chosen tokens of these queries and keys."""
    chosen = jax.jit(lambda queries, keys: ranking.top(scores(queries, keys), CHOSEN))
    return lambda: jax.block_until_ready(chosen(*rows))


def exponent(rows: Sequence[Ratio], name: str) -> float:
    """E of time ~ tokens^e between the first and the last length; nan of fewer than two."""
    times: dict[int, float] = {}
    for row in rows:
        what, _, kernel = row.name.removeprefix("ranking ").partition(", ")
        if row.name.startswith("ranking ") and name in (kernel, row.reference):
            times[int(what)] = row.ours_s if kernel == name else row.reference_s
    if len(times) < 2:
        return math.nan
    (few, first), (many, last) = min(times.items()), max(times.items())
    return math.log(last / first) / math.log(many / few)
