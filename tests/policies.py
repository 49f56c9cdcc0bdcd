"""Policies that tests evaluate."""

import numpy as np

from morph_vla import robots


class Wave:
    """Moves the first joint by an amount that depends on the episode and step alone."""

    def __init__(self):
        panda = robots.load("panda")
        self.rest = panda.to_dataset(panda.rest).astype(np.float32)
        self.asked: list[tuple[int, int]] = []

    def infer(self, observation):
        self.asked.append((observation["episode"], observation["step"]))
        rng = np.random.default_rng([observation["episode"], observation["step"]])
        actions = np.tile(self.rest, (5, 1))
        actions[:, 0] += rng.uniform(-0.3, 0.3, 5).astype(np.float32)
        return {"actions": actions}


def known_robot(joints: int = 2, **changes: object) -> dict[str, object]:
    """What about/policy.json says of a robot, as little as a policy needs."""
    stats = {key: [0.0] * joints for key in ("q01", "q99", "mean", "std")}
    return {
        "joints": [f"joint{place}" for place in range(joints)], "control_rate": 15.0, "actions": "delta",
        "relative": [True] * joints, "cameras": {}, "state_stats": stats, "action_stats": stats, **changes,
    }  # fmt: skip
