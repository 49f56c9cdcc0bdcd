"""A pi0.5 whose sizes are odd and all different, its parameters, and what it sees."""

import dataclasses
from typing import Any

import jax
import numpy as np
import pytest
from drawn import draw_params

from morph_vla.morphology import Body, MorphologyConfig
from morph_vla.pi05 import GemmaConfig, Observation, Pi05Config, VitConfig

BATCH, JOINTS = 2, 5

HOST = Pi05Config(
    vocab=37,
    image_size=21,
    vit=VitConfig(width=15, depth=2, mlp_dim=13, heads=3, patch=7),
    prefix=GemmaConfig(width=19, mlp_dim=23),
    expert=GemmaConfig(width=22, mlp_dim=17),
    depth=3,
    heads=4,
    kv_heads=2,
    head_dim=10,
    action_dim=7,
    horizon=6,
    max_tokens=11,
    dtype="float32",
    remat=False,
)
PLUGIN = dataclasses.replace(HOST, morphology=MorphologyConfig(max_joints=JOINTS, chunks=2, bias="mix"))


def draw_body(joints: int = JOINTS, places: int = 0) -> Body:
    """An arm in the first row, another graph in the second, padded to `places`."""
    places = places or joints
    adjacency = np.broadcast_to(np.eye(places, dtype=bool), (BATCH, places, places)).copy()
    adjacency[0, :joints, :joints] = np.abs(np.subtract.outer(np.arange(joints), np.arange(joints))) < 2
    adjacency[1, 0, :joints] = adjacency[1, :joints, 0] = True
    descriptors = np.zeros((BATCH, places, 12), np.float32)
    descriptors[:, :joints] = np.random.default_rng(11).normal(size=(BATCH, joints, 12))
    mask = np.broadcast_to(np.arange(places) < joints, (BATCH, places))
    return Body(adjacency, np.where(adjacency, 0, 1).astype(np.int32), descriptors, mask)


@pytest.fixture
def standard_promotion():
    """For bfloat16, where Flax's own norms and activations promote by themselves."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture(scope="session")
def host() -> Pi05Config:
    """pi0.5 alone."""
    return HOST


@pytest.fixture(scope="session")
def plugin() -> Pi05Config:
    """pi0.5 with kinematic tokens of five joints in two chunks, Mix and FiLM."""
    return PLUGIN


@pytest.fixture(scope="session")
def params() -> Any:
    """Parameters of `plugin`; those of `host` are the same without `morphology`."""
    return draw_params(PLUGIN)


@pytest.fixture(scope="session")
def body() -> Any:
    """`draw_body(joints, places)`."""
    return draw_body


@pytest.fixture(scope="session")
def seen() -> Observation:
    """Three cameras, one of them absent from the second row; prompts of two lengths; two bodies."""
    rng = np.random.default_rng(2)
    images = {name: rng.uniform(-1, 1, (BATCH, 21, 21, 3)).astype(np.float32) for name in HOST.cameras}
    masks: dict[str, np.ndarray] = {name: np.ones(BATCH, bool) for name in HOST.cameras}
    masks[HOST.cameras[2]] = np.array([True, False])
    tokens = rng.integers(2, 37, (BATCH, 11)).astype(np.int32)
    return Observation(images, masks, tokens, np.arange(11) < np.array([[11], [8]]), draw_body())


@pytest.fixture(scope="session")
def chunk() -> Any:
    """Actions, and three noise draws with their times: [b h a], [n b h a], [n b]."""
    rng = np.random.default_rng(3)
    actions = rng.normal(size=(BATCH, 6, 7)).astype(np.float32)
    noise = rng.normal(size=(3, BATCH, 6, 7)).astype(np.float32)
    return actions, noise, rng.uniform(0.05, 0.95, (3, BATCH)).astype(np.float32)
