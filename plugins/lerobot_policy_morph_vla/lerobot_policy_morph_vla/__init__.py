"""Importing this, as LeRobot does, registers `--policy.type=morph_vla` and `--env.type=morph_vla`."""

from morph_vla.hosts.lerobot import configuration_morph_vla, environment

__all__ = ["configuration_morph_vla", "environment"]
