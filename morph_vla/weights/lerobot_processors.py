"""LeRobot's pre- and postprocessor of a pi0.5: what makes parameters a policy there, without LeRobot."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.errors import MorphVlaError
from morph_vla.weights import tensors

PREPROCESSOR, POSTPROCESSOR = "policy_preprocessor.json", "policy_postprocessor.json"
STATE, ACTION = "observation.state", "action"
NORM_MAP = {"VISUAL": "IDENTITY", "STATE": "QUANTILES", "ACTION": "QUANTILES"}
TOKENIZER = "google/paligemma-3b-pt-224"  # the only one that LeRobot's pi0.5 has
EMPTY_CAMERA = re.compile(r"observation\.images\.empty_camera_\d+")
"""A place that LeRobot adds for a camera that is not there (`empty_cameras`), and masks"""
Values = Mapping[str, Sequence[float]]
"""A feature's q01, q99, mean and std, of one number a value"""


@dataclasses.dataclass(frozen=True)
class OneRobot:
    """What LeRobot keeps of a robot, and of one alone."""

    state: Values
    action: Values
    names: tuple[str, ...]
    """Of the action's values"""
    relative: tuple[bool, ...] | None = None
    """Of which values an action is a difference to the state; None: it is a target"""

    def __post_init__(self):
        """Raise MorphVlaError where LeRobot, which leaves out by words in names, would leave out others."""
        words = [name.lower() for name in self.absolute]
        kept = tuple(not any(word in name.lower() for word in words) for name in self.names)
        if self.relative not in (None, kept):
            raise MorphVlaError(
                f"LeRobot cannot be told that {', '.join(self.absolute)} are no differences: it leaves out "
                f"every value whose name has one of these in it (of {', '.join(self.names)})"
            )

    @property
    def absolute(self) -> tuple[str, ...]:
        """Of which values no difference is taken, where one is taken at all."""
        return tuple(name for name, moves in zip(self.names, self.relative or (), strict=False) if not moves)

    @property
    def config(self) -> dict[str, Any]:
        """What config.json says of the robot, beside its features."""
        if self.relative is None:
            return {}
        return {
            "use_relative_actions": True,
            "relative_exclude_joints": list(self.absolute),
            "action_feature_names": list(self.names),
        }


def features(config: Mapping[str, Any], robot: OneRobot) -> dict[str, Any]:
    """config.json's features, with the robot's own widths in place of the model's padded ones."""
    state, action = ({"shape": [len(values["q01"])]} for values in (robot.state, robot.action))
    return {
        "input_features": {**config["input_features"], STATE: {"type": "STATE", **state}},
        "output_features": {ACTION: {"type": "ACTION", **action}},
    }


def write(folder: Path, config: Mapping[str, Any], robot: OneRobot) -> None:
    """Write both processors, as LeRobot's own factory makes them (`policies/pi05/processor_pi05.py`).

    `config` is config.json's, with its features. The device is the CPU, until LeRobot is told another.
    """
    known = {**config["input_features"], **config["output_features"]}
    device = {"device": "cpu", "float_dtype": None}
    is_relative = robot.relative is not None
    relative = {
        "enabled": is_relative,
        "exclude_joints": list(robot.absolute),
        "action_names": list(robot.names) if is_relative else None,
    }
    text = {
        "max_length": config["tokenizer_max_length"],
        "task_key": "task",
        "padding_side": "right",
        "padding": "max_length",
        "truncation": True,
        "tokenizer_name": TOKENIZER,
    }
    _write(
        folder / PREPROCESSOR,
        robot,
        [
            ("rename_observations_processor", {"rename_map": {}}),
            ("to_batch_processor", {}),
            ("relative_actions_processor", relative),
            ("normalizer_processor", _norm(known)),
            ("pi05_prepare_state_tokenizer_processor_step", {}),
            ("tokenizer_processor", text),
            ("device_processor", device),
        ],
    )
    actions = {ACTION: known[ACTION]}
    _write(
        folder / POSTPROCESSOR,
        robot,
        [
            ("unnormalizer_processor", _norm(actions)),
            ("absolute_actions_processor", {"enabled": is_relative}),
            ("device_processor", device),
        ],
    )


def _norm(known: Mapping[str, Any]) -> dict[str, Any]:
    return {"eps": 1e-08, "features": dict(known), "norm_map": NORM_MAP}


def _write(path: Path, robot: OneRobot, steps: Sequence[tuple[str, dict[str, Any]]]) -> None:
    """A pipeline, and the statistics of its step that normalizes in a file of their own."""
    plain = []
    for place, (name, config) in enumerate(steps):
        step: dict[str, Any] = {"registry_name": name, "config": config}
        if "norm_map" in config:
            step["state_file"] = f"{path.stem}_step_{place}_{name}.safetensors"
            tensors.write(path.parent / step["state_file"], dict(sorted(_tables(robot))), {})
        plain.append(step)
    text = json.dumps({"name": path.stem, "steps": plain}, indent=2)
    path.write_text(text, encoding="utf-8")


def _tables(robot: OneRobot) -> Iterator[tuple[str, tensors.Draft]]:
    for feature, values in ((STATE, robot.state), (ACTION, robot.action)):
        for key in ("mean", "q01", "q99", "std"):
            array = np.asarray(values[key], np.float32)
            yield f"{feature}.{key}", tensors.Draft(array.shape, array.dtype, lambda array=array: [array])
