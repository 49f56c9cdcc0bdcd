"""Loading holds the parameters and little else: measured in a process of its own, at some 450 and 225 MB."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest

CHILD = """
import json, shutil, sys
from pathlib import Path
from morph_vla import weights

def memory(key):  # getrusage's ru_maxrss would be that of the parent, if that is larger
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))

folder, warm, dtype = sys.argv[1:]
"""
LOAD = """
weights.load(warm)  # imports, and what they keep
before = memory("VmRSS")
params, report = weights.load(folder, dtype=dtype)
print(json.dumps([report.nbytes, memory("VmHWM") - before]))
"""
CONVERT = """
from morph_vla.weights import convert
target = Path(folder).with_name("converted_" + Path(folder).name)
if target.exists():
    shutil.rmtree(target)
shutil.rmtree(target.with_name("warmed"), ignore_errors=True)
convert.convert(warm, target.with_name("warmed"), dtype)
before = memory("VmRSS")
_, report = convert.convert(folder, target, dtype)
print(json.dumps([report.nbytes, memory("VmHWM") - before]))
"""
SERVE = """
from functools import partial
import dataclasses, jax, json
from morph_vla.pi05 import serving
from morph_vla.weights.checkpoint import flat
from morph_vla.weights.load import returned_at_once

def served(folder):  # as `serving.foreign` does
    config = dataclasses.replace(weights.open_checkpoint(folder).config(), dtype=dtype)
    params, report = weights.load(folder, config, dtype=dtype, by_layer=True)
    leaves = flat(params)
    del params
    with returned_at_once():
        one_by_one = ((name, serving.let_go(leaves.pop(name))) for name in list(leaves))
        return jax.block_until_ready(serving.ready(config, one_by_one)), report

served(warm)
before = memory("VmRSS")
params, report = served(folder)
print(json.dumps([report.nbytes, memory("VmHWM") - before]))
"""
MOST, FULL = 1.3, 4 * 3_353_433_872
CURRENT = version("numpy") >= "2"
"""Not at openpi's pins, where more is held; why was not looked into"""


@pytest.fixture(scope="module")
def big(tmp_path_factory, drawn, host, params):
    """A pi0.5 whose embedding and largest leaf have the share of the whole that they have at full size."""
    from orbax import checkpoint as ocp

    from morph_vla import weights
    from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig
    from morph_vla.weights.checkpoint import flat

    config = Pi05Config(
        vocab=40_192,
        image_size=56,
        vit=VitConfig(width=192, depth=5, mlp_dim=720, heads=3, patch=14),
        prefix=GemmaConfig(width=400, mlp_dim=3072),
        expert=GemmaConfig(width=174, mlp_dim=683),
        depth=18,
        heads=8,
        head_dim=42,
    )
    folder = tmp_path_factory.mktemp("big")
    weights.save_openpi(folder / "warm_openpi", params)
    weights.save_lerobot(folder / "warm_lerobot", params, host)
    params = drawn(config)
    weights.save_openpi(folder / "ours", params)
    weights.save_lerobot(folder / "lerobot", params, config)
    # By itself, orbax stores up to 2 GB together; here that share of the whole which it is at full size.
    together = int(2e9 * sum(leaf.nbytes for leaf in flat(params).values()) / FULL)
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler()) as checkpointer:
        arguments = ocp.args.PyTreeSave({"params": params}, ocdbt_target_data_file_size=together)
        checkpointer.save(folder / "openpi" / "params", args=arguments)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        ("lerobot", "float32"),
        ("lerobot", "bfloat16"),
        ("ours", "float32"),
        ("ours", "bfloat16"),
        ("openpi", "float32"),
        ("openpi", "bfloat16"),
    ],
)
def test_the_peak_is_at_most_1_3_times_the_parameters(big, source, dtype):
    assert peak_over_size(LOAD, big, source, dtype) <= MOST


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize(
    ("source", "to"), [("lerobot", "openpi"), ("ours", "lerobot"), ("ours", "morph_vla")]
)
def test_a_conversion_holds_the_parameters_once(big, source, to):
    assert peak_over_size(CONVERT, big, source, to) <= 1.2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("source", ["lerobot", "ours", "openpi"])
def test_parameters_ready_to_serve_are_loaded_into_little_more_than_themselves(big, source, dtype):
    """Measured: 1.05 to 1.09 with current releases, 1.13 to 1.15 at openpi's pins in bfloat16."""
    assert peak_over_size(SERVE, big, source, dtype) <= (1.15 if CURRENT else 1.2)


def peak_over_size(task, big, source, argument):
    """The most that a process of its own holds, over the parameters' size."""
    warm = big / ("warm_lerobot" if source == "lerobot" else "warm_openpi")
    command = [sys.executable, "-c", CHILD + task, str(big / source), str(warm), argument]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    size, peak = json.loads(ended.stdout.splitlines()[-1])
    print(f"{source}, {argument}: {size / 1e6:.1f} MB, peak {peak / 1e6:.1f} MB, {peak / size:.3f}")
    assert size > 200e6
    return peak / size
