"""Our policy as one of LeRobot's: a checkpoint's (JAX) or a server's, behind `select_action`.

Answers are those of `morph-vla eval`, bit for bit: an observation's random numbers come from its episode and
step, which our suites say (`environment`). In other environments both are counted here.
"""

import dataclasses
import logging
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies import PreTrainedPolicy
from torch import Tensor

from morph_vla.engines.engine import BatchPolicy, Observation, Policy, rows_of
from morph_vla.engines.gymnasium.reading import STATE, pixels
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.rollout import open_loop_at
from morph_vla.files import remote as bases
from morph_vla.hosts.lerobot.configuration_morph_vla import MorphVlaConfig
from morph_vla.hosts.lerobot.export import ADDRESS
from morph_vla.hosts.lerobot.processor_morph_vla import make_morph_vla_pre_post_processors
from morph_vla.hosts.lerobot.theirs import KEYS
from morph_vla.serving import remote
from morph_vla.weights.lerobot_processors import POSTPROCESSOR, PREPROCESSOR

LOG = logging.getLogger(__name__)
not_compiled: Any = torch.compiler.disable  # whose types know no methods
IMAGES = "observation.images."
EPISODE, STEP = "observation.episode", "observation.step"  # of our suites, [n 1]
ENDED = "observation.ended"  # theirs too: what this row shows was shown before
DROID_HZ = 15.0
MOST = 2**20  # actions in an answer
TRAINING = "a morph_vla policy is trained by `morph-vla train`, not by lerobot-train"


@dataclasses.dataclass
class _Loop:
    """Where one loop over the steps of its episodes stands."""

    actions: deque[Tensor] = dataclasses.field(default_factory=deque)
    answers: dict[object, np.ndarray] = dataclasses.field(default_factory=dict)
    """The last ones, by episode"""
    rollouts: int = 0
    steps: int = 0


class MorphVlaPolicy(PreTrainedPolicy):
    """A checkpoint's or a server's policy; it has no parameters that torch knows."""

    config_class: Any = MorphVlaConfig
    name: Any = "morph_vla"

    def __init__(self, config: MorphVlaConfig, folder: Path = Path(), hub: str = "", **_: Any):
        """`folder` or `hub` (`hf://...`) has config.json.

        Raises MorphVlaError where no checkpoint or server is there.
        """
        super().__init__(config)
        self._folder, self._where = folder.resolve(), _where(config, folder, hub)
        self._settings, self._policy = config, _load(config, self._where)
        config.n_action_steps = _executed(config.n_action_steps, self._policy)
        self._loops: defaultdict[int, _Loop] = defaultdict(_Loop)
        """By thread: `lerobot-eval` rolls several tasks out at once with one policy (`max_parallel_tasks`)"""
        self._warned = False

    @property
    def _loop(self) -> "_Loop":
        return self._loops[threading.get_ident()]

    @classmethod
    def from_pretrained(
        cls, pretrained_name_or_path: str | Path, *, config: PreTrainedConfig | None = None, **options: Any
    ) -> "MorphVlaPolicy":
        """The policy that the config.json of a folder names; `options` are LeRobot's, of downloads."""
        config = config or PreTrainedConfig.from_pretrained(pretrained_name_or_path, **options)
        if not isinstance(config, MorphVlaConfig):
            raise MorphVlaError(f"{pretrained_name_or_path}: config.json is of type '{config.type}'")
        folder, revision = Path(pretrained_name_or_path), options.get("revision")
        at = f"@{revision}" if revision else ""
        hub = "" if folder.is_dir() else f"hf://{pretrained_name_or_path}{at}"
        return cls(config, folder, hub).eval()

    def _save_pretrained(self, save_directory: Path, state_dict: Mapping[str, Tensor] | None = None) -> None:
        """LeRobot's: `config.json`, which in another folder names the checkpoint's in full.

        Its processors too, which `lerobot-eval` asks for, where the folder has none.
        """
        place, settings = save_directory.resolve(), self._settings
        if place == self._where:
            settings = dataclasses.replace(settings, checkpoint=".")
        elif place != self._folder:
            settings = dataclasses.replace(settings, checkpoint=str(self._where))
        settings._save_pretrained(save_directory)
        pipelines = zip(
            make_morph_vla_pre_post_processors(settings), (PREPROCESSOR, POSTPROCESSOR), strict=True
        )
        for pipeline, file in pipelines:
            if not (save_directory / file).exists():
                pipeline.save_pretrained(save_directory)

    def push_to_hub(self, *arguments: Any, **options: Any) -> str:
        """LeRobot's, of `config.json` alone. Raises MorphVlaError where that names a folder here."""
        if isinstance(self._where, Path):
            raise MorphVlaError(
                "config.json alone would be uploaded, which names a folder of this machine; share the "
                f"checkpoint: `morph-vla push {self._where} OWNER/NAME`"
            )
        return super().push_to_hub(*arguments, **options)

    def push_model_to_hub(self, *_: Any, **__: Any) -> Any:
        """LeRobot's, after a training, which this policy has none of."""
        raise MorphVlaError(TRAINING)

    def reset(self) -> None:
        """Forget what is left of the last answers: new episodes begin."""
        loop = self._loop
        loop.actions.clear()
        loop.answers.clear()
        loop.rollouts, loop.steps = loop.rollouts + 1, 0

    def select_action(self, batch: Mapping[str, Any], **_: Any) -> Tensor:
        """The next action [n j] of each episode; asks when those of the last answers are executed."""
        loop = self._loop
        if not loop.actions:
            chunk = self.predict_action_chunk(batch)
            loop.actions.extend(chunk[:, : self._settings.n_action_steps].unbind(1))
        loop.steps += 1
        return loop.actions.popleft()

    @not_compiled  # LeRobot's rollout may compile this call: there is nothing of torch in it
    def _predicted(self, batch: Mapping[str, Any]) -> Tensor:
        """Answers [n h j], in the units of the state; of the step that `select_action` is at.

        An episode that has ended is not asked again, but has its last answer: what it shows is no moment at
        which a policy that looks back has been shown its window.
        """
        rows = list(self._observations(batch))
        ended = batch[ENDED].flatten().tolist() if ENDED in batch else [False] * len(rows)
        pairs = zip(rows, ended, strict=True)
        known = [self._loop.answers.get(row["episode"]) if is_over else None for row, is_over in pairs]
        asked = [row for row, answer in zip(rows, known, strict=True) if answer is None]
        answers = iter(self._asked(asked))
        chunks = [next(answers) if answer is None else answer for answer in known]
        self._loop.answers = {row["episode"]: chunk for row, chunk in zip(rows, chunks, strict=True)}
        return torch.from_numpy(np.stack(chunks))

    def predict_action_chunk(self, batch: Mapping[str, Any], **_: Any) -> Tensor:
        """Answers [n h j], in the units of the state; of the step that `select_action` is at."""
        return self._predicted(batch)

    def _asked(self, rows: list[Observation]) -> list[np.ndarray]:
        if not rows:
            return []
        if isinstance(self._policy, BatchPolicy):
            return [rows_of(answer) for answer in self._policy.infer_batch(rows)]
        return [rows_of(self._policy.infer(row)) for row in rows]

    def _observations(self, batch: Mapping[str, Any]) -> Iterator[Observation]:
        """LeRobot's batch as observations of ours (`engines.engine`), one an episode."""
        if STATE not in batch:
            raise MorphVlaError(f"the batch lacks {STATE}; it has {', '.join(sorted(batch))}")
        images = {
            f"images/{key.removeprefix(IMAGES)}": pixels(_array(value), key)
            for key, value in batch.items()
            if key.startswith(IMAGES)
        }
        numbers = {name: batch[key] for key, name in KEYS.items() if key in batch}
        values = {name: _array(value).astype(np.float32) for name, value in numbers.items()}
        for key, name in KEYS.items():
            if name in values and not np.isfinite(values[name]).all():
                raise MorphVlaError(f"{key}: not every number is finite")
        if (states := values["state"]).ndim != 2:
            raise MorphVlaError(
                f"{STATE} has shape {list(states.shape)}; expected [episodes, joints]: LeRobot's "
                "preprocessor gives one episode its first axis"
            )
        tasks = self._tasks(batch, len(states))
        for name, rows in {**images, **values, "task": tasks}.items():
            if len(rows) != len(states):
                raise MorphVlaError(f"the batch has {len(states)} states, and {len(rows)} of {name}")
        for index in range(len(states)):
            episode, step = self._loop.rollouts * len(states) + index, self._loop.steps
            if EPISODE in batch and STEP in batch:
                episode, step = int(batch[EPISODE][index]), int(batch[STEP][index])
            about: Observation = {
                "prompt": tasks[index],
                "episode": episode,
                "step": step,
                "connection": str(threading.get_ident()),
            }
            if self._settings.robot:  # a server refuses any name but its own robot's, the empty one too
                about["robot"] = self._settings.robot
            yield {**{name: rows[index] for name, rows in {**images, **values}.items()}, **about}

    def _tasks(self, batch: Mapping[str, Any], rows: int) -> list[str]:
        """What each row is asked to do; a text alone is every row's."""
        task = batch.get("task") or ""
        tasks = [task] * rows if isinstance(task, str) else list(task)
        if not all(tasks) and not self._warned:
            self._warned = True
            LOG.warning("the batch has no text under 'task': the policy is asked for nothing in words")
        return tasks

    def get_optim_params(self) -> dict:
        """LeRobot's: there is nothing to optimize."""
        raise MorphVlaError(TRAINING)

    def forward(self, batch: Mapping[str, Any]) -> tuple[Tensor, dict | None]:
        """LeRobot's loss: there is none."""
        raise MorphVlaError(TRAINING)


def _executed(asked: int, policy: Policy) -> int:
    """How many actions of an answer: those asked for, or those that `morph-vla eval` would execute.

    DROID's rate where another's server says none. Raises MorphVlaError for more than an answer has.
    """
    trained = getattr(policy, "trained", None) or {"control_rate": DROID_HZ}
    about = getattr(policy, "card", None) or getattr(policy, "config", None)
    horizon = getattr(about, "horizon", None)
    if horizon and asked > horizon:
        raise MorphVlaError(f"policy.n_action_steps: {asked}, and this policy answers with {horizon} actions")
    return asked or min(open_loop_at(trained["control_rate"]), horizon or MOST)


def _array(tensor: Tensor) -> np.ndarray:
    """A tensor's values, also those of a type that NumPy lacks (bfloat16)."""
    tensor = tensor.detach().cpu()
    return (tensor.float() if tensor.is_floating_point() else tensor).numpy()


def _where(config: MorphVlaConfig, folder: Path, hub: str) -> str | Path:
    """The address of a server, of the Hub or of a bucket, a base's name, or a checkpoint's whole path."""
    is_address = config.checkpoint.startswith(remote.SCHEMES) or ADDRESS in config.checkpoint
    if is_address or config.checkpoint in bases.NAMES:
        return config.checkpoint
    return hub if hub and config.checkpoint == "." else (folder / config.checkpoint).resolve()


def _load(config: MorphVlaConfig, where: str | Path) -> Policy:
    """What answers: a server, or a checkpoint that this process computes."""
    is_server = config.checkpoint.startswith(remote.SCHEMES)
    for name in ("batch", "sampler_steps", "noise") if is_server else ("preset",):
        if (value := getattr(config, name)) != getattr(MorphVlaConfig, name):
            whom = "a server, which has its own" if is_server else "a checkpoint, which has its own keys"
            raise MorphVlaError(f"policy.{name}: {value!r} has no effect on {whom}; leave it out")
    if is_server:
        cameras = [key.removeprefix(IMAGES) for key in config.image_features]
        return remote.reach(config.checkpoint, cameras, preset=config.preset)
    from morph_vla.serving import policy, requests

    loaded = policy.load(
        where, robot=config.robot, batch=config.batch, steps=config.sampler_steps, noise=config.noise
    )
    if isinstance(loaded, policy.CheckpointPolicy):
        # JAX compiles at the first question: here no robot is connected yet that would wait for it.
        nothing = requests.blank(loaded.cameras, loaded.image_size, loaded.trained, loaded.trained["joints"])
        loaded.infer(nothing)
    return loaded
