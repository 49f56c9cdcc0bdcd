"""`--policy.type=morph_vla`: what a server is shown, how often it is asked, what is executed."""

import json
import threading

import numpy as np
import pytest
from test_lerobot_plugin import LooksBack

pytest.importorskip("lerobot", reason="needs the extra 'lerobot'")

import torch
from lerobot.configs import PreTrainedConfig
from lerobot.policies import get_policy_class
from lerobot.policies.factory import make_pre_post_processors
from policies import Wave

from morph_vla.engines.engine import actions_of
from morph_vla.errors import MorphVlaError
from morph_vla.hosts.lerobot import export
from morph_vla.hosts.lerobot.configuration_morph_vla import MorphVlaConfig
from morph_vla.hosts.lerobot.modeling_morph_vla import MorphVlaPolicy
from morph_vla.serving import remote, requests, wire
from morph_vla.serving.card import Card
from morph_vla.serving.client import WebsocketClientPolicy


def batch_of(rows: int = 2) -> dict:
    random = np.random.default_rng(0)
    images = {
        f"observation.images.{name}": random.integers(0, 256, (rows, 3, 5, 7)).astype(np.float32) / 255
        for name in ("exterior", "wrist")
    }
    state = {"observation.state": random.normal(size=(rows, 8)).astype(np.float32)}
    tensors = {key: torch.from_numpy(value) for key, value in {**images, **state}.items()}
    return {**tensors, "task": ["put the cube in the bowl"] * rows}


class Spy(Wave):
    """Keeps what it was shown."""

    def __init__(self):
        super().__init__()
        self.seen: list[dict] = []

    def infer(self, observation):
        self.seen.append(observation)
        return super().infer(observation)


@pytest.fixture
def wave(monkeypatch, tmp_path):
    """A policy whose server is `Spy`, asked every three steps."""
    spy, cameras = Spy(), []
    monkeypatch.setattr(remote, "reach", lambda _, names, preset: cameras.extend(names) or spy)
    export.write("ws://there:8000", tmp_path)
    config = PreTrainedConfig.from_pretrained(tmp_path, cli_overrides=["--n_action_steps=3"])
    return get_policy_class("morph_vla").from_pretrained(tmp_path, config=config), spy


def test_a_servers_policy_is_asked_when_its_last_answer_is_executed(wave):
    policy, spy = wave
    policy.reset()
    actions = [policy.select_action(batch_of()) for _ in range(7)]
    assert spy.asked == [(episode, step) for step in (0, 3, 6) for episode in (2, 3)]
    for taken, action in enumerate(actions):
        answer = Wave().infer({"episode": 2, "step": taken - taken % 3})["actions"]
        assert np.array_equal(action[0].numpy(), answer[taken % 3])
    policy.reset()
    policy.select_action(batch_of())
    assert spy.asked[-2:] == [(4, 0), (5, 0)]  # another rollout, other random numbers


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_state_that_is_no_number_moves_no_robot(wave, bad):
    policy, spy = wave
    policy.reset()
    batch = batch_of()
    batch["observation.state"][1, 3] = bad
    with pytest.raises(MorphVlaError, match=r"^observation\.state: not every number is finite$"):
        policy.select_action(batch)
    assert spy.seen == []


def test_a_task_that_is_one_text_is_every_rows_and_none_is_said_once(wave, caplog):
    policy, spy = wave
    for task in ("put the cube in the bowl", ["put the cube in the bowl"] * 2):
        policy.predict_action_chunk({**batch_of(), "task": task})
    assert [seen["prompt"] for seen in spy.seen] == ["put the cube in the bowl"] * 4
    without = {key: value for key, value in batch_of().items() if key != "task"}
    for _ in range(2):
        policy.predict_action_chunk(without)
    assert spy.seen[-1]["prompt"] == ""
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "the batch has no text under 'task': the policy is asked for nothing in words"
    ]


def test_it_is_compiled_around(wave):
    """As `lerobot-rollout --use_torch_compile` wraps it."""
    policy, _ = wave
    plain = policy.predict_action_chunk(batch_of())
    compiled = torch.compile(policy.predict_action_chunk, backend="eager")
    policy.reset()
    with torch.inference_mode():
        chunk = compiled(batch_of())
    assert chunk.shape == plain.shape


def test_a_policy_of_a_folder_here_is_not_pushed_as_a_path(monkeypatch, tmp_path):
    monkeypatch.setattr("morph_vla.serving.policy.load", lambda *_, **__: Spy())
    MorphVlaConfig(device="cpu", checkpoint=".")._save_pretrained(tmp_path)
    policy = MorphVlaPolicy.from_pretrained(tmp_path)
    words = rf"which names a folder of this machine; share the checkpoint: `morph-vla push {tmp_path} OWNER"
    with pytest.raises(MorphVlaError, match=words):
        policy.push_to_hub("me/x")
    with pytest.raises(MorphVlaError, match=r"^a morph_vla policy is trained by `morph-vla train`"):
        policy.push_model_to_hub(None)


def test_pictures_of_levels_are_the_same_pictures(wave):
    """A loop that does not turn levels into fractions, as LeRobot's own does."""
    policy, spy = wave
    batch = batch_of()
    policy.predict_action_chunk(batch)
    key = "observation.images.wrist"
    policy.predict_action_chunk({**batch, key: (batch[key] * 255).round().to(torch.uint8)})
    for row in (0, 1):
        np.testing.assert_array_equal(spy.seen[row]["images/wrist"], spy.seen[2 + row]["images/wrist"])
    for other, words in (
        (batch[key] * 255, r"fractions are 0 to 1, got \d+ to 2\d\d$"),
        (batch[key].movedim(1, -1), r"expected \[n, 3, height, width\], got float32 \[2, 5, 7, 3\]$"),
    ):
        with pytest.raises(MorphVlaError, match=rf"^observation\.images\.wrist is no image .*{words}"):
            policy.predict_action_chunk({**batch, key: other})


def test_an_observation_is_ours_again_to_the_last_bit(wave):
    policy, spy = wave
    moments = {
        "observation.episode": torch.tensor([[40.0], [41.0]]),
        "observation.step": torch.tensor([[8.0], [9.0]]),
        "observation.environment_state": torch.arange(28.0).reshape(2, 14) / 3,
    }
    batch = {**batch_of(), **moments}
    chunk = policy.predict_action_chunk(batch)
    assert spy.asked == [(40, 8), (41, 9)]
    for index, seen in enumerate(spy.seen):
        assert seen["images/wrist"].shape == (5, 7, 3)
        assert seen["images/wrist"].dtype == np.uint8
        again = np.moveaxis(seen["images/wrist"], -1, 0).astype(np.float32) / 255
        assert np.array_equal(again, batch["observation.images.wrist"][index].numpy())
        assert np.array_equal(seen["state"], batch["observation.state"][index].numpy())
        assert np.array_equal(
            seen["environment_state"], batch["observation.environment_state"][index].numpy()
        )
        assert seen["prompt"] == "put the cube in the bowl"
        assert np.array_equal(chunk[index].numpy(), actions_of(Wave().infer(seen), 8))
    del batch["observation.state"]
    with pytest.raises(MorphVlaError, match=r"^the batch lacks observation.state; it has observation.envi"):
        policy.predict_action_chunk(batch)


CARD = Card(
    robot="panda", joints=tuple("abcdefgh"), control_rate=30.0, horizon=32, image_size=8,
    cameras={"base_0_rgb": "exterior", "left_wrist_0_rgb": "wrist"},
    keys={"images": {name: [f"images/{name}"] for name in ("exterior", "wrist")}, "state": ["state"]},
    trained={
        "joints": list("abcdefgh"), "control_rate": 30.0, "state_stats": {"n": 1}, "action_stats": {"n": 1},
    },
)  # fmt: skip


class Server(WebsocketClientPolicy):
    """A connection whose other end reads what is sent as a morph-vla server does."""

    def __init__(self, card: Card = CARD):
        self.address, self.card, self.sessions = "ws://there:8000", card, requests.Sessions()

    def get_server_metadata(self):
        return {}

    def infer(self, obs):
        read = requests.read(wire.encode(obs), self.card, self.card.request_keys(), self.sessions)
        assert all(row["robot"] == self.card.robot for row in read.observations)
        return [{"actions": np.zeros((self.card.horizon or 0, 8), np.float32)} for _ in read.observations]


@pytest.fixture
def served(monkeypatch, tmp_path):
    """What loads the policy of a morph-vla server, with options of LeRobot's command line."""
    monkeypatch.setattr(remote, "reach", lambda *_, preset: remote.ServedPolicy(Server(), CARD))
    export.write("ws://there:8000", tmp_path)

    def load(*options: str) -> MorphVlaPolicy:
        config = PreTrainedConfig.from_pretrained(tmp_path, cli_overrides=list(options))
        return MorphVlaPolicy.from_pretrained(tmp_path, config=config)

    return load


def test_a_morph_vla_server_is_told_no_robot_unless_one_is_asked_for(served):
    for options in ((), ("--robot=panda",)):
        assert served(*options).predict_action_chunk(batch_of()).shape == (2, 32, 8)
    assert served().config.n_action_steps == 16  # 8/15 s at the card's 30 Hz
    with pytest.raises(MorphVlaError, match="robot: this policy drives 'panda', not 'so101'"):
        served("--robot=so101").predict_action_chunk(batch_of())


@pytest.mark.parametrize(
    ("rate", "options", "steps"),
    [(30.0, (), 16), (15.0, (), 8), (30.0, ("--n_action_steps=3",), 3), (None, (), 8)],
)
def test_as_many_actions_are_executed_as_in_eval_at_the_trained_rate(
    monkeypatch, tmp_path, rate, options, steps
):
    """A checkpoint of several robots and an address say no number in config.json: what is loaded does."""
    loaded = Spy() if rate is None else LooksBack()
    if rate is not None:
        monkeypatch.setattr(loaded, "trained", {"control_rate": rate}, raising=False)
    monkeypatch.setattr("morph_vla.serving.policy.load", lambda *_, **__: loaded)
    export.write("hf://someone/several", tmp_path / "plugin")
    config = PreTrainedConfig.from_pretrained(tmp_path / "plugin", cli_overrides=list(options))
    policy = MorphVlaPolicy.from_pretrained(tmp_path / "plugin", config=config)
    assert isinstance(policy.config, MorphVlaConfig)
    assert policy.config.n_action_steps == steps
    policy.config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["n_action_steps"] == steps


def test_a_policy_that_is_saved_elsewhere_finds_its_checkpoint(monkeypatch, tmp_path):
    """Its config.json said "." where it lay, or an address."""
    places = []

    def load(where, **_):
        places.append(where)
        return Spy()

    monkeypatch.setattr("morph_vla.serving.policy.load", load)
    trained = tmp_path / "trained"
    trained.mkdir()
    MorphVlaConfig(device="cpu", checkpoint=".")._save_pretrained(trained)
    MorphVlaPolicy.from_pretrained(trained).save_pretrained(tmp_path / "saved")
    MorphVlaPolicy.from_pretrained(tmp_path / "saved").save_pretrained(trained)
    assert places == [trained, trained]
    assert json.loads((trained / "config.json").read_text())["checkpoint"] == "."  # and may be moved
    for folder in (trained, tmp_path / "saved"):  # lerobot-eval asks a folder for its processors too
        config = PreTrainedConfig.from_pretrained(folder)
        before, _ = make_pre_post_processors(config, pretrained_path=str(folder))
        assert before({"observation.state": torch.zeros(8)})["observation.state"].shape == (1, 8)
    export.write("hf://someone/several", tmp_path / "address")
    MorphVlaPolicy.from_pretrained(tmp_path / "address").save_pretrained(tmp_path / "again")
    MorphVlaPolicy.from_pretrained(tmp_path / "again")
    assert places[2:] == ["hf://someone/several"] * 2


def test_more_actions_than_an_answer_has_are_refused(served, monkeypatch, tmp_path):
    """The number is what config.json says of a loaded policy: one that is never executed would be untrue."""
    with pytest.raises(
        MorphVlaError, match=r"^policy.n_action_steps: 33, and this policy answers with 32 actions$"
    ):
        served("--n_action_steps=33")
    assert served("--n_action_steps=32").config.n_action_steps == 32


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_numbers_of_any_type_are_read(wave, kind):
    policy, spy = wave
    batch = {
        key: value.to(kind).requires_grad_() if isinstance(value, torch.Tensor) else value
        for key, value in batch_of().items()
    }
    assert policy.select_action(batch).shape == (2, 8)
    np.testing.assert_allclose(spy.seen[0]["state"], batch_of()["observation.state"][0], rtol=0.01)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"observation.state": torch.zeros(8)},
            r"observation.state has shape \[8\]; expected \[episodes, joints\]: LeRobot's pre",
        ),
        ({"task": ["a"]}, "the batch has 2 states, and 1 of task$"),
        (
            {"observation.images.wrist": torch.zeros(1, 3, 5, 7)},
            "the batch has 2 states, and 1 of images/wrist$",
        ),
    ],
)
def test_a_batch_whose_parts_do_not_fit_is_refused(wave, changes, words):
    policy, _ = wave
    with pytest.raises(MorphVlaError, match=f"^{words}"):
        policy.select_action({**batch_of(), **changes})


def test_it_is_not_trained_by_lerobot(wave):
    policy, _ = wave
    for refused in (policy.get_optim_params, policy.config.get_optimizer_preset, lambda: policy.forward({})):
        with pytest.raises(
            MorphVlaError, match=r"^a morph_vla policy is trained by `morph-vla train`, not by l"
        ):
            refused()
    with pytest.raises(MorphVlaError, match=r"^policy.batch must be at least 1, not 0$"):
        MorphVlaConfig(device="cpu", batch=0)
    with pytest.raises(MorphVlaError, match=r"^policy.n_action_steps must be at least 0, not -1$"):
        MorphVlaConfig(device="cpu", n_action_steps=-1)


def test_threads_that_share_a_policy_do_not_share_its_answers(monkeypatch):
    """`lerobot-eval --env.max_parallel_tasks=2`: a thread for each task, one policy for all."""

    class Numbers(Spy):
        def infer(self, observation):
            self.seen.append(observation)
            return {"actions": np.full((3, 8), float(observation["prompt"]), np.float32)}

    spy = Numbers()
    monkeypatch.setattr(remote, "reach", lambda *_, preset: spy)
    policy = MorphVlaPolicy(MorphVlaConfig(device="cpu", checkpoint="ws://there", n_action_steps=3))
    together, answers = threading.Barrier(2, timeout=60), {}

    def roll_out(task: str) -> None:
        policy.reset()
        for step in range(7):
            together.wait()
            action = policy.select_action({**batch_of(), "task": [task] * 2})
            answers[task, step] = action[:, 0].tolist()
            if step == 4 and task == "1":
                policy.reset()

    threads = [threading.Thread(target=roll_out, args=(task,)) for task in ("1", "2")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {(task, step): [float(task)] * 2 for task in ("1", "2") for step in range(7)}
    assert len({seen["connection"] for seen in spy.seen}) == 2
