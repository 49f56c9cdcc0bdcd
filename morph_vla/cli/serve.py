"""`morph-vla serve CHECKPOINT`."""

import argparse
import functools
import logging
import os
from typing import get_args

from morph_vla import process
from morph_vla.cli.common import add, add_folders, add_number, search
from morph_vla.cli.policies import add_given, add_poses_from, add_sampler, seeing
from morph_vla.errors import MorphVlaError

LOG = logging.getLogger(__name__)
EXAMPLES = """
  morph-vla serve runs/first/checkpoints/1400
  morph-vla serve runs/first/checkpoints/1400 --preset droid --host 0.0.0.0  # key: $MORPH_VLA_API_KEY
  morph-vla serve pi05-arms --robot my_arm --poses-from poses-exterior --suite eval/my_arm.yaml
  morph-vla serve hf://someone/three_robots --robot so101 --preset so101
  morph-vla serve gs://openpi-assets/checkpoints/pi05_droid --preset droid --recipe openpi_droid
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla serve`."""
    from morph_vla.data.presets import Unit
    from morph_vla.serving.bounds import JUMP_S
    from morph_vla.serving.keys import PRESETS
    from morph_vla.serving.remote import KEY
    from morph_vla.serving.settings import Settings

    add(parser, "checkpoint", "a checkpoint's folder, hf://OWNER/NAME, pi05-arms or pi05-nano", "CHECKPOINT")
    add(parser, "--robot", "the robot it drives; of several trained on, which", "NAME", default="")
    about = "the keys of requests (default: images/CAMERA, state, prompt)"
    add(parser, "--preset", about, "|".join(PRESETS), choices=list(PRESETS), default="")
    add(parser, "--prompt", "of requests without one (default: each has its own)", "TEXT", default="")
    add_folders(parser)
    add_given(parser)
    add_poses_from(parser)
    add(parser, "--suite", "with --poses-from: where its camera stands", "SUITE", default="")
    about = "of the clients' values, where it is not the policy's: radians, degrees or percent of a range"
    add(parser, "--unit", about, "UNIT", choices=get_args(Unit), default="robot")
    add(parser, "--host", f"where to listen (default {Settings.host})", "ADDRESS", default=Settings.host)
    add_number(parser, "--port", Settings.port, "0 for any that is free", least=0)
    about = f"asked of every client, as `Authorization: Api-Key KEY`; ${KEY} is not in the list of processes"
    add(parser, "--api-key", about, "KEY", default=os.environ.get(KEY, ""))
    about = "observations computed at once at most; programs of 1, 2, 4, ... are compiled before it is ready"
    add_number(parser, "--batch", 10, about, least=1)
    about = "always compute --batch, and whole prompts: the same bits in any company (10: as in `eval`)"
    add(parser, "--fixed-batch", about)
    add_number(parser, "--wait", 1e3 * Settings.wait_s, "a batch waits for more", "MS", least=0, most=60_000)
    add_number(parser, "--jump", JUMP_S, "a target is at most so far away at full speed", "SECONDS", least=0)
    about = "real-time chunking for clients that ask for it; its program is compiled before /healthz is ready"
    add(parser, "--real-time", about)
    add_sampler(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Serve a checkpoint until interrupted."""
    process.prepare()
    from morph_vla.serving import policy as policies
    from morph_vla.serving import server as servers
    from morph_vla.serving.requests import examples
    from morph_vla.serving.settings import Settings
    from morph_vla.suites.environment import load_tasks

    folders = search(arguments.folders)
    if bool(arguments.poses_from) != bool(arguments.suite):
        raise MorphVlaError("--poses-from and --suite go together: the suite says where the camera stands")
    tasks = load_tasks(arguments.suite, (), folders) if arguments.suite else ()
    settings = Settings(arguments.host, arguments.port, arguments.api_key, arguments.wait / 1e3)
    policy = policies.load(
        arguments.checkpoint, robot=arguments.robot, batch=arguments.batch,
        any_size=not arguments.fixed_batch, refuse_unused=True, steps=arguments.sampler_steps,
        noise=arguments.noise, given=policies.Given(arguments.recipe, arguments.preset, arguments.statistics),
    )  # fmt: skip
    policy = seeing(policy, arguments.poses_from, tasks)
    server = servers.of(
        policy, arguments.preset, arguments.jump, unit=arguments.unit, real_time=arguments.real_time,
        prompt=arguments.prompt, settings=settings,
    )  # fmt: skip

    def listening() -> None:
        """Say where it listens, before anything is compiled."""
        about = f"{server.card.name} for robot '{server.card.robot}' on ws://{settings.host}:{server.port}"
        print(f"{about}, compiling", flush=True)
        if settings.is_open:
            LOG.warning("anyone who reaches this address may ask without a key (MORPH_VLA_API_KEY)")

    ready = functools.partial(print, "ready: /healthz answers 200", flush=True)
    server.until_interrupted(examples(server.card, policy.prompts.values()), listening, ready)
