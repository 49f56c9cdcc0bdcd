"""Freed memory kept for the next step, on Linux.

XLA on a CPU asks for a step's temporaries anew at every step. glibc hands blocks of that size back to the kernel
at once, which clears them page by page when they are taken again: 53,000 page faults a step of the demo's recipe, a
quarter to a half of its processor time. `keep_freed_memory` tells glibc to keep what is freed.
"""

import ctypes
import logging
import platform

# glibc's <malloc.h>
M_ARENA_MAX, M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD = -8, -4, -1, -2
SETTINGS = ((M_ARENA_MAX, 1), (M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_TOP_PAD, 64 * 2**20))


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory, in one arena; True where that was done (Linux with glibc).

    To be called before JAX makes its threads: an arena that is there is not given up. The process keeps the most
    that it ever used, which is what a training or an evaluation uses again and again.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    kept = mallopt is not None and all(mallopt(key, value) == 1 for key, value in SETTINGS)
    logging.getLogger("morph_vla").debug("freed memory is %s", "kept" if kept else "given back")
    return kept
