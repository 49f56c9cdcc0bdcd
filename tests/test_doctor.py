import os
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest

from morph_vla import doctor
from morph_vla.errors import MorphVlaError

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="EGL is looked for on Linux only")


def answering(text: str, status: int = 0):
    """subprocess.run that answers with `text`."""
    return lambda *_, **__: SimpleNamespace(stdout=text, stderr="", returncode=status)


@pytest.fixture(autouse=True)
def _default_gl(monkeypatch):
    monkeypatch.delenv("MUJOCO_GL", raising=False)


def test_a_module_that_an_extra_brings_is_named_where_it_is_absent(monkeypatch):
    monkeypatch.setattr(doctor, "distributions", {"model": ["jax", "orbax-checkpoint"]}.get)
    monkeypatch.setattr(doctor.installing, "remedy", lambda extra: f"install {extra}")
    monkeypatch.setattr(doctor, "DEMO_EXTRAS", ("model",))
    monkeypatch.setattr(doctor, "OTHER_EXTRAS", ())
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    for name, module in (("jax.numpy", "jax"), ("orbax", "orbax")):
        words = doctor.missing(ModuleNotFoundError(name=name))
        assert words == f"'{module}' is not installed; install the extra: install model"
    assert doctor.missing(ModuleNotFoundError(name="elsewhere")) == ""
    # Installed, and a part of it is not there: its own words say so.
    monkeypatch.setattr(doctor, "find_spec", lambda name: name)
    assert doctor.missing(ModuleNotFoundError(name="jax.nothing")) == ""


def test_everything_is_looked_at_once():
    names = [check.name for check in doctor.checks()]
    assert names[:3] == ["Python", "morph_vla", "extra 'model'"]
    assert names[-4:] == ["EGL", "GPU", "memory", "disk"]
    assert len(set(names)) == len(names)


def test_extras_are_those_of_the_package():
    for extra in (*doctor.DEMO_EXTRAS, *doctor.OTHER_EXTRAS):
        assert doctor.distributions(extra), f"no extra '{extra}' in the package's metadata"
    assert "jax" in doctor.distributions("model")
    assert doctor.distributions("no-such-extra") == []


def test_a_missing_extra_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr(doctor, "distributions", lambda _: ["numpy", "no-such-engine"])
    monkeypatch.setattr(doctor.installing, "remedy", lambda extra: f"install {extra}")
    check = doctor._extra("isaaclab", needed=False)
    assert check.found == "not installed: no-such-engine"
    assert check.remedy == "install isaaclab"
    assert check.ok  # not needed, so no fault
    check = doctor._extra("sim", needed=True)
    assert (check.remedy, check.ok) == ("install sim", False)


@pytest.mark.usefixtures("pip_installs")
def test_the_demo_names_a_missing_extra_before_it_begins(run, monkeypatch):
    installed = doctor._installed
    lacking = {"matplotlib", "mink"}
    monkeypatch.setattr(doctor, "_installed", lambda name: None if name in lacking else installed(name))
    assert run("demo") == (
        2,
        "",
        "error: the demo needs 'mink', 'matplotlib', not installed here; install the extra: "
        "pip install 'morph-vla[sim,draw]'\n",
    )


def test_an_old_python_is_told_what_needs_a_newer_one(monkeypatch):
    monkeypatch.setattr(doctor.sys, "version_info", (3, 11, 2))
    assert doctor._python().remedy == "datasets and the demo need Python 3.12, because lerobot does"


@linux_only
def test_without_the_library_the_packages_to_install_are_named(monkeypatch):
    def absent(_):
        raise OSError("libEGL.so.1: cannot open shared object file")

    monkeypatch.setattr(doctor.ctypes, "CDLL", absent)
    assert doctor.open_egl() == "no libEGL.so.1"
    monkeypatch.setattr(doctor.subprocess, "run", answering("no libEGL.so.1\n"))
    with pytest.raises(MorphVlaError) as caught:
        doctor.require_gl()
    assert str(caught.value) == (
        "cannot render without a screen: no libEGL.so.1; install it: apt-get install libegl1 libgl1-mesa-dri"
    )


@linux_only
def test_a_display_that_opens_is_enough(monkeypatch):
    monkeypatch.setattr(doctor.subprocess, "run", answering("a driver's chatter\nEGL 1.5, Mesa Project\n"))
    assert doctor.egl() == doctor.Check("EGL", "EGL 1.5, Mesa Project")
    doctor.require_gl()


@linux_only
def test_a_driver_that_crashes_or_hangs_is_no_display(monkeypatch):
    monkeypatch.setattr(doctor.subprocess, "run", answering("", status=-11))
    assert doctor.egl().found == "opening a display ended with status -11"

    def hangs(*_, **__):
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(doctor.subprocess, "run", hangs)
    assert doctor.egl().found == "opening a display took more than a minute"
    assert not doctor.egl().ok


@linux_only
def test_another_renderer_is_left_alone(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert doctor.egl() == doctor.Check("EGL", "not tried: MUJOCO_GL=osmesa")
    for words in ("disable", "foo"):
        monkeypatch.setenv("MUJOCO_GL", words)
        remedy = "unset MUJOCO_GL: nothing is rendered with it, and EGL is used without it"
        assert doctor.egl() == doctor.Check("EGL", f"not tried: MUJOCO_GL={words}", remedy)


@pytest.mark.gl
@linux_only
def test_what_is_here_is_tried_for_real():
    # In a process of its own: closing the display here would close it for every test that renders.
    code = "from morph_vla import doctor; print(doctor.open_egl())"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert doctor.egl().found == child.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    ("listing", "plugin", "found", "remedy"),
    [
        ("", None, "none found: everything runs on the CPU", None),
        ("H200, 139 GiB\n", None, "H200, 139 GiB, which JAX does not use", "pip install 'jax[cuda13]'"),
        ("H200, 139 GiB\n", "jax-cuda12-plugin", "H200, 139 GiB, with jax-cuda12-plugin", None),
    ],
)
@pytest.mark.usefixtures("pip_installs")
def test_a_gpu_that_jax_cannot_use_is_said(monkeypatch, listing, plugin, found, remedy):
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    monkeypatch.setattr(doctor.subprocess, "run", answering(listing))
    monkeypatch.setattr(doctor, "_installed", lambda name: "1.0" if name == plugin else None)
    assert doctor._gpu() == doctor.Check("GPU", found, remedy, needed=False)


def test_a_driver_that_fails_is_no_gpu(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: "/usr/bin/nvidia-smi")
    for text, why in (("NVIDIA-SMI has failed\n", "NVIDIA-SMI has failed"), ("", "exit status 9")):
        monkeypatch.setattr(doctor.subprocess, "run", answering(text, 9))
        check = doctor.Check("GPU", f"nvidia-smi fails: {why}", "repair the driver", needed=False)
        assert doctor._gpu() == check


def test_too_little_memory_or_disk_is_said(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "sysconf", lambda name: 4096 if name == "SC_PAGE_SIZE" else 1 << 18)
    check = doctor._memory()
    assert check.found.startswith("1.0 GiB, ")
    assert check.remedy == "the demo needs 4 GiB"
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=doctor.GIB // 2))
    check = doctor._disk(tmp_path)
    assert check.found == f"0.5 GiB free in {tmp_path}"
    assert check.remedy == "the demo needs 2 GiB: free some"
