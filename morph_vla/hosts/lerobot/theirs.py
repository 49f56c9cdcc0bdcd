"""LeRobot's own policies, asked as ours are: `morph-vla eval --policy lerobot:FOLDER`.

LeRobot loads them and runs its own processors: an answer is the chunk of actions that `lerobot-eval` has, but
in the policy's own precision (`use_amp` is not read), and what is executed of it is the evaluation's to say.
One observation is asked at a time, with torch's random numbers from its episode and step: no answer depends
on what was asked beside it.
"""

import contextlib
import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla.engines.engine import ENVIRONMENT, Observation, actions_of
from morph_vla.errors import MorphVlaError, nearest, reason, require
from morph_vla.files.plain import as_typed
from morph_vla.results.values import listing, mapping
from morph_vla.weights.lerobot_processors import EMPTY_CAMERA

LOG = logging.getLogger(__name__)
PREFIX = "lerobot:"  # of a policy on the command line
STATE = "observation.state"
KEYS = {STATE: "state", f"observation.{ENVIRONMENT}": ENVIRONMENT}
"""LeRobot's names -> those of an observation; any other is a camera's"""

PLACES = ("device", "pretrained_path", "repo_id")
"""Of a configuration, what says where it was trained and from which of its own checkpoints"""


class LerobotPolicy:
    """A folder that `lerobot-train` wrote (a checkpoint's `pretrained_model`): an `engines.engine.Policy`."""

    def __init__(self, folder: str | Path, device: str = "cpu"):
        """Load the policy, and ask it once.

        Raises MorphVlaError where LeRobot cannot, and for one that needs a history or answers with no chunk.
        """
        self.folder = Path(folder)
        if not (self.folder / "config.json").is_file():
            raise MorphVlaError(f"{folder}: no LeRobot policy: it has no config.json")
        configs, factory = (
            require("lerobot.configs", "lerobot"),
            require("lerobot.policies.factory", "lerobot"),
        )
        try:
            config = configs.PreTrainedConfig.from_pretrained(self.folder)
            config.device = device
            with contextlib.redirect_stdout(io.StringIO()):  # it prints that it loads
                kind = factory.get_policy_class(config.type)
                self._policy = kind.from_pretrained(self.folder, config=config)
            self._before, self._after = factory.make_pre_post_processors(
                config, pretrained_path=str(self.folder),
                preprocessor_overrides={"device_processor": {"device": device}},
            )  # fmt: skip
        except Exception as error:  # whatever LeRobot raises
            raise MorphVlaError(f"{folder}: LeRobot cannot load this policy: {reason(error)}") from error
        if config.n_obs_steps > 1:
            raise MorphVlaError(
                f"{folder}: this policy looks at {config.n_obs_steps} observations at once; only policies of "
                "one observation can be asked"
            )
        self.kind = config.type
        features = features_of(config, self._before)
        self.cameras = {name: _camera(name) for name in features if name not in KEYS}
        self.reads: Mapping[str, int] = {
            _key(name): feature.shape[0] if name in KEYS else 0 for name, feature in features.items()
        }
        """Of an observation, with how many numbers; 0 of an image"""
        self.executes: int | None = getattr(config, "n_action_steps", None)
        """Actions of an answer that LeRobot's rollout would execute"""
        self._policy.eval()
        if (factor := getattr(config, "temporal_ensemble_coeff", None)) is not None:
            LOG.warning(
                "%s: temporal_ensemble_coeff %g is not applied: chunks are executed as they are",
                folder, factor,
            )  # fmt: skip
        try:
            try_out(self._policy, self._before, self._after)
        except Exception as error:  # whatever LeRobot raises
            raise MorphVlaError(
                f"{folder}: LeRobot's '{self.kind}' answers one observation with no chunk: {reason(error)}"
            ) from error

    def describe(self) -> dict[str, Any]:
        """What a record says of this policy."""
        about = {"name": self.folder.name, "checkpoint": None, "step": None, "sha256": _digest(self.folder)}
        return {**about, "lerobot": as_typed(self.folder), "type": self.kind}

    def infer(self, observation: Observation) -> dict[str, Any]:
        """Actions [horizon, values], as LeRobot's processors give them back."""
        return _answer(self._policy, self._before, self._after, observation)


def features_of(config: Any, before: Any) -> dict[str, Any]:
    """What a policy reads, by the names that its preprocessor takes: some train with `--rename_map`.

    Without the places of cameras that are not there (`empty_cameras`), which LeRobot's policies mask.
    """
    renamed: dict[str, str] = {}
    for step in before.steps:
        renamed |= {new: old for old, new in (getattr(step, "rename_map", None) or {}).items()}
    given: Mapping[str, Any] = config.input_features
    features = {renamed.get(name, name): feature for name, feature in given.items()}
    return {name: feature for name, feature in features.items() if not EMPTY_CAMERA.fullmatch(name)}


def try_out(policy: Any, before: Any, after: Any) -> None:
    """Ask a policy that LeRobot has made as `LerobotPolicy` would, with zeros for values and black pictures.

    Raises MorphVlaError where what comes back is no chunk of actions, and what LeRobot raises.
    """
    actions_of(asking(policy, before, after)(), policy.config.action_feature.shape[0])


def asking(policy: Any, before: Any, after: Any) -> Callable[[], dict[str, Any]]:
    """What asks it so."""
    seen: Observation = {"prompt": ""}
    for name, feature in features_of(policy.config, before).items():
        shape = feature.shape if name in KEYS else (*feature.shape[1:], feature.shape[0])
        seen[_key(name)] = np.zeros(shape, np.float32 if name in KEYS else np.uint8)
    policy.eval()
    return lambda: _answer(policy, before, after, seen)


def _answer(policy: Any, before: Any, after: Any, observation: Observation) -> dict[str, Any]:
    """Of a policy between its processors."""
    torch = require("torch", "lerobot")
    torch.manual_seed(int(observation.get("episode", 0)) << 20 | int(observation.get("step", 0)))
    given = _given(features_of(policy.config, before), observation)
    batch = {key: torch.from_numpy(value)[None] for key, value in given}
    with torch.inference_mode():
        chunk = policy.predict_action_chunk(before({**batch, "task": [observation["prompt"]]}))
        actions = after(chunk)
    return {"actions": np.asarray(actions[0].to("cpu"), np.float32)}


def _given(features: Iterable[str], observation: Observation) -> Iterator[tuple[str, np.ndarray]]:
    """LeRobot's features of an observation; images as floats [3 h w] in 0 .. 1."""
    for name in features:
        key = _key(name)
        if key not in observation:
            raise MorphVlaError(
                f"the observation lacks {key}, which the policy calls {name}{nearest(key, observation)}; "
                f"it has {', '.join(sorted(observation))}"
            )
        value = np.asarray(observation[key], np.float32)
        yield name, value if name in KEYS else np.ascontiguousarray(np.moveaxis(value, -1, 0) / 255)


def _digest(folder: Path) -> str:
    """SHA-256 of what answers: parameters, statistics, processors and configuration; not of the device."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)  # goes on with it
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    kept = {key: value for key, value in config.items() if key not in PLACES}
    processors = {path.name: _steps(path) for path in sorted(folder.glob("policy_*processor.json"))}
    digest.update(json.dumps(kept, sort_keys=True).encode())
    if processors:
        digest.update(json.dumps(processors, sort_keys=True).encode())
    return digest.hexdigest()


def _steps(path: Path) -> list[Any]:
    """What a processor does, step by step, but on which device."""
    steps = listing(mapping(json.loads(path.read_text(encoding="utf-8"))).get("steps"))
    return [step for step in steps if mapping(step).get("registry_name") != "device_processor"]


def _key(feature: str) -> str:
    """Of an observation of ours."""
    return KEYS.get(feature, f"images/{_camera(feature)}")


def _camera(feature: str) -> str:
    """A camera by the name that a suite has for it."""
    return feature.removeprefix("observation.").removeprefix("images.")
