"""What a compiled program does in its loops, read from its text: an operation is an HLO instruction."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) .*\{$")
INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (\(.*?\)|\S+) ([\w\-]+)\((.*)$")
CALLED = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)")
TRIPS = re.compile(r'known_trip_count":\{"n":"(\d+)"')
BODY = re.compile(r"body=%?([\w.\-]+)")
SHAPE = re.compile(r"^(\w+)\[([\d,]*)\]")
# Operations that compute nothing.
MOVES = ("dynamic-slice", "slice", "copy", "transpose", "concatenate", "convert")


@dataclass(frozen=True)
class Operation:
    """An instruction: its name, type and shape; a tuple's shape is empty."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    rest: str
    """Operands and attributes, as they are written"""


Program = Mapping[str, list[Operation]]


def read(text: str) -> Program:
    """The computations of `compiled.as_text()`; that which begins is under ""."""
    program: dict[str, list[Operation]] = {}
    current: list[Operation] = []
    for line in text.splitlines():
        if start := COMPUTATION.match(line):
            current = program.setdefault("" if start[1] else start[2], [])
        elif found := INSTRUCTION.match(line):
            shape = SHAPE.match(found[1])
            sizes = tuple(int(n) for n in shape[2].split(",") if n) if shape else ()
            current.append(Operation(found[2], shape[1] if shape else "", sizes, found[3]))
    return program


def loops(program: Program, computation: str = "") -> list[Operation]:
    """The loops that a computation begins, not those within them."""
    found = []
    for operation in program[computation]:
        if operation.name == "while":
            found.append(operation)
        else:
            for name in CALLED.findall(operation.rest):
                found += loops(program, name)
    return found


def trips(loop: Operation) -> int:
    """How often a loop's body runs; 1 where the program does not say."""
    found = TRIPS.search(loop.rest)
    return int(found[1]) if found else 1


def within(program: Program, loop: Operation) -> Iterator[tuple[Operation, int]]:
    """Every operation of one turn of a loop, and how often it runs in that turn."""
    for name in BODY.findall(loop.rest):
        yield from _run(program, name, 1)


def _run(program: Program, computation: str, times: int) -> Iterator[tuple[Operation, int]]:
    for operation in program[computation]:
        yield operation, times
        inner = times * trips(operation) if operation.name == "while" else times
        for name in CALLED.findall(operation.rest):
            yield from _run(program, name, inner)


def weight_axes(stacks: Mapping[str, tuple[int, ...]]) -> set[tuple[int, ...]]:
    """The `axes` of a layer's matrices, given names and shapes of pi0.5's leaves as they are trained."""
    layers = {name: shape[1:] for name, shape in stacks.items() if "/layers/" in name}
    halves = [shape[1:] for name, shape in layers.items() if "gating" in name]
    return {axes(shape) for shape in (*layers.values(), *halves) if len(axes(shape)) > 1}


def axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape in whatever order, without axes of 1."""
    return tuple(sorted(size for size in shape if size > 1))


def moving(program: Program, loop: Operation, weights: set[tuple[int, ...]]) -> Counter[str]:
    """How often a turn of a loop runs each of MOVES on what has a weight's axes."""
    counts: Counter[str] = Counter()
    for operation, times in within(program, loop):
        if operation.name in MOVES and axes(operation.shape) in weights:
            counts[operation.name] += times
    return counts
