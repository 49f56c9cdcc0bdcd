"""One dataset of a recipe with its robot, and what a batch says of that robot's joints."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from morph_vla.data import lerobot, transforms
from morph_vla.errors import MorphVlaError
from morph_vla.morphology.arrays import Body, positions_of
from morph_vla.policies.config import ModelConfig, joint_lags, reads_poses
from morph_vla.recipes.keys import Dataset
from morph_vla.robots.robot import Robot
from morph_vla.robots.standpoint import Standpoint
from morph_vla.training.statistics import RobotStats


@dataclasses.dataclass(frozen=True)
class Part:
    """One dataset, with its robot and everything of its rows but their order."""

    asked: Dataset
    robot: Robot
    recordings: lerobot.Recordings
    relative: Bool[np.ndarray, "v"]  # which values a delta or a velocity is taken of
    body: Body | None
    targets: Float[np.ndarray, "n j"]  # recorded actions as joint values, whatever they are to the model
    train_rows: Int[np.ndarray, "_"]
    held_rows: Int[np.ndarray, "_"]
    seen_from: Standpoint | None = None  # of each row, whence state and chunk are told; None: the root
    converted: bool = False  # whether values were brought from the dataset's units to the robot's


def bodies(
    model: ModelConfig,
    parts: Sequence[Part],
    stats: Mapping[str, RobotStats],
    dataset: Int[np.ndarray, "b"],
    rows: Int[np.ndarray, "b"],
) -> Body | None:
    """The robots of the given rows of the given datasets, where joints are and were if the model reads that.

    None for a model without bodies.
    """
    of_parts = [part.body for part in parts]
    if any(body is None for body in of_parts):
        return None
    body = jax.tree.map(lambda *leaves: np.stack(leaves)[dataset], *of_parts)
    lags, places = np.asarray(joint_lags(model), int), body.joint_mask.shape[-1]
    positions = np.zeros((len(rows), places), np.float32)
    history = np.zeros((len(rows), len(lags), places), np.float32)
    for index in np.unique(dataset):
        part, here = parts[index], dataset == index
        recordings, its_rows = part.recordings, rows[here]
        if reads_poses(model):
            positions[here] = positions_of(part.robot, recordings.state[its_rows], places)
        if len(lags):
            window, _ = transforms.window(recordings, its_rows, lags)
            states = stats[part.asked.robot].state.normalise(recordings.state[window])
            history[here, :, : states.shape[2]] = states
    changes = {"positions": positions} if reads_poses(model) else {}
    return dataclasses.replace(body, **changes, **({"history": history} if len(lags) else {}))


def check(model: ModelConfig, dataset: str, recordings: lerobot.Recordings) -> None:
    """Raise MorphVlaError where no episode is as long as the model looks back."""
    lags = model.lags or joint_lags(model)
    keys = "model.window: (window - 1)" if model.lags else "model.morphology.history: (steps - 1)"
    starts = np.asarray(recordings.starts)
    longest = 1 + int((recordings.last_of(starts) - starts).max())
    if lags and lags[0] >= longest:
        raise MorphVlaError(
            f"{dataset}: the model looks back {lags[0]} control steps ({keys} "
            f"* stride), and the longest episode has {longest}; choose fewer steps or a smaller stride"
        )
