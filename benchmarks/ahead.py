"""Programs compiled ahead, in threads, and kept: for a machine that is lent by the minute.

XLA compiles a program of pi0.5 for a minute or more and runs it in a quarter of a second, so that a list of
measurements is mostly compiling. `all_of` runs the parts of a list once with nothing measured, many at a
time: what they compile is kept under a name, and found again when the parts run for their numbers. Nothing is
kept, and nothing changes, for who never calls it. Weights that several parts draw alike are kept too, and
what a part leaves under names that begin with its own until it is `dropped`.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any

import jax

_collecting: ContextVar[bool] = ContextVar("collecting", default=False)
_lock = threading.Lock()
_kept: dict[str, Future[Any]] | None = None


def collecting() -> bool:
    """Whether this thread only compiles: what it measures is not a number."""
    return _collecting.get()


def keeping() -> bool:
    """Whether what is made is kept, for others too."""
    return _kept is not None


def kept(name: str, make: Callable[[], Any]) -> Any:
    """What `make` gives; after `all_of`, made once for a name, whichever thread asks first.

    Programs of another device or precision are others.
    """
    if _kept is None:
        return make()
    key = f"{name} {jax.config.jax_default_device} {jax.config.jax_default_matmul_precision}"
    with _lock:
        future, is_first = _kept.get(key), key not in _kept
        if future is None:
            future = _kept[key] = Future()
    if is_first:
        try:
            future.set_result(make())
        except BaseException as error:
            future.set_exception(error)
    return future.result()


def dropped(begins: str) -> None:
    """Let go of what is kept under names that begin so; not while it is only compiled."""
    global _kept
    if _kept is not None and not collecting():
        with _lock:
            _kept = {key: future for key, future in _kept.items() if not key.startswith(begins)}


def all_of(parts: Iterable[Callable[[], Any]], threads: int) -> list[BaseException | None]:
    """Let every part compile what it will run, so many at a time; what went wrong with each."""
    global _kept
    _kept = {} if _kept is None else _kept

    def compile_only(part: Callable[[], Any]) -> None:
        _collecting.set(True)
        with jax.numpy_dtype_promotion("standard"):  # as a context, it holds for a thread
            part()

    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(compile_only, part) for part in parts]
        return [future.exception() for future in futures]
