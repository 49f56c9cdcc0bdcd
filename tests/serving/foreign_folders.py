"""Checkpoints in the layouts of openpi and LeRobot, small and of random numbers, and how they are read."""

import dataclasses
import json
from pathlib import Path

import numpy as np

from morph_vla import weights
from morph_vla.pi05 import Pi05Config
from morph_vla.recipes import recipe as recipes
from morph_vla.serving import foreign
from morph_vla.serving.foreign import Given
from morph_vla.weights import tensors
from morph_vla.weights.checkpoint import nested

RECIPE = """
data: {dataset: nowhere, preset: PRESET}
tokenizer: bytes
model:
  vocab: 521
  image_size: 24
  vit: {width: 12, depth: 1, mlp_dim: 20, heads: 2, patch: 12}
  prefix: {width: 20, mlp_dim: 28}
  expert: {width: 16, mlp_dim: 28}
  depth: 2
  heads: 2
  head_dim: 6
  action_dim: 11
  horizon: 7
  max_tokens: 53
  dtype: float32
  morphology: {max_joints: 8, chunks: 1}
training: {steps: 1}
"""
ENDS = {
    "state": {"q01": np.linspace(-1, -0.3, 8), "q99": np.linspace(0.5, 1.2, 8)},
    "actions": {"q01": np.linspace(-0.2, -0.1, 8), "q99": np.linspace(0.1, 0.3, 8)},
}
FEATURES = {"state": "observation.state", "actions": "action"}


def write(root: Path) -> Path:
    """One model in the layouts of openpi and of LeRobot, with their statistics, and two recipes."""
    for preset in ("droid", "droid_velocity"):
        (root / f"{preset}.yaml").write_text(RECIPE.replace("PRESET", preset))
    model = recipes.load(root / "droid.yaml").model
    assert isinstance(model, Pi05Config)
    config = dataclasses.replace(model, morphology=None)
    rng = np.random.default_rng(0)
    shapes = weights.leaf_shapes(config)
    params = nested({leaf: 0.1 * rng.standard_normal(shape, np.float32) for leaf, shape in shapes.items()})
    weights.save_openpi(root / "openpi", params)
    write_assets(root / "openpi", "droid")
    weights.save_lerobot(root / "lerobot", params, config)
    write_processor(root / "lerobot", "QUANTILES", "q01", "q99")
    return root


def write_assets(folder: Path, name: str, count: int = 8) -> None:
    ends = {kind: {key: list(end[:count]) for key, end in table.items()} for kind, table in ENDS.items()}
    plain = {kind: {**table, "mean": [0.0] * count, "std": [1.0] * count} for kind, table in ends.items()}
    (folder / "assets" / name).mkdir(parents=True)
    text = json.dumps({"norm_stats": plain})
    (folder / "assets" / name / "norm_stats.json").write_text(text)


def write_processor(folder: Path, mode: str, low: str, high: str, tables=ENDS, **relative) -> None:
    """LeRobot's preprocessor; deltas of all but the gripper are what openpi's DROID has."""
    arrays = {
        f"{FEATURES[kind]}.{name}": tables[kind][key].astype(np.float32)
        for kind in ENDS
        for key, name in (("q01", low), ("q99", high))
    }
    drafts = {
        name: tensors.Draft(array.shape, array.dtype, lambda a=array: [a]) for name, array in arrays.items()
    }
    tensors.write(folder / "normalizer.safetensors", drafts, {})
    names = [*(f"joint_{i}" for i in range(7)), "Gripper"]
    deltas = {"enabled": True, "exclude_joints": ["gripper"], "action_names": names, **relative}
    steps = [
        {"registry_name": "relative_actions_processor", "config": deltas},
        {
            "registry_name": "normalizer_processor",
            "config": {"norm_map": {"STATE": mode, "ACTION": mode}},
            "state_file": "normalizer.safetensors",
        },
    ]
    (folder / "policy_preprocessor.json").write_text(json.dumps({"steps": steps}))


def given(folders: Path, recipe: str = "droid", **more) -> Given:
    return Given(str(folders / f"{recipe}.yaml"), **more)


def read(folder: Path, robot: str = "", **more) -> foreign.Loaded:
    return foreign.read(folder, robot, Given(**more), "bytes")
