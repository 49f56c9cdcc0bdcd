"""How exact must the poses of objects be that a policy is told? Its success where they are wrong.

    python scripts/inexact_poses.py pi05-arms --suite my_arm --millimetres 0 5 10 20 -o runs/inexact

Each object is told so many millimetres from where it is (the standard deviation, along x, y and z each) and
turned by so many degrees about the vertical: by the same error for a whole episode, as a camera that was
measured wrongly has it; with `--anew` by another one each step, as a detector that trembles. What is executed
and what counts are the object itself.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from morph_vla import process
from morph_vla.engines.engine import ENVIRONMENT
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation.evaluate import evaluate
from morph_vla.files.dropin import add_to_path
from morph_vla.results.record import Record
from morph_vla.robots.geometry import POSE, turned_about_z
from morph_vla.serving import policy as policies
from morph_vla.suites.suite import load_tasks


class Error(NamedTuple):
    """How wrong poses are."""

    metres: float
    """Standard deviation of each coordinate"""
    radians: float = 0.0
    """Of the turn about the vertical"""
    anew: bool = False
    """Another error each step, not one for the whole episode"""
    seed: int = 0

    def told(self, row: Mapping[str, Any]) -> Float[np.ndarray, "p"]:
        """The poses of an observation, wrong."""
        moment = [row.get("episode", 0), *([row.get("step", 0)] if self.anew else [])]
        rng = np.random.default_rng([self.seed, *moment])
        poses = np.asarray(row[ENVIRONMENT], np.float64).reshape(-1, len(POSE)).copy()
        poses[:, :3] += rng.normal(0.0, self.metres, (len(poses), 3))
        poses[:, 3:] = turned_about_z(poses[:, 3:], rng.normal(0.0, self.radians, len(poses)))
        return poses.reshape(-1).astype(np.float32)


def mislead(policy: policies.CheckpointPolicy, error: Error) -> None:
    """Let a policy be told wrong poses; everything else of it stays.

    Raises MorphVlaError for one that is told none.
    """
    if not policy.trained.get("environment"):
        raise MorphVlaError("this policy is told no poses of objects; pi05-arms is")
    exact = policy.prepare
    policy.prepare = lambda rows: exact([{**row, ENVIRONMENT: error.told(row)} for row in rows])


def measured(given: argparse.Namespace, millimetres: float) -> Record:
    """The record of one size of error."""
    tasks = load_tasks(given.suite, (), given.folders)
    robot, batch = tasks[0].robot, policies.EVALUATION_BATCH
    policy = policies.load(given.checkpoint, robot=robot, batch=batch, noise=0.0)
    mislead(policy, Error(millimetres / 1000, np.radians(given.degrees), given.anew, given.seed))
    name = f"{millimetres:g} mm, {given.degrees:g} degrees, {'anew' if given.anew else 'all along'}"
    folder = given.output / name.replace(", ", "-").replace(" ", "_")
    return evaluate(policy, tasks, folder=folder, name=name, episodes=given.episodes, videos=0)


def main(words: Sequence[str] | None = None) -> None:
    """Evaluate with errors of each size, and print a line for each."""
    process.prepare()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("--suite", required=True)
    parser.add_argument("--millimetres", nargs="+", type=float, default=[0.0, 5.0, 10.0, 20.0])
    parser.add_argument("--degrees", type=float, default=0.0)
    parser.add_argument("--anew", action="store_true", help="another error each step")
    parser.add_argument("--episodes", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", dest="folders", action="append", default=[], type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args(words)
    for place in given.folders:
        add_to_path(place)  # for the processes of simulators too
    for millimetres in given.millimetres:
        record = measured(given, millimetres)
        print(record.summary.sentence(record.policy.label), flush=True)


if __name__ == "__main__":
    try:
        main()
    except MorphVlaError as error:
        sys.exit(f"error: {error}")
