"""`morph-vla bench fourier`: one action of a Fourier controller, and of a transformer with a key-value cache.

The setting of Figure 6 of "Fourier Controller Networks" (ICML 2024): one row comes, one action goes out, on
one core; context, layers and width are varied alone from 64 rows, 4 layers and 256, with
m = min(2.5 log n, n/2 + 1) modes. All sides are compiled by XLA, keep their past in place (donated buffers)
and share first and last layers; one has the sliding DFT where the others have attention of 4 heads over the
rows in their cache, which is full.

The paper does not say how wide its transformer's feed-forward layer is. `equal` has the controller's own;
`usual` is four times as wide as the model, as a GPT's. The paper's Figure 8 has about 5.7 M parameters in 8
layers: here `equal` has 3.2 M and `usual` 6.4 M.

They take turns, `CALLS` actions at a time. Times are processor time, the median of the turns: on a busy
machine a clock counts others' work too.
"""

import argparse
import contextlib
import dataclasses
import math
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.harness import Work, add_common, load, show, take_turns
from morph_vla import policies
from morph_vla.policies import fourier
from morph_vla.policies.config import FourierConfig
from morph_vla.policies.text import TEXT

EXAMPLES = """
  morph-vla bench fourier
  morph-vla bench fourier --contexts 64 1024 --layers 4 32 --widths 256 --json
"""
CALLS, HEADS = 20, 4
INPUTS, JOINTS = 70, 12  # of the paper's legged robot
TRANSFORMERS = {"equal": 1, "usual": 4}
"""The feed-forward layer's width, as a multiple of the model's"""
HEADER = (
    *("context", "layers", "width", "fourier ms"),
    *(f"{name} ms" for name in TRANSFORMERS),
    *(f"times, {name}" for name in TRANSFORMERS),
    "parameters",
    *(f"parameters, {name}" for name in TRANSFORMERS),
)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What is varied; the defaults are the paper's."""

    context: int = 64
    layers: int = 4
    width: int = 256

    @property
    def config(self) -> FourierConfig:
        """The paper's model of these sizes."""
        modes = int(min(2.5 * math.log(self.context), self.context // 2 + 1))
        return FourierConfig(
            action_dim=JOINTS, horizon=1, environment=INPUTS - JOINTS - TEXT, window=self.context,
            modes=max(1, modes), width=self.width, depth=self.layers, mlp_dim=self.width, decoder=128,
        )  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench fourier`."""
    for name, values in (
        ("contexts", (16, 64, 256, 1024)),
        ("layers", (8, 16, 32)),
        ("widths", (512, 1024, 2048)),
    ):
        about = f"varied alone (default {' '.join(map(str, values))})"
        parser.add_argument(f"--{name}", type=int, nargs="+", default=values, metavar="N", help=about)
    add_common(parser, run, repeats=11)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per size: milliseconds an action on all sides, and how many times ours the others' are."""
    varied = [Sizes(context=value) for value in arguments.contexts]
    varied += [Sizes(layers=value) for value in arguments.layers]
    varied += [Sizes(width=value) for value in arguments.widths]
    with one_core():
        rows = [measure(sizes, arguments.repeats) for sizes in dict.fromkeys(varied)]
    found = {"cores": 1, "load": load(), "rows": rows}
    show(found, HEADER, _cells, as_json=arguments.json, right=range(len(HEADER)))


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    times = [f"{row[f'{side}_ms']:.3f}" for side in ("fourier", *TRANSFORMERS)]
    ratios = [f"{row[f'times_{name}']:.2f}" for name in TRANSFORMERS]
    counts = [f"{row[f'{side}_parameters']:,}" for side in ("fourier", *TRANSFORMERS)]
    return row["context"], row["layers"], row["width"], *times, *ratios, *counts


@contextlib.contextmanager
def one_core() -> Iterator[None]:
    """On the last core that this process may use, where the system can say so."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def measure(sizes: Sizes, repeats: int) -> dict[str, Any]:
    """Milliseconds of an action on all sides."""
    params = policies.of(sizes.config).init(sizes.config, jax.random.key(0))
    theirs = {
        name: transformer_params(sizes, params, jax.random.key(1), widening)
        for name, widening in TRANSFORMERS.items()
    }
    ours = fourier.begin(sizes.config), fourier.readout(sizes.config, params)
    works = {"fourier": _actions(fourier_step(sizes), (params, ours[1]), ours[0])} | {
        name: _actions(transformer_step(sizes), weights, transformer_cache(sizes))
        for name, weights in theirs.items()
    }
    taken = {
        side: 1e3 * seconds / CALLS for side, seconds in take_turns(works, repeats, time.process_time).items()
    }
    return {
        **dataclasses.asdict(sizes),
        **{f"{side}_ms": milliseconds for side, milliseconds in taken.items()},
        **{f"times_{name}": taken[name] / taken["fourier"] for name in TRANSFORMERS},
        "fourier_parameters": _size(params),
        **{f"{name}_parameters": _size(weights) for name, weights in theirs.items()},
    }


def _size(params: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _actions(step: Callable[..., Any], params: Any, past: Any) -> Work:
    """Some actions one after another, each waited for, as a robot does."""
    compiled, row = jax.jit(step, donate_argnums=1), jnp.linspace(-1.0, 1.0, INPUTS)
    held = [jax.tree.map(jnp.copy, past)]  # each buffer its own: it is donated

    def work() -> None:
        for _ in range(CALLS):
            held[0], action = compiled(params, held[0], row)
            action.block_until_ready()

    return work


# ---------------------------------------------------------------------------------------------- the two sides


def fourier_step(sizes: Sizes) -> Callable[..., Any]:
    """((parameters, readout), memory, row) -> (memory, action)."""
    controller = fourier.Controller(sizes.config)

    def step(weights: Any, memory: Any, row: Any) -> Any:
        params, readout = weights
        return controller.apply({"params": params}, memory, readout, row, method="next")

    return step


def transformer_params(sizes: Sizes, params: Any, key: Any, widening: int = 1) -> dict[str, Any]:
    """The same layers, with projections of attention in the place of the weights over time.

    With `widening` above 1 the feed-forward layers are other ones, so many times as wide as the model.
    """
    width, encoder = sizes.width, {}
    for name, layer in params["encoder"].items():
        key, qkv, out, into, back = jax.random.split(key, 5)
        wide = {
            "mlp_in": _dense(into, width, widening * width),
            "mlp_out": _dense(back, widening * width, width),
        }
        kept = {part: weights for part, weights in layer.items() if part != "modes"}
        encoder[name] = (kept if widening == 1 else kept | wide) | {
            "qkv": jax.random.normal(qkv, (width, 3 * width)) * width**-0.5,
            "out": jax.random.normal(out, (width, width)) * width**-0.5,
        }
    return {**params, "encoder": encoder}


def _dense(key: Any, inputs: int, outputs: int) -> dict[str, Any]:
    kernel = jax.random.normal(key, (inputs, outputs)) * inputs**-0.5
    return {"kernel": kernel, "bias": jnp.zeros(outputs)}


def transformer_cache(sizes: Sizes) -> dict[str, Any]:
    """Keys and values of each layer's last rows, and how many rows there were."""
    shape = (2, sizes.context, HEADS, sizes.width // HEADS)
    return {"layers": [jnp.zeros(shape) for _ in range(sizes.layers)], "step": jnp.zeros((), jnp.int32)}


def transformer_step(sizes: Sizes) -> Callable[..., Any]:
    """(parameters, cache, row) -> (cache, action); attends to all rows of the cache."""

    def dense(part: Any, x: Any) -> Any:
        return x @ part["kernel"] + part["bias"]

    def norm(part: Any, x: Any) -> Any:
        away = x - jnp.mean(x)
        return away * jax.lax.rsqrt(jnp.mean(jnp.square(away)) + 1e-6) * part["scale"] + part["bias"]

    def attention(layer: Any, cache: Any, place: Any, x: Any) -> tuple[Any, Any]:
        query, *now = (x @ layer["qkv"]).reshape(3, HEADS, -1)
        cache = cache.at[:, place].set(jnp.stack(now))
        logits = jnp.einsum("hk,nhk->hn", query, cache[0]) * query.shape[-1] ** -0.5
        mixed = jnp.einsum("hn,nhk->hk", jax.nn.softmax(logits, axis=-1), cache[1])
        return cache, mixed.reshape(-1) @ layer["out"]

    def step(params: Any, cache: Any, row: Any) -> Any:
        x, caches = dense(params["tokenizer"], row), []
        for number, kept in enumerate(cache["layers"]):
            layer = params["encoder"][f"layer_{number}"]
            kept, mixed = attention(layer, kept, cache["step"] % sizes.context, norm(layer["norm"], x))
            x = x + mixed
            hidden = jax.nn.gelu(dense(layer["mlp_in"], norm(layer["mlp_norm"], x)))
            x, caches = x + dense(layer["mlp_out"], hidden), [*caches, kept]
        head = params["detokenizer"]
        action = dense(head["out"], jax.nn.gelu(dense(head["hidden"], x)))
        return {"layers": caches, "step": cache["step"] + 1}, action

    return step
