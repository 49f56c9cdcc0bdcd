"""The parts of a model of any family: pi0.5's (`pi05.parts`), and those of the families on state.

part           parameters
tokenizer      tokenizer/...: from a node's values to its embedding
encoder        encoder/...: between the nodes
detokenizer    detokenizer/...: from a joint's embedding to its actions
bins           bins/...: kinds of action chunk, which a stage before training finds (`Family.fit`)
memory         memory/...: recorded rows, which that stage keeps
"""

from typing import Literal, cast, get_args

from morph_vla.pi05 import parts as pi05

StatePart = Literal["tokenizer", "encoder", "detokenizer", "memory"]
Part = pi05.Part | StatePart
STATE_PARTS: tuple[StatePart, ...] = get_args(StatePart)
FITTED: tuple[Part, ...] = ("bins", "memory")  # found before the first step, and never changed by one
PARTS: tuple[Part, ...] = (*pi05.ALL, *STATE_PARTS)


def part_of(leaf: str) -> Part:
    """The part a parameter belongs to, by its name.

    >>> part_of("encoder/layer_0/mlp_in/kernel")
    'encoder'
    """
    top = leaf.partition("/")[0]
    return cast(StatePart, top) if top in STATE_PARTS else pi05.part_of(leaf)
