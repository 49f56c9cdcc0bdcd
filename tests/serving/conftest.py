"""What the tests of the server share."""

from pathlib import Path

import foreign_folders
import pytest
from stand_ins import serving


@pytest.fixture(scope="module")
def server():
    """One server for all tests of a module."""
    with serving() as running:
        yield running


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> Path:
    """One model in the layouts of openpi and of LeRobot, with their statistics, and two recipes."""
    return foreign_folders.write(tmp_path_factory.mktemp("foreign"))
