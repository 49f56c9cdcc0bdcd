"""The host equals openpi: recorded outputs and gradients of openpi at its own pins, and its full size."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from morph_vla.pi05 import (
    GemmaConfig,
    Observation,
    Pi05,
    Pi05Config,
    VitConfig,
    init_params,
    loss,
    sample_actions,
)
from morph_vla.pi05 import model as pi05

# Flax 0.10 under JAX 0.5, openpi's pins.
pytestmark = [
    pytest.mark.filterwarnings("ignore:linear_util.wrap_init:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:shape requires ndarray:DeprecationWarning"),
]

ODD = Pi05Config(
    vocab=384,
    image_size=42,
    vit=VitConfig(width=12, depth=2, mlp_dim=28, heads=3, patch=14),
    prefix=GemmaConfig(width=24, mlp_dim=44),
    expert=GemmaConfig(width=16, mlp_dim=36),
    depth=3,
    heads=8,
    kv_heads=1,
    head_dim=10,
    action_dim=7,
    horizon=5,
    max_tokens=20,
    dtype="float32",
    remat=False,
)
LEAVES, PARAMETERS = 51, 3_353_433_872
CLOSE = 2e-5


class Golden:
    """One recorded file: weights, inputs, and what openpi made of them."""

    def __init__(self, path):
        with np.load(path) as data:
            self.data = {name: jnp.asarray(data[name]) for name in data.files}
        self.params: dict = {}
        for name in (name for name in self.data if name.startswith("w/")):
            node, (*folders, leaf) = self.params, name.removeprefix("w/").split("/")
            for folder in folders:
                node = node.setdefault(folder, {})
            node[leaf] = self.data[name]
        self.seen = Observation(
            {name: self["in/image/" + name] for name in ODD.cameras},
            {name: self["in/image_mask/" + name] for name in ODD.cameras},
            self["in/tokens"],
            self["in/tokens_mask"],
        )
        self.chunk = self["in/actions"], self["in/noise"], self["in/time"]

    def __getitem__(self, name):
        return self.data[name]


@pytest.fixture(scope="module", params=["pi05_odd", "pi05_odd_small"])
def golden(request, shared):
    path = shared / "golden" / f"{request.param}.npz"
    if not path.is_file():
        pytest.skip(f"the recorded values {path.name} are not in the shared folder")
    return Golden(path)


def names(tree) -> dict[str, tuple[int, ...]]:
    """Leaf names as openpi writes them, and shapes."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {"/".join(key.key for key in path): leaf.shape for path, leaf in leaves}


def test_names_and_shapes_are_openpis(golden):
    ours = names(jax.eval_shape(lambda: init_params(ODD, jax.random.key(0))))
    assert ours == names(golden.params)
    assert len(ours) == LEAVES


# Compiled once for both files.
@jax.jit
def prefix(params, seen):
    return Pi05(ODD).apply({"params": params}, seen, method=Pi05.embed_prefix)


@jax.jit
def velocity(params, seen, x, time):
    return Pi05(ODD).apply({"params": params}, seen, x, time, method=Pi05.velocity_joint)


@partial(jax.jit, static_argnums=3)
def sample(params, seen, noise, steps):
    return sample_actions(ODD, params, seen, noise, steps)


@partial(jax.grad, has_aux=True)
def mean_loss(params, seen, actions, noise, time):
    value = loss(ODD, params, seen, actions, noise[None], time[None])[0]
    return value.mean(), value


gradient_and_loss = jax.jit(mean_loss)


def test_the_prefix_is_openpis(golden):
    tokens, mask = prefix(golden.params, golden.seen)
    np.testing.assert_allclose(tokens, golden["out/prefix"], atol=CLOSE)
    assert mask.shape == tokens.shape[:2]


def test_the_velocity_is_openpis(golden):
    actions, noise, time = golden.chunk
    x, _ = pi05.interpolate(actions, noise, time)
    found = velocity(golden.params, golden.seen, x, time)
    np.testing.assert_allclose(found, golden["out/v_t"], atol=CLOSE)


def test_the_loss_and_every_gradient_are_openpis(golden):
    gradient, value = gradient_and_loss(golden.params, golden.seen, *golden.chunk)
    np.testing.assert_allclose(value.mean(-1), golden["out/loss"], atol=CLOSE)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        name = "/".join(key.key for key in path)
        wanted = golden[f"g/{name}"]
        # An attention key's bias shifts all logits of a row alike: its gradient is zero but for rounding.
        floor = 1e-6 / CLOSE if name.endswith("key/bias") else 1e-6
        assert float(jnp.abs(leaf - wanted).max()) <= CLOSE * max(float(jnp.abs(wanted).max()), floor), name


@pytest.mark.parametrize(("steps", "name"), [(10, "out/actions"), (1, "out/actions1")])
def test_sampled_actions_are_openpis(golden, steps, name):
    found = sample(golden.params, golden.seen, golden["in/noise"], steps)
    np.testing.assert_allclose(found, golden[name], atol=CLOSE)


@pytest.mark.usefixtures("standard_promotion")
def test_the_full_model_has_openpis_size():
    shapes = jax.eval_shape(lambda: init_params(Pi05Config(), jax.random.key(0)))
    found = names(shapes)
    assert len(found) == LEAVES
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
        assert found[name] == shape


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
