"""What one key of a recipe, or one option of XLA, is worth: parts of `make gpu`."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from benchmarks.gpu_part import Asked, Result, milliseconds
from benchmarks.subject import Subject, recipe_of
from morph_vla.errors import MorphVlaError
from morph_vla.pi05.config import CAMERAS

LEVERS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "prompt": {"max_tokens": 96},  # as training.prompt_bucket cuts most batches of DROID
    "prompt_short": {"max_tokens": 64},  # as `serve` has an arm's prompts
    "cameras": {"cameras": CAMERAS[:2]},
    "written_out": {"fused_attention": False},
    "remat": {"remat": False},  # the suffix keeps what it computed
}
TOGETHER = ("prompt", "cameras")  # without `remat` a step took longer; what is fused is so already
INEXACT: Mapping[str, Mapping[str, Any]] = {"float8": {"prefix_float8": True}}  # not among all together
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    # XLA's Triton takes no bias, GELU or residual into a product, cuBLAS does.
    "cublas": {"xla_gpu_enable_triton_gemm": False},
}


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
        f"as it is: a prompt of {model.max_tokens} tokens, {len(model.cameras)} cameras, {attention(model)}"
    )
    return Result([row], told or as_it_is)


def attention(model: Any) -> str:
    """How a model's prefix attends, in a word."""
    return "attention fused" if model.fused_attention else "attention written out"
