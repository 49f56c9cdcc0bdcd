"""The wheel, built from this checkout and used where there is no checkout."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling", reason="building the wheel needs hatchling, of the extra 'dev'")


def environment() -> dict[str, str]:
    """This process's environment without what would lead back to the checkout."""
    hidden = {"PYTHONPATH", "MORPH_VLA_PATH", "VIRTUAL_ENV", "PYTHONHOME"}
    return {name: value for name, value in os.environ.items() if name not in hidden}


def working_uv(root: Path) -> str | None:
    """A uv that runs: as in scripts/setup.sh, a name on PATH may be a shim that does not."""
    on_path = [Path(folder) / "uv" for folder in os.get_exec_path()]
    kept = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "morph_vla" / "uv"
    for path in (*on_path, root / ".tools/bin/uv", root / ".tools/target/bin/uv", kept):
        if path.is_file() and os.access(path, os.X_OK):
            ended = subprocess.run([path, "--version"], capture_output=True, check=False)
            if ended.returncode == 0:
                return str(path)
    return None


def install(bin_folder: Path, extra: str) -> str:
    """What a message names: the clean environment is one of uv, without pip."""
    return f"uv pip install --python {bin_folder / 'python'} 'morph-vla[{extra}]'"


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(root, wheel, tmp_path_factory) -> Path:
    """A clean environment with the wheel and its core dependencies, nothing else; its bin folder."""
    env = tmp_path_factory.mktemp("clean") / "env"
    uv = working_uv(root)
    if uv is None:
        pytest.skip("no working uv to make a clean environment with")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, env], check=True, env=environment())
    bin_folder = env / ("Scripts" if os.name == "nt" else "bin")
    install = [uv, "pip", "install", "--quiet", "--python", str(bin_folder / "python")]
    tried = [
        subprocess.run([*install, *offline, str(wheel)], capture_output=True, text=True, env=environment())
        for offline in (["--offline"], [])
        if not (bin_folder / "morph-vla").exists()
    ]
    if tried[-1].returncode != 0:
        pytest.skip(f"neither uv's cache nor a network has the core dependencies: {tried[-1].stderr[-200:]}")
    return bin_folder


def run(program: Path, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words], cwd=cwd, env=environment(), capture_output=True, text=True, check=False
    )


def test_the_three_dropin_folders_and_the_bases_are_in_the_wheel(wheel, root):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("urdf_descriptors", "configs", "eval", "bases"):
        for path in (root / folder).rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                assert f"morph_vla/shipped/{path.relative_to(root).as_posix()}" in names
    assert {
        f"morph_vla/shipped/{name}" for name in ("urdf_descriptors/panda.urdf", "bases/README.md")
    } <= names


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"morph_vla"}
    assert not [name for name in names if "__pycache__" in name]
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_wheel_lists_its_robots_where_there_is_no_checkout(installed, tmp_path):
    ended = run(installed / "morph-vla", "robots", "list", "--json", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    listed = {row["name"]: row for row in json.loads(ended.stdout)}
    assert listed["panda"]["joints"] == 8
    assert Path(listed["panda"]["path"]).is_relative_to(installed.parent)
    assert "panda" in run(installed / "morph-vla", "robots", "list", cwd=tmp_path).stdout
    for kind in ("recipes", "suites"):
        ended = run(installed / "morph-vla", kind, "list", "--json", cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_file_dropped_in_beside_the_wheel_is_registered(installed, tmp_path, root):
    (tmp_path / "urdf_descriptors").mkdir()
    for suffix in (".urdf", ".yaml"):
        source = root / f"urdf_descriptors/panda{suffix}"
        if source.is_file():
            shutil.copy(source, tmp_path / f"urdf_descriptors/mine{suffix}")
    ended = run(installed / "morph-vla", "robots", "list", cwd=tmp_path)
    assert "mine" in ended.stdout, ended.stderr


def test_the_clean_environment_has_the_core_and_doctor_names_the_rest(installed, tmp_path):
    ended = run(installed / "morph-vla", "doctor", "--json", cwd=tmp_path)
    assert ended.returncode == 1
    checks = {check["name"]: check for check in json.loads(ended.stdout)}
    for extra in ("model", "sim", "draw"):
        assert checks[f"extra '{extra}'"]["remedy"] == install(installed, extra)


@pytest.mark.slow
def test_a_missing_extra_is_one_line(installed, tmp_path):
    ended = run(installed / "morph-vla", "robots", "draw", "panda", cwd=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == (
        f"error: 'matplotlib' is not installed; install the extra: {install(installed, 'draw')}\n"
    )
    for words in (
        "train pi05_poses -o run",
        "recipes check pi05_poses",
        "recipes show pi05_poses",
        "eval run --suite droid_panda -o out",
        "weights inspect run",
        "evidence status grid.yaml -o out",
        "push run me/run",
    ):
        ended = run(installed / "morph-vla", *words.split(), cwd=tmp_path)
        assert ended.returncode == 2, (words, ended.stderr)
        assert ended.stderr == (
            f"error: 'jax' is not installed; install the extra: {install(installed, 'model')}\n"
        ), words
    ended = run(installed / "morph-vla", "serve", "run", cwd=tmp_path)
    assert (
        ended.stderr
        == f"error: 'msgpack' is not installed; install the extra: {install(installed, 'serve')}\n"
    )
