"""`make gpu`: everything to be known of one accelerator, in parts, into one JSON file and one page.

    python -m benchmarks.gpu runs/gpu                  pi0.5 itself
    python -m benchmarks.gpu runs/gpu --size small     the same list in minutes, on a CPU too

Each part has a process of its own, which is ended after 8 minutes, and is written down when it is done: the
same command goes on with what is missing and tries again what failed. With `--at-once N` all are in one
process that nothing ends; `--minutes` counts from its start. What cannot be done here says why. Nothing is
fetched: whatever JAX is there is used, and flax, optax, pydantic and the like beside it (`make gpu
WHEELS=folder` takes them from wheels); loader and demo need the simulator as well.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

from benchmarks import ahead
from benchmarks.gpu_part import BATCHES, Asked, Result
from benchmarks.gpu_parts import ALL, goals, is_compiled_ahead, title
from morph_vla import process
from morph_vla.errors import MorphVlaError
from morph_vla.files.writing import write_text
from morph_vla.wording import span, table

LIMIT = 480  # [s] of a part
JSON, PAGE = "results.json", "page.md"


def results(folder: Path) -> dict[str, Result]:
    """What is known so far, in the order of the list."""
    path = folder / JSON
    known = json.loads(path.read_text()) if path.exists() else {}
    return {name: Result(**known[name]) for name in ALL if name in known}


def keep(folder: Path, name: str, result: Result) -> None:
    """Add a part's result to the JSON file, and write the page anew."""
    known = {**results(folder), name: result}
    plain = {part: dataclasses.asdict(known[part]) for part in ALL if part in known}
    write_text(folder / JSON, json.dumps(plain, indent=2))
    write_text(folder / PAGE, page(known))


def page(known: dict[str, Result]) -> str:
    """Every result as a table, and in a sentence why there is none."""
    done = sum(not (result.not_possible or result.failed) for result in known.values())
    lines = ["# pi0.5 on one device", "", f"{done} of {len(ALL)} parts are done.", ""]
    before = ""
    for name in ALL:
        result = known.get(name)
        if title(name) != before:
            before = title(name)
            lines += [f"## {before}", ""]
        if result is None:
            lines += [f"{name}: not yet run.", ""]
        elif result.not_possible or result.failed:
            how = "not possible here" if result.not_possible else "failed"
            lines += [f"{name}: {how}: {result.not_possible or result.failed}", ""]
        if result is not None and result.rows:
            rows = table(list(result.rows[0]), [list(row.values()) for row in result.rows])
            lines += [f"{name}, {span(result.seconds)}. {result.note}".rstrip(), "", "```", *rows, "```", ""]
    return "\n".join(lines)


def remaining(known: dict[str, Result]) -> list[str]:
    """The parts to run: those never tried, then those that failed or were not possible."""
    again = [name for name, result in known.items() if result.failed or result.not_possible]
    return [name for name in ALL if name not in known] + again


def run_part(asked: Asked, name: str) -> None:
    """Run one part here."""
    began = time.monotonic()
    try:
        result = ALL[name](asked)
    except (MorphVlaError, ImportError) as error:
        result = Result(not_possible=" ".join(str(error).split()))
    except Exception as error:  # of XLA (out of memory) or of openpi: the list goes on
        lines = str(error).strip().splitlines() or [""]
        result = Result(failed=f"{type(error).__name__}: {lines[0]}")
    said = goals(name, result.rows) if asked.size == "full" else ""
    note, seconds = "; ".join(filter(None, (result.note, said))), round(time.monotonic() - began, 1)
    keep(asked.folder, name, dataclasses.replace(result, note=note, seconds=seconds))


def at_once(asked: Asked, todo: list[str], threads: int, until: float) -> None:
    """Compile what these parts need side by side, then run one after the other, none after `until`."""
    began, first = time.monotonic(), [name for name in todo if is_compiled_ahead(name)]

    def timed(name: str) -> None:
        ALL[name](asked)
        print(f"{name} is compiled after {time.monotonic() - began:.0f} s", flush=True)

    for name, error in zip(
        first, ahead.all_of((partial(timed, name) for name in first), threads), strict=True
    ):
        if error is not None:
            print(f"{name} was not compiled: {error}", flush=True)
    print(f"{len(first)} parts compiled in {time.monotonic() - began:.0f} s", flush=True)
    for name in todo:
        if time.monotonic() > until:
            print(f"the time is over; {name} and what follows are still to come")
            return
        run_part(asked, name)
        result = results(asked.folder)[name]
        print(name, result.not_possible or result.failed or f"{result.seconds:g} s", flush=True)


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("folder", type=Path, help="where results.json and page.md are kept")
    made.add_argument("--size", choices=BATCHES, default="full")
    made.add_argument("--repeats", type=int, default=9, help="of which the median is taken (default 9)")
    made.add_argument("--openpi", type=Path, help="a checkout of openpi")
    made.add_argument(
        "--dataset", type=Path, help="a LeRobot dataset of a Panda, with cameras exterior and wrist"
    )
    made.add_argument("--minutes", type=float, default=float("inf"), help="begin no part after so many")
    made.add_argument("--only", action="append", default=[], choices=ALL, metavar="PART", help="may repeat")
    made.add_argument(
        "--at-once",
        type=int,
        default=0,
        metavar="N",
        help="compile what the parts need in N threads, then measure, all in one process: quickest",
    )
    made.add_argument("--part", choices=ALL, help="this one, in this process")
    return made


def main(words: list[str] | None = None) -> int:
    """Run the parts that are not done, each in a process of its own."""
    words = sys.argv[1:] if words is None else words
    arguments = parser().parse_args(words)
    folder = arguments.folder.resolve()
    asked = Asked(folder, arguments.size, arguments.repeats, arguments.openpi, arguments.dataset)
    if arguments.part:
        run_part(asked, arguments.part)
        return 0
    process.keep_compiled()
    began, known = time.monotonic(), results(folder)
    todo = [name for name in remaining(known) if not arguments.only or name in arguments.only]
    if arguments.at_once:
        at_once(asked, todo, arguments.at_once, began + 60 * arguments.minutes)
        return 0
    for name in todo:
        if time.monotonic() - began > 60 * arguments.minutes:
            print(f"{arguments.minutes:g} minutes are over; the same command goes on with {name}")
            return 0
        print(f"{name} ...", end=" ", flush=True)
        try:
            command = [sys.executable, "-m", "benchmarks.gpu", *words, "--part", name]
            ended = subprocess.run(command, check=False, timeout=LIMIT).returncode
            reason = f"its process ended with {ended}" if ended else ""
        except subprocess.TimeoutExpired:
            reason = f"it took more than {span(LIMIT)}"
        if reason:
            keep(folder, name, Result(failed=reason))
        result = results(folder)[name]
        print(result.not_possible or result.failed or f"{result.seconds:g} s", flush=True)
    print(folder / PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
