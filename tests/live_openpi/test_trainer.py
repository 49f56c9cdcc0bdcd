"""openpi's own scripts with our model, on its fake data: train, save, restore, serve, a request."""

import dataclasses
import functools
import re
import runpy
import socket
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from live_openpi_sizes import checkout, pure

from morph_vla import robots
from morph_vla.errors import ConfigError
from morph_vla.morphology import body_of
from morph_vla.pi05 import Observation, sample_actions
from morph_vla.pi05.tokenizer import BytesTokenizer, tokenize

NAME, LIMIT = "pi05_morph_debug", 600
COMMAND = [sys.executable, "-m", "morph_vla.hosts.openpi"]
FROZEN, TRAINED = 2_923_335_408, 430_098_464  # the paper's counts for the bare host


def train(folder, environment, experiment, *words, **variables):
    """What openpi's trainer printed of its steps: step -> loss."""
    command = [*COMMAND, "train", NAME, "--exp-name", experiment, *words]
    begun = time.perf_counter()
    ended = subprocess.run(
        command, cwd=folder, env={**environment, **variables}, capture_output=True, text=True, timeout=LIMIT
    )
    lines = ended.stdout + ended.stderr
    assert ended.returncode == 0, lines[-3000:]
    result = re.findall(r"Step (\d+): .*?loss=([\d.]+)", lines)
    steps = ", ".join(f"step {step}: loss {loss}" for step, loss in result)
    print(f"\ntrain {NAME} {experiment} {' '.join(words)}: {steps} ({time.perf_counter() - begun:.0f} s)")
    return {int(step): float(loss) for step, loss in result}


@pytest.fixture(scope="module")
def trained(tmp_path_factory, environment):
    """Three steps, and two more after a restore."""
    folder = tmp_path_factory.mktemp("trained")
    first = train(folder, environment, "first", "--num-train-steps", "3", "--keep-period", "1")
    run = folder / "checkpoints" / NAME / "first"
    saved = sorted(path.name for path in run.iterdir() if path.name.isdigit())
    more = train(folder, environment, "first", "--num-train-steps", "5", "--keep-period", "1", "--resume")
    return SimpleNamespace(folder=folder, first=first, saved=saved, more=more, run=run)


@pytest.fixture(scope="module")
def config(openpi):
    from morph_vla.hosts.openpi import configs

    configs.register()
    return configs._config.get_config(NAME)


@pytest.fixture(scope="module")
def restored(openpi, trained):
    """The checkpoint as openpi's server loads it."""
    return openpi.model.restore_params(trained.run / "4" / "params", dtype=jnp.bfloat16)


def test_it_trains_saves_and_goes_on(trained):
    assert list(trained.first) == [0, 1, 2]
    assert trained.saved == ["2"]
    assert list(trained.more) == [3, 4]
    assert all(0 < loss < 20 for loss in [*trained.first.values(), *trained.more.values()])
    assert (trained.run / "4" / "assets" / "fake" / "norm_stats.json").is_file()


def test_what_is_frozen_stays_and_the_rest_moves(openpi, trained, config):
    from flax import nnx

    before, after = (openpi.model.restore_params(trained.run / step / "params") for step in ("2", "4"))
    model = config.model.load(after)
    frozen = set(nnx.state(model).filter(config.freeze_filter).flat_state())
    assert frozen
    moved, still = set(), set()
    for path in nnx.state(model).flat_state():
        one, other = before, after
        for key in path:
            one, other = one[key], other[key]
        (still if np.array_equal(one, other) else moved).add("/".join(map(str, path)))
        assert (one.dtype == jnp.bfloat16) == (path in frozen)
    assert {"/".join(map(str, path)) for path in frozen} <= still
    assert {"morphology/encoder/out/kernel", "action_out_proj/kernel"} <= moved


def test_the_filter_says_whether_the_prefix_is_frozen(openpi, config):
    """One leaf before the action expert that learns, and the prefix is run as one that does."""
    from flax import nnx
    from openpi.shared.nnx_utils import PathRegex

    assert config.model.frozen_prefix
    for learning in ("PaliGemma/img/pos_embedding", "PaliGemma/llm/layers/mlp/linear"):
        some = nnx.All(config.freeze_filter, nnx.Not(PathRegex(learning)))
        assert not dataclasses.replace(config, freeze_filter=some).model.frozen_prefix
    assert not dataclasses.replace(config, freeze_filter=nnx.Nothing).model.frozen_prefix


def test_averages_of_frozen_leaves_are_refused(config):
    """openpi averages all leaves, in bfloat16 those that are frozen, where rounding moves them every step."""
    with pytest.raises(ConfigError, match=r"^ema_decay: 0.9 would average frozen parameters in bfloat16"):
        dataclasses.replace(config, ema_decay=0.9)


def test_averages_and_full_training(openpi, config):
    """openpi's own step with everything learning: the average follows the parameters."""
    from flax import nnx

    script = runpy.run_path(str(checkout() / "scripts" / "train.py"))
    full = dataclasses.replace(config, ema_decay=0.75, freeze_filter=nnx.Nothing, exp_name="full")
    mesh = openpi.sharding.make_mesh(1)
    state, _ = script["init_train_state"](full, jax.random.key(0), mesh, resume=False)
    before = jax.tree.map(np.asarray, pure(state.ema_params))
    batch = full.model.fake_obs(2), full.model.fake_act(2)
    step = jax.jit(functools.partial(script["train_step"], full))
    # The second: the learning rate of the first is next to nothing.
    state, info = step(jax.random.key(1), step(jax.random.key(1), state, batch)[0], batch)
    assert np.isfinite(info["loss"])
    after, average = pure(state.params), pure(state.ema_params)
    for old, new, mean in zip(*map(jax.tree.leaves, (before, after, average)), strict=True):
        low, high = np.minimum(old, new), np.maximum(old, new)
        assert (mean >= low - 1e-6).all()
        assert (mean <= high + 1e-6).all()
    table = "PaliGemma", "llm", "final_norm_1", "Dense_0", "kernel"
    start, mean, end = (
        np.asarray(functools.reduce(lambda branch, key: branch[key], table, tree))
        for tree in (before, average, after)
    )
    assert 0 < np.abs(mean - start).max() < np.abs(end - start).max()


def test_pi05_base_loads_from_a_folder_with_only_the_plugin_new(openpi, config, tmp_path, caplog):
    """A checkpoint in the layout of `pi05_base`, through openpi's own validation of what a loader brings."""
    import orbax.checkpoint as ocp

    from morph_vla.hosts.openpi.configs import MorphWeightLoader

    tree = config.model.create(jax.random.key(9)).params()
    base = {name: branch for name, branch in tree.items() if name != "morphology"}
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "params", {"params": base})
    script = runpy.run_path(str(checkout() / "scripts" / "train.py"))
    shapes = jax.eval_shape(lambda: config.model.create(jax.random.key(0)).params())
    with caplog.at_level("INFO"):
        result = script["_load_weights_and_validate"](MorphWeightLoader(str(tmp_path / "params")), shapes)
    jax.tree.map(np.testing.assert_array_equal, result, base)
    assert f"51 leaves loaded, {len(jax.tree.leaves(tree['morphology']))} new (morphology/...)" in caplog.text


def test_frozen_and_trained_have_the_papers_counts(openpi):
    """At full size, by shapes alone."""
    from flax import nnx

    from morph_vla.hosts.openpi import configs

    configs.register()
    full: Any = configs._config.get_config("pi05_morph_droid")
    state = nnx.state(nnx.eval_shape(full.model.create, jax.random.key(0)))

    def count(tree):
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(pure(tree)))

    plugin = nnx.All(nnx.Param, lambda path, _: path[0] == "morphology")
    assert count(state.filter(full.freeze_filter)) == FROZEN
    assert count(state.filter(full.trainable_filter)) - count(state.filter(plugin)) == TRAINED


def test_fully_sharded_on_two_devices_it_learns_the_same(trained, environment):
    two = train(
        trained.folder,
        environment,
        "two",
        "--num-train-steps",
        "2",
        "--fsdp-devices",
        "2",
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    for step in (0, 1):
        assert two[step] == pytest.approx(trained.first[step], abs=2e-3)


def request():
    """What a client sends."""
    rng = np.random.default_rng(8)
    cameras = ("base_0_rgb", "left_wrist_0_rgb", "right_wrist_0_rgb")
    return {
        "image": {name: rng.integers(0, 256, (224, 224, 3)).astype(np.uint8) for name in cameras},
        "image_mask": {name: np.bool_(name != cameras[2]) for name in cameras},
        "state": rng.uniform(-0.9, 0.9, 8).astype(np.float32),
        "prompt": "put the cube in the bowl",
    }


@pytest.fixture(scope="module")
def answers(openpi, trained, environment):
    """Two answers of openpi's server on loopback, the second for another robot."""
    from openpi_client.websocket_client_policy import WebsocketClientPolicy

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["serve", "--port", str(port), "policy:checkpoint", "--policy.config", NAME]
    log = trained.folder / "server.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            [*COMMAND, *words, "--policy.dir", str(trained.run / "4")],
            cwd=trained.folder,
            env=environment,
            stdout=out,
            stderr=out,
        )
        try:
            until = time.monotonic() + LIMIT
            while "server listening" not in log.read_text() and time.monotonic() < until:
                assert server.poll() is None, log.read_text()[-3000:]
                time.sleep(0.5)
            client = WebsocketClientPolicy("127.0.0.1", port)
            metadata, result = client.get_server_metadata(), []
            for robot in ({}, {"robot": "so101"}):
                begun = time.perf_counter()
                result.append(client.infer({**request(), **robot})["actions"])
                print(f"\nclient: actions {result[-1].shape} in {time.perf_counter() - begun:.1f} s")
            with pytest.raises(RuntimeError, match=r"did you mean 'so101'\?"):
                client.infer({**request(), "robot": "so100"})
        finally:
            server.terminate()
            server.wait(30)
    return metadata, result


def expected(config, params, robot, key):
    """What our own model makes of the same request with the same parameters."""
    sent, host = request(), config.model.host()
    tokens, mask = tokenize(BytesTokenizer(), sent["prompt"], sent["state"], host.max_tokens)
    body = body_of(robots.load(robot), host.morphology.max_joints)
    seen = Observation(
        {name: image[None] for name, image in sent["image"].items()},
        {name: np.asarray(present)[None] for name, present in sent["image_mask"].items()},
        tokens[None],
        mask[None],
        jax.tree.map(lambda x: np.asarray(x)[None], body),
    )
    noise = jax.random.normal(key, (1, host.horizon, host.action_dim))
    every = np.ones((1, host.action_dim), bool)  # openpi holds no padded value
    sample = jax.jit(lambda p, o, n: sample_actions(host, p, o, n, real=every))
    return np.asarray(sample(params, seen, noise))[0, :, :8]


def test_served_actions_are_those_of_our_own_model(config, restored, answers):
    metadata, result = answers
    assert metadata["robot"] == "panda"
    key = jax.random.key(0)
    for actions, robot in zip(result, ("panda", "so101"), strict=True):
        key, noise_key = jax.random.split(key)
        assert actions.shape == (16, 8)
        difference = np.abs(actions - expected(config, restored, robot, noise_key)).max()
        print(f"\nserved for {robot}: actions differ from our own model's by up to {difference:.1e}")
        assert difference < 1e-4
    assert np.abs(result[0] - result[1]).max() > 1e-3  # the noise alone would do; the robot is checked above
