"""Datasets for the checks."""

from pathlib import Path

import pytest
from recipe_checks import BOTH, NAMES, episodes


@pytest.fixture
def write(write_dataset):
    """A dataset without a fault (v3.0 unless told), whose episodes may be given."""

    def call(version="v3.0", given=None, names=NAMES, **more) -> Path:
        of_both = dict.fromkeys(BOTH, names)
        more.setdefault("info", {"robot_type": "so101_follower"})
        return write_dataset(version, given or episodes(), names=of_both, cameras=("front", "wrist"), **more)

    return call
