"""What a process sets up before it computes, and what it runs: freed memory is kept, and what XLA compiled.

Both must happen before JAX makes its threads, so a command calls `prepare` first.
"""

import contextlib
import ctypes
import functools
import hashlib
import logging
import multiprocessing
import os
import platform
import threading
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from morph_vla.files.cache import cache_folder

# glibc's <malloc.h>
M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD = -8, -4, -1, -2
MALLOC = ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 * 2**20))
PACKAGES = ("morph-vla", "numpy", "mujoco", "mink", "jax", "flax", "lerobot")
COMPILED = "JAX_COMPILATION_CACHE_DIR"  # JAX's own variable: a user who sets it is obeyed


def prepare() -> None:
    """`keep_freed_memory` and `keep_compiled`."""
    keep_freed_memory()
    keep_compiled()


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory, in one arena; True where that was done (Linux with glibc).

    XLA on a CPU asks for a step's temporaries anew at every step. glibc gives blocks of that size back to the
    kernel at once, which clears them page by page when they are taken again: 53,000 page faults a step of the
    demo's recipe, a quarter to a half of its processor time. An arena that is there is not given up, so this
    comes before JAX's threads. The process keeps the most that it ever used.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    kept = mallopt is not None and all(mallopt(key, value) == 1 for key, value in MALLOC)
    logging.getLogger("morph_vla").debug("freed memory is %s", "kept" if kept else "given back")
    return kept


def keep_compiled() -> None:
    """Let JAX keep what took more than a second to compile, in `cache_folder()/xla`; child processes too.

    JAX_ENABLE_COMPILATION_CACHE=false turns it off.
    Not JAX 0.5: on a CPU it read a kept `jax.random.beta` back as a program that gives one number for all.
    """
    if find_spec("jax") and version("jax").startswith("0.5."):
        return
    os.environ.setdefault(COMPILED, str(cache_folder() / "xla"))


def end_with_parent() -> None:
    """Let this worker process end when the one that started it has gone, killed outright for example.

    Workers of a pool hold both ends of the queue that they take work from, so they would wait for ever.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def versions() -> dict[str, str]:
    """Versions of Python and of what results depend on, as far as installed."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


@functools.cache
def source() -> str:
    """SHA-256 of this package's modules as they are when it is first asked for, its first 12 digits.

    A version says nothing of a checkout that is being worked on.
    """
    digest, root = hashlib.sha256(), Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]
