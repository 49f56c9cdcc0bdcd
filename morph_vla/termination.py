"""How a process ends that is told to: SIGTERM as an interruption, so that what is half written goes."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM: a scheduler, a container or the system ends this process."""


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises `Terminated` within this block, as Ctrl-C raises KeyboardInterrupt.

    A second one is ignored: it would cut short the clean-up of the first. Where SIGTERM is ignored already,
    and outside the main thread, nothing is changed.
    """

    def terminate(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise Terminated

    before = signal.getsignal(signal.SIGTERM)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or before is None or before == signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def ending_workers() -> Iterator[None]:
    """This process's workers end with the block on SIGTERM; a terminal's Ctrl-C reaches them by itself."""
    try:
        yield
    except Terminated:
        import multiprocessing

        for worker in multiprocessing.active_children():
            worker.terminate()
        raise
