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

    Where SIGTERM is ignored or another library's in C, and outside the main thread, nothing is changed.
    """

    def terminate(*_: object) -> None:
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
