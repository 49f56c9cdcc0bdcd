"""Suites of the tiny environment, from their text."""

from collections.abc import Callable

import pytest

from morph_vla.suites.environment import EnvironmentSuite, load_tasks


@pytest.fixture
def load(tmp_path) -> Callable[..., EnvironmentSuite]:
    """The suite of a text, with overrides."""

    def made(text: str, *overrides: str) -> EnvironmentSuite:
        (tmp_path / "tiny.yaml").write_text(text)
        (task,) = load_tasks(tmp_path / "tiny.yaml", overrides)
        assert isinstance(task, EnvironmentSuite)
        return task

    return made
