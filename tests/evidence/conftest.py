"""A grid small enough to run: two bodies, short episodes, poses instead of images."""

import re
from pathlib import Path

import pytest

from morph_vla.demonstrations import recording
from morph_vla.files import dropin
from morph_vla.suites import suite

BODIES = {"panda": ("droid_panda", "small_panda:cube_in_bowl"), "so101": ("so101_pick_orange", "small_so101")}

GRID = """
title: A small study
question: Does the order of attention matter?
recipe: body_state
overrides:
  - "model={family: body, width: 8, depth: 2, heads: 2, mlp_dim: 12, horizon: 4}"
  - training.steps=4
  - training.batch=6
  - training.checkpoint_every=2
  - training.log_every=1
  - optimizer.warmup=1
conditions:
  mix: []
  random: [model.graph=random]
bodies:
  panda: {suite: "small_panda:cube_in_bowl", dataset: FOLDER/panda}
  so101: {suite: small_so101, dataset: FOLDER/so101}
splits:
  both: {train: [panda, so101], judge: [panda, so101], weights: {panda: 8, so101: 2}}
  few: {train: [panda, so101], judge: [so101], episodes: {so101: 2}}
seeds: [0, 1]
episodes: 2
hypotheses:
  H1: {better: mix, than: random}
primary: [few]
minutes: 3
"""


def shorter(name: str, folder: Path, renamed: str) -> None:
    """A shipped suite with episodes of a second and no cameras."""
    text = dropin.find("suites", name).read_text(encoding="utf-8")
    text = re.sub(r"(?m)^episode_seconds: .*$", "episode_seconds: 1", text)
    text = re.sub(r"(?m)^settle_seconds: .*$", "settle_seconds: 0.1", text)
    text = re.sub(r"(?m)^cameras:\n(  .*\n)+", "cameras: {}\n", text)
    (folder / f"{renamed}.yaml").write_text(text, encoding="utf-8")


@pytest.fixture(autouse=True)
def _the_search_path_is_left_as_it_was(monkeypatch):
    """A command of a grid adds its folders to this process's, for those that it starts."""
    monkeypatch.setenv(dropin.PATH_VARIABLE, "")


@pytest.fixture(scope="session")
def study(shared_folder):
    """A folder with `eval`, two datasets and `grid.yaml`."""

    def fill(folder: Path) -> None:
        (folder / "eval").mkdir(parents=True)
        for name, (shipped, label) in BODIES.items():
            shorter(shipped, folder / "eval", label.partition(":")[0])
            alone = shipped if ":" not in label else f"{shipped}:{label.partition(':')[2]}"
            task = suite.load(alone, ["cameras={}", "settle_seconds=0.1"])
            recording.record_part(task, folder / name, range(4))
        (folder / "grid.yaml").write_text(GRID.replace("FOLDER", str(folder)), encoding="utf-8")

    return shared_folder("evidence", fill)
