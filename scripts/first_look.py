"""Does a policy see where the object and the target are? Its chunks beside the scripted expert's, in seconds.

Held-out loss cannot tell: it feeds the true x_t, and most rows tell from the arm's pose where it is going.
Success tells, after minutes. Here every task's evaluated states are shown twice: at rest, where the policy
must know the object's place, and 7 actions after the expert told the gripper to close, where it must know the
target's. The place where the tool would be after 14 actions is held against the expert's plan:

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
from morph_vla.data.phases import SHUT, closing
from morph_vla.demonstrations.experts import PickAndPlace
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.errors import MorphVlaError
from morph_vla.suites import suite as suites

ACTION = 13  # the action whose place is compared: about a second later, above the object or nearly the target
LIFTING = 7  # actions after the command to grasp: the object is in the hand and rises


class Look:
    """One task's observations, and where the expert's tool would be [m]: at rest, or after the grasp."""

    def __init__(self, suite: suites.Suite, states: int, lifting: bool = False):
        self.robot = robots.load(suite.robot)
        self.engine = MujocoEngine(self.robot, suite)
        self.expert = PickAndPlace(self.engine)
        self.label, self.observations = suite.label, []
        places = []
        for row in range(states):
            self.engine.reset({0: suites.initial_state(suite, row, len(self.robot.joints))})
            plan = self.expert.plan(0).actions
            step = self._grasp(plan) + LIFTING if lifting else 0
            for action in plan[:step]:
                self.engine.step({0: action})
            self.observations.append({**self.engine.observe(0), "episode": row, "step": step})
            places.append(self.place(plan[min(step + ACTION, len(plan) - 1)]))
        self.places = np.array(places)

    def _grasp(self, plan: Float[np.ndarray, "t j"]) -> int:
        """The first action that tells a gripper to close."""
        closed = closing(self.robot, plan)
        assert closed is not None  # the expert has a gripper
        shut = closed > SHUT
        return int(np.argmax((shut != shut[0]).any(axis=1)))

    def place(self, action: Float[np.ndarray, "j"]) -> Float[np.ndarray, "2"]:
        """Where an action puts the tool, in the plane of the table [m]."""
        native = self.robot.to_native(np.asarray(action, float))
        return self.expert.tool(dataclasses.replace(self.engine.sight(0), native=native))[:2]

    def of(self, policy: Any) -> tuple[float, float]:
        """(R2, median distance [m]) of a policy's chunks. Raises MorphVlaError for shorter ones."""
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

    looks = [
        [Look(suite, arguments.states, lifting) for lifting in (False, True)]
        for suite in suites.load_tasks(arguments.suite)
    ]
    for checkpoint in arguments.checkpoints:
        policy = CheckpointPolicy(checkpoint, robot=looks[0][0].robot.name, noise=0.0)
        print(checkpoint)
        for moments in looks:
            (rest, near), (lifting, far) = (look.of(policy) for look in moments)
            print(
                f"  {moments[0].label}: at rest R2 {rest:.2f}, {100 * near:.1f} cm; after the grasp "
                f"R2 {lifting:.2f}, {100 * far:.1f} cm",
                flush=True,
            )


if __name__ == "__main__":
    main()
