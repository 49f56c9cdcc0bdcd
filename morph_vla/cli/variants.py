"""`morph-vla recipes variants`: the paper's tables as variants of any recipe."""

import argparse
import dataclasses
from typing import Any

from morph_vla.cli.common import print_json, print_table


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments; `--folder` and `--json` are there already."""
    parser.add_argument("name", nargs="?", default="", metavar="RECIPE", help="hold each against this recipe")
    parser.add_argument("--table", type=int, default=0, metavar="N", help="only those of one table")
    parser.add_argument("--names", action="store_true", help="print nothing but names, for a loop")


def run(arguments: argparse.Namespace) -> int:
    """One row per variant; status 1 when the recipe's model refuses one, with the reason."""
    rows = rows_of(arguments.name, arguments.table, arguments.folders)
    if arguments.json:
        print_json(rows)
    elif arguments.names:
        print("\n".join(row["name"] for row in rows if not row["refused"]))
    else:
        cells = [
            (
                row["name"],
                f"{row['success']} +- {row['half_width']}",
                row["measured_on"].partition(",")[0],
                _note(row),
            )
            for row in rows
        ]
        print_table(("variant", "paper [%]", "on", ""), cells, right=(1,))
        for row in rows:
            if row["refused"]:
                print(f"{row['name']}: refused: {row['refused']}")
    return int(any(row["refused"] for row in rows))


def rows_of(recipe: str, table: int = 0, folders: Any = ()) -> list[dict[str, Any]]:
    """The variants, each with `refused`: the reason why `recipe` cannot have it, or nothing."""
    from morph_vla.errors import ConfigError
    from morph_vla.recipes import ablations
    from morph_vla.recipes import recipe as config

    if recipe:
        config.load(recipe, (), folders)  # its own problems are not its variants'
    found = []
    for variant in ablations.VARIANTS.values():
        if table not in (0, variant.table):
            continue
        refused = ""
        try:
            if recipe:
                config.load(f"{recipe}{ablations.MARK}{variant.name}", (), folders)
        except ConfigError as error:
            refused = str(error)
        found.append({**dataclasses.asdict(variant), "refused": refused})
    return found


def _note(row: dict[str, Any]) -> str:
    notes = {
        "same as": row["same_as"],
        "begins from": row["warm_start"],
        "refused": row["refused"] and "see below",
    }
    return ", ".join(f"{word} {value}" for word, value in notes.items() if value)
