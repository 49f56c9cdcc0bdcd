"""Progress of long work: a bar on a terminal, a line every tenth in a log; pace and time left in both.

Within `passing()` a bar leaves nothing behind when it ends, and remarks of the library are not printed: the
command around it prints one line about what was made.
"""

import contextlib
import logging
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from morph_vla.wording import span

if TYPE_CHECKING:
    from morph_vla.training.progress import Report

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
    """Prints what the library logs on stderr; within `passing()` the next remark replaces the last."""

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
    """Within this block, print what the library logs, once, whatever handlers other libraries set up."""
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
    """Print what is being done: on a terminal a line which the next one replaces, in a log nothing."""
    if sys.stderr.isatty():
        sys.stderr.write(f"{CLEAR}     {words[:100]}" if words else CLEAR)
        sys.stderr.flush()


def done(words: str) -> None:
    """Print that a part of long work is done: as `now` on a terminal, in a log a line of its own."""
    if sys.stderr.isatty():
        now(words)
    else:
        print(words, file=sys.stderr, flush=True)


class Bar:
    """Shows how far long work is: a tqdm bar, or in a log a line every tenth. A context manager."""

    def __init__(self, label: str, total: int, unit: str):
        self._label = f"     {label}" if PASSING.get() else label  # beside the lines of the stages
        self._total, self._unit = total, unit
        self._began, self._tenth = time.monotonic(), 0
        self._first: int | None = None  # what was done when it was first told
        self._bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm

            now("")
            self._bar = tqdm(
                total=total, desc=self._label, unit=unit, mininterval=0.2, dynamic_ncols=True,
                leave=not PASSING.get(),
            )  # fmt: skip

    def at(self, done: int, _total: int = 0, /, **facts: str) -> None:
        """Stand at `done`, with a few facts beside the bar."""
        if self._bar is not None:
            if facts:
                self._bar.set_postfix(facts, refresh=False)
            self._bar.update(done - self._bar.n)
            return
        tenth = 10 * done // self._total if self._total else 10
        if self._first is None:
            self._first = 0
            if 1 < done < self._total:  # what an earlier run did says nothing about the pace
                self._first, self._tenth, self._began = done, tenth, time.monotonic()
        if tenth > self._tenth:
            self._tenth = tenth
            print(", ".join(self._words(done, self._first, facts)), file=sys.stderr, flush=True)

    def _words(self, done: int, first: int, facts: dict[str, str]) -> Iterator[str]:
        spent, share = time.monotonic() - self._began, 100 * done // max(self._total, 1)
        yield f"{self._label} {share:3d}%: {done} of {self._total} {self._unit}s"
        yield from (f"{name} {value}" for name, value in facts.items())
        yield span(spent)
        if first < done < self._total:
            yield f"{span(spent * (self._total - done) / (done - first))} left"

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


class Bars:
    """Bars that begin with the first report: one for training, one after the other for tasks."""

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

    def recorded(self, done: int, total: int) -> None:
        """Attempts at a demonstration that have ended, of how many."""
        self._bar = self._bar or self._stack.enter_context(Bar(self._label, total, self._unit))
        self._bar.at(done)

    def trained(self, report: "Report") -> None:
        """A training step, with its losses and its pace."""
        self._bar = self._bar or self._stack.enter_context(Bar(self._label, report.steps, self._unit))
        loss, lr, pace = f"{report.loss:.4f}", f"{report.lr:.1e}", f"{report.samples_per_s:.3g}"
        facts = {"loss": loss, "lr": lr, "samples/s": pace}
        if report.waiting >= 0.01:
            facts["waiting for data"] = f"{report.waiting:.0%}"
        if len(report.robots) > 1:
            facts |= {name: f"{loss:.4f}" for name, loss in report.robots.items()}
        if report.held_out_loss is not None:
            facts["held out"] = f"{report.held_out_loss:.4f}"
        self._bar.at(report.step, **facts)

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
