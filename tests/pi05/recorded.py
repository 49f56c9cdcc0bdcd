"""The recorded runs of openpi in `golden/`: weights, inputs, outputs and gradients at odd sizes.

What each key means and how the files are made again: `golden/README.md`.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from morph_vla.pi05 import GemmaConfig, Observation, Pi05, Pi05Config, VitConfig, loss, sample_actions

FOLDER = Path(__file__).parent / "golden"
NAMES = ("pi05_odd", "pi05_odd_small")
CLOSE = 2e-5

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


class Golden:
    """One recorded file: weights, inputs, and what openpi made of them."""

    def __init__(self, name: str):
        with np.load(FOLDER / f"{name}.npz") as data:
            self.data = {name: jnp.asarray(data[name]) for name in data.files}
        self.params: dict[str, Any] = {}
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

    def __getitem__(self, name: str) -> Any:
        return self.data[name]


def run(config: Pi05Config, params: Any, seen: Observation, actions: Any, noise: Any, time: Any) -> Any:
    """Everything a golden file records but the gradients, under the file's own names.

    `out/v_t`, `out/prefix_out` and `out/suffix_out` come from the joint pass, loss and actions from the
    prefix's cache.
    """
    from morph_vla.pi05 import model as pi05

    def apply(method: Any, *inputs: Any, **options: Any) -> Any:
        return Pi05(config).apply({"params": params}, *inputs, method=method, **options)

    x, _ = pi05.interpolate(actions, noise, time)
    prefix, prefix_mask = apply(Pi05.embed_prefix, seen)
    suffix = apply(Pi05.embed_suffix, x, None).streams[0]
    condition = apply(Pi05.condition, time)
    velocity, state = apply(
        Pi05.velocity_joint,
        seen,
        x,
        time,
        mutable=["intermediates"],
        capture_intermediates=lambda module, _: module.name in ("final_norm", "final_norm_1"),
    )
    norms = state["intermediates"]["PaliGemma"]["llm"]
    error = loss(config, params, seen, actions, noise[None], time[None])[0]
    return {
        "out/prefix": prefix,
        "out/prefix_mask": prefix_mask,
        "out/suffix": suffix,
        "out/cond": condition,
        "out/prefix_out": norms["final_norm"]["__call__"][0][0],
        "out/suffix_out": norms["final_norm_1"]["__call__"][0][0],
        "out/v_t": velocity,
        "out/loss": error.mean(-1),
        "out/actions": sample_actions(config, params, seen, noise, 10),
        "out/actions1": sample_actions(config, params, seen, noise, 1),
    }


# Compiling is most of the time.
quick = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def trained(params, seen, actions, noise, time):
    """The mean loss per action, through the prefix's cache."""
    return loss(ODD, params, seen, actions, noise[None], time[None])[0].mean(-1)


def off(found: Any, wanted: Any) -> float:
    """The largest difference in tolerances: above 1, a golden test is red."""
    difference = float(np.abs(np.asarray(found) - np.asarray(wanted)).max())
    return np.inf if np.isnan(difference) else difference / CLOSE
