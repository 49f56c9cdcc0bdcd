"""A tiny environment whose outcome is known: a point walks right to a goal that its seed decides.

The goal of a seed is seed % 7 steps of +1 away; of 0 it is behind. Registered when imported.
"""

import gymnasium as gym
import numpy as np

RATE, LIMIT = 5.0, 5  # [Hz], the control steps of an episode


class Tiny(gym.Env):
    metadata = {"render_modes": ["rgb_array"], "render_fps": 5}
    spaces = {
        "agent_pos": gym.spaces.Box(-9, 9, (2,), np.float64),
        "pixels": gym.spaces.Box(0, 255, (6, 8, 3), np.uint8),
    }
    observation_space = gym.spaces.Dict(spaces)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    task_description = "walk to the goal"

    def __init__(
        self, fault="", ends=True, render_mode=None, obs_type="", poses=False, whole=False, conf=None, **_
    ):
        self.offset = (conf or {}).pop("offset", 0)  # read by taking it out, as some environments do
        self.fault, self.ends, self.render_mode, self.poses = fault, ends, render_mode, poses
        self.start, self.broken = 0, False
        if whole:
            self.action_space = gym.spaces.Box(-1, 1, (1,), np.int64)
        if poses:
            thing = gym.spaces.Dict({"pose": gym.spaces.Box(-9, 9, (7,), np.float64)})
            self.observation_space = gym.spaces.Dict({**self.spaces, "thing": thing})

    def seen(self):
        picture = np.full((6, 8, 3), self.at, np.uint8)
        seen = {"agent_pos": np.array([self.at, self.goal], float), "pixels": picture}
        if not self.poses:
            return seen
        # The goal's pose, as the negative of a unit quaternion: the same turn.
        return {**seen, "thing": {"pose": np.array([self.goal, 0, 0, -0.8, 0, 0, 0.6])}}

    def reset(self, *, seed=None, options=None):
        if self.fault == "reset":
            raise RuntimeError("no such scene")
        if self.fault == "prints":
            print("RESETTING")
        super().reset(seed=seed)
        self.seed, self.at = seed if seed is not None else 0, 0.0
        self.goal = (self.seed + self.offset) % 7 or -1
        return self.seen(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.at += float(action[0])
        there = bool(abs(self.at - self.goal) < 0.5)
        bad = self.seed % 3 == 0  # every third row
        if self.fault == "raise" and bad and self.at == 2:
            raise RuntimeError("the solver gave up\nand more")
        reward = float("nan") if self.fault == "nan" and bad else float(there)
        info = {"is_success": there, "deep": {"won": there}, "text": "no", "none": None}
        info = {} if self.fault == "silent" else info
        if self.fault == "sometimes":  # what is measured, and looked at, in some steps alone
            info |= {"dist": abs(self.at - self.goal) if self.at >= 2 else float("inf")}
            info |= {"slip": True} if self.at == 2 else {}
        if self.fault == "prints":
            print("STEPPING")
        return self.seen(), reward, there and self.ends, False, info

    def render(self):
        if self.fault == "render" or (self.fault == "render once" and self.seed % 3 == 0):
            self.broken = True
        if self.fault in ("render", "render once") and self.broken:
            raise RuntimeError("no OpenGL here")
        return np.full((6, 8, 3), 7 * self.at, np.uint8)


class Pair(Tiny):
    """Shows two things in a tuple."""

    observation_space = gym.spaces.Tuple([Tiny.spaces["agent_pos"], Tiny.spaces["pixels"]])

    def seen(self):
        shown = super().seen()
        return shown["agent_pos"], shown["pixels"]


class Company(gym.vector.SyncVectorEnv):
    """All begin as the first one's seed says, as where one generator serves all."""

    def __init__(self, num_envs, **kwargs):
        super().__init__([lambda: Tiny(**kwargs)] * num_envs)

    def reset(self, *, seed=None, options=None):
        assert isinstance(seed, list)
        assert seed[0] is not None
        return super().reset(seed=[seed[0] + 2 * place for place in range(len(seed))])


gym.register("Tiny-v0", "tiny_environment:Tiny", max_episode_steps=9)
gym.register("Pair-v0", "tiny_environment:Pair")
gym.register("Company-v0", vector_entry_point="tiny_environment:Company")
