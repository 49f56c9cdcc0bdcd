"""How a process ends that is told to: SIGTERM as an interruption, so that what is half written goes."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator


class Terminated(KeyboardInterrupt):
    """SIGTERM: a scheduler, a container or the system ends this process."""


@contextlib.contextmanager
def terminable(note: Callable[[KeyboardInterrupt], None] = lambda stop: None) -> Iterator[None]:
    """SIGTERM raises `Terminated` within this block, as Ctrl-C raises KeyboardInterrupt.

    A second SIGTERM is ignored: it would cut short the clean-up of the first. One that is ignored already, a
    SIGINT that somebody else handles, and all outside the main thread, stay as they are.

    `note` is called with either before it is raised: C code of a library that is being imported may drop it,
    and raise an error of its own that names no cause.
    """

    def terminate(*_: object) -> None:
        """Answer SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        note(stop := Terminated())
        raise stop

    def interrupt(*_: object) -> None:
        """Answer SIGINT as Python does."""
        note(stop := KeyboardInterrupt())
        raise stop

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    if before[signal.SIGTERM] not in (None, signal.SIG_IGN):
        signal.signal(signal.SIGTERM, terminate)
    if before[signal.SIGINT] is signal.default_int_handler:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


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
