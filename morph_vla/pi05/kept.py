"""Which patches of each camera's image the language model reads, as the model itself chose them.

Whatever `image_tokens.how` says, an image's tokens are a matrix of its patches' tokens. The weight of a patch
is the length of its column, root mean square over channels:

    ranking, random    1 for a patch that is kept as it is, 0 for one that is left out
    average            keep / patches, of every patch
    learnt             what its column of P + gate * (1/L) P A is long
    (none)             1: every patch is read

A patch's token has seen the rest of its image in SigLIP, so that one left out is not unseen.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from morph_vla.pi05.config import Pi05Config
from morph_vla.pi05.model import Pi05
from morph_vla.pi05.observation import Observation


def cameras(config: Pi05Config, observation: Observation) -> tuple[str, ...]:
    """The cameras that the prefix reads, in its order."""
    return tuple(name for name in config.cameras if name in observation.images)


def kept(config: Pi05Config, params: dict[str, Any], observation: Observation) -> Float[Array, "b c p"]:
    """The weight of every patch, in reading order, of each of `cameras`; of one that is masked 0."""
    names = cameras(config, observation)
    masks = [jnp.asarray(observation.image_masks[name]) for name in names]
    seen = jnp.stack([jnp.broadcast_to(mask[:, None], (len(mask), config.patches)) for mask in masks], axis=1)
    if config.image_tokens is None:
        return seen.astype(jnp.float32)
    model, variables = Pi05(config), {"params": params}
    applied: Any = model.apply(variables, observation, method=Pi05.embed_prefix, mutable=["intermediates"])
    _, sown = applied
    weights = sown["intermediates"]["image_tokens"]["weights"][0]
    return jnp.where(seen, weights.reshape(len(names), -1, config.patches).swapaxes(0, 1), 0)
