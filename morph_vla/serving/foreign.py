"""Checkpoints of openpi and LeRobot as policies: what their folders do not say, and from where it is taken.

    sizes         the shapes of the arrays
    statistics    LeRobot: its preprocessor's file; openpi: assets/ID/norm_stats.json; else `statistics`
    horizon       config.json; else the recipe; else that of openpi's own policy of this preset
    actions       LeRobot: its preprocessor (relative or absolute); else the recipe; else the preset
    robot         the one asked for; else the recipe's; else the preset's
    cameras       those asked for; else the recipe's; else the preset's; in the order of LeRobot's config.json
    control rate  the robot's side file

What is nowhere is one sentence that says what to give; where a folder and what is given disagree, the folder
is followed, which is said.
"""

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from morph_vla import robots, weights
from morph_vla.data import presets
from morph_vla.data.stats import Stats
from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config, serving, tokenizer
from morph_vla.policies.config import ModelConfig
from morph_vla.recipes import recipe as recipes
from morph_vla.recipes.keys import Dataset, Recipe
from morph_vla.robots.robot import Robot
from morph_vla.serving import foreign_stats, keys
from morph_vla.serving.foreign_stats import Processor
from morph_vla.training import checkpoint, meaning
from morph_vla.training.statistics import RobotStats
from morph_vla.weights.checkpoint import Checkpoint, flat
from morph_vla.weights.load import returned_at_once, sizes_of

LOG = logging.getLogger(__name__)
TOKENIZER = "paligemma"
"""Of every pi0.5 that openpi or LeRobot trained."""
HORIZONS = {"droid": 16, keys.ROBOARENA: 16, "libero": 10, "aloha": 50}
"""Actions in a chunk of openpi's own pi0.5 policies, by preset; of DROID those of its policies of positions
(`pi05_full_droid_finetune`): velocities have 15, and a recipe (`openpi_droid`)."""
SLACK = 0.02  # of a joint's range: how far beyond its limits it may be recorded
MARKS = ("model.safetensors", "model.safetensors.index.json", "_METADATA", "params/_METADATA")
OURS = ("about", "policy.json")


@dataclasses.dataclass(frozen=True)
class Given:
    """What a user says of a checkpoint that does not say it itself."""

    recipe: str = ""
    """A recipe's name or file"""
    preset: str = ""
    """One of `keys.PRESETS`"""
    statistics: str = ""
    """A file or a folder with statistics"""
    cameras: tuple[str, ...] = ()
    """Of the suite that it is to be tried in; () where a server's clients are to be looked through"""

    def refuse_beside(self, checkpoint: object) -> None:
        """Raise MorphVlaError where a checkpoint of ours is named, which says all of it itself."""
        if self.recipe or self.statistics:
            raise MorphVlaError(
                f"{checkpoint} says itself how it was trained: --recipe and --statistics are for checkpoints "
                "of openpi and LeRobot; leave them out"
            )


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A checkpoint with everything that it takes to act."""

    config: ModelConfig
    params: dict[str, Any]
    """Ready to serve"""
    tokenizer: str
    about: dict[str, Any]
    """As a checkpoint of ours says it in policy.json"""
    sha256: str
    """`checkpoint.digest` of that and of the parameters as they were trained"""


def is_foreign(folder: Path) -> bool:
    """Whether a folder holds parameters, and nothing of ours beside them."""
    places = (folder, folder / "pretrained_model")
    there = any((place / mark).is_file() for place in places for mark in MARKS)
    return there and not any((folder / name).exists() for name in OURS)


def read(folder: Path, robot: str, given: Given, tokenizer_name: str = "") -> Loaded:
    """The policy in a folder of openpi or LeRobot.

    Raises MorphVlaError, in one sentence, for what neither the folder nor the user says, and as
    `weights.load`.
    """
    keys.of({}, given.preset)  # which there must be
    opened = weights.open_checkpoint(folder)
    recipe = recipes.load(given.recipe) if given.recipe else None
    processor = foreign_stats.processor(opened.path) if opened.format == "lerobot" else Processor()
    asked = _asked(folder, robot, given, recipe, processor)
    config = _config(opened, given.preset, recipe, processor)
    if opened.format == "openpi" and recipe is not None:
        _warn_of_the_host(opened, given.recipe, asked)
    chosen = tokenizer_name or (recipe.tokenizer if recipe else TOKENIZER)
    tokenizer.check_vocab(tokenizer.load(chosen), config.vocab)
    driven = presets.as_recorded(robots.load(asked.robot), asked.unit, asked.gripper)
    trained = _trained(folder, driven, asked, processor, given)
    if opened.format == "openpi" and given.preset == "aloha":
        _warn_of_pi_space(folder, driven, trained)
    params, _ = weights.load(folder, config, dtype=config.dtype, by_layer=True)
    about = {"step": None, "robots": {asked.robot: trained}, "format": opened.format}
    sha256, leaves = checkpoint.Digest(about), flat(params)
    del params
    one_by_one = ((name, serving.let_go(leaves.pop(name))) for name in list(leaves))
    with returned_at_once():
        ready = serving.ready(config, sha256.through(one_by_one))
    return Loaded(config, ready, chosen, about, sha256.hexdigest())


def _asked(folder: Path, robot: str, given: Given, recipe: Recipe | None, processor: Processor) -> Dataset:
    """What a recipe would say of the data: robot, cameras, units and actions."""
    preset = "droid" if given.preset == keys.ROBOARENA else given.preset
    known = presets.PRESETS.get(preset)
    sources = {source.robot: source for source in recipe.data.sources} if recipe else {}
    name = robot or (
        next(iter(sources)) if len(sources) == 1 else known.robot if known and not sources else ""
    )
    if sources and name not in sources:
        wrong = f", not of robot '{name}'" if name else ""
        raise MorphVlaError(
            f"{given.recipe}: the recipe is of {', '.join(sources)}{wrong}; say which with --robot"
        )
    if not name:
        raise MorphVlaError(
            f"{folder}: the checkpoint does not say which robot it drives; give --robot NAME, --preset or "
            "--recipe RECIPE"
        )
    if sources:
        asked = sources[name]
    else:
        asked = Dataset(dataset=str(folder), robot=name, preset=preset if known else "")
    of_preset = keys.last_parts(keys.PRESETS[preset]) if preset else {}
    offered = _offered(folder, given.cameras, asked.cameras or of_preset, processor)
    cameras = _cameras(folder, offered, processor, given.cameras or (*offered.values(),))
    actions = processor.actions or (asked.actions if sources or known else "")
    if known and preset == "droid" and not (sources or processor.actions):
        LOG.warning(
            "%s: answers are taken for deltas of joint positions, %d of them; those of a policy of joint "
            "velocities, as openpi's pi05_droid, would drive the arm wrongly: give --recipe openpi_droid for "
            "one",
            folder,
            processor.horizon or HORIZONS[preset],
        )
    if sources and asked.recorded == "targets" and actions != asked.actions:
        LOG.warning(
            "%s: its files say that actions are %s, and recipe %s has %s: the files are followed",
            folder,
            actions,
            given.recipe,
            asked.actions,
        )
    if not actions:
        raise MorphVlaError(
            f"{folder}: the checkpoint does not say whether its actions are absolute, deltas or velocities; "
            "give --recipe RECIPE with data.actions"
        )
    return dataclasses.replace(asked, cameras=cameras, actions=actions)


def _offered(
    folder: Path, suites: Sequence[str], own: Mapping[str, str], processor: Processor
) -> Mapping[str, str]:
    """The model's name -> a camera: what the recipe or the preset says, where the suite has all of these.

    Else the suite's, by their names (`keys.roles`); a checkpoint of LeRobot then has names of its own.
    """
    if not suites or (own and set(own.values()) <= set(suites)):
        return own
    shown = keys.by_their_names(suites)
    if own and not processor.cameras:
        LOG.warning("%s: the suite has not all of the cameras %s: %s", folder, ", ".join(own.values()), shown)
    elif keys.left_out(suites) and not processor.cameras:
        LOG.warning(
            "%s: the checkpoint does not say its cameras: %s; --recipe RECIPE with data.cameras says them",
            folder, shown,
        )  # fmt: skip
    return keys.roles(suites)


def _cameras(
    folder: Path, offered: Mapping[str, str], processor: Processor, there: Sequence[str]
) -> dict[str, str]:
    """The model's name for a camera -> that of what is offered: a recipe's, a suite's or a client's.

    `there` are all cameras that might have been offered.

    A policy of LeRobot sees its cameras in the order of config.json, whatever is offered calls first. Where
    these have the model's names, what is offered for others is left out.
    """
    known, theirs = Pi05Config().cameras, processor.cameras
    if not theirs or len(theirs) > len(known):
        if offered:
            return dict(offered)
        raise MorphVlaError(
            f"{folder}: the checkpoint does not say what its cameras are called; give --preset or --recipe "
            "RECIPE"
        )
    if ours := [camera for camera in theirs if camera in known]:
        chosen = {camera: offered.get(camera, "") if offered else camera for camera in ours}
        if not any(chosen.values()):
            raise MorphVlaError(
                f"{folder}: the checkpoint looks through {', '.join(ours)}, and what is offered is for "
                f"{', '.join(offered)}; give --recipe RECIPE whose data.cameras have a name for one of them"
            )
    else:
        names = [_alike(theirs, name, offered, there) if offered else name for name in theirs]
        chosen = dict(zip(known, names, strict=False))
        if "" in names or len({*names}) < len(names):
            raise MorphVlaError(
                f"{folder}: the checkpoint looks through {', '.join(theirs)}, and there are only "
                f"{', '.join(there)}; give --recipe RECIPE whose data.cameras have a name for each"
            )
        if tuple(names) != theirs:
            LOG.warning(
                "%s: the checkpoint looks through %s, which are taken for %s",
                folder,
                ", ".join(theirs),
                ", ".join(names),
            )
    return {camera: name for camera, name in chosen.items() if name}


def _alike(theirs: Sequence[str], name: str, offered: Mapping[str, str], there: Sequence[str]) -> str:
    """What is there by the same name, else offered for the same role (`keys.roles`), else nothing."""
    if name in there:
        return name
    role = next((role for role, camera in keys.roles(theirs).items() if camera == name), "")
    return offered.get(role, "")


def _config(opened: Checkpoint, preset: str, recipe: Recipe | None, processor: Processor) -> Pi05Config:
    """The model: the recipe's, without what the checkpoint has not; else what the folder says."""
    has_plugin = any(name.startswith("morphology/") for name in opened.entries)
    if recipe is not None:
        if not isinstance(recipe.model, Pi05Config):
            raise MorphVlaError(
                f"{opened.path}: the checkpoint is a pi0.5, and the recipe has model.family "
                f"'{recipe.model.family}'; give --recipe one of pi0.5"
            )
        if recipe.model.head is not None:
            raise MorphVlaError(
                f"{opened.path}: the checkpoint denoises its actions, and the recipe has model.head; give "
                "--recipe one without"
            )
        body = recipe.model.morphology if has_plugin else None
        if recipe.model.morphology is not None and not has_plugin:
            LOG.warning("%s has no leaves of the plugin: it acts without the body of the recipe", opened.path)
        fewer = recipe.model.image_tokens
        has_ranking = any(name.startswith("image_tokens/") for name in opened.entries)
        if fewer is not None and fewer.learns and not has_ranking:
            fewer = None
        known = {"horizon": processor.horizon, "max_tokens": processor.max_tokens}
        others = {key: value for key, value in known.items() if value and value != getattr(recipe.model, key)}
        for key, value in others.items():
            text = "%s: config.json says %s %d, and the recipe %d: the file is followed"
            LOG.warning(text, opened.path, key, value, getattr(recipe.model, key))
        return dataclasses.replace(recipe.model, morphology=body, image_tokens=fewer, lora=None, **others)
    if has_plugin:
        raise MorphVlaError(
            f"{opened.path}: the checkpoint has the plugin's leaves and does not say its settings; give "
            "--recipe RECIPE, the one it was trained by (of openpi's trainer: docs/hosts.md says which)"
        )
    horizon = processor.horizon or HORIZONS.get(preset)
    if horizon is None:
        raise MorphVlaError(
            f"{opened.path}: the checkpoint does not say how many actions it answers with; give --recipe "
            "RECIPE with model.horizon"
        )
    known = {"max_tokens": processor.max_tokens, "dtype": processor.dtype}
    settings = {key: value for key, value in known.items() if value}
    return dataclasses.replace(sizes_of(opened), horizon=horizon, **settings)


def _warn_of_the_host(opened: Checkpoint, recipe: str, asked: Dataset) -> None:
    """Say what actions a body's checkpoint is taken to answer with, where openpi's trainer learnt others."""
    has_plugin = any(name.startswith("morphology/") for name in opened.entries)
    is_learnt_so = asked.actions == "delta" if asked.preset != "droid" else asked.recorded != "targets"
    if has_plugin and not is_learnt_so:
        LOG.warning(
            "%s: answers are taken for %s positions, as %s has it; a checkpoint that openpi trained with the "
            "plugin answers with deltas (data: lerobot) or velocities (data: droid), and would drive the arm "
            "wrongly: give --recipe FILE with data.actions=delta or data.preset=droid_velocity for one",
            opened.path,
            "deltas of" if asked.actions == "delta" else asked.actions,
            recipe,
        )


def _trained(
    folder: Path, robot: Robot, asked: Dataset, processor: Processor, given: Given
) -> dict[str, Any]:
    """A robot's entry in policy.json."""
    rate = robot.side.control_rate
    if rate is None:
        raise MorphVlaError(
            f"{folder}: the checkpoint does not say at how many Hz it acts; write control_rate into the side "
            f"file of robot '{robot.name}'"
        )
    relative = np.array([not joint.is_gripper for joint in robot.joints])
    if processor.relative is not None:
        relative = np.array([*processor.relative, *np.ones(len(relative), bool)][: len(relative)])
    state, action, source = foreign_stats.of(folder, robot, asked, processor, given.statistics, given.preset)
    kind, action = _learnt(asked, action, relative, rate)
    return {
        **meaning.of_robot(robot, RobotStats(state, action, source=source)),
        "control_rate": rate,
        "actions": kind,
        "relative": relative.tolist(),
        "cameras": dict(asked.cameras),
    }


def _warn_of_pi_space(folder: Path, robot: Robot, trained: Mapping[str, Any]) -> None:
    """Say that openpi's ALOHA policies may live in another space (`adapt_to_pi` of its `aloha_policy.py`).

    There shoulders and elbows count the other way, and grippers are angles. Raises MorphVlaError where the
    statistics of states say that they do: a joint leaves its limits, and mirrored it would not.
    """
    why = "openpi's configs for ALOHA mirror shoulders and elbows and make angles of grippers (adapt_to_pi)"
    low, high = (np.asarray(trained["state_stats"][key], np.float64) for key in ("q01", "q99"))
    ends = np.stack(robot.stops)
    native = np.sort(robot.to_native(np.stack([low, high])), axis=0)
    room = SLACK * (ends[1] - ends[0])

    def fits(values: np.ndarray) -> np.ndarray:
        """Which joints stay within their limits."""
        return (values[0] >= ends[0] - room) & (values[1] <= ends[1] + room)

    arms = np.array([not joint.is_gripper for joint in robot.joints])
    if mirrored := np.flatnonzero(arms & ~fits(native) & fits(-native[::-1])).tolist():
        index = mirrored[0]
        raise MorphVlaError(
            f"{folder}: {why}, and so it is here: '{robot.names[index]}' goes from {native[0, index]:.2f} to "
            f"{native[1, index]:.2f}, and its limits are {ends[0, index]:.2f} and {ends[1, index]:.2f}; "
            "serve it with openpi, or train with adapt_to_pi=False"
        )
    LOG.warning(
        "%s: %s unless told adapt_to_pi=False; answers are taken for joint values as recorded, and those of "
        "such a checkpoint would drive the arms wrongly: serve it with openpi",
        folder, why,
    )  # fmt: skip


def _learnt(asked: Dataset, action: Stats, relative: np.ndarray, rate: float) -> tuple[str, Stats]:
    """The kind of actions and their statistics; recorded steps (DROID's velocities) are speeds [1/s]."""
    if asked.recorded == "targets":
        return asked.actions, action
    factor = np.where(relative, asked.step * rate, 1.0)
    columns = {key: tuple((factor * np.asarray(value)).tolist()) for key, value in vars(action).items()}
    return "velocity", Stats(**columns)
