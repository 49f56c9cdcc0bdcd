"""Policy families: what a model is to the trainer, to checkpoints and to serving.

A family is a module that has what `family.Family` says: `init`, `loss`, `act` and a few facts about them. The
sizes of its models are a dataclass of `config`; `model.family` in a recipe names it. docs/family.md shows how
one is added.
"""

from morph_vla.policies.family import Asked, Drawn, Family, Pairs, Recorded, of, shapes

__all__ = ["Asked", "Drawn", "Family", "Pairs", "Recorded", "of", "shapes"]
