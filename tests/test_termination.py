"""SIGTERM is an interruption: what is half written goes, and the handler of before comes back."""

import concurrent.futures
import multiprocessing
import os
import signal
import threading
import time

import pytest

from morph_vla import cli
from morph_vla.termination import Terminated, ending_workers, terminable
from morph_vla.weights.checkpoint import fresh


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def came():
    """The numbers that a handler of somebody else's was called with."""
    numbers = []
    before = signal.signal(signal.SIGTERM, lambda number, _: numbers.append(number))
    yield numbers
    signal.signal(signal.SIGTERM, before)


def test_it_raises_within_the_block_and_is_another_handlers_behind_it(came):
    with pytest.raises(Terminated), terminable():
        terminate()
    assert came == []
    terminate()
    assert came == [signal.SIGTERM]


def test_one_that_is_ignored_stays_so(came):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with terminable():
        terminate()
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_another_thread_than_the_main_one_changes_nothing(came):
    handlers = []

    def work() -> None:
        with terminable():
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [before]


@pytest.mark.parametrize(
    ("command", "kept"), [("weights", ""), ("train", ": what is finished is kept; the same command goes on")]
)
def test_a_command_that_is_terminated_leaves_nothing_half_written(run, monkeypatch, tmp_path, command, kept):
    def write(*_):
        with fresh(tmp_path / "converted") as unfinished:
            (unfinished / "half").write_text("of it")
            terminate()

    monkeypatch.setattr(cli, "_run", write)
    assert run(command) == (143, "", f"\nterminated{kept}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_second_one_does_not_cut_the_clean_up_short(came):
    def work() -> None:
        with terminable():
            try:
                terminate()
            finally:
                terminate()
                came.append("cleaned up")

    with pytest.raises(Terminated):
        work()
    assert came == ["cleaned up"]


def test_workers_end_with_it_and_are_not_waited_for():
    def work() -> None:
        context = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(1, mp_context=context)
        with pool, ending_workers(), terminable():
            pool.submit(time.sleep, 600)
            terminate()

    begun = time.monotonic()
    with pytest.raises(Terminated):
        work()
    assert time.monotonic() - begun < 300
