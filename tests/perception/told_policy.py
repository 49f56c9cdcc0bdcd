"""A policy that is told poses, and keeps what it was asked."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from morph_vla import robots


class Told:
    """A policy that is told poses: it stays where it is, and keeps what it was asked."""

    def __init__(self, names=None):
        self.robot, self.robot_name, self.real_time = robots.load("panda"), "panda", False
        self.looks_back, self.sizes, self.folder = False, (1, 2), Path("runs/x")
        self.prompts = {20: "warm up"}
        self.config = SimpleNamespace(horizon=5, delay_max=0)
        self.trained = {"environment": names, "joints": self.robot.names, "control_rate": 15.0}
        self.asked: list[dict] = []

    def digest(self):
        return "abc"

    def describe(self):
        about = {"name": "told", "checkpoint": "runs/x", "step": 3, "sha256": "abc"}
        return {**about, "sampler": {"steps": 10, "noise": 0.0}, "batch": 2}

    def infer(self, observation):
        return self.infer_batch([observation])[0]

    def infer_batch(self, observations):
        self.asked += observations
        return [{"actions": np.tile(row["state"], (5, 1))} for row in observations]
