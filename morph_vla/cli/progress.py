"""Progress of long work: a bar on a terminal, a line now and then in a log; rate and time left in both."""

import sys
from collections.abc import Callable
from typing import Any


class Bar:
    """A tqdm bar that is told where it stands. Use as a context manager."""

    def __init__(self, label: str, total: int, unit: str):
        from tqdm import tqdm

        # In a log each refresh is a line of its own: seldom enough to read.
        every = 0.2 if sys.stderr.isatty() else 15.0
        self._bar: Any = tqdm(total=total, desc=label, unit=unit, mininterval=every, maxinterval=3 * every)

    def at(self, done: int, **facts: str) -> None:
        """Stand at `done`, with a few facts beside the bar."""
        if facts:
            self._bar.set_postfix(facts, refresh=False)
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


def counting(bar: Bar) -> Callable[[int, int], None]:
    """A callback (done, total) that moves the bar."""
    return lambda done, _total: bar.at(done)
