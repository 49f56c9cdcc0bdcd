"""Does a policy see where the object is? Its first chunk beside the scripted expert's, in seconds.

Held-out loss cannot tell: it feeds the true x_t, and most rows tell from the arm's pose where it is going.
Success tells, after minutes. Here every task's evaluated states are shown once, at rest, and the place where
the tool would be after 14 actions is held against the expert's plan for the same state:

    python scripts/first_look.py CHECKPOINT ... [--suite droid_panda] [--states 60]

R2 is the share of the variance in the table's plane that the policy explains within one task: 0 is a policy
that goes to the mean place, 1 one that sees. docs/method.md has what it showed.
"""

import argparse
import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from morph_vla import process, robots
from morph_vla.demonstrations.experts import PickAndPlace
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import MorphVlaError
from morph_vla.suites import suite as suites

ACTION = 13  # the action whose place is compared: about a second after rest, above the object


class Look:
    """One task's observations at rest, and where the expert's tool would be [m]."""

    def __init__(self, suite: suites.Suite, states: int):
        self.robot = robots.load(suite.robot)
        self.engine = MujocoEngine(self.robot, suite)
        self.expert = PickAndPlace(self.engine)
        self.label, self.observations = suite.label, []
        places = []
        for row in range(states):
            self.engine.reset({0: suites.initial_state(suite, row, len(self.robot.joints))})
            self.observations.append({**self.engine.observe(0), "episode": row, "step": 0})
            places.append(self.place(self.expert.plan(0).actions[ACTION]))
        self.places = np.array(places)

    def place(self, action: Float[np.ndarray, "j"]) -> Float[np.ndarray, "2"]:
        """Where an action puts the tool, in the plane of the table [m]."""
        native = self.robot.to_native(np.asarray(action, float))
        return self.expert.tool(dataclasses.replace(self.engine.sight(0), native=native))[:2]

    def of(self, policy: Any) -> tuple[float, float]:
        """(R2, median distance [m]) of a policy's first chunks. Raises MorphVlaError for shorter ones."""
        answers = policy.infer_batch(self.observations)
        if len(answers[0]["actions"]) <= ACTION:
            raise MorphVlaError(
                f"the policy answers {len(answers[0]['actions'])} actions at a time; the place after "
                f"{ACTION + 1} is compared"
            )
        found = np.array([self.place(answer["actions"][ACTION]) for answer in answers])
        spread = ((self.places - self.places.mean(axis=0)) ** 2).sum()
        distances = np.linalg.norm(found - self.places, axis=1)
        return 1 - float((distances**2).sum() / spread), float(np.median(distances))


def main() -> None:
    """Print a line for each checkpoint."""
    process.prepare()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+", type=Path, metavar="CHECKPOINT")
    parser.add_argument("--suite", default="droid_panda")
    parser.add_argument("--states", type=int, default=60)
    arguments = parser.parse_args()
    if arguments.states < 2:
        parser.error("--states: a variance wants at least 2")
    try:
        _print(arguments)
    except MorphVlaError as error:
        sys.exit(str(error))


def _print(arguments: argparse.Namespace) -> None:
    from morph_vla.serving.policy import CheckpointPolicy

    looks = [Look(suite, arguments.states) for suite in suites.load_tasks(arguments.suite)]
    for checkpoint in arguments.checkpoints:
        policy = CheckpointPolicy(checkpoint, robot=looks[0].robot.name, noise=0.0)
        parts = []
        for look in looks:
            share, distance = look.of(policy)
            parts.append(f"{look.label.split(':')[-1]} R2 {share:.2f}, {100 * distance:.1f} cm")
        print(f"{checkpoint}: {'; '.join(parts)}", flush=True)


if __name__ == "__main__":
    main()
