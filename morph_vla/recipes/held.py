"""The paper's variants and ours held against a recipe: which of them its model can have."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from morph_vla.errors import ConfigError
from morph_vla.recipes import ablations, recipe
from morph_vla.wording import table


@dataclass(frozen=True)
class Held(ablations.Variant):
    """A variant, and why the recipe cannot have it."""

    refused: str = ""
    """"" where it can"""


def variants(name: str = "", table: int = 0, folders: Sequence[str | Path] = ()) -> list[Held]:
    """The variants of one table, or of all (0), each held against the recipe `name`, if one is given.

    Raises ConfigError for what is wrong with the recipe itself, and for a table that has none.
    """
    tables = sorted({variant.table for variant in ablations.VARIANTS.values()} - {0})
    if table not in (0, *tables):
        raise ConfigError(f"no variant is of table {table}; choose {', '.join(map(str, tables))}")
    if name:
        recipe.load(name, (), folders)  # its own problems are not its variants'
    held = []
    for variant in ablations.VARIANTS.values():
        if table in (0, variant.table):
            refused = ""
            try:
                if name:
                    recipe.load(f"{name}{ablations.MARK}{variant.name}", (), folders)
            except ConfigError as error:
                refused = str(error)
            held.append(Held(**vars(variant), refused=refused))
    return held


def listed(held: Sequence[Held]) -> Iterator[str]:
    """The paper's success rate and notes by variant, then why some are refused."""
    rows = []
    for variant in held:
        notes = {"same as": variant.same_as, "begins from": variant.warm_start}
        notes["refused"] = "see below" if variant.refused else ""
        note = ", ".join(f"{word} {value}" for word, value in notes.items() if value)
        rate = "" if variant.success is None else f"{variant.success} +- {variant.half_width}"
        robot = variant.measured_on.partition(",")[0]
        rows.append((variant.name, rate, robot, note))
    yield from table(("variant", "paper [%]", "on", ""), rows, right=(1,))
    yield from (f"{variant.name}: refused: {variant.refused}" for variant in held if variant.refused)
