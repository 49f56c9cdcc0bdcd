"""A SO101's dataset without a fault, recipes for it, and what a check says of them."""

import json
import re
from pathlib import Path

import numpy as np

from morph_vla.checks import recipe as check
from morph_vla.recipes import recipe as config

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
NAMES = [f"{joint}.pos" for joint in JOINTS]
LENGTHS = (11, 13, 7, 17, 5)
BOTH = ("action", "observation.state")
BYTES = ["tokenizer=bytes", "model.vocab=520", "data.phases={}"]


def episodes(scale: float = 1.0) -> list[dict]:
    """A SO101 that swings through some 40 degrees and opens and closes its gripper."""
    results = []
    for number, count in enumerate(LENGTHS):
        phase = 0.1 * np.arange(count)[:, None] + np.arange(6) + number
        state = 20 * np.sin(phase)
        state[:, 5] = 50 + 49 * np.cos(phase[:, 5])
        action = state + 0.8 * np.cos(phase)
        action[:, 5] = np.clip(action[:, 5], 0, 100)
        results.append({"observation.state": scale * state, "action": scale * action})
    return results


def recipe_of(root: Path | str, *overrides: str) -> config.Recipe:
    cameras = "data.cameras={base_0_rgb: front, left_wrist_0_rgb: wrist}"
    given = [f"data.dataset={root}", "data.robot=so101", cameras, "model.max_tokens=61", "data.held_out=0.4"]
    return config.load("panda_demo", [*given, *BYTES, *overrides])


def check_sentences(root: Path | str, *overrides: str, notes: bool = False) -> list[str]:
    report = check.check(recipe_of(root, *overrides))
    return [str(p) for p in report.problems if notes or p.severity != "note"]


def once(sentences: list[str], pattern: str) -> bool:
    """Whether exactly one of the sentences is this, whole."""
    return sum(re.fullmatch(pattern, sentence) is not None for sentence in sentences) == 1


def edit_info(root: Path, **changes) -> None:
    path = root / "meta/info.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_table(path: Path, change) -> None:
    from pyarrow import parquet

    parquet.write_table(change(parquet.read_table(path)), path)


def replaced(table, name: str, values):
    import pyarrow as pa

    at = table.schema.get_field_index(name)
    return table.set_column(at, name, pa.array(values, table.schema.field(name).type))
