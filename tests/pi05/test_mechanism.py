"""The plugin inside the host against the paper's equations in NumPy, and the mistakes that must not pass.

Everything else compares the plugin with itself (masks with their drawings, cached with joint, exact with the
host). Here its velocity equals `reference.velocity`, with every parameter random, rows of two robots and
padding; and each mutation of the mechanism moves it away from there.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference
from test_plugin import ACTIONS, ALONE, BATCH, HOST, NOISE, TIME, draw, plugged

from morph_vla.morphology import Body, bias, film, tokens
from morph_vla.pi05 import Pi05, gemma
from morph_vla.pi05 import attention as written_out

# Compiling is most of these tests' time.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})

CLOSE = 1e-4  # of the largest velocity: float32 angles of the time, up to 1257 rad, against float64
JOINTS = 5
VARIANTS: dict[str, dict[str, Any]] = {
    "mix": {"bias": "mix"},
    "spd-soft": {"bias": "spd-soft", "max_distance": 3},
    "adj-soft-v1.0": {"bias": "adj-soft-v1.0", "theta_max": 1.2, "encoder": "linear"},
    "exact": {"bias": "spd-soft", "max_distance": 2, "start": "exact"},
    "chunks and auxiliary": {"bias": "mix", "chunks": 2, "auxiliary": 1},
    "exact, chunks and auxiliary": {"bias": "mix", "start": "exact", "chunks": 3, "auxiliary": 2},
}


def robots() -> Body:
    """An arm of five joints, and three joints of which the middle one holds the others, padded to five."""
    random = np.random.default_rng(13)
    far = np.full((BATCH, JOINTS, JOINTS), 99, np.int32)
    far[0] = np.abs(np.subtract.outer(np.arange(JOINTS), np.arange(JOINTS)))
    far[1, :3, :3] = [[0, 2, 1], [2, 0, 1], [1, 1, 0]]
    far[:, np.arange(JOINTS), np.arange(JOINTS)] = 0
    mask = np.arange(JOINTS) < np.array([[JOINTS], [3]])
    features = random.normal(size=(BATCH, JOINTS, 12)).astype(np.float32)
    return Body(far < 2, far, np.where(mask[:, :, None], features, np.float32(0)), mask)


BODY = robots()


@dataclasses.dataclass(frozen=True)
class Case:
    """A variant with its parameters, and what the reference makes of it."""

    config: Any
    params: Any
    cache: Any
    mask: Any
    wanted: np.ndarray

    def off(self, body: Body = BODY) -> float:
        """How far the model's velocity is from the reference's, in tolerances; compiled anew."""

        def velocity(params: Any, cache: Any, mask: Any, body: Any) -> Any:
            inputs = (cache, mask, x_t(), TIME, body)
            return Pi05(self.config).apply({"params": params}, *inputs, method=Pi05.velocity)

        found: Any = quick(velocity)(self.params, self.cache, self.mask, body)
        difference = float(np.abs(np.asarray(found) - self.wanted).max() / np.abs(self.wanted).max())
        return np.inf if np.isnan(difference) else difference / CLOSE


def x_t() -> Any:
    """Half-way, so that it is neither the actions nor the noise."""
    return 0.4 * ACTIONS + 0.6 * NOISE


@pytest.fixture(scope="module")
def host() -> Any:
    """The host's parameters, and what its prefix leaves in the cache."""
    params = draw(HOST, 0.3)

    def prefix(params: Any, seen: Any) -> Any:
        return Pi05(HOST).apply({"params": params}, seen, method=Pi05.prefix)

    return params, *quick(prefix)(params, ALONE)


@pytest.fixture(scope="module")
def case(host) -> Callable[[str], Case]:
    """The case of a variant, made once."""
    made: dict[str, Case] = {}

    def of(name: str) -> Case:
        if name not in made:
            params, cache, mask = host
            config = plugged(**VARIANTS[name])
            # Strengths of the size of logits, so that no mistake in them is small.
            new = draw(config, 0.3)["morphology"]
            new = {**new, **{key: 3 * new[key] for key in ("gate",) if key in new}}
            if "bias" in new:
                new["bias"] = {"theta": 4 * new["bias"]["theta"]}
            assert all(np.asarray(leaf).all() for leaf in jax.tree.leaves(new))
            params = {**params, "morphology": new}
            wanted = reference.velocity(config, params, cache, np.asarray(mask), x_t(), TIME, BODY)
            made[name] = Case(config, params, cache, mask, wanted)
        return made[name]

    return of


@pytest.mark.parametrize("name", VARIANTS)
def test_the_velocity_is_the_references(case, name):
    assert case(name).off() < 1


# ---------------------------------------- mistakes


class Instead(ModuleType):
    """A module as one file sees it, with some of its names replaced."""

    def __init__(self, module: Any, **names: Any):
        super().__init__(module.__name__)
        self._module = module
        self.__dict__.update(names)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def read(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Kinematic tokens of a changed x_t."""
    real: Any = tokens.split_chunks
    return lambda patch: patch.setattr(
        tokens, "split_chunks", lambda actions, joints, chunks: real(change(actions), joints, chunks)
    )


def per_layer(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Other biases in the layers."""
    real: Any = gemma.PerLayer
    return lambda patch: patch.setattr(
        gemma, "PerLayer", lambda bias=None, *rest: real(None if bias is None else change(bias), *rest)
    )


def attention(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Another mask."""
    real: Any = gemma.attention_weights
    return lambda patch: patch.setattr(
        gemma, "attention_weights", lambda q, k, mask, bias: real(q, k, change(mask), bias)
    )


def among_themselves(mask: Any) -> Any:
    """Kinematic tokens see neither prefix nor actions."""
    queries, keys = mask.shape[1:]
    new = jnp.arange(queries) >= HOST.horizon
    old = jnp.arange(keys) < keys - (queries - HOST.horizon)
    return mask & ~(new[:, None] & old[None])


def modulation(change: Callable[[Any, Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """FiLM's result is changed, given what went in."""
    real: Any = film.modulate
    return lambda patch: patch.setattr(
        film, "modulate", lambda z, gamma, beta: change(z, real(z, gamma, beta))
    )


def rotation(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    """Other rotary places."""
    real: Any = gemma.rotate
    return lambda patch: patch.setattr(gemma, "rotate", lambda x, positions: real(x, change(positions)))


def ungated(patch: pytest.MonkeyPatch) -> None:
    """The residual gates of adaRMS leave kinematic tokens alone."""
    real: Any = gemma._residual

    def residual(old: Any, new: Any, gates: Any) -> Any:
        out, plain = real(old, new, gates), real(old, new, [None] * len(gates))
        merged = jnp.concatenate([out[1][:, : HOST.horizon], plain[1][:, HOST.horizon :]], axis=1)
        return [out[0], merged]

    patch.setattr(gemma, "_residual", residual)


def everybody_near(patch: pytest.MonkeyPatch) -> None:
    """Every two joints lie at distance 1."""
    real: Any = bias.spd_bias
    patch.setattr(bias, "spd_bias", lambda theta, distances: real(theta, jnp.minimum(distances, 1)))


BREAKS: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "a joint's token reads the column before": ("mix", read(lambda x: jnp.roll(x, 1, -1))),
    "tokens read the chunk backwards": ("mix", read(lambda x: x[:, ::-1])),
    "GeGLU for SwiGLU": ("mix", lambda patch: patch.setattr(tokens, "nn", Instead(nn, silu=nn.gelu))),
    "FiLM skips auxiliary tokens": (
        "chunks and auxiliary",
        modulation(lambda z, out: jnp.concatenate([out[:, : z.shape[1] // 2], z[:, z.shape[1] // 2 :]], 1)),
    ),
    "kinematic tokens at one rotary place": (
        "chunks and auxiliary",
        rotation(lambda places: jnp.minimum(places, places[:, HOST.horizon, None])),
    ),
    "kinematic tokens start again at the actions' places": (
        "mix",
        rotation(lambda places: jnp.where(jnp.arange(places.shape[1]) < HOST.horizon, places, places - 6)),
    ),
    "kinematic tokens see neither prefix nor actions": ("mix", attention(among_themselves)),
    "joints pushed off prefix and actions": (
        "mix",
        lambda patch: patch.setattr(
            written_out, "jnp", Instead(jnp, pad=lambda x, widths: jnp.pad(x, widths, constant_values=-1))
        ),
    ),
    "biases of the layers reversed": ("mix", per_layer(lambda bias: bias[::-1])),
    "soft biases halved": ("spd-soft", per_layer(lambda bias: bias / 2)),
    "soft biases transposed": ("adj-soft-v1.0", per_layer(lambda bias: bias.swapaxes(-1, -2))),
    "exact's gate per channel, not per head": (
        "exact",
        lambda patch: patch.setattr(gemma, "jnp", Instead(jnp, repeat=jnp.tile)),
    ),
    "every two joints at distance 1": ("spd-soft", everybody_near),
    "kinematic tokens without adaRMS's gates": ("mix", ungated),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_a_mistake_in_the_mechanism_is_noticed(case, monkeypatch, name):
    variant, break_it = BREAKS[name]
    intact = case(variant)
    break_it(monkeypatch)
    assert intact.off() > 10


SEES: dict[str, Callable[[Body], Body]] = {
    "contact features": lambda body: dataclasses.replace(
        body, descriptors=np.where(np.arange(12) < 7, body.descriptors, np.float32(0))
    ),
    "type, axis and limits": lambda body: dataclasses.replace(
        body, descriptors=np.where(np.arange(12) < 7, np.float32(0), body.descriptors)
    ),
    "whose descriptors": lambda body: dataclasses.replace(
        body, descriptors=np.roll(body.descriptors, 1, axis=0)
    ),
    "the graph": lambda body: dataclasses.replace(body, adjacency=np.roll(body.adjacency, 1, axis=0)),
    "which joints are padding": lambda body: dataclasses.replace(
        body, joint_mask=np.ones_like(body.joint_mask)
    ),
}


@pytest.mark.parametrize("name", SEES)
def test_something_of_the_body_ignored_is_noticed(case, name):
    assert case("mix").off(SEES[name](BODY)) > 10
