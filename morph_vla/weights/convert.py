"""A checkpoint written in another format, bit by bit."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.pi05.config import Lora, Pi05Config
from morph_vla.weights.checkpoint import Checkpoint, digest, new_folder, recipe_model, recipe_space
from morph_vla.weights.lerobot import refuse_plugin, said_of, save_lerobot
from morph_vla.weights.lerobot_processors import OneRobot
from morph_vla.weights.load import check_family, load, sizes_of
from morph_vla.weights.lora import lora_of, merge_lora, same_pairs, with_unit_scale
from morph_vla.weights.names import ENVIRONMENT, HEAD_LEAF, IMAGE_TOKENS
from morph_vla.weights.openpi import save_morph_vla, save_openpi
from morph_vla.weights.recognise import Kind, open_checkpoint
from morph_vla.weights.report import Report, is_under

Format = Literal["openpi", "lerobot", "morph_vla"]
HORIZON = 50  # actions per chunk, where neither a checkpoint nor a config says it


@dataclasses.dataclass(frozen=True)
class Beside:
    """What goes with parameters into another format (`serving/carried.py` collects it)."""

    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    """By name in the folder"""
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Keys of LeRobot's config.json"""
    robot: OneRobot | None = None
    """Of whom LeRobot's processors are made"""


ALONE = Beside()


def convert(
    source: str | Path,
    target: Path,
    to: Format,
    config: Pi05Config | None = None,
    *,
    kind: Kind = "averaged",
    horizon: int | None = None,
    keep_lora: bool = False,
    keep_plugin: bool = False,
    beside: Beside = ALONE,
) -> tuple[str, Report]:
    """Load strictly, merge low-rank pairs into their weights, write `target`; its SHA-256 and the report.

    `keep_lora` keeps the pairs, at a factor of one (openpi and morph_vla alone); `keep_plugin` writes the
    plugin's leaves into a file of their own (LeRobot). What LeRobot's config.json says beside sizes is of
    `config`, or of the recipe beside a checkpoint of ours, whose number of actions `horizon` replaces. A
    checkpoint of ours stays a policy in our own format; in the others `beside` makes it one.

    Raises ConfigError for pairs that LeRobot cannot have, MorphVlaError for a target that exists, for a model
    that only morph_vla has (or of another family), and as `load`.
    """
    new_folder(target)  # before gigabytes are read
    opened = open_checkpoint(source, kind)
    check_family(opened)
    if to != "morph_vla":
        _check_host(opened, to, keep_plugin)
    stored = lora_of(opened)
    lora = stored if config is None else config.lora
    if keep_lora and stored is None:
        raise ConfigError(f"--keep-lora: {opened.path} has no low-rank pairs")
    if keep_lora and not same_pairs(stored, lora):
        raise ConfigError(f"--keep-lora: the pairs of {opened.path} are not those of the recipe in --config")
    if keep_lora and to == "lerobot":
        raise ConfigError("--keep-lora: LeRobot has no low-rank pairs; without this option they are merged")
    if keep_plugin and to != "lerobot":
        raise ConfigError(f"--keep-plugin: is for LeRobot; in the format {to} the plugin's leaves are kept")
    if horizon is not None and (to != "lerobot" or config is not None):
        why = "the recipe says it" if to == "lerobot" else f"the format {to} does not say it"
        raise ConfigError(f"--horizon: is written into LeRobot's config.json alone, and {why}")
    params, report = load(source, config, dtype="stored", kind=kind)
    if lora is not None:
        params = (with_unit_scale if keep_lora else merge_lora)(params, lora)
    if to == "openpi":
        save_openpi(target, params, beside=beside.files)
    elif to == "morph_vla":
        save_morph_vla(target, params, {**beside.files, **_about(opened.path, stored or lora, keep_lora)})
    else:
        sizes = config or _with_pace(opened, horizon)
        save_lerobot(
            target, params, sizes, keep_plugin=keep_plugin,
            robot=beside.robot, beside=beside.files, known=beside.config,
        )  # fmt: skip
    return digest(params), report


def _with_pace(opened: Checkpoint, horizon: int | None) -> Pi05Config:
    """The checkpoint's sizes, with what no shape says as its recipe has it, or LeRobot's config.json."""
    folder = opened.path if opened.path.is_dir() else opened.path.parent
    model = said_of(folder) if opened.format == "lerobot" else recipe_model(opened)
    kinds = {"horizon": int, "max_tokens": int, "dtype": str}
    facts: dict[str, Any] = {"horizon": HORIZON}
    facts |= {key: model[key] for key, of_kind in kinds.items() if isinstance(model.get(key), of_kind)}
    if isinstance(model.get("cameras"), list):
        facts["cameras"] = tuple(map(str, model["cameras"]))
    if horizon is not None:
        facts["horizon"] = horizon
    return dataclasses.replace(sizes_of(opened), **facts)


def _about(folder: Path, lora: Lora | None, keep_lora: bool) -> dict[str, bytes]:
    """The files that make a checkpoint of ours a policy, whose recipe has the pairs that are written.

    `lora` are those that there were, before they were merged or kept.
    """
    about = folder / "about"
    files = [path for path in about.rglob("*") if path.is_file() and path.name != "leaves.json"]
    contents = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
    if lora is None or "about/recipe.json" not in contents:
        return contents
    recipe = json.loads(contents["about/recipe.json"])
    training = recipe.setdefault("training", {})
    whole = (training.get("lora") or {}).get("whole", lora.whole)  # no shape says what learnt whole
    pairs = to_plain(dataclasses.replace(_unit_scale(lora), whole=tuple(whole))) if keep_lora else None
    recipe["model"]["lora"] = training["lora"] = pairs
    training["kind"] = "lora" if keep_lora else "full"
    return contents | {"about/recipe.json": json.dumps(recipe, indent=2).encode()}


def _unit_scale(lora: Lora) -> Lora:
    pairs = (
        low and dataclasses.replace(low, alpha=float(low.rank))
        for low in (lora.language_model, lora.action_expert)
    )
    return Lora(*pairs, whole=lora.whole)


def _check_host(opened: Checkpoint, to: Format, keep_plugin: bool) -> None:
    """Raise MorphVlaError for a model that no other program's pi0.5 can be."""
    if (space := recipe_space(opened)) != "joints":
        theirs = f"{to}'s pi0.5 has no kinematics between poses and joints"
        raise MorphVlaError(f"{opened.path}: trained with data.space: {space}, and {theirs}")
    model = recipe_model(opened)
    if model.get(IMAGE_TOKENS) is not None:
        raise MorphVlaError(
            f"{opened.path}: trained with model.image_tokens, and {to}'s pi0.5 reads all tokens of an image"
        )
    if model.get("head") is not None or HEAD_LEAF in opened.entries:
        raise MorphVlaError(f"{opened.path}: trained with model.head, and {to}'s pi0.5 denoises its actions")
    if model.get("environment") or any(is_under(name, (ENVIRONMENT,)) for name in opened.entries):
        raise MorphVlaError(f"{opened.path}: trained with model.environment, and {to}'s pi0.5 reads no poses")
    if to == "lerobot" and not keep_plugin:
        refuse_plugin(opened.entries)
