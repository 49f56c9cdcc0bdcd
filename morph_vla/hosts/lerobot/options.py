"""What LeRobot is asked to train: a kind of policy that it registers, and options of its `lerobot-train`.

Spelled as a list, as in a grid of `morph-vla evidence`: `[lerobot=act, policy.dim_model=64, steps=3000]`.
Reading it needs no LeRobot; `check` asks LeRobot itself.
"""

import contextlib
import dataclasses
import io
import logging
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from morph_vla import installing
from morph_vla.errors import ConfigError, MissingExtraError, MorphVlaError, nearest, reason, require
from morph_vla.hosts.lerobot import theirs

FIRST = "lerobot="
"""Begins the list, before the kind of policy"""
DEFAULT_STEPS = 100_000  # lerobot-train's own
RESERVED = (
    "config_path", "dataset.episodes", "dataset.repo_id", "dataset.root", "env", "job", "num_workers",
    "output_dir", "policy.device", "policy.path", "policy.push_to_hub", "policy.type", "resume",
    "reward_model", "save_checkpoint", "save_checkpoint_to_hub", "seed", "wandb",
)  # fmt: skip
"""What whoever trains sets, with everything below"""
OURS = ("data", "model", "recipe", "training")
"""Of our recipes, with everything below"""
WITH_BACKBONE = ("act", "diffusion", "vqbet")
"""Kinds that would fetch the parameters of an image backbone; others fetch what they stand on"""
WITHOUT_TEXT = (*WITH_BACKBONE, "tdmpc", "gaussian_actor")
"""Kinds that are not told the task's text"""
MADE = (*WITH_BACKBONE, "tdmpc", "gaussian_actor")
"""Kinds that can be made without fetching anything"""
QUEUED = ("multi_task_dit",)
"""Of the others, those whose chunks are of what LeRobot's `select_action` has put into queues"""
ANOTHER = "train another kind, as lerobot=act"


@dataclasses.dataclass(frozen=True)
class Training:
    """What LeRobot is asked to train."""

    policy: str
    """A kind of policy that LeRobot registers, as `act`"""
    options: tuple[str, ...] = ()
    """KEY=VALUE each, of `lerobot-train`"""
    held_out: float = 0.0
    """Share of the demonstrations that are not trained on, the same ones as by our recipes"""

    @property
    def steps(self) -> int:
        """How many steps are taken."""
        return int(self.value("steps", str(DEFAULT_STEPS)))

    @property
    def reads_text(self) -> bool:
        """Whether the policy is told the task's text."""
        return self.policy not in WITHOUT_TEXT

    @property
    def words(self) -> tuple[str, ...]:
        """All options that numbers can depend on: those asked for, after our defaults where they are others
        than LeRobot's.
        """
        key = "policy.pretrained_backbone_weights"
        default = self.policy in WITH_BACKBONE and not self.value(key, "")
        return (f"policy.type={self.policy}", *([f"{key}=null"] if default else []), *self.options)

    def value(self, key: str, default: str) -> str:
        """What an option is given as; the last one counts."""
        values = [value for word in self.options for name, _, value in [word.partition("=")] if name == key]
        return values[-1] if values else default

    def settings(self) -> dict[str, Any]:
        """All of it that numbers can depend on, as plain values."""
        return {"options": list(self.words), "held_out": self.held_out, "reads_text": self.reads_text}


def is_theirs(items: Sequence[str]) -> bool:
    """Whether a list asks LeRobot to train."""
    return bool(items) and items[0].startswith(FIRST)


def parsed(items: Sequence[str], held_out: float = 0.0) -> Training:
    """What a list asks for. Raises ConfigError with every item that is no option of a training's own."""
    problems = [problem for item in items[1:] for problem in _problems(item)]
    training = Training(items[0].removeprefix(FIRST), tuple(items[1:]), held_out)
    if not training.policy:
        problems.append(f"'{FIRST}' names no policy; expected one that LeRobot registers, as {FIRST}act")
    for key in ("steps", "log_freq", "save_freq"):
        if not training.value(key, "1").isdecimal() or int(training.value(key, "1")) < 1:
            problems.append(f"{key}: expected a whole number of at least 1, not '{training.value(key, '')}'")
    if problems:
        raise ConfigError("\n".join(problems))
    return training


def _problems(item: str) -> Iterator[str]:
    """Why an item is none of LeRobot's options that may be given; before LeRobot is asked."""
    key, equals, _ = item.partition("=")
    if not equals or key.startswith("-"):
        yield f"'{item}': expected KEY=VALUE, an option of lerobot-train without its dashes"
    elif key.startswith("@") or _is_below(key, OURS):
        yield f"{key} is of our recipes, and LeRobot trains this one; expected an option of lerobot-train"
    elif _is_below(key, RESERVED):
        yield f"{key} is set by whoever runs the study; leave it out"


def _is_below(key: str, keys: Sequence[str]) -> bool:
    return any(key == each or key.startswith(f"{each}.") for each in keys)


def check(training: Training) -> None:
    """Ask LeRobot. Raises MorphVlaError for a package that lerobot-train lacks here, an unknown kind of
    policy or option (the nearest is named), a value that LeRobot refuses, and a policy that we could not ask.
    """
    config = configured(training).policy
    if config.n_obs_steps > 1:
        raise MorphVlaError(
            f"LeRobot's '{training.policy}' looks at {config.n_obs_steps} observations at once, and only "
            f"policies of one can be asked; {ANOTHER}"
        )
    if training.policy in QUEUED:
        raise _unanswered(training, "its chunks are of queues that its select_action alone fills")


def configured(training: Training) -> Any:
    """LeRobot's `TrainPipelineConfig` of a training, before it is given data. Raises as `check`."""
    require_trainer()
    kinds = _lerobot("lerobot.configs").PreTrainedConfig
    _lerobot("lerobot.policies")  # registers them
    choices = kinds.get_known_choices()
    if training.policy not in choices:
        near = nearest(training.policy, choices)
        raise MorphVlaError(f"LeRobot has no policy '{training.policy}'{near} ({', '.join(sorted(choices))})")
    whole = _lerobot("lerobot.configs.train").TrainPipelineConfig
    known = [*_names(whole), *_names(choices[training.policy], "policy.")]
    for key in (word.partition("=")[0] for word in training.options):
        group = key.partition(".")[0]
        if key not in known and (group in ("policy", key) or group not in known):
            raise MorphVlaError(f"lerobot-train has no option '{key}'{nearest(key, known)}")
    words = ("dataset.repo_id=none", "policy.device=cpu", "policy.push_to_hub=false", *training.words)
    return _decoded(whole, [f"--{word}" for word in words])


def parameters(training: Training, dataset: Path) -> int | None:
    """How many a policy has that is made for a dataset; None for a kind that would fetch what it stands on.

    It is asked once, so that none is trained for hours that cannot be evaluated. Raises MorphVlaError with
    LeRobot's reason where it makes none or that one has no answer, and as `configured`.
    """
    if training.policy not in MADE:
        return None
    policy, before, after = made(training, dataset)
    try:
        theirs.try_out(policy, before, after)
    except Exception as error:  # whatever LeRobot raises
        raise _unanswered(training, reason(error)) from error
    return sum(leaf.numel() for leaf in policy.parameters())


def made(training: Training, dataset: Path) -> tuple[Any, Any, Any]:
    """A policy for a dataset with random parameters, and what stands before and behind it.

    Raises MorphVlaError with LeRobot's reason where it makes none, and as `configured`.
    """
    config = configured(training).policy
    metadata = _lerobot("lerobot.datasets.dataset_metadata").LeRobotDatasetMetadata
    policies = _lerobot("lerobot.policies")
    try:
        known = metadata("local/recording", root=dataset)
        policy = policies.make_policy(cfg=config, ds_meta=known)
        return policy, *policies.make_pre_post_processors(policy.config, dataset_stats=known.stats)
    except Exception as error:  # whatever LeRobot raises
        raise MorphVlaError(f"LeRobot makes no '{training.policy}': {reason(error)}") from error


def _unanswered(training: Training, why: str) -> MorphVlaError:
    kind = training.policy
    return MorphVlaError(
        f"LeRobot's '{kind}' cannot be asked for a chunk from one observation: {why}; {ANOTHER}"
    )


def require_trainer() -> None:
    """Raise MissingExtraError, which says what to install, where `lerobot-train` would not run."""
    _lerobot("lerobot")
    if missing := [name for name in ("accelerate",) if find_spec(name) is None]:
        words = f"'{missing[0]}' is not installed, and lerobot-train needs it; install LeRobot's extra"
        itself = installing.command("'lerobot[training]'")
        raise MissingExtraError(f"{words}: {itself}")


def versions() -> dict[str, str]:
    """What a training of LeRobot's depends on, as far as installed."""
    installed = {}
    for name in ("lerobot", "torch", "accelerate"):
        with contextlib.suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def _lerobot(module: str) -> Any:
    """A module of LeRobot's, without its pages about a video decoder that it does without."""
    logging.getLogger("lerobot.utils.import_utils").setLevel(logging.ERROR)
    return require(module, "lerobot")


def _names(kind: type, before: str = "") -> Iterator[str]:
    """The options of a dataclass of LeRobot's."""
    yield from (f"{before}{field.name}" for field in dataclasses.fields(kind) if field.init)


def _decoded(kind: type, arguments: list[str]) -> Any:
    """Options as LeRobot reads them. Raises MorphVlaError with its own reason."""
    parse, printed = require("draccus", "lerobot").parse, io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            return parse(kind, None, args=arguments)
    except SystemExit as error:
        lines = printed.getvalue().strip().splitlines() or [""]
        raise MorphVlaError(f"lerobot-train: {lines[-1].partition('error: ')[2]}") from error
    except Exception as error:  # whatever LeRobot raises
        raise MorphVlaError(f"lerobot-train: {': '.join(dict.fromkeys(_reasons(error)))}") from error


def _reasons(error: BaseException) -> Iterator[str]:
    """Where a value is refused, which an error's last line says, and why, which is the first of its chain."""
    lines = str(error).strip().splitlines()
    yield lines[-1].strip().rstrip(".") if lines else reason(error)
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    yield reason(error)
