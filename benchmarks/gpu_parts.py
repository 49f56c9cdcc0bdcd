"""The parts of `make gpu`: what each measures, at any size, on whatever device JAX has.

A part returns rows (all with the same keys) and a sentence; what cannot be done here raises MorphVlaError.
"""

import dataclasses
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path

import jax
import numpy as np

from benchmarks import ahead, seeds
from benchmarks import kernels as traces
from benchmarks.gpu_floors import floors, rates
from benchmarks.gpu_levers import INEXACT, LEVERS, OPTIONS, attention, lever
from benchmarks.gpu_part import BATCHES, Asked, Part, Result, Row, milliseconds
from benchmarks.harness import Work, take_turns
from benchmarks.openpi_step import openpi_sampler, openpi_step
from benchmarks.parity import compared, numbers
from benchmarks.subject import Subject, config_of, recipe_of
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text
from morph_vla.pi05 import counts
from morph_vla.training import memory
from morph_vla.training import step as steps

MIDDLE = {"small": "small", "mid": "mid", "full": "mid"}
TOLERANCES = {"float32": 2e-4, "bfloat16": 5e-2}
SEEDS = {"small": (2, 3), "mid": (4, 64), "full": (8, 64)}  # of a comparison of bodies, and rows of a batch
GOALS: Mapping[str, Mapping[str, float]] = {  # at full size, on an H200
    "step_expert_middle": {"ms": 250, "temporary GB": 5.5},
    "call_1": {"ms": 15},
    "call_8": {"ms": 55},
}
SHARES = {"step": 1.05, "call": 1.10}  # of the plugin, over the bare host
DEAREST = 24  # kernels that the page shows
DEMO_SECONDS = 420  # before its part is ended
CAMERAS = [f"cameras.{name}.{side}=224" for name in ("exterior", "wrist") for side in ("width", "height")]


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
        f"prompt of {model.max_tokens} tokens, {len(model.cameras)} cameras, a body, {attention(model)}",
    )


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
