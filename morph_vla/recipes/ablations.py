"""The grid of the paper's Tables 1 to 5 and 11, and variants of ours, as changes to any recipe.

    morph-vla train pi05_droid@table1.tokens-mix-film

Source: "Embedding Morphology into Transformers for Cross-Robot Policy Learning". A variant sets every key of
the plugin that the tables vary, so that what it is does not depend on the recipe it is put on: on the small
recipe it is the twin of what it is at full size. Where the paper is silent: auxiliary tokens are M = 1, and
what Table 11 calls a warm start goes on from the last checkpoint of the variant named, in
`runs/RECIPE@VARIANT`.

Encoder linear-swiglu-linear throughout (Appendix C.4). Success rates are percentages over the robot's tasks,
with the half-width of their 95% Wilson interval, n = 300 per condition.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from morph_vla.errors import ConfigError, nearest
from morph_vla.files import dropin

DROID = "DROID (Franka Panda), three tasks; action expert alone, 1/8 of the data, 100k steps"
G1 = "Unitree G1 Dex1, one task; everything trained, 60k steps"
MARK = "@"  # between a recipe's name and a variant's


@dataclasses.dataclass(frozen=True)
class Variant:
    """One row of a table."""

    table: int  # 0: none of the paper's
    name: str  # table1.tokens-mix-film
    overrides: tuple[str, ...]
    success: float | None = None  # the paper's average success rate [%]
    half_width: float | None = None  # of its interval [%]
    measured_on: str = ""
    same_as: str = ""  # an earlier row with the same settings on the same data; tables round differently
    warm_start: str = ""  # the variant whose last checkpoint it begins from


def _plugin(
    bias: str = "none", init: str = "zero", film: bool = False, chunks: int = 1, auxiliary: int = 0,
    descriptors: str = "paper", poses: str = "none", readout: str = "actions",
) -> tuple[str, ...]:  # fmt: skip
    keys = {
        "chunks": chunks, "auxiliary": auxiliary, "encoder": "linear-swiglu-linear", "hidden": 0,
        "bias": bias, "bias_init": init, "film": str(film).lower(), "control": "none", "control_seed": 0,
        "start": "paper", "descriptors": descriptors, "poses": poses, "history": "null",
        "readout": readout,
    }  # fmt: skip
    return tuple(f"model.morphology.{key}={value}" for key, value in keys.items())


HOST = ("model.morphology=null",)
_TABLE_1 = {
    "baseline": (HOST, 19.7, 4.5), "tokens": (_plugin(), 36.0, 5.4),
    "tokens-full": (_plugin("full"), 30.1, 5.2),
    "tokens-mix": (_plugin("mix"), 36.9, 5.4), "tokens-soft": (_plugin("spd-soft"), 26.1, 4.9),
    "tokens-film": (_plugin(film=True), 37.7, 5.5), "tokens-mix-film": (_plugin("mix", film=True), 47.4, 5.6),
}  # fmt: skip
_TABLE_2 = {
    "baseline": (HOST, 24.7, 4.9), "tokens": (_plugin(), 24.3, 4.9),
    "tokens-full": (_plugin("full"), 23.8, 4.8),
    "tokens-mix": (_plugin("mix"), 27.3, 5.0), "tokens-film": (_plugin(film=True), 25.3, 4.9),
    "tokens-mix-film": (_plugin("mix", film=True), 28.0, 5.0),
}  # fmt: skip
_TABLE_3 = {
    f"chunks-{g}": (_plugin(chunks=g), success, half)
    for g, success, half in ((1, 36.0, 5.4), (2, 35.8, 5.4), (4, 34.4, 5.3), (8, 30.5, 5.2), (16, 33.3, 5.3))
}
_TABLE_4 = {
    "tokens": (_plugin(), 36.0, 5.4), "tokens-auxiliary": (_plugin(auxiliary=1), 37.0, 5.4),
    "full": (_plugin("full"), 30.3, 5.2), "full-auxiliary": (_plugin("full", auxiliary=1), 33.0, 5.3),
    "mix": (_plugin("mix"), 37.0, 5.4), "mix-auxiliary": (_plugin("mix", auxiliary=1), 47.3, 5.6),
}  # fmt: skip
_TABLE_5 = {
    f"soft-{init}": (_plugin("spd-soft", init), success, half)
    for init, success, half in (
        ("zero", 26.1, 4.9), ("hard", 25.1, 4.9), ("mix", 28.1, 5.1), ("linear", 20.4, 4.5),
    )
}  # fmt: skip
_TABLE_11 = {
    f"soft-{version}-{init}": (
        _plugin("spd-soft" if version == "v3.0" else f"adj-soft-{version}", init), success, half
    )
    for version, init, success, half in (
        ("v1.0", "zero", 25.9, 4.9), ("v1.0", "hard", 25.4, 4.9), ("v1.1", "zero", 26.4, 5.0),
        ("v1.1", "hard", 29.5, 5.1), ("v2.0", "zero", 34.4, 5.3), ("v2.0", "hard", 23.0, 4.7),
        ("v3.0", "zero", 26.1, 4.9), ("v3.0", "hard", 25.1, 4.9), ("v3.0", "mix", 28.1, 5.1),
        ("v3.0", "linear", 20.4, 4.5),
    )
}  # fmt: skip
_WARM = {
    "soft-v3.0-after-tokens": (_plugin("spd-soft"), 25.8, 4.9, "table1.tokens"),
    "soft-v3.0-after-mix": (_plugin("spd-soft"), 28.9, 5.1, "table1.tokens-mix"),
}
_OF_ANY = "data.statistics=robot", "data.actions=delta"  # one number for one motion, whichever robot it is
_OURS = {  # Mix and FiLM, with what a joint is said otherwise, where it is now, and its own readout
    "film-geometry": _plugin("mix", film=True, descriptors="geometry"),
    "present-poses": _plugin("mix", film=True, poses="present"),
    "film-geometry-present-poses": _plugin("mix", film=True, descriptors="geometry", poses="present"),
    "joint-readout": _plugin("mix", film=True, readout="joints"),
    "all": _plugin("mix", film=True, descriptors="geometry", poses="present", readout="joints"),
    "tool": (*HOST, "data.space=tool", *_OF_ANY),  # no plugin: kinematics stands between model and joints
    "hand": (*HOST, "data.space=hand", *_OF_ANY),  # the same, from where the hand is
}
_TABLES = {1: _TABLE_1, 2: _TABLE_2, 3: _TABLE_3, 4: _TABLE_4, 5: _TABLE_5, 11: _TABLE_11}


def _rows() -> dict[str, Variant]:
    variants: dict[str, Variant] = {}
    for table, rows in _TABLES.items():
        on = G1 if table == 2 else DROID
        for short, (overrides, success, half) in rows.items():
            name = f"table{table}.{short}"
            same = [v.name for v in variants.values() if (v.overrides, v.measured_on) == (overrides, on)]
            variants[name] = Variant(table, name, overrides, success, half, on, *same[:1])
    for short, (overrides, success, half, start) in _WARM.items():
        name = f"table11.{short}"
        variants[name] = Variant(11, name, overrides, success, half, DROID, warm_start=start)
    return variants | {
        f"ours.{short}": Variant(0, f"ours.{short}", overrides) for short, overrides in _OURS.items()
    }


VARIANTS = _rows()


def split(name: str | Path, folders: Sequence[Path | str] = ()) -> tuple[str, str]:
    """A recipe's name and the variant's, "" where there is none.

    The path of a file is never taken apart, nor the name of a recipe that has the mark itself.
    """
    text = str(name)
    recipe, mark, variant = text.rpartition(MARK)
    whole = not mark or Path(text).is_file() or text in dropin.available("recipes", folders)
    return (text, "") if whole else (recipe, variant)


def overrides_of(recipe: str, variant: str, steps: int) -> Sequence[str]:
    """What a variant changes in a recipe of that many training steps, which tell where a warm start lies.

    Raises ConfigError, naming the nearest, for an unknown variant.
    """
    if variant not in VARIANTS:
        raise ConfigError(
            f"no variant '{variant}'{nearest(variant, VARIANTS)} (`morph-vla recipes variants` lists them)"
        )
    row = VARIANTS[variant]
    if not row.warm_start:
        return row.overrides
    start = f"runs/{Path(recipe).stem}{MARK}{row.warm_start}/checkpoints/{steps}"
    return (*row.overrides, f"weights={start}")
