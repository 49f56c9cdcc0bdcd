"""A run with two checkpoints, made without training."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla import weights
from morph_vla.files.plain import to_plain
from morph_vla.pi05 import Pi05Config
from morph_vla.pi05.parts import by_name
from morph_vla.recipes import recipe as recipes
from morph_vla.results import record as records
from morph_vla.results.record import PolicyCard, Record, SuiteFacts
from morph_vla.results.trial import Trial
from morph_vla.training import checkpoint

SIZES = [
    "model.image_size=24", "model.vit={width: 12, depth: 1, mlp_dim: 20, heads: 2, patch: 12}",
    "model.prefix={width: 20, mlp_dim: 28}", "model.expert={width: 16, mlp_dim: 28}", "model.depth=2",
    "model.heads=2", "model.head_dim=6", "tokenizer=bytes", "model.vocab=520", "model.max_tokens=40",
]  # fmt: skip
STATS = {name: [0.5] for name in ("q01", "q99", "mean", "std")}
PANDA = {
    "joints": ["panda_joint1"], "control_rate": 15.0, "actions": "absolute", "relative": [True],
    "cameras": {"base_0_rgb": "exterior"}, "state_stats": STATS, "action_stats": STATS,
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Made:
    """A run with two checkpoints."""

    folder: Path
    last: Path
    params: dict[str, Any]
    sha256: str

    def evaluated(self, place: Path, digest: str, robot: str = "", successes: int = 4) -> Path:
        """An evaluation of 5 episodes of the policy with that digest."""
        trials = tuple(Trial(task="can", episode=i, success=i < successes) for i in range(5))
        suite, card = SuiteFacts("droid_panda", 3, robot=robot or None), PolicyCard(name="10", sha256=digest)
        records.write(Record(suite=suite, policy=card, trials=trials), place / "record.json")
        return place


def make(root: Path, folder: Path, overrides: list[str]) -> Made:
    """A run whose panda has been changed since by a finger's width."""
    recipe = recipes.load("panda_demo", [*SIZES, *overrides])
    random = np.random.default_rng(0)
    assert isinstance(recipe.model, Pi05Config)
    shapes = weights.leaf_shapes(recipe.model)
    params = weights.nested({n: random.standard_normal(shape, np.float32) for n, shape in shapes.items()})
    for step in (5, 10):
        last = weights.save_morph_vla(folder / "checkpoints" / str(step), params)
    about = last / "about"
    (about / "robots").mkdir(parents=True)
    policy = {"schema": 3, "robots": {"panda": PANDA}, "step": 10}
    (about / "policy.json").write_text(json.dumps(policy))
    (about / "recipe.json").write_text(json.dumps(to_plain(recipe)))
    (about / "versions.json").write_text('{"python": "3.12.1"}')
    for suffix in (".urdf", ".yaml"):
        text = (root / "urdf_descriptors" / f"panda{suffix}").read_text()
        (about / "robots" / f"panda{suffix}").write_text(text.replace("2.9671", "2.5"))
    sha256 = checkpoint.digest(policy, by_name(params).values())
    run = Made(folder, last, params, sha256)
    for name, digest in (("mine", sha256), ("other", "0" * 64)):
        run.evaluated(folder / "eval" / name, digest)
    return run
