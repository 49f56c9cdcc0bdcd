"""One contract for engines, held against each of them; a broken engine is told in words."""

import dataclasses
import importlib.util
import zlib

import numpy as np
import pytest

from morph_vla import robots
from morph_vla.suites.suite import load

if not importlib.util.find_spec("mujoco"):
    pytest.skip("the contract's expectations need mujoco's quaternions", allow_module_level=True)

from morph_vla.engines import by_name as engines
from morph_vla.engines import contract
from morph_vla.engines.mujoco.engine import MujocoEngine
from morph_vla.evaluation import rollout
from morph_vla.evaluation.rollout import Settings

SMALL = {
    "droid_panda:cube_in_bowl": ["exterior", "wrist"],
    "so101_pick_orange": ["front", "wrist"],
    "g1_dex1_red_block": ["cam_left_high", "cam_left_wrist", "cam_right_wrist"],
}

# On a CPU less room for contacts is less time; a world of the G1's makes 24.
ISAACLAB = dict.fromkeys(SMALL, "isaaclab") | {"g1_dex1_red_block": "isaaclab,contacts=64"}


def small(name: str):
    sizes = [f"cameras.{camera}.{side}=32" for camera in SMALL[name] for side in ("width", "height")]
    return load(name, sizes)


@pytest.mark.gl
@pytest.mark.parametrize("name", SMALL)
def test_mujoco_keeps_the_contract(name):
    suite = small(name)
    assert contract.problems(lambda count: engines.worlds(suite, count, "mujoco")) == []


@pytest.mark.gl
def test_what_an_engine_gets_wrong_is_said():
    suite = small("droid_panda:cube_in_bowl")

    class Wrong(MujocoEngine):
        """Joints in another order; a wrist camera that stays; a world that is told and reset with another."""

        heard = 0.0

        def native(self, index):
            return super().native(index)[[1, 0, *range(2, 8)]]

        def step(self, actions):
            Wrong.heard = float(actions[0][0])
            heard = {2: 0.01 * Wrong.heard}
            return super().step({i: row + heard.get(i, 0.0) for i, row in actions.items()})

        def place(self, states):
            spoilt = {2: states[0]} if len(states) == 1 and self.count == 3 else {}
            super().place({**states, **spoilt})

        def camera_pose(self, index, name):
            return np.zeros(3), np.eye(3)

    text = "\n".join(contract.problems(lambda count: Wrong(robots.load("panda"), suite, count)))
    assert "after reset 'panda_joint1' is 0.6" in text
    assert "'panda_joint1' was commanded to move by 0.100 and moved by " in text
    assert "camera 'wrist' is " in text
    assert "a world sees another one's actions: " in text
    assert "resetting a world changes another one: " in text
    assert "a world differs with the number of worlds beside it: " in text


needs_isaaclab = pytest.mark.skipif(
    not importlib.util.find_spec("isaaclab"), reason="isaaclab is not installed: make test-isaaclab"
)


@needs_isaaclab
@pytest.mark.parametrize(
    "name", [name if "droid" in name else pytest.param(name, marks=pytest.mark.slow) for name in SMALL]
)
def test_isaaclab_keeps_the_contract(name):
    suite = small(name)
    assert contract.problems(lambda count: engines.worlds(suite, count, ISAACLAB[name])) == []


class Seer:
    """Moves by what it sees, and keeps its checksum: a pixel that differs changes every action after it."""

    def __init__(self):
        self.seen: dict[tuple[int, int], int] = {}

    def infer(self, observation):
        arrays = [value for key, value in observation.items() if key == "state" or key.startswith("images/")]
        checksum = zlib.crc32(b"".join(array.tobytes() for array in arrays))
        self.seen[observation["episode"], observation["step"]] = checksum
        state = observation["state"]
        return {"actions": np.tile(state + 0.05 * np.sin(checksum + np.arange(len(state))), (16, 1))}


@needs_isaaclab
@pytest.mark.slow
@pytest.mark.gl
@pytest.mark.parametrize("name", SMALL)
def test_isaaclab_shows_a_policy_the_same_in_any_number_of_worlds(name):
    """Three episodes in two worlds, the third in a second wave, and in three."""
    suite, policies = dataclasses.replace(small(name), episode_seconds=1.2), (Seer(), Seer())
    two, three = (
        rollout.evaluate(suite, policy, Settings(3, parallel=count, videos=0, engine=ISAACLAB[name])).trials
        for policy, count in zip(policies, (2, 3), strict=True)
    )
    assert policies[0].seen == policies[1].seen
    assert len(policies[0].seen) == 3 * 3  # episodes, and answers in each
    assert two == three
    assert [trial.ended for trial in two] == ["time"] * 3


@needs_isaaclab
@pytest.mark.parametrize(
    ("physics", "renderer", "configs", "kit"),
    [
        ("newton", "newton", ("NewtonCfg", "NewtonWarpRendererCfg"), 0),
        ("ovphysx", "newton", ("OvPhysxCfg", "NewtonWarpRendererCfg"), 0),
        ("ovphysx", "ovrtx", ("OvPhysxCfg", "OVRTXRendererCfg"), 0),
        ("physx", "newton", ("PhysxCfg", "NewtonWarpRendererCfg"), 1),
        ("physx", "rtx", ("PhysxCfg", "IsaacRtxRendererCfg"), 2),
    ],
)
def test_isaac_labs_launcher_reads_which_program_to_start(physics, renderer, configs, kit):
    """As far as Isaac Sim's own can be exercised without it: configurations, and what the launcher sees."""
    from isaaclab.app.sim_launcher import validate_launch

    from morph_vla.engines.isaaclab import options, scene

    suite, chosen = small("droid_panda:cube_in_bowl"), options.Options(physics, renderer, "cuda:0")
    _, reasons = validate_launch(scene.runtime_cfg(chosen), {"headless": True})
    assert len(reasons) == kit
    simulated = scene.simulation_cfg(suite, chosen).physics
    assert simulated.deterministic or simulated.deterministic_mode == "run_to_run"
    things = scene.scene_cfg(robots.load("panda"), suite, 2, chosen)
    camera = getattr(things, f"camera_{scene.prim_name('wrist')}")
    assert (type(simulated).__name__, type(camera.renderer_cfg).__name__) == configs
    assert hasattr(things, "key") == (renderer != "newton")
