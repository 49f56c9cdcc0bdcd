"""Where parameters come from and go to: openpi's checkpoints, LeRobot's, and our own."""

from morph_vla.weights.checkpoint import digest, nested
from morph_vla.weights.lerobot import save_lerobot
from morph_vla.weights.load import leaf_shapes, load
from morph_vla.weights.lora import lora_of, merge_lora, merging, with_unit_scale
from morph_vla.weights.openpi import FROZEN, save_morph_vla, save_openpi
from morph_vla.weights.recognise import open_checkpoint

__all__ = [
    "FROZEN",
    "digest",
    "leaf_shapes",
    "load",
    "lora_of",
    "merge_lora",
    "merging",
    "nested",
    "open_checkpoint",
    "save_lerobot",
    "save_morph_vla",
    "save_openpi",
    "with_unit_scale",
]
