"""LeRobot's own pi0.5, tiny, with random weights: `make test-oracle`, in an environment of its own.

Its transformers is not the one of the main environment, so these tests are collected only there, where the
target sets MORPH_VLA_ORACLE.
"""

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from morph_vla.pi05 import GemmaConfig, Pi05Config, VitConfig

collect_ignore_glob = [] if os.environ.get("MORPH_VLA_ORACLE") else ["test_*.py"]

BATCH, STEPS = 2, 10

# LeRobot fixes 8 heads and one head of keys, and wants two layers at least.
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


def make_it_small(modeling: Any) -> None:
    """Replace the three names of LeRobot's module that fix its sizes."""
    sizes = {"gemma_2b": ODD.prefix, "gemma_300m": ODD.expert}
    paligemma, causal = modeling.PaliGemmaForConditionalGenerationWithPiGemma, modeling.PiGemmaForCausalLM

    def gemma_config(variant: str) -> Any:
        chosen = sizes[variant]
        return modeling.GemmaConfig(
            chosen.width, ODD.depth, chosen.mlp_dim, ODD.heads, ODD.kv_heads, ODD.head_dim
        )

    def small_paligemma(config: Any) -> Any:
        vision = config.vision_config
        vision.hidden_size, vision.num_hidden_layers = ODD.vit.width, ODD.vit.depth
        vision.num_attention_heads, vision.patch_size = ODD.vit.heads, ODD.vit.patch
        vision.intermediate_size = ODD.vit.mlp_dim
        vision.projection_dim = config.projection_dim = ODD.prefix.width
        config.text_config.vocab_size = ODD.vocab
        return paligemma(config=config)

    def small_causal(config: Any) -> Any:
        config.vocab_size = ODD.vocab
        return causal(config=config)

    modeling.get_gemma_config = gemma_config
    modeling.PaliGemmaForConditionalGenerationWithPiGemma = small_paligemma
    modeling.PiGemmaForCausalLM = small_causal


def sinusoid32(time: Any, dimension: int, min_period: float, max_period: float, device: Any = "cpu") -> Any:
    """The embedding of the time in float32, as openpi computes it; LeRobot's own is in float64."""
    import torch

    fraction = torch.linspace(0.0, 1.0, dimension // 2, dtype=torch.float32)
    period = min_period * (max_period / min_period) ** fraction
    angles = (2 * torch.pi / period)[None] * time[:, None]
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)


@pytest.fixture(scope="session")
def theirs() -> SimpleNamespace:
    """LeRobot's classes, made small: `new(seed)` makes a policy with random weights."""
    import torch
    from lerobot.policies.pi05 import modeling_pi05 as modeling
    from lerobot.policies.pi05.configuration_pi05 import PI05Config

    make_it_small(modeling)
    torch.set_num_threads(1)

    def config() -> Any:
        return PI05Config(
            image_resolution=(ODD.image_size, ODD.image_size),
            chunk_size=ODD.horizon,
            n_action_steps=ODD.horizon,
            max_action_dim=ODD.action_dim,
            max_state_dim=ODD.action_dim,
            tokenizer_max_length=ODD.max_tokens,
            device="cpu",
            dtype="float32",
        )

    def new(seed: int) -> Any:
        generator = torch.Generator().manual_seed(seed)
        policy = modeling.PI05Policy(config()).eval()
        with torch.no_grad():
            for name, parameter in policy.named_parameters():
                scale = 0.02 if name.endswith("bias") or "norm" in name else 1 / parameter[0].numel() ** 0.5
                parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
        return policy

    return SimpleNamespace(torch=torch, modeling=modeling, new=new, Config=PI05Config)


@pytest.fixture(params=["float64", "float32"])
def sinusoid(request: pytest.FixtureRequest, theirs: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> str:
    """The time's embedding in LeRobot: in float64, as it is shipped, or in float32, as in openpi."""
    if request.param == "float32":
        monkeypatch.setattr(theirs.modeling, "create_sinusoidal_pos_embedding", sinusoid32)
    return request.param


@pytest.fixture(scope="session")
def inputs() -> SimpleNamespace:
    """What both models are given: three cameras, one of them absent in one row; prompts of two lengths."""
    rng = np.random.default_rng(5)
    size = (BATCH, ODD.image_size, ODD.image_size, 3)
    shape = (BATCH, ODD.horizon, ODD.action_dim)
    masks = {name: np.ones(BATCH, bool) for name in ODD.cameras}
    masks[ODD.cameras[1]][1] = False
    return SimpleNamespace(
        images={name: rng.uniform(-1, 1, size).astype(np.float32) for name in ODD.cameras},
        masks=masks,
        tokens=rng.integers(2, ODD.vocab, (BATCH, ODD.max_tokens)).astype(np.int32),
        token_mask=np.arange(ODD.max_tokens) < np.array([[ODD.max_tokens], [13]]),
        actions=rng.normal(size=shape).astype(np.float32),
        noise=rng.normal(size=shape).astype(np.float32),
        time=np.array([0.23, 0.87], np.float32),
    )


@pytest.fixture(scope="session")
def odd() -> Pi05Config:
    """The sizes of both."""
    return ODD
