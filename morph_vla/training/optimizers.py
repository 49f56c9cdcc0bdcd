"""What turns gradients into updates: AdamW, or Muon for the matrices of a model that begins at random.

Muon (Jordan et al. 2024; optax's implementation) makes the momentum of a matrix orthogonal before it is
applied, so that every direction of it moves as far. Small models from scratch reach a loss in fewer steps;
for weights that AdamW trained this was not measured, and the default is AdamW, as openpi's.
"""

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import optax
from optax.contrib import MuonDimensionNumbers, muon

from morph_vla.pi05.parts import map_named
from morph_vla.policies.parts import Part, part_of
from morph_vla.recipes.keys import Optimizer
from morph_vla.training.kinds import Params, norms

LOG = logging.getLogger(__name__)


def make_optimizer(
    config: Optimizer, steps: int
) -> tuple[optax.GradientTransformation, Callable[[Any], Any]]:
    """The optimizer behind a clip, with linear warm-up and cosine decay; and the schedule of AdamW."""
    if config.warmup >= steps:
        LOG.warning("optimizer.warmup: %d of %d steps: the rate only rises", config.warmup, steps)
    schedule = _schedule(config, config.peak_lr, steps)
    clip = (clip_apart if config.clip_parts == "apart" else optax.clip_by_global_norm)(config.clip)
    slow = [] if config.plugin_lr_share == 1 else [slowed("morphology", config.plugin_lr_share)]
    adam = optax.adamw(
        schedule, b1=config.b1, b2=config.b2, eps=config.eps, weight_decay=config.weight_decay, mask=_decayed
    )
    if config.kind == "adamw":
        return optax.chain(clip, adam, *slow), schedule
    by_matrix = muon(
        _schedule(config, config.matrix_lr, steps),
        weight_decay=config.weight_decay,
        muon_weight_dimension_numbers=lambda params: map_named(_axes, params),
    )
    return optax.chain(clip, optax.partition({"matrix": by_matrix, "other": adam}, _labels), *slow), schedule


def _schedule(config: Optimizer, peak: float, steps: int) -> Callable[[Any], Any]:
    warmup = min(config.warmup, steps - 1)
    return optax.warmup_cosine_decay_schedule(0.0, peak, warmup, steps, peak * config.final_lr_share)


def clip_apart(most: float) -> optax.GradientTransformation:
    """Each part's gradient (`pi05.parts`) scaled to a norm of `most` where it is longer.

    So a part whose gradient is large for a while, as a fresh plugin's is, leaves the others their steps.
    """

    def shortened(updates: Any, params: Any) -> Any:
        del params
        return _times(updates, {part: jnp.minimum(1.0, most / norm) for part, norm in norms(updates).items()})

    return optax.stateless(shortened)


def slowed(part: Part, share: float | int) -> optax.GradientTransformation:
    """Steps of one part `share` times as long: a learning rate of its own."""
    return optax.stateless(lambda updates, params: _times(updates, {part: share}))


def _times(updates: Any, factors: Mapping[Part, Any]) -> Any:
    """Every leaf times its part's factor, in the leaf's own type; parts without one unchanged."""

    def scaled(name: str, leaf: Any) -> Any:
        part = part_of(name)
        return leaf * jnp.asarray(factors[part], leaf.dtype) if part in factors else leaf

    return map_named(scaled, updates)


UNDECAYED = {"bias", "scale", "pos_embedding", "theta", "gate"}
"""Leaves that weight decay leaves alone, stacked over layers or not."""


def _decayed(params: Params) -> Params:
    """Matrices decay; biases, scales, positions and the plugin's learnt biases and gates do not."""
    return map_named(lambda name, x: x.ndim > 1 and name.rpartition("/")[2] not in UNDECAYED, params)


# Leaf (layers and heads stacked in front) -> the axes that a matrix reads from and writes to.
MATRICES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    r"/q_einsum(_1)?/w$": ((-2,), (-3, -1)),  # [l heads width head]
    r"/kv_einsum(_1)?/w$": ((-2,), (-1,)),  # [l 2 heads width head]
    r"/attn_vec_einsum(_1)?/w$": ((-3, -2), (-1,)),  # [l heads head width]
    r"/gating_einsum$": ((-2,), (-1,)),  # [l 2 width mlp]
    r"/mlp(_1)?/linear$": ((-2,), (-1,)),  # [l mlp width]
    r"/(query|key|value)/kernel$": ((-3,), (-2, -1)),  # [l width heads head]
    r"/out/kernel$": ((-3, -2), (-1,)),  # [l heads head width]
    r"/MlpBlock_0/Dense_[01]/kernel$": ((-2,), (-1,)),
    r"/img/head/kernel$": ((-2,), (-1,)),
}


def _axes(name: str, leaf: Any) -> MuonDimensionNumbers | None:
    """Where Muon finds the matrix in a transformer's leaf; None for embeddings, norms, inputs, the plugin."""
    if not name.startswith("PaliGemma/"):
        return None
    for pattern, (into, out) in MATRICES.items():
        if re.search(pattern, name):
            return MuonDimensionNumbers(
                tuple(axis % leaf.ndim for axis in into), tuple(axis % leaf.ndim for axis in out)
            )
    return None


def _labels(params: Params) -> Params:
    return map_named(lambda name, leaf: "other" if _axes(name, leaf) is None else "matrix", params)
