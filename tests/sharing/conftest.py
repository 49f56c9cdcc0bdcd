"""What the tests of this folder share."""

import pytest
from made_run import Made, make


@pytest.fixture(scope="module")
def made(root, tmp_path_factory) -> Made:
    """A run of a Panda, with an evaluation of its own and one of another policy."""
    return make(root, tmp_path_factory.mktemp("run"), ["data.dataset=me/demonstrations"])
