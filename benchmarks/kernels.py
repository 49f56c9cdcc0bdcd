"""Where a device's time goes, kernel by kernel: JAX's profiler over some turns, beside the program's text."""

import gzip
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

TURNS = 3
NAMED = re.compile(r'^\s+(?:ROOT )?%?([\w.\-]+) = .*?op_name="([^"]*)"', re.MULTILINE)
GRAPH = "command_buffer"  # what XLA calls a graph of kernels that it launches as one
STREAM = "Stream"  # what a GPU's plane calls the lines that have its kernels


@dataclass(frozen=True)
class Kernel:
    """One kernel of a program: how often a turn runs it, and the time of all of these."""

    name: str
    scope: str
    """The module and operation that it came from, where the program says"""
    count: float
    ms: float


def traced(run: Callable[[], Any], program: Any, folder: Path) -> list[Kernel]:
    """The kernels of a program's turn, dearest first; the raw trace and the text stay in `folder`."""
    run()
    folder.mkdir(parents=True, exist_ok=True)
    with jax.profiler.trace(str(folder)):
        for _ in range(TURNS):
            run()
    text = program.as_text()
    with gzip.open(folder / "program.txt.gz", "wt") as file:
        file.write(text)
    path = max(folder.rglob("*.xplane.pb"), key=lambda path: path.stat().st_mtime)
    scopes = {_plain(name): scope for name, scope in NAMED.findall(text)}
    total = defaultdict[str, float](float)
    counts = defaultdict[str, int](int)
    for name, milliseconds in events(path):
        total[name] += milliseconds
        counts[name] += 1
    kernels = (
        Kernel(name, scopes.get(_plain(name), ""), counts[name] / TURNS, total[name] / TURNS)
        for name in total
    )
    return sorted(kernels, key=lambda kernel: -kernel.ms)


def _plain(name: str) -> str:
    """As a kernel is called after its instruction: with no other sign than "_"."""
    return re.sub(r"[.\-]", "_", name)


def events(path: Path) -> Iterator[tuple[str, float]]:
    """(the instruction, or the kernel where no instruction is known; milliseconds) of everything that ran."""
    data = jax.profiler.ProfileData.from_file(str(path))  # held: what it gives are views of it
    planes = list(data.planes)
    devices = [plane for plane in planes if plane.name.startswith("/device:")]
    for plane in devices or planes:
        for line in plane.lines:
            if devices and not line.name.startswith(STREAM):
                continue
            for event in line.events:
                operation = str(dict(event.stats).get("hlo_op", ""))
                if operation.startswith(GRAPH):  # of many kernels, each of which has its own name
                    operation = event.name
                if devices or operation:
                    yield operation or event.name, event.duration_ns / 1e6
