import pytest

from morph_vla.errors import ConfigError, MissingExtraError, MorphVlaError, nearest, require


def test_nearest_names_one_choice_as_it_is_spelled():
    assert nearest("pnda", ["panda", "so101"]) == "; did you mean 'panda'?"
    assert nearest("PANDA", ["Panda"]) == "; did you mean 'Panda'?"


def test_nearest_is_silent_when_nothing_is_near():
    assert nearest("forklift", ["panda", "so101"]) == ""
    assert nearest("panda", []) == ""


def test_require_returns_the_module():
    assert require("json.decoder", "sim").__name__ == "json.decoder"


@pytest.mark.usefixtures("pip_installs")
def test_require_names_the_extra():
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_engine.viewer", "sim")
    assert str(caught.value) == (
        "'no_such_engine.viewer' is not installed; install the extra: pip install 'morph-vla[sim]'"
    )


@pytest.mark.usefixtures("pip_installs")
def test_require_says_what_an_installed_package_lacks(tmp_path, monkeypatch):
    (tmp_path / "old_engine").mkdir()
    (tmp_path / "old_engine" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtraError) as caught:
        require("old_engine.viewer.passive", "sim")
    assert str(caught.value) == (
        "the installed 'old_engine' has no 'old_engine.viewer', which another release or part of it brings: "
        "pip install 'morph-vla[sim]'"
    )


def test_require_passes_on_a_failure_inside_an_installed_module(tmp_path, monkeypatch):
    (tmp_path / "half_engine.py").write_text("import a_part_that_is_absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_part_that_is_absent") as caught:
        require("half_engine", "sim")
    assert not isinstance(caught.value, MorphVlaError)


def test_config_errors_are_what_a_dataclass_may_raise():
    assert issubclass(ConfigError, ValueError)
    assert issubclass(ConfigError, MorphVlaError)
    assert issubclass(MissingExtraError, ImportError)
