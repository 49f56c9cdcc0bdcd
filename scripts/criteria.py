"""The same episodes judged by the criterion's first version and by its second: which changed, and why.

    python scripts/criteria.py [SUITE ...] [--expert 300] [--drops 300]
    python scripts/criteria.py [SUITE ...] --expert 0 --drops 0 --checkpoint FOLDER [--noise 0] [--rows 300]

`expert`: the scripted expert from the rows that are evaluated. `drops`: the target turned by any angle, in a
third of them laid on its side and in a third upside down, the object let go at random above it, in every
second one with the hand over the target. `policy`: a checkpoint, asked as `morph-vla eval` asks it; the rows
that the two versions judge differently are listed below the table. No episode stops before both succeeded.
The first version's box had the base's axes, its target could stand as it liked, and of the robot the fingers
alone could hold the object; the mug's box was higher. The table in docs/evaluation.md is of this script.
"""

import argparse
import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from morph_vla import robots
from morph_vla.demonstrations import beginnings
from morph_vla.demonstrations.experts import PickAndPlace, disturbed
from morph_vla.engines import hands
from morph_vla.engines import success as criterion
from morph_vla.engines.engine import BatchPolicy, actions_of, step_one
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.evaluation.rollout import open_loop_at
from morph_vla.robots.geometry import product, quaternion_about
from morph_vla.suites.suite import Suite, initial_state, load_tasks

SUITES = ("droid_panda", "so101_pick_orange", "g1_dex1_red_block")
HIGH = {"droid_panda:can_in_mug": (0.035, 0.035, 0.09)}  # a box's upper corner in the first version [m]
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
SECONDS = 3.0  # for what was let go to come to rest

Verdict = tuple[str | None, str | None]  # the clause that failed in either version; None: success


class Episode:
    """The episode in world `index`, judged by both versions."""

    def __init__(self, engine: MujocoEngine, index: int = 0):
        suite = engine.suite
        self.engine, self.index = engine, index
        first = dataclasses.replace(
            suite.success, min_upright=None, high=HIGH.get(suite.label, suite.success.high)
        )
        self.criteria = (first, suite.success)
        self.readings = self._readings(engine.reading(index))
        self.progress = [criterion.begin(reading, suite.table.height) for reading in self.readings]

    def _readings(self, reading: criterion.Reading) -> tuple[criterion.Reading, criterion.Reading]:
        """As the first version read it, and as the second does."""
        touching = any(self._touched() & fingers for fingers in hands.fingers(self.engine.robot))
        return dataclasses.replace(reading, target_quaternion=UPRIGHT, touching=touching), reading

    def _touched(self) -> set[str]:
        """The bodies that touch the object."""
        model, data = self.engine.model, self.engine.data(self.index)
        pairs = model.geom_bodyid[data.contact.geom[: data.ncon]]
        held = model.body(self.engine.suite.success.object).id
        return {model.body(int(body)).name for body in pairs[(pairs == held).any(axis=1)].ravel()}

    def step(self, action: np.ndarray) -> bool:
        """One control step; whether either version waits for success."""
        self.readings = self._readings(step_one(self.engine, self.index, action))
        rate = self.engine.suite.control_rate
        both = zip(self.progress, self.readings, self.criteria, strict=True)
        self.progress = [criterion.update(*version, rate) for version in both]
        return any(progress.success_step is None for progress in self.progress)

    @property
    def verdict(self) -> Verdict:
        """How it ended in either version; of an object that is not inside, whatever happened before."""
        versions = zip(self.progress, self.readings, self.criteria, strict=True)
        held = {"reached": True, "grasped": True, "lifted": True}
        first, second = (
            criterion.failed_clause(dataclasses.replace(progress, **held), reading, success)
            for progress, reading, success in versions
        )
        return first, second


def expert_episodes(engine: MujocoEngine, count: int) -> Iterator[Verdict]:
    """The expert, disturbed as it is recorded, from the first rows of the evaluated table."""
    expert, suite = PickAndPlace(engine), engine.suite
    tail = criterion.dwell_steps(suite.success, suite.control_rate) + 3
    for number in range(count):
        engine.reset({0: initial_state(suite, number, len(engine.robot.joints))})
        rows = disturbed(expert.plan(0), engine, number)
        episode = Episode(engine)
        for row in (*rows, *[rows[-1]] * tail):
            if not episode.step(row):
                break
        yield episode.verdict


def drops(engine: MujocoEngine, count: int) -> Iterator[Verdict]:
    """The object let go above a target that stands, lies or is upside down."""
    expert, suite = PickAndPlace(engine), engine.suite
    low, high = np.asarray(suite.success.low), np.asarray(suite.success.high)
    for number in range(count):
        engine.reset({0: initial_state(suite, number, len(engine.robot.joints), stream="drops")})
        rng, seen = np.random.default_rng([suite.seed, number]), engine.sight(0)
        hold = _opened(engine)
        for action in beginnings.lead_in(expert, seen, "target", number) if number % 2 else ():
            step_one(engine, 0, action)
            hold = action
        held, target = (engine.data(0).joint(f"{name}/free") for name in _names(suite))
        over = math.pi / 2 * (number % 3)  # stands, lies, is upside down
        turn = product(quaternion_about((0.0, 0.0, rng.uniform(-3, 3))), quaternion_about((over, 0.0, 0.0)))
        target.qpos[2] += high[2] * math.sin(over / 2)
        target.qpos[3:] = turn
        direction = rng.normal(size=4)
        held.qpos[:3] = target.qpos[:3] + rng.uniform(1.2 * low, 1.2 * high) + [0, 0, 0.05 + high[2]]
        held.qpos[3:], held.qvel[:] = direction / np.linalg.norm(direction), 0.0
        episode = Episode(engine)
        for _ in range(round(SECONDS * suite.control_rate)):
            if not episode.step(hold):
                break
        yield episode.verdict


def _opened(engine: MujocoEngine) -> np.ndarray:
    """The first posture with open hands, dataset units."""
    native, joints = engine.native(0), engine.robot.joints
    opened = [native[j] if joint.opened is None else joint.opened for j, joint in enumerate(joints)]
    return np.asarray(engine.robot.to_dataset(np.asarray(opened)), dtype=np.float64)


def _names(suite: Suite) -> tuple[str, str]:
    return suite.success.object, suite.success.target


def policy_episodes(engine: MujocoEngine, policy: BatchPolicy, count: int) -> Iterator[Verdict]:
    """A policy from the first rows of the evaluated table, as many at once as the engine has worlds."""
    suite, joints = engine.suite, len(engine.robot.joints)
    open_loop = open_loop_at(suite.control_rate)
    for first in range(0, count, engine.count):
        rows = dict(enumerate(range(first, min(first + engine.count, count))))
        engine.reset({index: initial_state(suite, row, joints) for index, row in rows.items()})
        episodes = {index: Episode(engine, index) for index in rows}
        going, step = dict(episodes), 0
        while going and step < suite.max_steps:
            seen = [{**engine.observe(i), "episode": rows[i], "step": step} for i in going]
            answers = [actions_of(answer, joints) for answer in policy.infer_batch(seen)]
            for actions, (index, episode) in zip(answers, list(going.items()), strict=True):
                if not all(episode.step(action) for action in actions[:open_loop]):
                    del going[index]
            step += open_loop
        yield from (episode.verdict for episode in episodes.values())


def row(label: str, kind: str, verdicts: Sequence[Verdict]) -> str:
    """A line of the table: successes in either version, and the clauses at which the other one failed."""
    lost = Counter(second for first, second in verdicts if first is None and second is not None)
    gained = Counter(first for first, second in verdicts if second is None and first is not None)
    won = [sum(verdict[version] is None for verdict in verdicts) for version in (0, 1)]
    changes = [", ".join(f"{n} {clause}" for clause, n in each.most_common()) for each in (lost, gained)]
    cells = (label, kind, len(verdicts), *won, *(change or "–" for change in changes))
    return f"| {' | '.join(map(str, cells))} |"


def changed(label: str, verdicts: Sequence[Verdict]) -> list[str]:
    """A line for each episode that succeeded in one version alone."""
    return [
        f"{label}, row {number}: first {first or 'success'}, second {second or 'success'}"
        for number, (first, second) in enumerate(verdicts)
        if (first is None) != (second is None)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Judge the same episodes by both versions.")
    parser.add_argument("suites", nargs="*", default=SUITES)
    parser.add_argument("--expert", type=int, default=300)
    parser.add_argument("--drops", type=int, default=300)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--rows", type=int, default=300)
    arguments = parser.parse_args()
    differing: list[str] = []
    print("| task | episodes | n | first | second | only in the first | only in the second |")
    for suite in (task for name in arguments.suites for task in load_tasks(name)):
        kinds: dict[str, Iterator[Verdict]] = {}
        with contextlib.closing(MujocoEngine(robots.load(suite.robot), suite, 10)) as engine:
            kinds |= {"expert": expert_episodes(engine, arguments.expert)}
            kinds |= {"drops": drops(engine, arguments.drops)}
            if arguments.checkpoint:
                from morph_vla.serving import policy as policies  # needs JAX

                options = {"robot": suite.robot, "batch": policies.EVALUATION_BATCH, "noise": arguments.noise}
                policy = policies.load(arguments.checkpoint, **options)
                kinds |= {"policy": policy_episodes(engine, policy, arguments.rows)}
            for kind, verdicts in kinds.items():
                if listed := list(verdicts):
                    print(row(suite.label, kind, listed), flush=True)
                    differing += changed(suite.label, listed) if kind == "policy" else []
    print("\n".join(differing))


if __name__ == "__main__":
    main()
