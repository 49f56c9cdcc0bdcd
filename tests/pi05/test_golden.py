"""The host equals openpi: recorded outputs and gradients of openpi at its own pins, and its full size."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from recorded import CLOSE, FOLDER, NAMES, ODD, Golden, quick, run

from morph_vla.pi05 import Pi05, Pi05Config, init_params, loss
from morph_vla.pi05 import model as pi05

LEAVES, PARAMETERS = 51, 3_353_433_872


@pytest.fixture(scope="module", params=NAMES)
def golden(request):
    return Golden(request.param)


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_files_are_the_shared_ones(shared, name):
    with np.load(FOLDER / f"{name}.npz") as ours, np.load(shared / "golden" / f"{name}.npz") as theirs:
        assert sorted(ours.files) == sorted(theirs.files)
        for key in ours.files:
            np.testing.assert_array_equal(ours[key], theirs[key])


def names(tree) -> dict[str, tuple[int, ...]]:
    """Leaf names as openpi writes them, and shapes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(key.key for key in path): leaf.shape for path, leaf in leaves}


def test_names_and_shapes_are_openpis(golden):
    ours = names(jax.eval_shape(lambda: init_params(ODD, jax.random.key(0))))
    assert ours == names(golden.params)
    assert len(ours) == LEAVES


# Compiled once for both files.
outputs = quick(partial(run, ODD))


@partial(jax.grad, has_aux=True)
def mean_loss(params, seen, actions, noise, time):
    value = loss(ODD, params, seen, actions, noise[None], time[None])[0]
    return value.mean(), value


@partial(jax.grad, has_aux=True)
def joint_mean_loss(params, seen, actions, noise, time):
    x, target = pi05.interpolate(actions, noise, time)
    v: Any = Pi05(ODD).apply({"params": params}, seen, x, time, method=Pi05.velocity_joint)
    value = jnp.square(v - target)
    return value.mean(), value


def test_every_output_is_openpis(golden):
    result = outputs(golden.params, golden.seen, *golden.chunk)
    assert set(result) == {name for name in golden.data if name.startswith("out/")}
    # A row of the prefix that is padding sees nothing in openpi's softmax either: it is compared as well.
    for name, value in result.items():
        assert value.dtype == golden[name].dtype, name
        np.testing.assert_allclose(value, golden[name], rtol=0, atol=CLOSE, err_msg=name)


@pytest.mark.parametrize("gradient_of", [mean_loss, joint_mean_loss], ids=["prefix once", "joint"])
def test_the_loss_and_every_gradient_are_openpis(golden, gradient_of):
    gradient, value = quick(gradient_of)(golden.params, golden.seen, *golden.chunk)
    np.testing.assert_allclose(value.mean(-1), golden["out/loss"], rtol=0, atol=CLOSE)
    leaves = jax.tree_util.tree_leaves_with_path(gradient)
    assert len(leaves) == LEAVES
    for path, leaf in leaves:
        name = "/".join(key.key for key in path)
        wanted = golden[f"g/{name}"]
        # An attention key's bias shifts all logits of a row alike: its gradient is zero but for rounding.
        floor = 1e-6 / CLOSE if name.endswith("key/bias") else 1e-6
        assert float(jnp.abs(leaf - wanted).max()) <= CLOSE * max(float(jnp.abs(wanted).max()), floor), name


@pytest.mark.usefixtures("standard_promotion")
def test_the_full_model_has_openpis_size():
    shapes = jax.eval_shape(lambda: init_params(Pi05Config(), jax.random.key(0)))
    result = names(shapes)
    assert len(result) == LEAVES
    assert pi05.count(shapes) == PARAMETERS
    for name, shape in {
        "PaliGemma/img/Transformer/encoderblock/MultiHeadDotProductAttention_0/query/kernel": (
            27,
            1152,
            16,
            72,
        ),
        "PaliGemma/img/pos_embedding": (1, 256, 1152),
        "PaliGemma/llm/embedder/input_embedding": (257152, 2048),
        "PaliGemma/llm/final_norm_1/Dense_0/kernel": (1024, 3072),
        "PaliGemma/llm/layers/attn/kv_einsum_1/w": (18, 2, 1, 1024, 256),
        "PaliGemma/llm/layers/attn/q_einsum/w": (18, 8, 2048, 256),
        "PaliGemma/llm/layers/mlp/gating_einsum": (18, 2, 2048, 16384),
        "PaliGemma/llm/layers/pre_ffw_norm_1/Dense_0/bias": (18, 3072),
        "action_in_proj/kernel": (32, 1024),
        "time_mlp_out/kernel": (1024, 1024),
    }.items():
        assert result[name] == shape


@pytest.mark.usefixtures("standard_promotion")
def test_every_name_and_full_shape_of_the_facts(shared):
    """The table of all 51 leaves, as read from openpi."""
    path = shared / "facts" / "pi05_parameter_names.md"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in the shared folder")
    section = path.read_text(encoding="utf-8").split("\n## ")[1]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    wanted = {
        name.strip(" `"): tuple(int(n) for n in shape.strip(" ()").split(",") if n) for name, shape in rows
    }
    assert len(wanted) == LEAVES
    assert names(jax.eval_shape(lambda: init_params(Pi05Config(), jax.random.key(0)))) == wanted
