"""`morph-vla bench`: the door to `benchmarks/` of a checkout, which is no part of the installed package."""

import argparse
import importlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from morph_vla.cli.common import Parser, add_json, add_number
from morph_vla.errors import MorphVlaError

ROOT = Path(__file__).resolve().parents[2]  # of the checkout, where this is one
VERBS = {
    "robots": "time to read and judge a robot, and of its graph and descriptors, up to 500 joints",
    "data": "samples per second of our loader, of memory-mapped frames and of LeRobot's DataLoader",
    "serve": "requests per second of the policy server and their latency, beside whole batches without it",
    "sim": "control steps per second by environments and workers, and where the time goes",
    "train": "the parts of a training step, against the joint pass and openpi's step",
    "fourier": "latency of a Fourier controller and of a transformer with a key-value cache, on one core",
    "families": "one answer of each condition of a grid: what a policy family costs when it acts",
    "bet": "the ways of doing the same that a Behavior Transformer keeps, and the milliseconds of an action",
    "ready": "what parameters that are ready to serve save, in a step of the sampler and in memory",
    "pixels": "a training step and a call with fewer image tokens, and ranking against brute force",
    "sparse": "masked attention that skips masked pairs, against dense attention",
    "model": "one pass over the prefix against the joint pass, sampling, and the cost of each variant",
}
EXAMPLES = """
  morph-vla bench
  morph-vla bench data
  morph-vla bench model
  morph-vla bench serve
  morph-vla bench sim
  morph-vla bench --repeats 31 --json
"""


REPEATS = 11
OF_ALL = ("repeats_of_all", "json_of_all")
"""Where `--repeats` and `--json` of `bench` without a verb are kept"""


class Verb(Parser):
    """A verb's parser, which takes its arguments from the verb's own module once it is asked for."""

    def parse_known_args(self, *arguments: Any, **options: Any) -> tuple[Any, list[str]]:
        """See `Parser`."""
        module = benchmark(self.prog.split()[-1])
        self.epilog = f"examples:\n{module.EXAMPLES.strip(chr(10))}"
        module.configure(self)
        asked, left = super().parse_known_args(*arguments, **options)
        asked.run = partial(_run, asked.run)
        return asked, left


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench`."""
    # A verb has options of the same names, whose defaults would stand in place of what is given before it.
    add_number(parser, "--repeats", REPEATS, "how often each side is measured", least=1, dest=OF_ALL[0])
    add_json(parser, dest=OF_ALL[1])
    parser.set_defaults(run=lambda asked: benchmark("ratios").run(asked.repeats_of_all, asked.json_of_all))
    verbs = parser.add_subparsers(metavar="VERB", required=False, parser_class=Verb)
    for name, summary in VERBS.items():
        verbs.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")


def _run(verb: Callable[[argparse.Namespace], None], arguments: argparse.Namespace) -> None:
    """Run a verb. Raises MorphVlaError for options of `bench` alone, which stand before it."""
    if (getattr(arguments, OF_ALL[0]), getattr(arguments, OF_ALL[1])) != (REPEATS, False):
        raise MorphVlaError("--repeats and --json before the verb are of `bench` alone; write them behind it")
    verb(arguments)


def benchmark(name: str) -> ModuleType:
    """The module benchmarks/NAME.py of this checkout. Raises MorphVlaError where this is none."""
    if not (ROOT / "benchmarks" / "harness.py").is_file():
        raise MorphVlaError(
            "the benchmarks live in a checkout of morph_vla, not in the package: run `make bench` in one"
        )
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module(f"benchmarks.{name}")
    except ModuleNotFoundError as error:
        missing = f"'{error.name}' is not installed; the benchmarks want every extra: make setup"
        raise MorphVlaError(missing) from error
