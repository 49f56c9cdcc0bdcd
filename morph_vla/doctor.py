"""What this machine has of what morph_vla needs, and a one-line remedy for each thing that is missing.

Nothing heavy is imported: packages are looked up in their metadata, EGL is tried in a process of its own.
"""

import contextlib
import ctypes
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from morph_vla import installing
from morph_vla._version import __version__
from morph_vla.errors import MissingExtraError, MorphVlaError
from morph_vla.installing import DEMO_EXTRAS, distributions

OTHER_EXTRAS = ("serve", "isaaclab")
PACKAGES = {"PIL": "pillow", "orbax": "orbax-checkpoint", "jaxlib": "jax"}
"""By a module the package that brings it, where it is called otherwise"""
DEMO_MEMORY_GIB, DEMO_DISK_GIB = 4.0, 2.0
EGL_REMEDY = "apt-get install libegl1 libgl1-mesa-dri"
GIB = 1 << 30


@dataclass(frozen=True)
class Check:
    """One thing looked at: what was found, and the remedy when it is not enough (None when it is)."""

    name: str
    found: str
    remedy: str | None = None
    needed: bool = True  # by the demo; what is not needed is reported, and is no error

    @property
    def ok(self) -> bool:
        """Whether the demo can run as far as this thing is concerned."""
        return self.remedy is None or not self.needed


def checks() -> tuple[Check, ...]:
    """Look at everything: Python, extras, EGL, GPU, memory, disk."""
    return (
        _python(),
        Check("morph_vla", f"{__version__} in {Path(__file__).parent}"),
        *(_extra(extra, needed=True) for extra in DEMO_EXTRAS),
        *(_extra(extra, needed=False) for extra in OTHER_EXTRAS),
        egl(),
        _gpu(),
        _memory(),
        _disk(Path.cwd()),
    )


def require_gl() -> None:
    """Raise MorphVlaError, one line that names what to install, where nothing can be rendered."""
    check = egl()
    if not check.ok:
        remedy = check.remedy or ""
        remedy = remedy if remedy.startswith("unset") else f"install it: {remedy}"
        raise MorphVlaError(f"cannot render without a screen: {check.found}; {remedy}")


def require_extras(*extras: str, who: str) -> None:
    """Raise MissingExtraError, one line with all, where packages of these extras are not installed.

    `who` needs them, as the sentence begins: "the demo".
    """
    packages = [(name, extra) for extra in extras for name in distributions(extra)]
    missing = {name: extra for name, extra in packages if _installed(name) is None}
    if missing:
        names = ", ".join(f"'{name}'" for name in missing)
        remedy = installing.remedy(*dict.fromkeys(missing.values()))
        raise MissingExtraError(f"{who} needs {names}, not installed here; install the extra: {remedy}")


def _python() -> Check:
    remedy = "datasets and the demo need Python 3.12, because lerobot does"
    return Check("Python", platform.python_version(), remedy if sys.version_info < (3, 12) else None)


# ---------------------------------------------------------------------------------------------------- extras


def _extra(extra: str, *, needed: bool) -> Check:
    name, versions = f"extra '{extra}'", {package: _installed(package) for package in distributions(extra)}
    if missing := [package for package, version in versions.items() if version is None]:
        return Check(name, f"not installed: {', '.join(missing)}", installing.remedy(extra), needed)
    listed = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Check(name, listed, None, needed)


def missing(error: ModuleNotFoundError) -> str:
    """The sentence for a module that an extra of ours would bring; nothing where none would."""
    module = (error.name or "").partition(".")[0]
    if find_spec(module or "morph_vla"):  # a part of it is missing: its own words say which
        return ""
    name = PACKAGES.get(module, module)
    for extra in (*DEMO_EXTRAS, *OTHER_EXTRAS):
        if name in distributions(extra):
            return f"'{module}' is not installed; install the extra: {installing.remedy(extra)}"
    return ""


def _installed(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


# ------------------------------------------------------------------------------------------------- rendering


def egl() -> Check:
    """Whether an off-screen OpenGL display can be opened through EGL, tried in a process of its own.

    A process of its own, because a display closed here would be closed for a simulator too.
    """
    if sys.platform != "linux":
        return Check("EGL", f"not needed on {platform.system()}: MuJoCo renders with the system's own OpenGL")
    chosen = os.environ.get("MUJOCO_GL", "egl").lower()
    if chosen != "egl":
        known = chosen in ("glfw", "osmesa", "", "on", "enable", "enabled", "true", "1")  # MuJoCo's own words
        remedy = None if known else "unset MUJOCO_GL: nothing is rendered with it, and EGL is used without it"
        return Check("EGL", f"not tried: MUJOCO_GL={chosen}", remedy)
    code = "import morph_vla.doctor as d; print(d.open_egl())"
    try:
        answer = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
        )
    except subprocess.TimeoutExpired:
        return Check("EGL", "opening a display took more than a minute", EGL_REMEDY)
    lines = answer.stdout.strip().splitlines()
    if answer.returncode != 0 or not lines:
        return Check("EGL", f"opening a display ended with status {answer.returncode}", EGL_REMEDY)
    return Check("EGL", lines[-1], None if lines[-1].startswith("EGL ") else EGL_REMEDY)


def open_egl() -> str:
    """Open and close the first EGL device's display: `EGL 1.5` with its vendor, or what is missing."""
    try:
        library = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return "no libEGL.so.1"
    library.eglGetProcAddress.restype = ctypes.c_void_p
    query = library.eglGetProcAddress(b"eglQueryDevicesEXT")
    get_display = library.eglGetProcAddress(b"eglGetPlatformDisplayEXT")
    if not query or not get_display:
        return "libEGL.so.1 was found, but no driver for it (it has no device extension)"
    devices, count = (ctypes.c_void_p * 16)(), ctypes.c_int(0)
    prototype = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    if not prototype(query)(16, devices, ctypes.byref(count)) or count.value == 0:
        return "libEGL.so.1 was found, but no EGL device"
    prototype = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)
    library.eglQueryString.restype = ctypes.c_char_p
    for device in devices[: count.value]:
        display = ctypes.c_void_p(prototype(get_display)(0x313F, device, None))  # EGL_PLATFORM_DEVICE_EXT
        major, minor = ctypes.c_int(0), ctypes.c_int(0)
        if display and library.eglInitialize(display, ctypes.byref(major), ctypes.byref(minor)):
            vendor = library.eglQueryString(display, 0x3053) or b"unnamed vendor"  # EGL_VENDOR
            library.eglTerminate(display)
            return f"EGL {major.value}.{minor.value}, {vendor.decode(errors='replace')}"
    return f"libEGL.so.1 was found, but none of its {count.value} devices can be opened"


# --------------------------------------------------------------------------------------------------- machine


def _gpu() -> Check:
    gpus, program = "", shutil.which("nvidia-smi")
    if program:
        query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
        try:
            listing = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
        except subprocess.TimeoutExpired:
            return Check("GPU", "nvidia-smi does not answer", "restart the driver", needed=False)
        lines = [line.strip() for line in listing.stdout.splitlines() if line.strip()]
        if listing.returncode:
            why = lines[0] if lines else f"exit status {listing.returncode}"
            return Check("GPU", f"nvidia-smi fails: {why}", "repair the driver", needed=False)
        gpus = "; ".join(lines)
    if not gpus:
        return Check("GPU", "none found: everything runs on the CPU", needed=False)
    plugins = [name for name in ("jax-cuda12-plugin", "jax-cuda13-plugin") if _installed(name)]
    if not plugins:
        return Check(
            "GPU", f"{gpus}, which JAX does not use", installing.command("'jax[cuda13]'"), needed=False
        )
    return Check("GPU", f"{gpus}, with {plugins[0]}", needed=False)


def machine() -> dict[str, Any]:
    """What this machine is, in words: processor, cores, platform, memory; of a container, its share."""
    model = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return {
        "processor": model or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "platform": platform.platform(),
        "memory": f"{_memory_gib():.1f} GiB",
    }


def _memory_gib() -> float:
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB
    limit = Path("/sys/fs/cgroup/memory.max")  # a container's share may be less than the machine has
    word = limit.read_text().strip() if limit.is_file() else ""
    return min(total, int(word) / GIB) if word.isdecimal() else total


def _memory() -> Check:
    facts, needed = machine(), f"the demo needs {DEMO_MEMORY_GIB:.0f} GiB"
    found = f"{facts['memory']}, {facts['cores']} CPU cores"
    return Check("memory", found, needed if _memory_gib() < DEMO_MEMORY_GIB else None)


def _disk(folder: Path) -> Check:
    free = shutil.disk_usage(folder).free / GIB
    remedy = f"the demo needs {DEMO_DISK_GIB:.0f} GiB: free some" if free < DEMO_DISK_GIB else None
    return Check("disk", f"{free:.1f} GiB free in {folder}", remedy)
