"""Parameters of odd sizes, all different, and the same as LeRobot names them, written out by hand."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from morph_vla.morphology import MorphologyConfig
from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig
from morph_vla.weights import leaf_shapes, tensors
from morph_vla.weights.checkpoint import flat, nested

# Heads times head size equals the VLM's width (8 * 4 = 32), and SigLIP's and the time matrices are square:
# only values can tell a missed transpose there.
HOST = Pi05Config(
    vocab=37,
    image_size=21,
    vit=VitConfig(width=15, depth=2, mlp_dim=13, heads=3, patch=7),
    prefix=GemmaConfig(width=32, mlp_dim=23),
    expert=GemmaConfig(width=22, mlp_dim=17),
    depth=3,
    heads=8,
    kv_heads=2,
    head_dim=4,
    action_dim=7,
    horizon=6,
    max_tokens=11,
    dtype="float32",
    remat=False,
)
PLUGIN = dataclasses.replace(HOST, morphology=MorphologyConfig(max_joints=5, chunks=2, bias="mix"))


def draw(config: Pi05Config, seed: int = 0) -> dict[str, Any]:
    """Parameters all of which differ."""
    rng = np.random.default_rng(seed)
    shapes = leaf_shapes(config)
    return nested({name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()})


def to_lerobot(tree: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """LeRobot's entries, matrix by matrix: a second writing of the mapping, from the table of the facts."""
    p = flat(tree)
    out: dict[str, np.ndarray] = {}
    base = "paligemma_with_expert.paligemma."
    tower, vlm = f"{base}model.vision_tower.vision_model.", f"{base}model.language_model."
    expert = "paligemma_with_expert.gemma_expert.model."
    image, block = "PaliGemma/img/", "PaliGemma/img/Transformer/encoderblock/"
    out[f"{tower}embeddings.patch_embedding.weight"] = np.einsum("hwcd->dchw", p[f"{image}embedding/kernel"])
    out[f"{tower}embeddings.patch_embedding.bias"] = p[f"{image}embedding/bias"]
    out[f"{tower}embeddings.position_embedding.weight"] = p[f"{image}pos_embedding"][0]
    for i in range(len(p[f"{block}LayerNorm_0/scale"])):
        layer, mha = f"{tower}encoder.layers.{i}.", f"{block}MultiHeadDotProductAttention_0/"
        width = p[f"{block}LayerNorm_0/scale"].shape[1]
        for ours, theirs in (("LayerNorm_0", "layer_norm1"), ("LayerNorm_1", "layer_norm2")):
            out[f"{layer}{theirs}.weight"] = p[f"{block}{ours}/scale"][i]
            out[f"{layer}{theirs}.bias"] = p[f"{block}{ours}/bias"][i]
        for ours, theirs in (("query", "q"), ("key", "k"), ("value", "v")):
            out[f"{layer}self_attn.{theirs}_proj.weight"] = p[f"{mha}{ours}/kernel"][i].reshape(width, -1).T
            out[f"{layer}self_attn.{theirs}_proj.bias"] = p[f"{mha}{ours}/bias"][i].reshape(-1)
        out[f"{layer}self_attn.out_proj.weight"] = p[f"{mha}out/kernel"][i].reshape(-1, width).T
        out[f"{layer}self_attn.out_proj.bias"] = p[f"{mha}out/bias"][i]
        for ours, theirs in (("Dense_0", "fc1"), ("Dense_1", "fc2")):
            out[f"{layer}mlp.{theirs}.weight"] = p[f"{block}MlpBlock_0/{ours}/kernel"][i].T
            out[f"{layer}mlp.{theirs}.bias"] = p[f"{block}MlpBlock_0/{ours}/bias"][i]
    out[f"{tower}post_layernorm.weight"] = p[f"{image}Transformer/encoder_norm/scale"]
    out[f"{tower}post_layernorm.bias"] = p[f"{image}Transformer/encoder_norm/bias"]
    out[f"{base}model.multi_modal_projector.linear.weight"] = p[f"{image}head/kernel"].T
    out[f"{base}model.multi_modal_projector.linear.bias"] = p[f"{image}head/bias"]
    out[f"{base}lm_head.weight"] = p["PaliGemma/llm/embedder/input_embedding"]
    for suffix, model in (("", vlm), ("_1", expert)):
        out |= _transformer(p, suffix, model)
    for name in ("action_in_proj", "time_mlp_in", "time_mlp_out", "action_out_proj"):
        out[f"{name}.weight"], out[f"{name}.bias"] = p[f"{name}/kernel"].T, p[f"{name}/bias"]
    head = "paligemma_with_expert.gemma_expert.lm_head.weight"
    out[head] = np.zeros((37, 22), np.float32)
    return out


def _transformer(p: Mapping[str, np.ndarray], suffix: str, model: str) -> dict[str, np.ndarray]:
    out, layers = {}, "PaliGemma/llm/layers/"
    for i in range(len(p[f"{layers}attn/q_einsum/w"])):
        layer = f"{model}layers.{i}."
        query, out_ = (
            p[f"{layers}attn/q_einsum{suffix}/w"][i],
            p[f"{layers}attn/attn_vec_einsum{suffix}/w"][i],
        )
        out[f"{layer}self_attn.q_proj.weight"] = query.transpose(0, 2, 1).reshape(-1, query.shape[1])
        out[f"{layer}self_attn.o_proj.weight"] = out_.reshape(-1, out_.shape[2]).T
        for j, letter in enumerate("kv"):
            part = p[f"{layers}attn/kv_einsum{suffix}/w"][i, j]
            out[f"{layer}self_attn.{letter}_proj.weight"] = part.transpose(0, 2, 1).reshape(-1, part.shape[1])
        for j, name in enumerate(("gate", "up")):
            out[f"{layer}mlp.{name}_proj.weight"] = p[f"{layers}mlp{suffix}/gating_einsum"][i, j].T
        out[f"{layer}mlp.down_proj.weight"] = p[f"{layers}mlp{suffix}/linear"][i].T
        for ours, theirs in (
            ("pre_attention_norm", "input_layernorm"),
            ("pre_ffw_norm", "post_attention_layernorm"),
        ):
            if suffix:
                out[f"{layer}{theirs}.dense.weight"] = p[f"{layers}{ours}_1/Dense_0/kernel"][i].T
                out[f"{layer}{theirs}.dense.bias"] = p[f"{layers}{ours}_1/Dense_0/bias"][i]
            else:
                out[f"{layer}{theirs}.weight"] = p[f"{layers}{ours}/scale"][i]
    if suffix:
        out[f"{model}norm.dense.weight"] = p["PaliGemma/llm/final_norm_1/Dense_0/kernel"].T
        out[f"{model}norm.dense.bias"] = p["PaliGemma/llm/final_norm_1/Dense_0/bias"]
    else:
        out[f"{model}norm.weight"] = p["PaliGemma/llm/final_norm/scale"]
    return out


def write_tensors(path: Path, values: Mapping[str, np.ndarray]) -> Path:
    """A safetensors file of these arrays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    drafts = {name: tensors.Draft(v.shape, v.dtype, lambda v=v: [v]) for name, v in values.items()}
    tensors.write(path, drafts, {})
    return path


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Equal names, types and bits."""
    left, right = flat(one), flat(other)
    assert left.keys() == right.keys()
    for name, leaf in left.items():
        assert leaf.dtype == right[name].dtype, name
        assert leaf.shape == right[name].shape, name
        assert leaf.tobytes() == np.ascontiguousarray(right[name]).tobytes(), name


@pytest.fixture(scope="session")
def host() -> Pi05Config:
    """pi0.5 alone, of odd sizes."""
    return HOST


@pytest.fixture(scope="session")
def plugin() -> Pi05Config:
    """The same with the plugin."""
    return PLUGIN


@pytest.fixture(scope="session")
def params() -> dict[str, Any]:
    """Parameters of `host`."""
    return draw(HOST)


@pytest.fixture(scope="session")
def entries(params) -> dict[str, np.ndarray]:
    """The same under LeRobot's names, in the Hub's layout."""
    return to_lerobot(params)


@pytest.fixture(scope="session")
def openpi(params, tmp_path_factory) -> Path:
    """A released checkpoint of openpi, written by orbax."""
    from orbax import checkpoint as ocp

    folder = tmp_path_factory.mktemp("openpi") / "checkpoint"
    with ocp.PyTreeCheckpointer() as checkpointer:
        checkpointer.save(folder / "params", {"params": params})
    return folder


@pytest.fixture(scope="session")
def lerobot(entries, tmp_path_factory) -> Path:
    """A checkpoint of LeRobot in the Hub's layout, written by the safetensors package."""
    from safetensors.numpy import save_file

    folder = tmp_path_factory.mktemp("lerobot")
    save_file({name: np.ascontiguousarray(v) for name, v in entries.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"type": "pi05"}))
    return folder


@pytest.fixture(scope="session")
def equal() -> Callable[..., None]:
    """`equal(one, other)`: fails unless names, types and bits are the same."""
    return same


@pytest.fixture(scope="session")
def write() -> Callable[..., Path]:
    """`write(path, arrays)`: a safetensors file."""
    return write_tensors


@pytest.fixture(scope="session")
def drawn() -> Callable[..., dict[str, Any]]:
    """`drawn(config, seed)`: parameters."""
    return draw
