"""Which policy a command asks: a checkpoint's, a server's, or one of LeRobot's."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from morph_vla.cli.common import add
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.engines.engine import Policy
    from morph_vla.suites.environment import EnvironmentSuite
    from morph_vla.suites.suite import Suite

ELSEWHERE = "ws://HOST:PORT or lerobot:FOLDER"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a policy elsewhere."""
    about = "in place of a checkpoint, a server of openpi's protocol (its key is $MORPH_VLA_API_KEY)"
    add(parser, "--policy", f"{about} or one of LeRobot's policies", ELSEWHERE.replace(" or ", " | "))
    about = "the keys of its requests, where it does not say them: droid, libero, aloha or so101"
    add(parser, "--preset", f"with --policy ws://...: {about}", "NAME", default="")


def of(arguments: argparse.Namespace, tasks: "Sequence[Suite] | Sequence[EnvironmentSuite]") -> "Policy":
    """The policy that the arguments name; a server is asked once before the first episode."""
    if not arguments.policy and not arguments.checkpoint:
        raise MorphVlaError(f"what is evaluated? a checkpoint's folder, or --policy {ELSEWHERE}")
    if not arguments.policy:
        from morph_vla.serving import policy as policies

        return policies.load(
            arguments.checkpoint, robot=tasks[0].robot, batch=policies.EVALUATION_BATCH,
            steps=arguments.sampler_steps, noise=arguments.noise,
        )  # fmt: skip
    if arguments.policy.startswith(("ws://", "wss://")):
        from morph_vla.evaluation.asking import FIRST
        from morph_vla.serving import remote

        timeout_s = FIRST * arguments.timeout
        return remote.connect(arguments.policy, tasks, preset=arguments.preset, timeout_s=timeout_s)
    from morph_vla.hosts import lerobot

    kind, _, folder = arguments.policy.partition(lerobot.PREFIX)
    if kind or not folder:
        raise MorphVlaError(f"--policy expects {ELSEWHERE}, not '{arguments.policy}'")
    return lerobot.LerobotPolicy(folder)
