"""A checkpoint written in another format, bit by bit."""

import dataclasses
from pathlib import Path
from typing import Literal

from morph_vla.errors import ConfigError, MorphVlaError
from morph_vla.pi05.config import Pi05Config
from morph_vla.weights.checkpoint import Checkpoint, digest, recipe_model
from morph_vla.weights.lerobot import save_lerobot
from morph_vla.weights.load import load
from morph_vla.weights.lora import lora_of, merge_lora, with_unit_scale
from morph_vla.weights.names import HEAD_LEAF, IMAGE_TOKENS
from morph_vla.weights.openpi import save_morph_vla, save_openpi
from morph_vla.weights.recognise import Kind, open_checkpoint
from morph_vla.weights.report import Report

Format = Literal["openpi", "lerobot", "morph_vla"]
HORIZON = 50  # actions per chunk, where neither a checkpoint nor a config says it


def convert(
    source: str | Path,
    target: Path,
    to: Format,
    config: Pi05Config | None = None,
    *,
    kind: Kind = "averaged",
    horizon: int = HORIZON,
    keep_lora: bool = False,
    keep_plugin: bool = False,
) -> tuple[str, Report]:
    """Load strictly, merge low-rank pairs into their weights, write `target`; its SHA-256 and the report.

    `keep_lora` keeps the pairs, at a factor of one (openpi and morph_vla alone); `keep_plugin` writes the
    plugin's leaves into a file of their own (LeRobot). `horizon` is for LeRobot's config.json, without
    `config`. Raises ConfigError for pairs that LeRobot cannot have, MorphVlaError for a model of fewer image
    tokens or with a head, which only morph_vla has, and as `load`.
    """
    opened = open_checkpoint(source, kind)
    if to != "morph_vla":
        _check_host(opened, to)
    params, report = load(source, config, dtype="stored", kind=kind)
    lora = lora_of(opened) if config is None else config.lora
    if lora is not None:
        if keep_lora and to == "lerobot":
            raise ConfigError(
                "--keep-lora: LeRobot has no low-rank pairs; without this option they are merged"
            )
        params = (with_unit_scale if keep_lora else merge_lora)(params, lora)
    if to == "openpi":
        save_openpi(target, params)
    elif to == "morph_vla":
        save_morph_vla(target, params)
    else:
        sizes = config or dataclasses.replace(opened.config(), horizon=horizon)
        save_lerobot(target, params, sizes, keep_plugin=keep_plugin)
    return digest(params), report


def _check_host(opened: Checkpoint, to: Format) -> None:
    """Raise MorphVlaError for a model that no other program's pi0.5 can be."""
    model = recipe_model(opened)
    if model.get(IMAGE_TOKENS) is not None:
        raise MorphVlaError(
            f"{opened.path}: trained with model.image_tokens, and {to}'s pi0.5 reads all tokens of an image"
        )
    if model.get("head") is not None or HEAD_LEAF in opened.entries:
        raise MorphVlaError(f"{opened.path}: trained with model.head, and {to}'s pi0.5 denoises its actions")
