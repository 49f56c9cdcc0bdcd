"""Progress of long work: a bar on a terminal, a line every tenth in a log; rate and time left in both.

Within `passing()` a bar leaves nothing behind when it ends, and what is only of passing interest is not said:
the command around it has a line of its own for what was made.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

PASSING: ContextVar[bool] = ContextVar("passing", default=False)
CLEAR = "\r\x1b[K"  # to the line's beginning, and all of it gone


@contextlib.contextmanager
def passing() -> Iterator[None]:
    """Bars and remarks within this block leave nothing behind."""
    token = PASSING.set(True)
    try:
        yield
    finally:
        PASSING.reset(token)


class Lines(logging.Handler):
    """What the library logs, as lines on stderr; within `passing()` remarks are gone with the next one."""

    def emit(self, record: logging.LogRecord) -> None:
        """See `logging.Handler`."""
        now("")
        if record.levelno >= logging.WARNING:
            print(f"warning: {record.getMessage()}", file=sys.stderr)
        elif PASSING.get():
            now(record.getMessage())
        else:
            print(record.getMessage(), file=sys.stderr)


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Within this block print what the library logs, once, whatever handlers other libraries have set up."""
    logger, handler = logging.getLogger("morph_vla"), Lines()
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


def now(words: str) -> None:
    """What is being done: a line on a terminal which the next one replaces, nothing in a log."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{CLEAR}     {words[:100]}" if words else CLEAR)
        sys.stderr.flush()


class Bar:
    """Is told where long work stands: a tqdm bar, or in a log a line every tenth. A context manager."""

    def __init__(self, label: str, total: int, unit: str):
        label = f"     {label}" if PASSING.get() else label  # beside the lines of the stages
        self._bar: Any = None
        self._lines: _Lines | None = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            now("")
            self._bar = tqdm(
                total=total, desc=label, unit=unit, mininterval=0.2, dynamic_ncols=True,
                leave=not PASSING.get(),
            )  # fmt: skip
        else:
            self._lines = _Lines(label, total, unit)

    def at(self, done: int, **facts: str) -> None:
        """Stand at `done`, with a few facts beside the bar."""
        if self._lines is not None:
            self._lines.at(done, facts)
            return
        if facts:
            self._bar.set_postfix(facts, refresh=False)
        self._bar.update(done - self._bar.n)

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


class Bars:
    """A bar a task, one after the other. A context manager."""

    def __init__(self, label: str, unit: str):
        self._label, self._unit = label, unit
        self._stack = contextlib.ExitStack()
        self._bar: Bar | None = None

    def evaluated(self, task: str, done: int, total: int, successes: int) -> None:
        """Episodes of a task that have ended, of how many, and how many of them succeeded."""
        if not done or self._bar is None:
            self._stack.close()
            self._bar = self._stack.enter_context(Bar(f"{self._label}, {task}", total, self._unit))
        if done:  # before the first that ends now, an earlier run may have done some
            self._bar.at(done, successes=str(successes))

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class _Lines:
    """A line for each tenth of the work, counted from where it stood when it was first told."""

    def __init__(self, label: str, total: int, unit: str):
        self._label, self._total, self._unit = label, total, unit
        self._began, self._first, self._tenth = time.monotonic(), 0, 0
        self._told = False

    def at(self, done: int, facts: dict[str, str]) -> None:
        tenth = 10 * done // self._total if self._total else 10
        if not self._told:
            self._told = True
            if done < self._total and done > 1:  # what an earlier run did says nothing about the pace
                self._first, self._tenth, self._began = done, tenth, time.monotonic()
                return
        if tenth <= self._tenth:
            return
        self._tenth = tenth
        spent = time.monotonic() - self._began
        words = [
            f"{self._label} {100 * done // max(self._total, 1):3d}%: {done} of {self._total} {self._unit}s"
        ]
        words += [f"{name} {value}" for name, value in facts.items()]
        words.append(f"{span(spent)}")
        if done > self._first and done < self._total:
            words.append(f"{span(spent * (self._total - done) / (done - self._first))} left")
        print(", ".join(words), file=sys.stderr, flush=True)


def span(seconds: float | int) -> str:
    """Seconds as a person says them: `4 s`, `12 min 30 s`, `1 h 05 min`."""
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    if whole < 60:
        return f"{whole} s"
    return f"{minutes} min {whole % 60:02d} s" if whole < 3600 else f"{hours} h {minutes % 60:02d} min"


def counting(bar: Bar) -> Callable[[int, int], None]:
    """A callback (done, total) that moves the bar."""
    return lambda done, _total: bar.at(done)
