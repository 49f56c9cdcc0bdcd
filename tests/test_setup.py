"""scripts/setup.sh, with a uv and a Python that only write down how they were called."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the script is for a POSIX shell")

# A uv that makes an environment of one file, and fails where a file beside it says so. Its long sleep is the
# script's own process: bash can lose an interrupt that arrives between the fork and the exec of a child.
UV = """#!/bin/sh
echo "uv $*" >>"{log}"
case "$*" in
    --version) echo "uv 0.0.1 (fake)" ;;
    venv*) for last; do :; done
        [ ! -e "{folder}/no-python" ] || exit 2
        mkdir -p "$last/bin" && touch "$last/pyvenv.cfg"
        printf "VIRTUAL_ENV='%s'\\n" "$(cd "$last" && pwd)" >"$last/bin/activate"
        printf '#!/bin/sh\\nexit 0\\n' >"$last/bin/python" && chmod +x "$last/bin/python" ;;
    *--offline*) [ ! -e "{folder}/no-cache" ] || exit 2 ;;
    "pip install"*) [ ! -e "{folder}/slow" ] || exec sleep 60
        [ ! -e "{folder}/no-network" ] || exit 2 ;;
esac
"""
SHIM = """#!/bin/sh
echo "pyenv: uv: command not found" >&2
exit 127
"""
# A Python whose `-m venv` makes an environment whose pip "installs" the fake uv; outside one, pip refuses.
PYTHON = """#!/bin/sh
echo "python3 $*" >>"{log}"
case "$*" in
    "-m venv "*) [ ! -e "{folder}/no-venv" ] || {{ echo "ensurepip is not available"; exit 1; }}
        mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
    "-m pip --version") [ ! -e "{folder}/no-pip" ] ;;
    "-m pip install --quiet --target "*)
        [ ! -e "{folder}/no-network" ] || {{ echo "Could not find uv"; exit 1; }}
        mkdir -p "$6/bin" && cp "{folder}/hidden-uv" "$6/bin/uv" ;;
    "-m pip install"*)
        case "$0" in .tools/*) ;; *) echo "error: externally-managed-environment"; exit 1 ;; esac
        [ ! -e "{folder}/no-network" ] || {{ echo "Could not find uv"; exit 1; }}
        cp "{folder}/hidden-uv" .tools/bin/uv ;;
    -c*) exit 0 ;;
esac
"""


TOOLS = (
    "sh",
    "cat",
    "chmod",
    "cksum",
    "cp",
    "cut",
    "date",
    "dirname",
    "mkdir",
    "mv",
    "rm",
    "sed",
    "sleep",
    "touch",
)


class Machine:
    """A checkout, and a PATH with only what a test puts on it."""

    def __init__(self, folder: Path, root: Path):
        self.folder, self.checkout, self.log = folder, folder / "check out", folder / "log"
        self.env = {"PATH": os.pathsep.join([str(folder / "bin"), str(folder / "system")])}
        self.env |= {"HOME": str(folder / "home")}
        (self.checkout / "scripts").mkdir(parents=True)
        shutil.copy(root / "scripts/setup.sh", self.checkout / "scripts")
        (self.checkout / "pyproject.toml").write_text("[project]\n")
        (self.checkout / ".python-version").write_text("3.12\n")
        (folder / "system").mkdir()
        for name in TOOLS:
            program = shutil.which(name)
            assert program, name
            (folder / "system" / name).symlink_to(program)
        self.program("hidden-uv", UV)

    def program(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(log=self.log, folder=self.folder))
        path.chmod(0o755)

    def without(self, *what: str) -> None:
        for name in what:
            (self.folder / f"no-{name}").touch()

    def setup(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["sh", "scripts/setup.sh", *words]
        return subprocess.run(
            command, cwd=self.checkout, env=self.env, capture_output=True, text=True, check=False
        )

    @property
    def calls(self) -> list[str]:
        """What was called since this was last asked."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return [
            line for line in lines if not line.endswith("--version") and not line.startswith("python3 -c")
        ]

    @property
    def stamped(self) -> bool:
        return (self.checkout / ".venv/.setup-stamp").is_file()


@pytest.fixture
def machine(tmp_path, root) -> Machine:
    return Machine(tmp_path, root)


@pytest.fixture
def with_uv(machine) -> Machine:
    machine.program("bin/uv", UV)
    return machine


QUIET = "uv pip install --quiet --compile-bytecode --python"
INSTALL = f"{QUIET} .venv/bin/python --editable .[model,lerobot,sim,serve,draw,trackers,dev]"


def test_the_first_run_installs_and_the_second_costs_nothing(with_uv):
    ended = with_uv.setup()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert with_uv.calls == [
        "uv venv --quiet --no-python-downloads --python 3.12 .venv",
        INSTALL,
    ]
    ended = with_uv.setup()
    assert (ended.returncode, ended.stdout, ended.stderr, with_uv.calls) == (0, "", "", [])


def test_a_changed_project_is_installed_again_into_the_same_environment(with_uv):
    with_uv.setup()
    _ = with_uv.calls
    (with_uv.checkout / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert with_uv.setup().returncode == 0
    assert with_uv.calls == [INSTALL]
    assert with_uv.stamped


def test_a_moved_checkout_makes_its_environment_again(with_uv):
    assert with_uv.setup().returncode == 0
    moved = with_uv.checkout.with_name("moved here")
    with_uv.checkout.rename(moved)
    with_uv.checkout = moved
    (moved / ".venv/bin/of-the-old-place").touch()
    ended = with_uv.setup()
    assert ended.returncode == 0
    assert ".venv was made in another folder: making it again" in ended.stdout
    assert not (moved / ".venv/bin/of-the-old-place").exists()
    assert f"VIRTUAL_ENV='{moved / '.venv'}'" in (moved / ".venv/bin/activate").read_text()


def test_another_environment_beside_it(with_uv):
    ended = with_uv.setup(".venv-old", "3.11", "model,dev", "jax==0.5.3", "numpy<2")
    assert ended.stdout.startswith(
        "setup: .venv-old: Python 3.11 and --editable .[model,dev] jax==0.5.3 numpy<2 (by uv 0.0.1)\n"
    )
    assert with_uv.calls[-1] == (f"{QUIET} .venv-old/bin/python --editable .[model,dev] jax==0.5.3 numpy<2")
    assert with_uv.setup(".venv-old", "3.11", "model,dev", "jax==0.5.3", "numpy<2").stdout == ""


def test_a_shim_that_fails_is_passed_over_for_a_uv_that_runs(machine):
    machine.program("bin/uv", SHIM)
    machine.program("later/uv", UV)
    machine.env["PATH"] += os.pathsep + str(machine.folder / "later")
    assert machine.setup().returncode == 0
    assert INSTALL in machine.calls
    assert not (machine.checkout / ".tools").exists()


def test_without_uv_one_is_put_into_a_private_environment(machine):
    machine.program("bin/uv", SHIM)
    machine.program("bin/python3", PYTHON)
    ended = machine.setup()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "setup: no working uv on PATH: putting one into .tools/ with " in ended.stdout
    assert machine.calls[:2] == ["python3 -m venv .tools", "python3 -m pip install --quiet uv>=0.5,<1"]


def test_without_ensurepip_it_goes_into_a_folder_of_its_own(machine):
    machine.program("bin/python3", PYTHON)
    machine.without("venv")
    assert machine.setup().returncode == 0
    assert "python3 -m pip install --quiet --target .tools/target uv>=0.5,<1" in machine.calls
    assert machine.stamped


def test_the_uv_it_fetched_serves_the_next_checkout_without_a_network(machine):
    machine.program("bin/python3", PYTHON)
    machine.setup()
    shutil.rmtree(machine.checkout / ".tools")
    shutil.rmtree(machine.checkout / ".venv")
    machine.without("network")
    _ = machine.calls
    ended = machine.setup()
    assert ended.returncode == 0, ended.stderr
    assert "trying once more with what is in uv's cache" in ended.stdout
    assert machine.calls[-1] == INSTALL.replace("--quiet", "--quiet --offline")


@pytest.mark.parametrize(
    ("absent", "sentence"),
    [
        ([], "setup: no Python found: install Python 3.12 (or uv) and run this again\n"),
        (
            ["venv", "pip"],
            "neither venv nor pip: install one (apt-get install python3-venv) or uv, and run this again\n",
        ),
        (
            ["network"],
            "setup: pip could not install uv (no network?): install uv by hand and run this again\n",
        ),
    ],
)
def test_when_no_uv_can_be_had_the_last_line_says_what_to_do(machine, absent, sentence):
    if absent:
        machine.program("bin/python3", PYTHON)
    machine.without(*absent)
    ended = machine.setup()
    assert ended.returncode == 1
    assert ended.stderr.endswith(sentence)
    assert not machine.stamped
    assert not (machine.checkout / ".tools").exists()


def test_neither_network_nor_cache(with_uv):
    with_uv.without("network", "cache")
    ended = with_uv.setup()
    assert ended.returncode == 1
    assert ended.stderr == (
        "setup: the packages could not be installed (see above); with a network, run this again\n"
    )
    assert not with_uv.stamped


def test_no_python_of_that_version(with_uv):
    with_uv.without("python")
    ended = with_uv.setup()
    assert ended.returncode == 1
    assert ended.stderr == (
        "setup: Python 3.12 is neither here nor could uv download it: install it and run this again\n"
    )


def test_a_python_of_pyenv_that_is_not_on_path_is_found(with_uv):
    own = with_uv.folder / "home/.pyenv/versions/3.12.1/bin/python"
    own.parent.mkdir(parents=True)
    own.write_text("#!/bin/sh\nexit 0\n")
    own.chmod(0o755)
    with_uv.without("python")
    with_uv.setup()
    assert f"uv venv --quiet --python {own} .venv" in with_uv.calls


def test_what_is_no_environment_is_not_touched(with_uv):
    (with_uv.checkout / ".venv").mkdir()
    (with_uv.checkout / ".venv/thesis.tex").touch()
    ended = with_uv.setup()
    assert ended.returncode == 1
    assert ended.stderr == (
        "setup: .venv exists and is no virtual environment: move it away and run this again\n"
    )
    assert (with_uv.checkout / ".venv/thesis.tex").exists()


def test_an_interrupted_installation_is_done_again(with_uv):
    (with_uv.folder / "slow").touch()
    # Tests that run in the background ignore SIGINT, and what they start would too.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        ["sh", "scripts/setup.sh"], cwd=with_uv.checkout, env=with_uv.env, start_new_session=True
    )
    signal.signal(signal.SIGINT, before)
    try:
        for _ in range(500):
            if with_uv.log.exists() and "pip install" in with_uv.log.read_text():
                break
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=300) != 0  # machines were seen to stand still for 100 s
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert not with_uv.stamped
    (with_uv.folder / "slow").unlink()
    _ = with_uv.calls
    assert with_uv.setup().returncode == 0
    assert with_uv.calls == [INSTALL]
    assert with_uv.stamped
