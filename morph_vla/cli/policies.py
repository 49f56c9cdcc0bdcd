"""Which policy a command asks: a checkpoint's, a server's, or one of LeRobot's."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from morph_vla.cli.common import add, add_number
from morph_vla.errors import MorphVlaError

if TYPE_CHECKING:
    from morph_vla.engines.engine import Policy
    from morph_vla.perception import Seeing
    from morph_vla.serving.policy import CheckpointPolicy
    from morph_vla.suites.environment import EnvironmentSuite
    from morph_vla.suites.suite import Suite

PLACES = ("ws://HOST:PORT", "lerobot:FOLDER", "expert")
ELSEWHERE = f"{', '.join(PLACES[:-1])} or {PLACES[-1]}"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that name a policy elsewhere."""
    about = "in place of a checkpoint, a server of openpi's protocol (its key is $MORPH_VLA_API_KEY), one of "
    about += "LeRobot's policies, or robosuite's scripted expert"
    add(parser, "--policy", about, " | ".join(PLACES))
    from morph_vla.serving.keys import PRESETS

    about = f"what a server, or a checkpoint of others, does not say of its keys: {', '.join(PRESETS)}"
    add(parser, "--preset", about, "NAME", default="")
    add_given(parser)
    add_poses_from(parser)


def add_poses_from(parser: argparse.ArgumentParser) -> None:
    """Add the estimator of poses that stands before a checkpoint."""
    about = (
        "of a checkpoint that is told poses of objects: they are estimated from a camera's pictures by this "
    )
    about += "estimator (`morph-vla poses train`, or poses-exterior, which comes with the package)"
    add(parser, "--poses-from", about, "ESTIMATOR", default="")


def add_given(parser: argparse.ArgumentParser) -> None:
    """Add what is said of a checkpoint of openpi or LeRobot, whose folder lacks it."""
    about = "of an openpi or LeRobot checkpoint: a recipe with its robot, cameras, actions and horizon"
    add(parser, "--recipe", about, "RECIPE", default="")
    about = "of such a one: its statistics, a norm_stats.json or what `morph-vla stats --output` writes"
    add(parser, "--statistics", about, "FILE", default="")


def add_sampler(parser: argparse.ArgumentParser) -> None:
    """Add how a checkpoint's answers are drawn."""
    from morph_vla.evaluation.sampler import Sampler

    about = "scale of the sampler's initial noise; with 0 the answer is always the same, near the mean"
    add_number(parser, "--noise", Sampler.noise, about, "FACTOR", least=0)
    add_number(parser, "--sampler-steps", Sampler.steps, "steps of the flow sampler", least=1)


def of(arguments: argparse.Namespace, tasks: "Sequence[Suite] | Sequence[EnvironmentSuite]") -> "Policy":
    """The policy that the arguments name; a server is asked once before the first episode."""
    from morph_vla.evaluation.sampler import Sampler

    if not arguments.policy and not arguments.checkpoint:
        raise MorphVlaError(f"what is evaluated? a checkpoint's folder, or --policy {ELSEWHERE}")
    if not arguments.policy:
        from morph_vla.serving import policy as policies
        from morph_vla.suites.suite import Suite

        first = tasks[0]
        cameras = tuple(first.cameras if isinstance(first, Suite) else first.images)
        policy = policies.load(
            arguments.checkpoint, robot=first.robot, batch=policies.EVALUATION_BATCH, refuse_unused=True,
            steps=arguments.sampler_steps, noise=arguments.noise,
            given=policies.Given(arguments.recipe, arguments.preset, arguments.statistics, cameras),
        )  # fmt: skip
        if arguments.preset and not policies.is_foreign(policy.folder):
            raise MorphVlaError(
                f"{arguments.checkpoint} says itself what it is shown: --preset is for a server, and for "
                "checkpoints of openpi and LeRobot; leave it out"
            )
        return seeing(policy, arguments.poses_from, tasks)
    if arguments.poses_from:
        raise MorphVlaError("--poses-from stands before a checkpoint; with --policy the policy is elsewhere")
    if asked := Sampler(arguments.sampler_steps, arguments.noise).options():
        raise MorphVlaError(
            f"{' '.join(asked)} has no effect on --policy {arguments.policy}: a checkpoint's sampler is set "
            "where it is loaded (here, or by `morph-vla serve`); leave it out"
        )
    if arguments.policy.startswith(("ws://", "wss://")):
        from morph_vla.evaluation.asking import FIRST
        from morph_vla.serving import remote

        timeout_s = FIRST * arguments.timeout
        return remote.connect(arguments.policy, tasks, preset=arguments.preset, timeout_s=timeout_s)
    if arguments.policy == "expert":
        return _expert(tasks)
    from morph_vla.hosts.lerobot import theirs

    kind, _, folder = arguments.policy.partition(theirs.PREFIX)
    if kind or not folder:
        raise MorphVlaError(f"--policy expects {ELSEWHERE}, not '{arguments.policy}'")
    return theirs.LerobotPolicy(folder)


def _expert(tasks: "Sequence[Suite] | Sequence[EnvironmentSuite]") -> "Policy":
    """The scripted expert of a task of robosuite; ours have theirs in `morph-vla suites check`."""
    from morph_vla.demonstrations.robosuite import Expert
    from morph_vla.suites.environment import EnvironmentSuite

    task, *others = tasks
    if others or not isinstance(task, EnvironmentSuite):
        raise MorphVlaError("--policy expert plays one task of robosuite, as in --suite robosuite_lift:panda")
    return Expert(task)


def seeing(
    policy: "CheckpointPolicy", source: str, tasks: "Sequence[Suite] | Sequence[EnvironmentSuite]"
) -> "CheckpointPolicy | Seeing":
    """The policy, told what the estimator `source` sees on a suite's tasks; without one as it is."""
    if not source:
        return policy
    from morph_vla import perception
    from morph_vla.suites.suite import Suite

    ours = [task for task in tasks if isinstance(task, Suite)]
    if len(ours) != len(tasks):
        raise MorphVlaError("--poses-from: an estimator sees suites of ours, not another simulator's")
    return perception.before(policy, source, ours)
