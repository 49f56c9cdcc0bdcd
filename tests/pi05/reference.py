"""The paper's mechanism a second time, in NumPy and float64: what the suffix says of the velocity.

Written from the paper and `docs/method.md`, token by token and head by head, and with none of the package's
code: kinematic tokens from x_t, FiLM, rotary places, who sees whom, the topology bias, `exact`'s gates. The
prefix is taken as it is (openpi's recorded runs bind it).
"""

from typing import Any

import numpy as np


def velocity(config: Any, params: Any, cache: Any, prefix: Any, x_t: Any, time: Any, body: Any) -> np.ndarray:
    """v(x_t, t | cache) [b h a] of every row; `prefix` [b p] says which cached tokens are real."""
    params, rows = _double(params), range(len(x_t))
    arrays = {name: np.asarray(values) for name, values in vars(body).items() if values is not None}
    return np.stack(
        [
            _row(config, params, [_double(part)[:, row] for part in cache], prefix[row], _double(x_t)[row],
                 float(time[row]), {name: values[row] for name, values in arrays.items()})
            for row in rows
        ]
    )  # fmt: skip


def _double(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _double(branch) for name, branch in tree.items()}
    return np.asarray(tree, np.float64)


def _dense(x: Any, leaf: Any) -> Any:
    return x @ leaf["kernel"] + leaf["bias"]


def _silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def _gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def _tokens(plugin: Any, params: Any, x_t: Any, body: Any) -> np.ndarray:
    """z of joint j in chunk k by encoder m, in that order from the fastest to the slowest (Eq. 6, 2.3)."""
    long, tokens = len(x_t) // plugin.chunks, []
    for m in range(1 + plugin.auxiliary):
        encoder = params[f"auxiliary_{m - 1}" if m else "encoder"]
        for k in range(plugin.chunks):
            for j in range(plugin.max_joints):
                z = x_t[k * long : (k + 1) * long, j]
                if "in" in encoder:
                    gate, value = np.split(_dense(z, encoder["in"]), 2)
                    z = _silu(gate) * value
                z = _dense(z, encoder["out"])
                gamma, beta = np.split(_dense(body["descriptors"][j], params["film"]["generator"]), 2)
                tokens.append((1 + gamma) * z + beta)
    return np.array(tokens)


def _bias(plugin: Any, params: Any, body: Any, layer: int, i: int, j: int) -> float:
    """What is added to the logit of joint i for joint j (Eq. 1-3; Eq. 8, 9 and 12)."""
    near = body["adjacency"][i, j]
    if plugin.bias == "mix":
        return 0.0 if near or layer % 2 else -np.inf
    theta = params["bias"]["theta"][layer]
    if plugin.bias == "spd-soft":
        return theta[min(body["distances"][i, j], plugin.max_distance)]
    assert plugin.bias == "adj-soft-v1.0"
    return 0.0 if near else -np.exp(min(theta[i, j], plugin.theta_max))


def _rotated(x: Any, position: int) -> Any:
    """Halves of a head's vector turned by position / 10,000^(2 i / h)."""
    half = len(x) // 2
    angle = position / 10_000 ** (np.arange(half) / half)
    one, two = x[:half], x[half:]
    return np.concatenate(
        [one * np.cos(angle) - two * np.sin(angle), two * np.cos(angle) + one * np.sin(angle)]
    )


def _norm(x: Any, condition: Any, leaf: Any) -> tuple[Any, Any]:
    """adaRMS: the normed tokens, and the gate of the residual."""
    scale, shift, gate = np.split(_dense(condition, leaf), 3)
    normed = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6)
    return normed * (1 + scale) + shift, gate


def _read(logits: Any, values: Any) -> Any:
    """Values under the softmax of their logits; nothing where none is allowed."""
    weights = np.exp(logits - max(logits.max(), -1e300))
    return weights @ values / max(weights.sum(), 1e-300)


def _row(config: Any, params: Any, cache: Any, prefix: Any, x_t: Any, time: float, body: Any) -> Any:
    plugin, new = config.morphology, params["morphology"]
    x = np.concatenate([_dense(x_t, params["action_in_proj"]), _tokens(plugin, new, x_t, body)])
    real = np.concatenate([np.ones(config.horizon, bool), np.tile(body["joint_mask"], plugin.copies)])
    # Places go on after the prefix's real tokens, and padding takes none.
    positions = [prefix.sum() + real[: i + 1].sum() - 1 for i in range(len(real))]
    seen = np.concatenate([prefix, real])
    periods = np.geomspace(4e-3, 4.0, config.expert.width // 2)
    angles = 2 * np.pi * time / periods
    condition = _silu(_dense(np.concatenate([np.sin(angles), np.cos(angles)]), params["time_mlp_in"]))
    condition = _silu(_dense(condition, params["time_mlp_out"]))
    language = params["PaliGemma"]["llm"]
    for layer in range(config.depth):
        own = _of_layer(language["layers"], layer)
        normed, gate = _norm(x, condition, own["pre_attention_norm_1"]["Dense_0"])
        x = x + gate * _attend(config, new, own["attn"], cache, seen, positions, normed, body, layer)
        normed, gate = _norm(x, condition, own["pre_ffw_norm_1"]["Dense_0"])
        inner, up = own["mlp_1"]["gating_einsum"]
        x = x + gate * (_gelu(normed @ inner) * (normed @ up) @ own["mlp_1"]["linear"])
    last, _ = _norm(x, condition, language["final_norm_1"]["Dense_0"])
    return _dense(last[: config.horizon], params["action_out_proj"])


def _of_layer(tree: Any, layer: int) -> Any:
    return {
        name: _of_layer(branch, layer) if isinstance(branch, dict) else branch[layer]
        for name, branch in tree.items()
    }


def _attend(
    config: Any, new: Any, attn: Any, cache: Any, seen: Any, positions: Any, x: Any, body: Any, layer: int
) -> np.ndarray:
    """What every suffix token reads, head by head, back at the expert's width."""
    plugin, horizon, before = config.morphology, config.horizon, len(seen) - len(x)
    joints, out = plugin.max_joints, np.zeros_like(x)
    for head in range(config.heads):
        group = head // (config.heads // config.kv_heads)
        queries = x @ attn["q_einsum_1"]["w"][head] / np.sqrt(config.head_dim)
        keys, values = (x @ attn["kv_einsum_1"]["w"][part, group] for part in (0, 1))
        keys = np.array([_rotated(key, place) for key, place in zip(keys, positions, strict=True)])
        keys, values = (
            np.concatenate([old[layer, :, group], own])
            for old, own in zip(cache, (keys, values), strict=True)
        )
        for i, place in enumerate(positions):
            logits = np.where(seen, keys @ _rotated(queries[i], place), -np.inf)
            first = before + horizon  # of the kinematic tokens
            if i >= horizon:
                for t in range(len(x) - horizon):
                    logits[first + t] += _bias(plugin, new, body, layer, (i - horizon) % joints, t % joints)
                read = _read(logits, values)
            elif plugin.start == "exact":
                read = _read(logits[:first], values[:first])
                read = read + new["gate"][layer, head] * _read(logits[first:], values[first:])
            else:
                read = _read(logits, values)
            out[i] += read @ attn["attn_vec_einsum_1"]["w"][head]
    return out
