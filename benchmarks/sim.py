"""`morph-vla bench sim`: control steps per second of the simulator, against environments and workers.

The reference is one environment in this process: reset, step, look, nothing else. It is measured before and
after each row, so that what else the machine does falls on both sides of a ratio. A row is an evaluation
without a record: a pool of workers, an open-loop chunk per answer, episodes that use all their time. Without
`--checkpoint` a stand-in answers at once, with joints that swing about the rest pose.

On a machine that does other work too, the processor's seconds per simulated second say more than the clock.
"""

import argparse
import dataclasses
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import add_common, load, processor_s, show
from morph_vla import robots
from morph_vla.cli.common import add_folders
from morph_vla.doctor import require_gl
from morph_vla.engines import by_name as engines
from morph_vla.engines.episode import play
from morph_vla.engines.workers import WorkerPool
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.asking import Asker
from morph_vla.evaluation.chunking import Chunking
from morph_vla.evaluation.flights import Flights
from morph_vla.evaluation.simulated import Simulated
from morph_vla.suites import suite as suites
from morph_vla.suites.suite import Suite, initial_state, initial_states

EXAMPLES = """
  morph-vla bench sim
  morph-vla bench sim so101_pick_orange --environments 1 8 --workers 1 2
  morph-vla bench sim --checkpoint runs/first/checkpoints/1400 --environments 20 --groups 1 2 --json
"""
SUITE = "droid_panda:cube_in_bowl"
ROUNDS = 2  # episodes per environment


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench sim`."""
    parser.add_argument(
        "suite", nargs="?", default=SUITE, metavar="SUITE", help=f"one task (default {SUITE})"
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the suite")
    numbers: dict[str, Any] = {"type": int, "nargs": "+", "metavar": "N"}
    parser.add_argument(
        "--environments", default=[1, 2, 4, 8, 20], **numbers, help="at once (default 1 2 4 8 20)"
    )
    parser.add_argument(
        "--workers", default=[os.cpu_count() or 1], **numbers, help="processes (default: one per core)"
    )
    parser.add_argument(
        "--groups", default=[1], **numbers, help="of environments that take turns with the policy (default 1)"
    )
    parser.add_argument(
        "--frames", choices=("with", "without", "both"), default="both", help="cameras (default both)"
    )
    parser.add_argument(
        "--open-loop", type=int, default=8, metavar="N", help="actions per answer (default 8)"
    )
    parser.add_argument("--seconds", type=float, default=4.0, help="simulated, of an episode (default 4)")
    parser.add_argument("--checkpoint", type=Path, default=None, help="a policy to ask; it needs its frames")
    add_folders(parser)
    add_common(parser, run)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per number of environments, workers and groups, with frames and without."""
    for name in ("environments", "workers", "groups"):
        if min(getattr(arguments, name)) < 1:
            raise MorphVlaError(f"--{name} must be at least 1, not {min(getattr(arguments, name))}")
    require_gl()
    chosen = suites.load(arguments.suite, arguments.overrides, arguments.folders)
    short = dataclasses.replace(chosen, episode_seconds=max(arguments.seconds, 2 / chosen.control_rate))
    frames = {"with": (True,), "without": (False,), "both": (False, True)}[arguments.frames]
    if arguments.checkpoint is not None:
        frames = (True,)
    settings = [
        (looks, environments, workers, groups)
        for looks in frames
        for environments in arguments.environments
        for workers in sorted({min(count, environments) for count in arguments.workers})
        for groups in sorted({min(count, environments) for count in arguments.groups})
    ]
    rows = []
    for looks, environments, workers, groups in settings:
        seen = short if looks else dataclasses.replace(short, cameras={})
        policy = _policy(seen, arguments.checkpoint, -(-environments // groups))
        rows.append(_row(seen, policy, environments, workers, groups, arguments.open_loop, chosen))
    found = {
        "suite": chosen.label,
        "control_rate": chosen.control_rate,
        "open_loop": arguments.open_loop,
        "policy": str(arguments.checkpoint or "stand-in"),
        "cores": os.cpu_count(),
        "load": load(),
        "rows": rows,
    }
    show(found, HEADER, _cells, as_json=arguments.json, right=range(1, len(HEADER)))
    if not arguments.json:
        print(LEGEND.format(suite=chosen.label))


class StandIn:
    """Answers at once: the rest pose, with every joint swinging by 0.1 rad or 2 cm."""

    def __init__(self, suite: Suite):
        self._robot = robots.load(suite.robot)

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """Sixteen actions from the observation's step on."""
        robot, times = self._robot, observation["step"] + np.arange(16)
        swing = np.array([0.02 if joint.type == "prismatic" else 0.1 for joint in robot.joints])
        native = np.asarray(robot.rest) + np.sin(0.3 * times)[:, None] * swing
        return {"actions": robot.to_dataset(native).astype(np.float32)}


def _policy(suite: Suite, checkpoint: Path | None, batch: int) -> Any:
    """The policy of a row; a checkpoint answers once, so that compiling is not counted."""
    if checkpoint is None:
        return StandIn(suite)
    from morph_vla.serving.policy import CheckpointPolicy  # JAX: only where a checkpoint is asked

    policy = CheckpointPolicy(checkpoint, robot=suite.robot, batch=batch)
    worlds = engines.worlds(suite, 1)
    worlds.reset({0: initial_state(suite, 0, len(worlds.robot.joints))})
    policy.infer(worlds.observe(0))
    worlds.close()
    return policy


def reference(suite: Suite, open_loop: int) -> float:
    """Control steps per second of one environment in this process, asked of the stand-in."""
    worlds, policy, steps = engines.worlds(suite, 1), StandIn(suite), 0
    for name in suite.cameras:
        worlds.render(0, name)  # the renderer is made here
    begun = time.perf_counter()
    for state in initial_states(suite, ROUNDS, len(worlds.robot.joints)):
        status = play(worlds, state, lambda seen: policy.infer(seen)["actions"][:open_loop])
        steps += status.progress.steps
    rate = steps / (time.perf_counter() - begun)
    worlds.close()
    return rate


def _row(
    suite: Suite, policy: Any, environments: int, workers: int, groups: int, open_loop: int, whole: Suite
) -> dict[str, Any]:
    """One measurement, the reference before and after it; `whole` is the suite with its full episodes."""
    before = reference(suite, open_loop)
    played = Simulated(suite)
    build = partial(engines.episodes, suite, engines.DEFAULT)
    with WorkerPool(build, environments, workers) as pool, Asker(policy, played.actions) as asker:
        pids = [worker.process.pid for worker in pool.workers]
        used, here, begun = processor_s(pids), time.process_time(), time.perf_counter()
        flights = Flights(pool, asker, played, Chunking(open_loop), groups)
        trials = list(flights.run(played.states(ROUNDS * environments)))
        wall, used = time.perf_counter() - begun, processor_s(pids) - used
        here = time.process_time() - here
        spent, policy_s = dict(pool.spent), asker.spent
    failed = {trial.error for trial in trials if trial.error}
    if failed:
        raise MorphVlaError(f"nothing was measured: {min(failed)}")
    steps = sum(trial.steps or 0 for trial in trials)
    alone = (before + reference(suite, open_loop)) / 2
    rate, simulated, working = steps / wall, steps / suite.control_rate, workers * wall
    return {
        "frames": bool(suite.cameras),
        "environments": environments,
        "workers": workers,
        "groups": groups,
        "steps_per_s": rate,
        "times_real_time": simulated / wall,
        "reference_steps_per_s": alone,
        "ratio": rate / alone,
        "processor_s_per_simulated_s": used / simulated,
        "processor_s_here_per_simulated_s": here / simulated,
        "physics": spent["physics_s"] / working,
        "rendering": spent["frames_s"] / working,
        "pipe": spent["pipe_s"] / working,
        "waiting": 1 - sum(spent.values()) / working,
        "policy": policy_s / wall,
        "minutes_for_300_episodes": 300 * whole.max_steps / rate / 60,
    }


HEADER = (
    "frames", "environments", "workers", "groups", "steps/s", "x real time", "of one here",
    "processor s per s", "and here", "physics", "rendering", "pipe", "waiting", "policy", "300 episodes",
)  # fmt: skip
LEGEND = """
processor s per s: of the workers per simulated second, and here, where the policy is
physics, rendering, pipe, waiting: of the workers' time; policy: of the clock's
300 episodes: of {suite}, all failing late"""


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        "yes" if row["frames"] else "no", row["environments"], row["workers"], row["groups"],
        f"{row['steps_per_s']:.0f}", f"{row['times_real_time']:.1f}", f"{row['ratio']:.2f}",
        f"{row['processor_s_per_simulated_s']:.4f}", f"{row['processor_s_here_per_simulated_s']:.4f}",
        *(f"{row[key]:.0%}" for key in ("physics", "rendering", "pipe", "waiting", "policy")),
        f"{row['minutes_for_300_episodes']:.1f} min",
    )  # fmt: skip
