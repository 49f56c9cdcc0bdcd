"""morph_vla: tell a vision-language-action policy about the body it drives.

    policy = morph_vla.load_policy("runs/first/checkpoints/1400")
    record = morph_vla.evaluate(policy, morph_vla.load_suite("droid_panda"), folder="runs/first/eval")
    morph_vla.write_report("runs/first/eval", record)

docs/python.md shows the rest. `import morph_vla` costs nothing: its names and its rooms (`morph_vla.robots`,
`morph_vla.pi05`, ...) are imported when they are first touched, so that a command such as `morph-vla robots
list` starts without JAX, torch or a simulator.
"""

import importlib
from typing import TYPE_CHECKING, Any

from morph_vla._version import __version__

if TYPE_CHECKING:
    from morph_vla.engines.engine import Policy
    from morph_vla.errors import MorphVlaError
    from morph_vla.evaluation.evaluate import evaluate
    from morph_vla.recipes.keys import Recipe
    from morph_vla.recipes.recipe import load as load_recipe
    from morph_vla.report import write as write_report
    from morph_vla.results.comparison import Comparison, compare
    from morph_vla.results.record import Record
    from morph_vla.robots.examine import load as load_robot
    from morph_vla.robots.robot import Robot
    from morph_vla.serving.policy import CheckpointPolicy
    from morph_vla.serving.policy import load as load_policy
    from morph_vla.serving.trials import train
    from morph_vla.suites.environment import load_tasks as load_suite
    from morph_vla.suites.suite import Suite
    from morph_vla.training.loop import Run
    from morph_vla.training.trackers import Tracker

__all__ = [
    "CheckpointPolicy", "Comparison", "MorphVlaError", "Policy", "Recipe", "Record", "Robot", "Run", "Suite",
    "Tracker", "__version__", "compare", "evaluate", "load_policy", "load_recipe", "load_robot", "load_suite",
    "train", "write_report",
]  # fmt: skip

_HOME = {
    "CheckpointPolicy": "serving.policy:CheckpointPolicy",
    "Comparison": "results.comparison:Comparison",
    "MorphVlaError": "errors:MorphVlaError",
    "Policy": "engines.engine:Policy",
    "Recipe": "recipes.keys:Recipe",
    "Record": "results.record:Record",
    "Robot": "robots.robot:Robot",
    "Run": "training.loop:Run",
    "Suite": "suites.suite:Suite",
    "Tracker": "training.trackers:Tracker",
    "compare": "results.comparison:compare",
    "evaluate": "evaluation.evaluate:evaluate",
    "load_policy": "serving.policy:load",
    "load_recipe": "recipes.recipe:load",
    "load_robot": "robots.examine:load",
    "load_suite": "suites.environment:load_tasks",
    "train": "serving.trials:train",
    "write_report": "report:write",
}
_ROOMS = (
    "files", "robots", "relatives", "morphology", "pi05", "policies", "weights", "data", "recipes",
    "training", "suites", "engines", "demonstrations", "evaluation", "results", "report", "serving",
    "sharing", "checks", "demo", "evidence", "hosts",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a name, or a room of the package, on first use."""
    if name in _HOME:
        module, _, there = _HOME[name].partition(":")
        return getattr(importlib.import_module(f"{__name__}.{module}"), there)
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
