"""Several datasets in one recipe: what entries of one robot say of each other, and of whose statistics."""

import pytest
from recipe_checks import check_sentences, once

from morph_vla.checks import recipe as check
from morph_vla.files import hub
from morph_vla.recipes import recipe as config

ENTRY = "robot: so101, cameras: {base_0_rgb: front, left_wrist_0_rgb: wrist}"


def sentences(*entries: str, overrides: tuple[str, ...] = ()) -> list[str]:
    data = f"data={{held_out: 0.4, datasets: [{', '.join(f'{{{entry}}}' for entry in entries)}]}}"
    recipe = config.load("panda_demo", [data, "model.max_tokens=61", *overrides])
    return [str(problem) for problem in check.check(recipe).problems]


def test_cameras_that_two_entries_of_a_robot_exchange_are_said(write):
    first, second = write(), write(folder="second")
    turned = "robot: so101, cameras: {base_0_rgb: wrist, left_wrist_0_rgb: front}"
    said = sentences(f"dataset: {first}, {ENTRY}", f"dataset: {second}, {turned}")
    for slot, camera, before in (("base_0_rgb", "wrist", "front"), ("left_wrist_0_rgb", "front", "wrist")):
        assert once(
            said,
            f"warning: data.datasets.1.cameras: '{slot}' of robot 'so101' is '{camera}', and '{before}' in "
            "an entry before it; served, the first one is asked for",
        )
    same = sentences(f"dataset: {first}, {ENTRY}", f"dataset: {second}, {ENTRY}")
    assert not [sentence for sentence in same if ".cameras: " in sentence or "two entries read" in sentence]


def test_episodes_that_two_entries_read_are_said(write):
    root = write()
    said = sentences(f"dataset: {root}, episodes: [0, 1, 2], {ENTRY}", f"dataset: {root}, {ENTRY}")
    assert once(
        said,
        rf"note: data.datasets: two entries read 3 episodes of {root}; they are drawn, and count in "
        "statistics, twice",
    )


def test_statistics_of_two_datasets_are_not_one_datasets(write):
    entries = [f"dataset: {write(folder=folder)}, {ENTRY}" for folder in ("first", "second")]
    said = sentences(*entries, overrides=("data.statistics=dataset",))
    assert once(
        said,
        "error: data.statistics: robot 'so101' has 2 datasets, and their own cannot be merged exactly; "
        "choose `own`",
    )


def test_statistics_of_other_units_are_not_those_learnt(write):
    said = sentences(f"dataset: {write()}, unit: radians, {ENTRY}", overrides=("data.statistics=dataset",))
    assert (
        "error: data.statistics: a dataset's own statistics are of its units, and values in other units are "
        "learnt; choose `own`"
    ) in said


@pytest.mark.parametrize("address", ["hf://me/mix", "gs://bucket/mix"])
def test_statistics_that_are_to_be_fetched_are_no_error(write, address, monkeypatch, tmp_path):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_doors", lambda: pytest.fail("asked") if address.startswith("gs") else Nobody)
    said = check_sentences(write(), f"data.statistics={address}", notes=True)
    assert once(
        said,
        f"note: data.statistics: {address} is not on this machine; training fetches it first; nothing is "
        "compared with it here",
    )
    assert not [sentence for sentence in said if sentence.startswith("error")]


class _Client:
    """The Hub's client where nothing was fetched."""

    @staticmethod
    def snapshot_download(*_, local_files_only: bool, **__):
        assert local_files_only
        raise FileNotFoundError


Nobody = (_Client, None)
