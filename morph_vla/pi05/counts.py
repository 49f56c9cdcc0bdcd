"""Parameters, tokens and floating-point operations of a model, counted without running it.

Operations are those of matrix products, 2 m n k each, forward and backward; what rematerialisation computes
again, and everything element by element, is left out (at the full size both are far smaller).
"""

import dataclasses
import itertools
from functools import lru_cache
from typing import Any

import jax

from morph_vla.morphology import KinematicTokens, MorphologyConfig
from morph_vla.morphology.arrays import features_of
from morph_vla.morphology.poses import POSE
from morph_vla.pi05.config import GemmaConfig, Lora, Pi05Config
from morph_vla.pi05.model import Params, example, init_params
from morph_vla.pi05.parts import ALL, PARTS, by_name, part_of

Shapes = dict[str, Any]  # nested as parameters are, jax.ShapeDtypeStruct at the leaves


def shapes(config: Pi05Config) -> Shapes:
    """All parameters' shapes and types; nothing is allocated."""
    # No leaf depends on these.
    config = dataclasses.replace(config, dtype="float32", remat=False, unroll=False)
    return jax.tree.map(lambda leaf: leaf, _shapes(config))  # whoever asks may change what it got


@lru_cache(64)
def _shapes(config: Pi05Config) -> Shapes:
    """Traced once a model: a second or two at every check, estimate and count."""
    return jax.eval_shape(lambda: init_params(config, jax.random.key(0)))


def plugin_shapes(config: Pi05Config) -> Shapes:
    """Those of the plugin alone, in a fraction of the time."""
    if config.morphology is None:
        return {}
    module = KinematicTokens(config.morphology, config.expert.width, config.depth, config.heads)
    observation, actions, _ = example(dataclasses.replace(config, cameras=()))
    body = observation.body
    assert body is not None

    def everything(plugin: KinematicTokens) -> None:
        """Whatever has parameters, called once."""
        tokens = plugin(actions, body).tokens
        if plugin.config.readout == "joints":
            plugin.velocity(tokens, config.horizon)

    return jax.eval_shape(lambda: module.init(jax.random.key(0), method=everything))["params"]


def parameters(tree: Params | Shapes) -> dict[str, int]:
    """Number of parameters per part, in the order of PARTS; a head's follow where there is one."""
    sizes: dict[str, int] = dict.fromkeys(PARTS, 0)
    for name, leaf in by_name(tree).items():
        part = part_of(name)
        sizes[part] = sizes.get(part, 0) + int(leaf.size)
    return {part: sizes[part] for part in ALL if part in sizes}


def tokens(config: Pi05Config) -> dict[str, int]:
    """Tokens of one observation, every camera there and nothing but padding masked."""
    return {
        "image": len(config.cameras) * config.kept,
        **({"number": config.numbers} if config.numbers else {}),
        "prompt": config.max_tokens,
        "action": config.horizon,
        "kinematic": 0 if config.morphology is None else config.morphology.tokens,
    }


def _read(config: Pi05Config) -> int:
    """Tokens of the prefix."""
    count = tokens(config)
    return count["image"] + config.numbers + count["prompt"]


def _product(rows: int, *widths: int) -> int:
    """A chain of dense layers."""
    return 2 * rows * sum(a * b for a, b in itertools.pairwise(widths))


def vision(config: Pi05Config) -> int:
    """The vision encoder's forward pass over all cameras of one observation."""
    vit, count = config.vit, config.patches
    layer = 4 * _product(count, vit.width, vit.width) + 4 * count * count * vit.width
    layer += _product(count, vit.width, vit.mlp_dim, vit.width)
    ends = _product(count, 3 * vit.patch**2, vit.width) + _product(count, vit.width, config.prefix.width)
    return len(config.cameras) * (vit.depth * layer + ends + _fewer_tokens(config))


def _fewer_tokens(config: Pi05Config) -> int:
    """What ranks or transforms the tokens of one image."""
    fewer, count, width = config.image_tokens, config.patches, config.prefix.width
    if fewer is None or not fewer.learns:
        return 0
    drawn, signs = fewer.projections, (fewer.projections + 1) // 2
    size = {
        "relu": fewer.width,
        "positive": drawn,
        "trigonometric": 2 * drawn,
        "hybrid": 3 * drawn * (signs + 1),
    }
    random = {"relu": 0, "hybrid": 2 * drawn + signs}.get(fewer.features, drawn)
    both = 2 * (_product(count, width, fewer.width) + _product(count, fewer.width, random))
    inner = size[fewer.features]
    if fewer.how == "ranking":
        if fewer.features == "hybrid":  # its signs are summed over the queries first (`ranking.scores_of`)
            return both + _product(signs, count, 3 * drawn) + _product(count, signs, 3 * drawn)
        return both + _product(1, inner, count)
    left = _product(fewer.keep, count, inner, count, width)
    right = _product(inner, count, width) + _product(count, inner, width) + _product(fewer.keep, count, width)
    return both + (left if fewer.keep < width else right) + _product(fewer.keep, count, width)


def _layers(config: Pi05Config, expert: GemmaConfig, rows: int) -> int:
    """Projections and feed-forwards of all layers, without attention."""
    heads, keys = config.heads * config.head_dim, 2 * config.kv_heads * config.head_dim
    layer = _product(rows, expert.width, heads + keys) + _product(rows, heads, expert.width)
    return config.depth * (layer + 3 * _product(rows, expert.width, expert.mlp_dim))


def _attention(config: Pi05Config, queries: int, keys: int) -> int:
    """Logits and mixtures of all layers."""
    return config.depth * 4 * queries * keys * config.heads * config.head_dim


def prefix(config: Pi05Config, forward_only: bool = False) -> int:
    """The language model's forward pass over one observation's images and prompt.

    `forward_only`: the last layer goes as far as its keys and values.
    """
    rows = _read(config)
    if not forward_only:
        return _layers(config, config.prefix, rows) + _attention(config, rows, rows)
    before = dataclasses.replace(config, depth=config.depth - 1)
    keys = (config.heads + 2 * config.kv_heads) * config.head_dim
    return prefix(before) + _product(rows, config.prefix.width, keys)


def plugin(config: Pi05Config) -> int:
    """Encoders, FiLM, poses and history for one action chunk."""
    morphology, width = config.morphology, config.expert.width
    if morphology is None:
        return 0
    size, inner = config.horizon // morphology.chunks, morphology.hidden or width
    read, total, past = [(morphology.tokens, size)], 0, morphology.history
    if past is not None:
        read.append((morphology.max_joints, past.values))
        total += _product(morphology.max_joints, past.steps, past.values)
    for rows, values in read:
        if morphology.encoder == "linear-swiglu-linear":
            total += _product(rows, values, 2 * inner) + _product(rows, inner, width)
        else:
            total += _product(rows, values, width)
    if morphology.control == "tokens":
        total += _product(config.horizon, morphology.max_joints, morphology.max_joints)
    if morphology.poses == "present":
        total += _product(morphology.max_joints, POSE, width)
    if morphology.readout == "joints":
        total += _product(morphology.max_joints * morphology.chunks, width, size)
    if morphology.film:
        total += _product(morphology.tokens, len(features_of(morphology)), 2 * width)
    return total


def conditioning(config: Pi05Config) -> int:
    """The time's two layers and every adaRMS projection, for one time."""
    width = config.expert.width
    return _product(1, width, width, width) + (2 * config.depth + 1) * _product(1, width, 3 * width)


def suffix(config: Pi05Config) -> int:
    """The action expert's forward pass over one noisy chunk, or a head's queries; conditioning left out."""
    count, width = tokens(config), config.expert.width
    rows = count["action"] + count["kinematic"]
    read = config.action_dim if config.head is None else config.head.bins * (1 + config.action_dim)
    ends = _product(count["action"], config.action_dim, width) + _product(count["action"], width, read)
    keys = rows + _read(config)
    return ends + plugin(config) + _layers(config, config.expert, rows) + _attention(config, rows, keys)


def training_step(config: Pi05Config, batch: int, draws: int, kind: str) -> int:
    """One step over `batch` observations with `draws` noise draws each.

    `full`: backward passes cost two forward ones. `expert`: the prefix runs forward only, and no gradient
    flows into its keys and values, unless the model reads an `environment`. `lora`: a frozen weight's
    backward pass costs one forward one, that of its input, and what comes before the first weight that learns
    costs none; see `Lora` for which those are.
    """
    if kind == "lora":
        return _paired_step(config, batch, draws)
    count, each, read = tokens(config), suffix(config) + conditioning(config), _read(config)
    if kind == "full":
        return 3 * batch * (vision(config) + prefix(config) + draws * each)
    if config.environment:  # projections that learn come before the prefix
        once = vision(config) + 2 * _layers(config, config.prefix, read) + 3 * _attention(config, read, read)
        return batch * (once + draws * 3 * each)
    once = vision(config) + prefix(config, forward_only=True)
    rows = count["action"] + count["kinematic"]
    spared = _attention(config, rows, read)
    return batch * (once + draws * (3 * each - spared))


def _paired_step(config: Pi05Config, batch: int, draws: int) -> int:
    lora, count, width = config.lora or Lora(), tokens(config), config.expert.width
    rows, own = _read(config), count["action"] + count["kinematic"]
    sees, reads = "vision encoder" in lora.whole, "language model" in lora.whole
    once = vision(config) * (3 if sees else 1)
    if reads or sees or lora.language_model is not None or config.environment:
        once += _layers(config, config.prefix, rows) * (3 if reads else 2)
        once += 3 * (_attention(config, rows, rows) + _pairs(config, 0, rows))
        spared = 0
    else:
        once, spared = once + prefix(config, forward_only=True), _attention(config, own, rows)
    frozen = _layers(config, config.expert, own) + (2 * config.depth + 1) * _product(1, width, 3 * width)
    frozen = 0 if "action expert" in lora.whole else frozen
    each = 3 * (suffix(config) + conditioning(config) + _pairs(config, 1, own)) - frozen - spared
    return batch * (once + draws * each)


def _pairs(config: Pi05Config, expert: int, rows: int) -> int:
    """The low-rank pairs' products of all layers."""
    lora, size = config.lora or Lora(), (config.prefix, config.expert)[expert]
    heads, keys, total = config.heads, config.heads + 2 * config.kv_heads, 0
    attention, forward = (lora.of(expert, target) for target in ("attention", "feed-forward"))
    if attention is not None:
        total += _product(rows, size.width, keys * attention.rank)
        total += keys * _product(rows, attention.rank, config.head_dim)
        total += _product(rows, heads * config.head_dim, attention.rank, size.width)
    if forward is not None:
        total += 2 * _product(rows, size.width, forward.rank, size.mlp_dim)
        total += _product(rows, size.mlp_dim, forward.rank, size.width)
    return config.depth * total


def sampling_call(config: Pi05Config, steps: int = 10, modulated: bool = True) -> int:
    """One call of `sample_actions` for one observation; `modulated` with its table computed before."""
    each = suffix(config) + (0 if modulated else conditioning(config))
    passes = steps if config.head is None else 1
    return vision(config) + prefix(config, forward_only=True) + passes * each


def variants(config: Pi05Config) -> dict[str, Pi05Config]:
    """This model, its host alone, and the host with each variant of the plugin that its horizon allows.

    Every variant is the paper's main one (tokens, Mix, FiLM; G = 1) with its keys changed.
    """
    own = config.morphology or MorphologyConfig()
    base = MorphologyConfig(max_joints=min(own.max_joints, config.action_dim))
    changes: dict[str, dict[str, Any]] = {
        "tokens": {"bias": "none", "film": False},
        "tokens, linear encoder": {"bias": "none", "film": False, "encoder": "linear"},
        "tokens + Full": {"bias": "full", "film": False},
        "tokens + Mix": {"film": False},
        "tokens + FiLM": {"bias": "none"},
        "tokens + Mix + FiLM": {},
        **{f"  G = {g}": {"chunks": g} for g in (2, 4, 8, 16) if config.horizon % g == 0},
        "  M = 1": {"auxiliary": 1},
        "  SPD-Soft": {"bias": "spd-soft"},
        **{f"  Adj-Soft {v}": {"bias": f"adj-soft-{v}"} for v in ("v1.0", "v1.1", "v2.0")},
        "  start: exact": {"start": "exact"},
        "  descriptors: geometry": {"descriptors": "geometry"},
        "  poses: present": {"poses": "present"},
        "control: random": {"control": "random"},
        "control: tokens": {"control": "tokens", "bias": "none", "film": False},
    }
    plugins = {name: dataclasses.replace(base, **keys) for name, keys in changes.items()}
    models = {"host alone": None, **plugins}
    return {"this recipe": config} | {
        name: dataclasses.replace(config, morphology=plugin) for name, plugin in models.items()
    }
