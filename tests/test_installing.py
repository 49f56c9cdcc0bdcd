"""The command that a message names for what is missing is one that works in this environment."""

import sys
from pathlib import Path

import pytest

from morph_vla import installing

LINES = [
    "numpy>=1.26",
    "lerobot[dataset]<0.7,>=0.6.1; (python_version >= '3.12') and extra == 'lerobot'",
    "grain<0.3; extra == 'lerobot'",
    "isaaclab==3.0.*; (python_version == '3.12') and extra == 'isaaclab'",
    "websockets<18,>=15; extra == 'serve'",
    "gymnasium-robotics; extra == 'serve-more'",
]


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """An environment of a user's own, outside a checkout; its programs are made by the tests."""
    (tmp_path / "my env/bin").mkdir(parents=True)
    monkeypatch.setattr(installing, "CHECKOUT", tmp_path / "site-packages")
    monkeypatch.setattr(installing.importlib.metadata, "requires", lambda _: LINES)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my env"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "my env/bin/python"))
    monkeypatch.setattr(sys, "version_info", (3, 12, 1))
    monkeypatch.setenv("PATH", str(tmp_path / "my env/bin"))
    monkeypatch.setattr(installing, "find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def program(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)


def test_pip_is_named_where_it_is_the_environments_own(elsewhere, monkeypatch):
    monkeypatch.setattr(installing, "find_spec", lambda name: name)
    program(elsewhere / "my env/bin/pip")
    assert installing.remedy("serve") == "pip install 'morph-vla[serve]'"
    assert installing.command("--no-deps", "a==1") == "pip install --no-deps a==1"
    # Not activated: pip on PATH is another one's.
    program(elsewhere / "other/pip")
    monkeypatch.setenv("PATH", str(elsewhere / "other"))
    assert installing.remedy("serve") == "'my env/bin/python' -m pip install 'morph-vla[serve]'"


def test_uv_is_named_where_the_environment_has_no_pip(elsewhere, monkeypatch):
    python = "--python 'my env/bin/python'"
    assert installing.remedy("serve") == f"uv pip install {python} 'morph-vla[serve]'"
    program(elsewhere / "site-packages/.tools/bin/uv")
    assert installing.remedy("serve").startswith(f"site-packages/.tools/bin/uv pip install {python} ")
    (elsewhere / "work").mkdir()
    monkeypatch.chdir("work")  # no shorter way to say where it lies
    assert installing.remedy("serve").startswith(f"{elsewhere}/site-packages/.tools/bin/uv pip install ")
    program(elsewhere / "my env/bin/uv")
    assert installing.remedy("serve").startswith("uv pip install ")


def test_a_checkouts_own_environment_is_made_again(elsewhere, monkeypatch):
    folder = elsewhere / "site-packages"
    program(folder / "pyproject.toml")
    assert "make setup" not in installing.remedy("model")  # another environment than the checkout's
    monkeypatch.setattr(sys, "prefix", str(folder / ".venv"))
    assert installing.remedy("model", "sim") == "make setup"
    assert installing.remedy("model", "serve").startswith("uv pip install ")


@pytest.mark.parametrize(
    ("version", "extras", "words"),
    [
        ((3, 11, 2), ("lerobot",), "'morph-vla[lerobot]' needs Python 3.12 or newer and this is 3.11"),
        ((3, 11, 2), ("serve", "lerobot"), "'morph-vla[serve,lerobot]' needs Python 3.12 or newer and this"),
        (
            (3, 13, 0),
            ("isaaclab",),
            "'morph-vla[isaaclab]' needs Python 3.12 and this is 3.13: install it in ",
        ),
        ((3, 13, 0), ("lerobot",), "uv pip install "),
        ((3, 11, 2), ("serve",), "uv pip install "),
        ((3, 12, 1), ("isaaclab",), "uv pip install "),
    ],
)
def test_another_python_is_asked_for_where_an_extra_wants_it(elsewhere, monkeypatch, version, extras, words):
    monkeypatch.setattr(sys, "version_info", version)
    assert installing.remedy(*extras).startswith(words)


def test_packages_of_an_extra_are_those_of_the_metadata(elsewhere, monkeypatch):
    assert installing.distributions("lerobot") == ["lerobot", "grain"]
    assert installing.distributions("serve") == ["websockets"]
    assert installing.distributions("nothing") == []

    def absent(name):
        raise installing.importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(installing.importlib.metadata, "requires", absent)
    assert installing.distributions("serve") == []
