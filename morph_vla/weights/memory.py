"""Memory that is given back is given back to the system at once, while leaves are read."""

import contextlib
import ctypes
from collections.abc import Iterator

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
SMALL, LARGE = 2**20, 32 * 2**20  # bytes


@contextlib.contextmanager
def returned_at_once() -> Iterator[None]:
    """While inside, glibc takes every block of 1 MiB or more from the system and returns it when it is freed.

    By itself it soon keeps freed blocks of up to 32 MiB for later, once for each thread; of a loader that
    hands blocks from thread to thread, tens of megabytes remain. Afterwards that limit of 32 MiB is in force,
    which is where glibc's own adjustment ends. Other C libraries are left alone.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        yield
        return
    mallopt(MMAP_THRESHOLD, SMALL)
    try:
        yield
    finally:
        mallopt(MMAP_THRESHOLD, LARGE)
        mallopt(TRIM_THRESHOLD, 2 * LARGE)
