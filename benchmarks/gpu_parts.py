"""The parts of `make gpu`: what each measures, at any size, on whatever device JAX has.

A part returns rows (all with the same keys) and a sentence; what cannot be done here raises MorphVlaError.
"""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import ahead, seeds
from benchmarks import kernels as traces
from benchmarks.harness import Work, take_turns
from benchmarks.openpi_step import openpi_sampler, openpi_step
from benchmarks.parity import compared, numbers
from benchmarks.subject import PARTS, Subject, compiled, config_of, recipe_of
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text
from morph_vla.pi05 import counts
from morph_vla.pi05.config import CAMERAS as CAMERAS_OF_A_MODEL
from morph_vla.pi05.config import Pi05Config
from morph_vla.training import memory
from morph_vla.training import step as steps

Row = dict[str, Any]
MIDDLE = {"small": "small", "mid": "mid", "full": "mid"}
BATCHES = {"small": (1, 2, 3), "mid": (1, 2, 4), "full": (8, 32, 64)}
TOLERANCES = {"float32": 2e-4, "bfloat16": 5e-2}
SEEDS = {"small": (2, 3), "mid": (4, 64), "full": (8, 64)}  # of a comparison of bodies, and rows of a batch
LEVERS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "prompt": {"max_tokens": 96},  # as training.prompt_bucket cuts most batches of DROID
    "cameras": {"cameras": CAMERAS_OF_A_MODEL[:2]},
    "written_out": {"fused_attention": False},
    "remat": {"remat": False},  # the suffix keeps what it computed
}
TOGETHER = ("prompt", "cameras")  # without `remat` a step took longer; what is fused is so already
INEXACT: Mapping[str, Mapping[str, Any]] = {"float8": {"prefix_float8": True}}  # not among all together
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    # XLA's Triton takes no bias, GELU or residual into a product, cuBLAS does.
    "cublas": {"xla_gpu_enable_triton_gemm": False},
}
GOALS: Mapping[str, Mapping[str, float]] = {  # at full size, on an H200
    "step_expert_middle": {"ms": 250, "temporary GB": 5.5},
    "call_1": {"ms": 15},
    "call_8": {"ms": 55},
}
SHARES = {"step": 1.05, "call": 1.10}  # of the plugin, over the bare host
IN_A_ROW = 20  # products and copies of a program, so that starting one weighs nothing
DEAREST = 24  # kernels that the page shows
DEMO_SECONDS = 420  # before its part is ended
CAMERAS = [f"cameras.{name}.{side}=224" for name in ("exterior", "wrist") for side in ("width", "height")]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    folder: Path
    size: str
    repeats: int
    openpi: Path | None
    dataset: Path | None

    @property
    def batch(self) -> int:
        """The batch of a step where one is measured."""
        return BATCHES[self.size][1]


@dataclasses.dataclass(frozen=True)
class Result:
    """What a part measured; or why it did not, in a sentence."""

    rows: list[Row] = dataclasses.field(default_factory=list)
    note: str = ""
    not_possible: str = ""
    failed: str = ""
    seconds: float = 0.0


def milliseconds(run: Work, repeats: int) -> float:
    """The median time of a call, the first one left out."""
    return 1e3 * take_turns({"": run}, repeats)[""]


def machine(asked: Asked) -> Result:
    """The device: a large matrix product and a large copy, whose rates the floors are made of."""
    product, copy = rates(asked)
    device = jax.devices()[0]
    row = {
        "device": device.device_kind,
        "jax": version("jax"),
        "products TFLOP/s": product / 1e12,
        "copies TB/s": copy / 1e12,
        "memory GB": (memory.device_memory() or ("", 0))[1] / 1e9,
    }
    return Result([row], "bfloat16 products; bytes read and written by a copy")


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


def parity(dtype: str, asked: Asked) -> Result:
    """The same two steps and actions as on this machine's CPU."""
    try:
        host = jax.devices("cpu")[0]
    except RuntimeError as error:
        raise MorphVlaError(
            f"JAX has no CPU beside its device here ({error}): JAX_PLATFORMS=cuda,cpu"
        ) from error
    wanted, ours = (numbers(MIDDLE[asked.size], dtype, device) for device in (host, jax.devices()[0]))
    most = TOLERANCES[dtype]
    rows = compared(wanted, ours, most)
    alone = "; there is no accelerator here: the CPU against itself" if _is_cpu() else ""
    beyond = [str(row["what"]) for row in rows if not row["within"]]
    return Result(
        rows,
        f"largest difference over the largest value, {dtype}{alone}",
        failed=f"further apart than {most:g}: {', '.join(beyond)}" if beyond else "",
    )


def _is_cpu() -> bool:
    return jax.default_backend() == "cpu"


def step(kind: str, index: int, asked: Asked) -> Result:
    """The trainer's whole step: time, memory beside the state, and what was predicted."""
    batch = BATCHES[asked.size][index]
    subject = Subject(recipe_of(asked.size, batch, kind))
    recipe, work = subject.recipe, subject.step()
    ms, estimate = milliseconds(work.run, asked.repeats), memory.estimate(recipe)
    operations = counts.training_step(subject.model, batch, recipe.training.flow_samples, kind)
    row = {
        "kind": kind,
        "batch": batch,
        "ms": ms,
        "rows/s": 1e3 * batch / ms,
        "TFLOP": operations / 1e12,
        "TFLOP/s": operations / ms / 1e9,
        "state GB": (estimate.parameters + estimate.optimizer + estimate.average) / 1e9,
        "temporary GB": (work.temporary_mb or float("nan")) / 1e3,
        "predicted GB": (estimate.gradients + estimate.activations) / 1e9,
    }
    model = recipe.model
    return Result(
        [row],
        f"prompt of {model.max_tokens} tokens, {len(model.cameras)} cameras, a body, {_attention(model)}",
    )


def _attention(model: Any) -> str:
    return "attention fused" if model.fused_attention else "attention written out"


def lever(name: str, asked: Asked) -> Result:
    """What each lever is worth: the step and a call with one key changed, or with two of them."""
    keys = {key: value for each in TOGETHER for key, value in LEVERS[each].items()}
    recipe = recipe_of(asked.size, asked.batch)
    changes = dict(keys if name == "all" else {**LEVERS, **INEXACT}.get(name, {}))
    options = dict(OPTIONS.get(name, {}))
    if "max_tokens" in changes:
        changes["max_tokens"] = min(changes["max_tokens"], recipe.model.max_tokens)
    if changes and dataclasses.replace(recipe.model, **changes) == recipe.model:
        raise MorphVlaError(f"it changes nothing at the size '{asked.size}'")
    changed = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, **changes))
    subject = Subject(changed, options=options)
    work, call = subject.step(), subject.sampling(1)
    row = {
        "batch": asked.batch,
        "step ms": milliseconds(work.run, asked.repeats),
        "temporary GB": (work.temporary_mb or float("nan")) / 1e3,
        "call ms": milliseconds(call.run, asked.repeats),
    }
    told = ", ".join(f"{key} {value}" for key, value in (changes | options).items())
    model = recipe.model
    as_it_is = (
        f"as it is: a prompt of {model.max_tokens} tokens, {len(model.cameras)} cameras, {_attention(model)}"
    )
    return Result([row], told or as_it_is)


def goals(name: str, rows: list[Row]) -> str:
    """Which goals of the full size these rows of a part reach and miss; "" where it has none.

    >>> goals("call_1", [{"ms": 14.2}])
    'goals: ms 14.2 of at most 15, reached'
    """
    asked = [(key, row[key], most) for row in rows for key, most in GOALS.get(name, {}).items()]
    if name == "plugin":
        asked = [(row["what"], row["ratio"], SHARES[str(row["what"]).split(",")[0]]) for row in rows]
    words = (
        f"{key} {value:.4g} of at most {most:g}, {'reached' if value <= most else 'missed'}"
        for key, value, most in asked
    )
    said = "; ".join(words)
    return f"goals: {said}" if said else ""


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
    sizes, tokens, width = counts.parameters(memory.shapes(model)), counts.tokens(model), _width(model)
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


def sampling(rows: int, asked: Asked) -> Result:
    """A policy's call: `sample_actions` with ten steps, and its parts."""
    recipe = recipe_of(asked.size, 1)
    subject = Subject(recipe)
    whole, parts = subject.sampling(rows), subject.sampling_parts(rows)
    works = {"call": whole.run, **{name: part.run for name, part in parts.items()}}
    taken = {name: 1e3 * seconds for name, seconds in take_turns(works, asked.repeats).items()}
    row = {
        "batch": rows,
        "ms": taken["call"],
        "images ms": taken["images"],
        "prefix ms": taken["prefix"],
        "ten steps ms": taken["call"] - taken["prefix"],
        "TFLOP": rows * counts.sampling_call(subject.model) / 1e12,
        "temporary GB": (whole.temporary_mb or float("nan")) / 1e3,
    }
    return Result([row], "prefix has the images; ten steps is the call without its prefix")


def kernels(what: str, rows: int, asked: Asked) -> Result:
    """Which kernels a step's and a call's time goes to, the dearest first."""
    is_call = what == "call"
    subject = Subject(recipe_of(asked.size, 1 if is_call else asked.batch))
    work = subject.sampling(rows) if is_call else subject.step()
    if ahead.collecting():
        return Result()
    folder = asked.folder / "traces" / f"{what}_{rows}"
    every = traces.traced(work.run, work.program, folder)
    write_text(
        folder / "kernels.json", json.dumps([dataclasses.asdict(kernel) for kernel in every], indent=1)
    )
    whole, shown = sum(kernel.ms for kernel in every), every[:DEAREST]
    about = [
        {
            "kernel": kernel.name[-48:],
            "of": kernel.scope[-64:],
            "runs": kernel.count,
            "ms": kernel.ms,
            "share": kernel.ms / whole,
        }
        for kernel in shown
    ]
    runs = sum(kernel.count for kernel in every)
    return Result(
        about, f"{runs:.0f} kernels take {whole:.4g} ms; all of them are in traces/{folder.name}/kernels.json"
    )


def plugin(asked: Asked) -> Result:
    """The body's cost: step and call with it, over the bare host's."""
    bare = Subject(recipe_of(asked.size, asked.batch, plugin=None))
    full = Subject(recipe_of(asked.size, asked.batch))
    rows = []
    for name, sides in (
        (f"step, batch {asked.batch}", {"with": full.step(), "without": bare.step()}),
        ("call, batch 1", {"with": full.sampling(), "without": bare.sampling()}),
    ):
        taken = take_turns({side: work.run for side, work in sides.items()}, asked.repeats)
        both = {f"{side} ms": 1e3 * seconds for side, seconds in taken.items()}
        rows.append({"what": name, **both, "ratio": taken["with"] / taken["without"]})
    return Result(rows, "tokens, Mix bias and FiLM for 8 joints; both in turn")


def loader(asked: Asked) -> Result:
    """The loader beside the step: is the device ever waiting for data?"""
    from morph_vla.training import sharding, source

    folder = str(asked.dataset or _demonstrations(asked.folder))
    rows, mesh, count = [], sharding.make_mesh(), asked.repeats + 3
    for mode in ("cache", "video"):
        recipe = recipe_of(
            asked.size,
            asked.batch,
            changes=[
                f"data.dataset={folder}", "data.state=[observation.state]", "data.action=[action]",
                "data.cameras={base_0_rgb: exterior, left_wrist_0_rgb: wrist}", "data.held_out=0",
                "tokenizer=bytes", f"data.frames={mode}",
            ],
        )  # fmt: skip
        subject, read = Subject(recipe), source.Source(recipe, asked.folder / "frames")
        advance = steps.make_step(recipe.model, recipe.training, subject.optimizer)
        batches = sharding.ahead(read.batches(0, count), mesh)
        waits, turns, key = [], [], jax.random.key(0)
        for _ in range(count):
            asking = time.perf_counter()
            batch = next(batches)
            waits.append(time.perf_counter() - asking)
            inputs = batch.observation, batch.actions, batch.mask
            subject.state, metrics = advance(subject.state, *inputs, key)
            jax.block_until_ready(metrics)
            turns.append(time.perf_counter() - asking)
        if mode == "video":
            read.workers.close()
        waited, taken = (1e3 * float(np.median(times[3:])) for times in (waits, turns))
        shares = {"waiting ms": waited, "step and waiting ms": taken, "share": waited / taken}
        rows.append({"frames": mode, "batch": asked.batch, **shares})
    return Result(rows, "frames of 224 pixels, two cameras, decoded beforehand or when asked for")


def _demonstrations(folder: Path) -> Path:
    """A few simulated demonstrations. Raises MorphVlaError where there is no simulator."""
    try:
        from morph_vla.demonstrations import recording
        from morph_vla.suites import suite
    except ImportError as error:
        raise MorphVlaError(
            f"no dataset was given (DATASET=folder), and none can be recorded: {error}"
        ) from error
    if not (folder / "dataset" / "meta" / "info.json").is_file():
        recording.record(suite.load("droid_panda:cube_in_bowl", CAMERAS), folder / "dataset", 4, workers=1)
    return folder / "dataset"


def openpi(call: int, asked: Asked) -> Result:
    """Our step, or call of so many rows, without a body beside that of openpi, at the same sizes."""
    if asked.openpi is None:
        raise MorphVlaError("no checkout of openpi was given: OPENPI=path")
    config, checkout = config_of(asked.size), asked.openpi
    subject = Subject(recipe_of(asked.size, asked.batch, plugin=None))
    ours = subject.sampling(call) if call else subject.step()

    def theirs() -> Work:
        step = partial(openpi_step, checkout, config, asked.batch, "expert")
        work = openpi_sampler(checkout, config, call) if call else step()[0]
        if ahead.collecting():
            work()  # theirs compiles when it is first called
        return work

    name = f"openpi's {call}"
    works = {"ours": ours.run, "openpi": ahead.kept(name, theirs)}
    if ahead.collecting():
        return Result()
    taken = take_turns(works, asked.repeats)
    ahead.dropped(name)  # its state is as large as ours
    both = {f"{side} ms": 1e3 * seconds for side, seconds in taken.items()}
    what = f"call, batch {call}" if call else f"step, batch {asked.batch}"
    row = {"what": what, **both, "ratio": taken["ours"] / taken["openpi"]}
    return Result([row], "the action expert alone learns; a call is ten steps")


def demo(asked: Asked) -> Result:
    """The main job, from a URDF to a success rate; a run that was cut goes on where it stopped."""
    short = ["training.steps=4", "--attempts", "10", "--episodes", "2"]
    small = ["--suite", "droid_panda:cube_in_bowl", *short] if asked.size != "full" else []
    folder, began = asked.folder / "demo", time.perf_counter()
    command = [sys.executable, "-m", "morph_vla.cli", "demo", *small, "-o", str(folder), "--json"]
    # Ended here, not with this process: what it started would go on.
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DEMO_SECONDS)
    if ended.returncode == 2:  # something is missing here
        raise MorphVlaError(_last(ended.stderr))
    if ended.returncode:
        raise RuntimeError(f"the demo ended with {ended.returncode}: {_last(ended.stderr)}")
    return Result([{"seconds": time.perf_counter() - began, "report": str(folder / "report.html")}])


def _last(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def bodies(asked: Asked) -> Result:
    """Bodies compared over seeds, all seeds in one vmapped program: does it pay?"""
    count, batch = SEEDS[asked.size]
    rows = [
        dataclasses.asdict(seeds.measured(name, recipe, count, asked.repeats))
        for name, recipe in seeds.conditions(batch).items()
    ]
    return Result(rows, f"a step of {count} seeds, batch {batch} each; a ratio below 1 pays")


Part = Callable[[Asked], Result]
ROWS_OF_A_CALL = (1, 2, 4, 8, 16)
ALL: Mapping[str, Part] = {
    "machine": machine,
    **{f"parity_{dtype}": partial(parity, dtype) for dtype in TOLERANCES},
    "step_parts": floors,
    **{
        f"step_{kind}_{name}": partial(step, kind, index)
        for kind in ("expert", "lora")
        for index, name in ((1, "middle"), (0, "few"), (2, "many"))
    },
    **{f"call_{rows}": partial(sampling, rows) for rows in ROWS_OF_A_CALL},
    "kernels_step": partial(kernels, "step", 0),
    **{f"kernels_call_{rows}": partial(kernels, "call", rows) for rows in (1, 8)},
    "plugin": plugin,
    **{f"lever_{name}": partial(lever, name) for name in (*LEVERS, *OPTIONS, "all")},
    "openpi_step": partial(openpi, 0),
    **{f"openpi_call_{rows}": partial(openpi, rows) for rows in (1, 8)},
    **{f"lever_{name}": partial(lever, name) for name in INEXACT},
    "loader": loader,
    "demo": demo,
    "bodies": bodies,
}


COMPILED_AHEAD = (step, sampling, kernels, plugin, lever, openpi)
"""Parts whose programs can be compiled with nothing measured"""


def is_compiled_ahead(name: str) -> bool:
    """Whether a part's programs can be compiled before it measures.

    Not those in 8 bits: on an H200 they took more than five minutes, for which all others would wait.
    """
    part = ALL[name]
    if isinstance(part, partial) and part.func is lever and part.args[0] in INEXACT:
        return False
    return (part.func if isinstance(part, partial) else part) in COMPILED_AHEAD


def title(name: str) -> str:
    """What a part is about: the first line of its function."""
    part = ALL[name]
    about = part.func.__doc__ if isinstance(part, partial) else part.__doc__
    return (about or "").split("\n")[0]
