"""One program on one device, on eight, in two processes; and a run that is killed at any moment."""

import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from morph_vla import policies
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.files.writing import write_text
from morph_vla.recipes.keys import Data, Mesh, Recipe
from morph_vla.training import checkpoint, loop, restoring, sharding

STEPS = 10


@pytest.fixture(scope="session")
def blind_recipe(mixed_recipe, so101_dataset) -> Recipe:
    """One robot without cameras: the quickest run there is. Eight rows a batch."""
    training = dataclasses.replace(
        mixed_recipe.training, steps=STEPS, batch=8, log_every=1, checkpoint_every=2, held_out_every=4, keep=3
    )
    data = Data(dataset=str(so101_dataset), robot="so101", actions="delta", held_out=0.4)
    return dataclasses.replace(mixed_recipe, data=data, training=training)


@pytest.fixture(scope="session")
def whole_run(blind_recipe, tmp_path_factory) -> loop.Run:
    """The run that nothing interrupted, on one device in one process."""
    return loop.train(blind_recipe, tmp_path_factory.mktemp("whole"))


def begin(recipe: Recipe, folder: Path, *words: str, devices: int = 1) -> subprocess.Popen:
    """`morph-vla train --resume -o folder` in a process of its own."""
    write_text(folder / "recipe.json", json.dumps(to_plain(recipe), indent=2, sort_keys=True))
    command = [sys.executable, "-m", "morph_vla.cli", "train", "--resume", "-o", str(folder), *words]
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    env = {**os.environ, "XLA_FLAGS": flags}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)


def end(process: subprocess.Popen) -> str:
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    return out


def logged(folder: Path) -> list[dict]:
    path = folder / "log.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_step(process: subprocess.Popen, folder: Path, step: int) -> None:
    for _ in range(6000):
        if len(logged(folder)) >= step or process.poll() is not None:
            return
        time.sleep(0.05)


def leaves(recipe: Recipe, folder: Path, kind: str) -> list[np.ndarray]:
    shapes = policies.shapes(recipe.model)
    newest = folder / "checkpoints" / str(checkpoint.steps(folder / "checkpoints")[-1])
    return [np.asarray(leaf) for leaf in jax.tree.leaves(restoring.load_params(newest, shapes, kind))]


def losses(curve: list[dict]) -> list[float]:
    return [entry["loss"] for entry in curve]


def memory(out: str) -> float:
    """MiB of the state on each device, as the run says."""
    line = next(line for line in out.splitlines() if "MiB on each of" in line)
    return float(line.split(" MiB")[0].split()[-1])


@pytest.mark.long
@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_bit_for_bit(blind_recipe, whole_run, tmp_path):
    chance = random.Random(11)
    for _ in range(2):
        process = begin(blind_recipe, tmp_path)
        wait_for_step(process, tmp_path, len(logged(tmp_path)) + chance.randint(1, 4))
        time.sleep(chance.random() * 0.1)  # anywhere in a step, or in a checkpoint's writing
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert "checkpoints" in end(begin(blind_recipe, tmp_path))
    assert [{k: e[k] for k in ("step", "loss", "held_out")} for e in logged(tmp_path)] == [
        {k: e[k] for k in ("step", "loss", "held_out")} for e in whole_run.curve
    ]
    for kind in ("params", "averaged"):
        pairs = zip(
            leaves(blind_recipe, tmp_path, kind), leaves(blind_recipe, whole_run.folder, kind), strict=True
        )
        assert all(np.array_equal(a, b) for a, b in pairs)


@pytest.mark.long
@pytest.mark.slow
def test_eight_devices_learn_the_same_and_hold_less_each(blind_recipe, whole_run, tmp_path):
    outputs = {}
    for data, fsdp in ((8, 1), (2, 4)):
        mesh = Mesh(data, fsdp, whole_below_mib=0.0001)
        training = dataclasses.replace(blind_recipe.training, mesh=mesh)
        folder = tmp_path / f"{data}x{fsdp}"
        outputs[fsdp] = memory(
            end(begin(dataclasses.replace(blind_recipe, training=training), folder, devices=8))
        )
        np.testing.assert_allclose(losses(logged(folder)), losses(whole_run.curve), rtol=1e-4)
    assert outputs[4] < 0.4 * outputs[1]  # a quarter, and what four does not divide


@pytest.mark.long
@pytest.mark.slow
def test_two_processes_end_together_on_sigterm_and_one_goes_on(blind_recipe, whole_run, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{free.getsockname()[1]}"
    mesh = Mesh(1, 2, whole_below_mib=0.0001)
    training = dataclasses.replace(blind_recipe.training, mesh=mesh)
    recipe = dataclasses.replace(blind_recipe, training=training)
    both = [
        begin(recipe, tmp_path, "--coordinator", place, "--processes", "2", "--process", str(number))
        for number in range(2)
    ]
    wait_for_step(both[0], tmp_path, 3)
    both[1].send_signal(signal.SIGTERM)
    words = [end(process) for process in both]
    step = checkpoint.steps(tmp_path / "checkpoints")[-1]
    assert 3 <= step < STEPS
    assert all(f"stopped by SIGTERM at step {step}; the same command goes on" in word for word in words)
    end(begin(blind_recipe, tmp_path))  # one process, one device
    np.testing.assert_allclose(losses(logged(tmp_path)), losses(whole_run.curve), rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "fsdp", "axis"),
    [
        ((6, 4), 2, 0),  # the drawn one
        ((4, 6), 2, 1),
        ((4, 4), 2, 1),  # the later of two alike
        ((7, 4), 4, 1),  # the longest cannot be divided
        ((3, 5), 2, None),
        ((), 2, None),
        ((0, 4), 4, 1),
        ((6, 4), 1, None),  # nothing to share with
    ],
)
def test_a_leaf_is_split_along_its_longest_axis_that_can_be_divided(shape, fsdp, axis):
    assert sharding.split_axis(shape, fsdp) == axis


def test_a_mesh_of_other_devices_than_there_are_is_refused():
    words = r"training\.mesh: 2 x 3 \(data x fsdp\) is 6 devices; here are 1 \(cpu\)"
    with pytest.raises(MorphVlaError, match=words):
        sharding.make_mesh(2, 3)


def test_a_batch_that_the_devices_cannot_share_names_one_that_they_can():
    with pytest.raises(MorphVlaError, match="13 rows cannot be split over 8 devices evenly; 16 can"):
        sharding.check_batch(13, 8)


def test_processes_that_cannot_meet_are_told_what_to_give(monkeypatch):
    def refuse(*_):
        raise RuntimeError("no cluster here")

    monkeypatch.setattr(jax.distributed, "initialize", refuse)
    words = (
        r"^the processes cannot find each other \(no cluster here\); SLURM, Open MPI, Kubernetes and TPU "
        r"pods say where they are; elsewhere give the address of process 0, their number and this "
        r"one's index$"
    )
    with pytest.raises(MorphVlaError, match=words):
        sharding.join(None, None, None)
