"""Worker processes that decode video, as many as there are cores; frames come back in the order asked for.

Not grain's worker processes (`mp_prefetch`, tried with grain 0.2.18): each imports JAX and takes 200 MB
before it has done anything, absl must have read the program's command line, and they live on when their
parent is killed. grain still orders and prefetches the batches, in threads; what these wait for is decoded
here.

A worker is a fresh interpreter (no fork of a process that runs JAX, no second import of the user's script)
with one socket to its parent. Frames travel through memory that both have mapped, which no name leads to:
whoever is killed, nothing stays behind.
"""

import contextlib
import json
import mmap
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import UInt8

from morph_vla.data import decoding
from morph_vla.errors import MorphVlaError

UNIT = 8  # frames of one request that come back through shared memory
MAX_WORKERS = 16
CLOSED = "the workers that decode video were closed"

Receive = Callable[[UInt8[np.ndarray, "_ size size 3"]], None]


def default_workers() -> int:
    """As many as this process may use cores, up to MAX_WORKERS."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MAX_WORKERS)


class Worker:
    """One process, its socket, and the memory it writes frames into."""

    def __init__(self, size: int):
        length = max(UNIT * size * size * 3, mmap.PAGESIZE)
        with contextlib.ExitStack() as stack:
            if hasattr(os, "memfd_create"):
                memory = os.memfd_create("morph_vla frames")
                stack.callback(os.close, memory)
            else:
                memory = stack.enter_context(tempfile.TemporaryFile()).fileno()
            os.ftruncate(memory, length)
            ours, theirs = socket.socketpair()
            stack.callback(theirs.close)
            folders = [path or str(Path.cwd()) for path in sys.path]
            words = map(str, (theirs.fileno(), memory, size, os.getpid()))
            self.process = subprocess.Popen(
                [sys.executable, "-m", "morph_vla.data.decoding", *words],
                pass_fds=(theirs.fileno(), memory),
                env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            self.connection = Connection(ours.detach())
            shared = np.frombuffer(mmap.mmap(memory, length), np.uint8)
            self.pictures = shared[: UNIT * size * size * 3].reshape(UNIT, size, size, 3)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for its answer. Raises EOFError or OSError when the worker has ended."""
        self.connection.send_bytes(json.dumps(request).encode())
        return json.loads(self.connection.recv_bytes())

    def end(self) -> str:
        """Close the socket, which ends the worker, and say how it ended."""
        self.connection.close()
        try:
            code = self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class _Desk:
    """What the pool's threads share: requests not yet begun, and why there will be no more answers."""

    def __init__(self) -> None:
        self.requests: queue.SimpleQueue[Any] = queue.SimpleQueue()  # (request, receive, future), None: end
        self.workers: list[Worker] = []
        self.threads: list[threading.Thread] = []
        self.broken: MorphVlaError | None = None
        self.closed = False
        self.lock = threading.Lock()  # of putting a request, against closing

    def serve(self, worker: Worker) -> None:
        """One thread per worker: hand it one request after another."""
        while (item := self.requests.get()) is not None:
            request, receive, future = item
            if self.broken or self.closed:
                future.set_exception(self.broken or MorphVlaError(CLOSED))
                continue
            try:
                answer = worker.ask(request)
                if receive and "done" in answer:
                    receive(worker.pictures[: answer["done"]])
                future.set_result(answer)
            except (EOFError, OSError):
                path = request.get("index") or request.get("table") or request["frames"][0][0]
                self.broken = MorphVlaError(
                    f"a worker that decodes video ended ({worker.end()}) while it read {path}; a machine out "
                    "of memory does that: try fewer data.workers. The same command goes on"
                )
                future.set_exception(self.broken)
            except Exception as error:  # the thread goes on for the others
                future.set_exception(error)

    def close(self) -> None:
        """End the workers; what was not begun is answered with an error."""
        with self.lock:
            self.closed = True
            for _ in self.threads:
                self.requests.put(None)
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join()
        for worker in self.workers:
            worker.end()


class Pool:
    """`workers` processes that decode frames scaled to `size`; they start with the first request.

    They end with `close`, with the last reference to the pool, and with this process, however it ends.
    """

    def __init__(self, workers: int, size: int):
        self.count, self.size = workers, size
        self._desk = _Desk()
        self.close = weakref.finalize(self, self._desk.close)

    @property
    def pids(self) -> list[int]:
        """The workers' process numbers."""
        return [worker.process.pid for worker in self._desk.workers]

    def submit(self, request: dict[str, Any], receive: Receive | None = None) -> "Future[dict[str, Any]]":
        """Ask for what `decoding.answer` understands; `receive` is given frames in shared memory, to copy.

        The future raises MorphVlaError when a worker has ended.
        """
        desk, future = self._desk, Future()
        with desk.lock:
            if desk.broken or desk.closed:
                future.set_exception(desk.broken or MorphVlaError(CLOSED))
                return future
            while len(desk.workers) < self.count:
                worker = Worker(self.size)
                thread = threading.Thread(target=desk.serve, args=(worker,), daemon=True)
                desk.workers.append(worker)
                desk.threads.append(thread)
                thread.start()
            desk.requests.put((request, receive, future))
        return future


class Here:
    """The pool's double without processes, for what takes less time than starting them."""

    def __init__(self, size: int):
        self.size, self._films = size, decoding.Films()

    def submit(self, request: dict[str, Any], receive: Receive | None = None) -> "Future[dict[str, Any]]":
        """As `Pool.submit`, done when it returns."""
        future: Future[dict[str, Any]] = Future()
        pictures = np.empty((UNIT, self.size, self.size, 3), np.uint8)
        answer = decoding.answer(request, self._films, pictures, self.size)
        if receive and "done" in answer:
            receive(pictures[: answer["done"]])
        future.set_result(answer)
        return future

    def close(self) -> None:
        """Close what is open."""
        self._films.close()
