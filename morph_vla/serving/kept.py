"""Which patches of the camera pictures a policy keeps, with the pictures, over an episode."""

import base64
import io
from functools import partial
from typing import Any

import jax
import numpy as np
from jaxtyping import UInt8

from morph_vla.errors import MorphVlaError
from morph_vla.pi05 import Pi05Config
from morph_vla.pi05.kept import cameras, kept
from morph_vla.serving.policy import CheckpointPolicy
from morph_vla.serving.watched import Watched, batches

MOMENTS = 6  # of an episode, evenly chosen
QUALITY = 85  # of a picture, as JPEG: 224 pixels square are about 10 kB


def of_episode(policy: CheckpointPolicy, watched: Watched) -> dict[str, Any]:
    """At some moments of an episode every camera's picture, as the model has it, and its patches' weights.

    `how` is that of `model.image_tokens`, `all` without it; weights are those of `pi05.kept`. Raises
    MorphVlaError for a policy that sees no pictures.
    """
    config, episode, steps = policy.config, len(watched.observations), []
    if not isinstance(config, Pi05Config) or not policy.cameras:
        raise MorphVlaError(f"{policy.folder}: this policy sees no pictures, so it keeps no image tokens")
    places = sorted({round(i * (episode - 1) / (MOMENTS - 1)) for i in range(MOMENTS)})
    weigh, names, place = jax.jit(partial(kept, config)), (), 0
    # A policy that looks back has to be shown all of them, in order.
    for count, ready in batches(policy, watched.observations):
        names, wanted = cameras(config, ready), set(places) & set(range(place, place + count))
        weights = np.asarray(weigh(policy.params, ready)) if wanted else np.zeros(0)
        for row in sorted(at - place for at in wanted):
            views = [
                {"picture": _jpeg(np.asarray(ready.images[name])[row]), "weights": known.round(4).tolist()}
                for name, known in zip(names, weights[row], strict=True)
            ]
            steps.append({**watched.moments[place + row], "cameras": views})
        place += count
    fewer = config.image_tokens
    return {
        "how": "all" if fewer is None else fewer.how,
        "keep": config.kept,
        "patches": config.patches,
        "cameras": [policy.cameras[name] for name in names],
        "steps": steps,
        "episode": watched.facts,
    }


def _jpeg(picture: UInt8[np.ndarray, "h w 3"]) -> str:
    """In base64."""
    from PIL import Image

    written = io.BytesIO()
    Image.fromarray(picture).save(written, "JPEG", quality=QUALITY)
    return base64.b64encode(written.getvalue()).decode("ascii")
