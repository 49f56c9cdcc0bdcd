"""Training a policy that is evaluated on the way, on the suites that its recipe names."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.evaluate import Progress, evaluate
from morph_vla.evaluation.rollout import Settings
from morph_vla.files.dropin import name_of
from morph_vla.recipes.keys import Recipe
from morph_vla.results.record import Record
from morph_vla.serving import policy as policies
from morph_vla.suites.environment import load_tasks
from morph_vla.training import loop
from morph_vla.training.loop import Run
from morph_vla.training.trackers import Tracker

LOG = logging.getLogger(__name__)
OnRecord = Callable[[str, Record], None]


def train(
    recipe: Recipe,
    folder: str | Path,
    trackers: Sequence[Tracker] = (),
    *,
    folders: Sequence[str | Path] = (),
    on_record: OnRecord | None = None,
    progress: Progress | None = None,
    **callbacks: Any,
) -> Run:
    """Train `recipe` into `folder`, or resume the run there, and evaluate it on the recipe's suites.

    The checkpoint of every `evaluation.every` steps has a record a suite in FOLDER/evaluations, which
    `on_record` is given, and its success rates go to the trackers; `progress` is that of `evaluate`.
    `folders` are searched for suites first; `callbacks` are those of `loop.train`. Raises MorphVlaError
    before the first step for an unknown suite or one of a robot that is not trained, and as
    `loop.train`.
    """
    check_suites(recipe, folders)

    def tried(checkpoint: Path) -> dict[str, float]:
        """The rates of a checkpoint, by suite."""
        return try_out(recipe, checkpoint, Path(folder) / "evaluations", folders, on_record, progress)

    return loop.train(
        recipe, folder, trackers, evaluate=tried if recipe.evaluation.suites else None, **callbacks
    )


def check_suites(recipe: Recipe, folders: Sequence[str | Path] = ()) -> None:
    """Raise MorphVlaError for an unknown suite, and for one of a robot that is not trained."""
    trained = {name_of("robots", source.robot) for source in recipe.data.sources}
    for name in recipe.evaluation.suites:
        for robot in dict.fromkeys(task.robot for task in load_tasks(name, (), folders)):
            if name_of("robots", robot) not in trained:
                raise MorphVlaError(
                    f"evaluation.suites: '{name}' is of robot '{robot}'; "
                    f"this recipe trains {', '.join(sorted(trained))}"
                )


def try_out(
    recipe: Recipe,
    checkpoint: Path,
    folder: Path,
    folders: Sequence[str | Path] = (),
    on_record: OnRecord | None = None,
    progress: Progress | None = None,
) -> dict[str, float]:
    """Evaluate a checkpoint on the recipe's suites: a record each in FOLDER/STEP-SUITE, the rates by suite.

    A finished evaluation is read back, an interrupted one resumed.
    """
    episodes, rates, loaded = recipe.evaluation.episodes, {}, None
    for task in (task for name in recipe.evaluation.suites for task in load_tasks(name, (), folders)):
        place = folder / f"{checkpoint.name}-{task.label.replace(':', '-')}"
        batch = policies.EVALUATION_BATCH
        policy = policies.load(checkpoint, robot=task.robot, batch=batch, loaded=loaded)
        loaded = policy.loaded  # of every robot
        record = evaluate(
            policy, task, folder=place, name=f"step {checkpoint.name}", episodes=episodes,
            parallel=min(Settings.parallel, episodes), videos=0, progress=progress,
        )  # fmt: skip
        if on_record:
            on_record(task.label, record)
        if record.summary.rate is not None:
            rates[f"success/{task.label}"] = record.summary.rate
    return rates
