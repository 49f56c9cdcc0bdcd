"""Suites of the tiny environment, who plays them, and the only thing that an evaluation of them needs."""

import numpy as np

import morph_vla

SEED, ROWS = 100, 8
_SHARED = """
version: 3
seed: 100
episodes: 8
control_rate: 5
episode_seconds: 1
success: {info: is_success}
"""
GYMNASIUM = f"""
kind: gymnasium
id: tiny_environment:Tiny-v0{_SHARED}state: [agent_pos]
images: {{front: pixels}}
"""
LEROBOT = f"""
kind: lerobot
id: tiny_lerobot:tiny{_SHARED}"""
VECTORIZED = f"{GYMNASIUM}vectorized: true\n"


class Right:
    """Walks right, two actions an answer; keeps what it was asked."""

    def __init__(self, stride=1.0, width=1):
        self.stride, self.width = stride, width
        self.asked: list[dict] = []
        self.real_time = False

    def infer(self, observation):
        self.asked.append(observation)
        return {"actions": np.full((2, self.width), self.stride, np.float32)}


def evaluate(policy, task, **settings):
    return morph_vla.evaluate(policy, task, **{"workers": 1, "parallel": 3, "videos": 0, **settings})


def steps_to_goal(row: int) -> int:
    """1 to 6; 0 where the goal is never met."""
    return (SEED + row) % 7
