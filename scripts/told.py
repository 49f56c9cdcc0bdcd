"""Does a policy listen to what it is told of its body? Its success when it is told another one's.

A policy that reads the body has to fail where it is told of a robot that it does not drive; one that succeeds
as often as before has not listened, however often that is. On the same states of a suite, told of its own
robot and of each other one, with paired differences:

    python scripts/told.py CHECKPOINT --suite droid_panda --told panda_extrapolation11_000 -o runs/told

Graph, descriptors and the present places of joints are the other robot's; cameras, states, statistics and
what is executed stay those of the suite's. Other robots are found by name, also in MORPH_VLA_PATH.
"""

import argparse
import sys
from pathlib import Path

from morph_vla import process, robots
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.results.comparison import compare
from morph_vla.serving import policy as policies
from morph_vla.suites.suite import load_tasks


def main() -> None:
    """Evaluate, told of each robot in turn, and print the differences to what it does told of its own."""
    process.prepare()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--told", nargs="+", required=True, metavar="ROBOT")
    parser.add_argument("--episodes", type=int, default=50)
    parser.add_argument("--noise", type=float, default=0.0)
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    tasks = load_tasks(arguments.suite)
    own = tasks[0].robot
    names, records = [own, *arguments.told], []
    for name in names:
        policy = policies.load(
            arguments.checkpoint, robot=own, batch=policies.EVALUATION_BATCH, noise=arguments.noise,
            told=None if name == own else robots.load(name),
        )  # fmt: skip
        folder = arguments.output / name
        records.append(evaluate(policy, tasks, folder=folder, episodes=arguments.episodes, videos=0))
        print(
            f"told {name}: {sum(rate.successes for rate in records[-1].summary.tasks.values())}", flush=True
        )
    for name, record in zip(names[1:], records[1:], strict=True):
        print(f"told {name}, not {own}: {compare(records[0], record)}")


if __name__ == "__main__":
    try:
        main()
    except MorphVlaError as error:
        sys.exit(f"error: {error}")
