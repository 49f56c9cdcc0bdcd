"""What the tests of the server share."""

import pytest
from stand_ins import serving


@pytest.fixture(scope="module")
def server():
    """One server for all tests of a module."""
    with serving() as running:
        yield running
