"""What of a recipe's model, tokenizer and weights can be known without loading them."""

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from jaxtyping import Float

from morph_vla.checks.dataset import place
from morph_vla.checks.rules import problem
from morph_vla.data import stats
from morph_vla.data.layout import IMAGES, Rows
from morph_vla.engines.engine import environment_names
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.files import remote
from morph_vla.files.cache import cache_folder
from morph_vla.files.dropin import name_of
from morph_vla.files.home import expanded
from morph_vla.findings import Finding
from morph_vla.pi05 import tokenizer as tokenizers
from morph_vla.pi05.paligemma import BUCKET
from morph_vla.pi05.tokenizer import Tokenizer, prompt_text, state_bins
from morph_vla.policies.config import NearestConfig, StateConfig, reads_numbers
from morph_vla.recipes.keys import Recipe
from morph_vla.suites.environment import load_tasks
from morph_vla.suites.suite import Suite
from morph_vla.training import memory as estimates
from morph_vla.training.begin_with import new_leaves
from morph_vla.weights.inspect import inspect


def weights(recipe: Recipe) -> Iterator[Finding]:
    """Weights that are not there, or do not fit the model."""
    source, model = recipe.weights, recipe.model
    if not source or isinstance(model, StateConfig):
        return
    try:
        source = remote.address_of(source)
        kept = remote.kept(source)
        if kept is None and source.startswith(("hf://", "gs://")):
            yield problem("weights-not-here", "weights", f"{source} is not on this machine")
            return
        inspection = inspect(kept or source, model, new=partial(new_leaves, recipe))
    except MorphVlaError as error:
        yield problem("weights", "weights", str(error))
        return
    for number, misfit in enumerate(inspection.problems[:5]):
        more = f" (and {len(inspection.problems) - 5} more)" if len(inspection.problems) > 5 else ""
        remedy = f"`morph-vla weights inspect` shows what the checkpoint holds{more}"
        text = f"{source}: {misfit.found}"
        yield problem("weights", "weights", text, subject=(str(number),), remedy=remedy)


def optimizer(recipe: Recipe) -> Iterator[Finding]:
    """A warm-up that no step comes after."""
    warmup, steps = recipe.optimizer.warmup, recipe.training.steps
    if warmup >= steps and not isinstance(recipe.model, NearestConfig):  # which learns nothing
        yield problem("warmup", "optimizer.warmup", f"{warmup} of {steps} steps: the rate only rises")


def memory(recipe: Recipe) -> Iterator[Finding]:
    """A training whose parameters, optimizer and average alone do not fit into this machine's device."""
    mesh = recipe.training.mesh
    try:
        device = estimates.device_memory()
    except (RuntimeError, AssertionError):  # JAX finds no device, or another process has it
        return
    state = estimates.estimate(recipe, max(1, mesh.data), mesh.fsdp).state
    if device is not None and state > device[1]:
        alone = f"parameters, optimizer and average alone take {state / estimates.GB:.3g} GB a device"
        yield problem("memory", "training", f"{alone}, and {device[0]} has {device[1] / estimates.GB:.3g}")


def suites(recipe: Recipe) -> Iterator[Finding]:
    """Suites of `evaluation` that are not there, of another robot, or show another thing than was taught."""
    trained = {name_of("robots", source.robot) for source in recipe.data.sources}
    for name in recipe.evaluation.suites:
        try:
            tasks = load_tasks(name)
        except MorphVlaError as error:
            yield problem("suite", "evaluation.suites", str(error), subject=(name,))
            continue
        for task in tasks:
            if name_of("robots", task.robot) not in trained:
                known = ", ".join(sorted(trained))
                found = f"'{task.label}' is of robot '{task.robot}'; this recipe trains {known}"
                yield problem("suite", "evaluation.suites", found, subject=(task.label,))
            elif isinstance(task, Suite) and (missing := _not_shown(recipe, task)):
                remedy = "name a suite that shows what the dataset shows, or leave it out"
                yield problem("suite", "evaluation.suites", missing, subject=(task.label,), remedy=remedy)


def _not_shown(recipe: Recipe, suite: Suite) -> str:
    """The poses or the camera that the model looks for and the suite does not show; "" for none."""
    if reads_numbers(recipe.model):
        values, reads = len(environment_names(suite.success)), recipe.model.environment
        if values == reads:
            return ""
        return f"'{suite.label}' shows {values} values of poses, and model.environment is {reads}"
    looked_through: dict[str, str] = {}
    for source in recipe.data.sources:  # of two datasets of a robot the first one's, as in a checkpoint
        if source.robot == suite.robot:
            looked_through = {**source.cameras, **looked_through}
    for camera in (name.removeprefix(IMAGES) for name in looked_through.values()):
        if camera not in suite.cameras:
            shown = ", ".join(suite.cameras) or "none"
            known = nearest(camera, suite.cameras)
            return f"'{suite.label}' has no camera '{camera}', which the model looks through{known} ({shown})"
    return ""


def local_tokenizer(recipe: Recipe) -> Tokenizer | None:
    """The recipe's tokenizer if nothing has to be fetched for it; raises MorphVlaError for a wrong one."""
    name = recipe.tokenizer
    source = BUCKET if name == "paligemma" else name.removeprefix("paligemma:")
    if name != "bytes":
        if source.startswith("gs://"):
            kept = cache_folder() / "tokenizers" / source.removeprefix("gs://")
            if not kept.is_file():
                return None
        elif not expanded(source).exists() and source.count("/") == 1 and not source.startswith("."):
            return None  # a repository of the Hub
    return tokenizers.load(name)


def tokenizer(recipe: Recipe) -> Iterator[Finding]:
    """A tokenizer that is not there, or has more tokens than the model."""
    if isinstance(recipe.model, StateConfig):
        return
    try:
        tokens = local_tokenizer(recipe)
        if tokens is None:
            yield problem("tokenizer-not-here", "tokenizer", f"{recipe.tokenizer} is not on this machine")
        else:
            tokenizers.check_vocab(tokens, recipe.model.vocab)
    except MorphVlaError as error:
        yield problem("tokenizer", "tokenizer", str(error))


def prompts(
    recipe: Recipe, where: str, state: Float[np.ndarray, "n s"], rows: Rows, tasks: Mapping[int, str]
) -> Iterator[Finding]:
    """Tasks whose longest prompt does not fit into model.max_tokens, and loses what stands at its end."""
    if isinstance(recipe.model, StateConfig):
        return
    try:
        tokens = local_tokenizer(recipe)
    except MorphVlaError:
        return
    finite = np.asarray(np.isfinite(state).all(axis=1))
    if tokens is None or not finite.any() or rows.task is None:
        return
    low, high = np.quantile(state[finite], [0.01, 0.99], axis=0)
    spans = np.maximum(high - low, stats.MIN_SPAN)
    normal = (np.where(finite[:, None], state - low, 0) / spans * 2 - 1).astype(np.float32)
    bins = state_bins(normal.ravel()).reshape(normal.shape)
    letters = np.where(bins < 0, 2, np.where(bins > 99, 3, np.where(bins > 9, 2, 1))).sum(axis=1)
    longer: list[tuple[int, int, str]] = []
    for index, task in tasks.items():
        of_task = np.flatnonzero((rows.task == index) & finite)
        if not len(of_task):
            continue
        row = int(of_task[np.argmax(letters[of_task])])
        count = len(tokens.encode(prompt_text(task, normal[row])))
        if count > recipe.model.max_tokens:
            longer.append((count, row, task))
    if longer:
        count, row, task = max(longer)
        more = f" (and those of {len(longer) - 1} more tasks are too long)" if len(longer) > 1 else ""
        takes = f"takes {count} tokens, the model {recipe.model.max_tokens}{more}"
        yield problem("long-prompt", where, f"the prompt of task '{task[:60]}' {takes}", *place(rows, row))
