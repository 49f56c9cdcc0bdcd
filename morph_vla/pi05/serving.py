"""Parameters ready to serve: every weight in the type that the model multiplies it in.

Trained parameters and their average are float32, and a bfloat16 model rounds most of them whenever it uses
them: 18 layers, ten times a call. Rounded once, as they are read, they take half the memory, and the actions
are the same, bit for bit. Norms' scales, patches, positions, embeddings, projections, the plugin and low-rank
pairs are used in the type that they have, and stay.
"""

import re

from morph_vla.pi05.config import Pi05Config

ROUNDED = re.compile(
    r"PaliGemma/llm/layers/attn/(q|kv|attn_vec)_einsum(_1)?/w"
    r"|PaliGemma/llm/layers/mlp(_1)?/(gating_einsum|linear)"
    r"|PaliGemma/llm/.*norm_1/Dense_0/(kernel|bias)"  # adaRMS
    r"|PaliGemma/img/Transformer/.*/(kernel|bias)"
    r"|PaliGemma/img/head/(kernel|bias)"
)
NORM = re.compile(r"PaliGemma/img/.*norm|.*LayerNorm")


def served_type(config: Pi05Config, leaf: str) -> str | None:
    """The type that a leaf of that name is served in; None leaves it as it is.

    >>> served_type(Pi05Config(), "PaliGemma/llm/layers/mlp_1/linear")
    'bfloat16'
    """
    rounded = ROUNDED.fullmatch(leaf) and not NORM.match(leaf)
    return config.dtype if rounded and config.dtype != "float32" else None
