"""The one console command, `morph-vla`.

Starting it imports nothing but argparse: a subcommand's module is imported when that subcommand is asked
for. Such a module has two things: `EXAMPLES`, shown by `--help`, and `configure(parser)`, which adds the
arguments and names the function to call with `parser.set_defaults(run=function)`. The function takes the
parsed arguments and returns None or an exit status.
"""

import argparse
import importlib
import io
import os
import sys
from collections.abc import Sequence

from morph_vla._version import __version__
from morph_vla.cli.common import Parser
from morph_vla.cli.progress import listening
from morph_vla.errors import MorphVlaError, nearest
from morph_vla.findings import printable
from morph_vla.termination import Terminated, terminable

# name -> (what it does, the module that does it); the order is that of the main job, and of `--help`
COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("show what this machine has, and how to install what it lacks", "morph_vla.cli.doctor"),
    "robots": ("list, show, draw, check and add robots", "morph_vla.cli.robots"),
    "recipes": ("list, show and check training recipes", "morph_vla.cli.recipes"),
    "suites": ("list, show and check evaluation suites", "morph_vla.cli.suites"),
    "record": (
        "record demonstrations of a suite's scripted expert as a LeRobot dataset",
        "morph_vla.cli.record",
    ),
    "stats": ("measure the quantiles of a dataset's states and actions", "morph_vla.cli.stats"),
    "weights": ("inspect and convert checkpoints of openpi, LeRobot and our own", "morph_vla.cli.weights"),
    "train": ("fine-tune a policy as a recipe says", "morph_vla.cli.train"),
    "eval": ("measure a checkpoint's success rate on a suite, with its interval", "morph_vla.cli.eval"),
    "poses": ("estimate poses of objects from a camera's pictures: train, check", "morph_vla.cli.poses"),
    "serve": ("let a checkpoint act for openpi's clients, over a websocket", "morph_vla.cli.serve"),
    "push": ("share a checkpoint with its evaluations, or a dataset, on the Hub", "morph_vla.cli.push"),
    "report": ("write one self-contained HTML page about evaluations", "morph_vla.cli.report"),
    "compare": (
        "compare evaluations: rates, differences, intervals, learning curves",
        "morph_vla.cli.compare",
    ),
    "merge": ("merge the parts of one evaluation into one record", "morph_vla.cli.merge"),
    "evidence": (
        "train and judge a grid of conditions, bodies and seeds, and say what follows",
        "morph_vla.cli.evidence",
    ),
    "demo": ("run the whole job once, small but real, from recording to report", "morph_vla.cli.demo"),
    "bench": ("measure the speed of two ways to do the same, side by side", "morph_vla.cli.bench"),
}

EXIT_USAGE, EXIT_INTERRUPTED, EXIT_TERMINATED = 2, 130, 143
RESUMED = ("train", "record", "eval", "evidence", "demo", "poses")
"""Commands that go on where they were interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `morph-vla` and return its exit status.

    0 is success, 1 a negative answer (of `doctor`, for one), 2 something the user can repair, printed as one
    sentence, 130 an interruption, 143 SIGTERM (0 where `train` and `serve` end in order on it).
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = next(iter(words), "--help")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="backslashreplace")  # a name that the terminal has no letters for
    stopped: list[KeyboardInterrupt] = []
    try:
        with listening(), terminable(stopped.append):
            status = _run(command, words)
        if sys.stdout is not None:  # closed: `>&-`
            sys.stdout.flush()
        return status
    except MorphVlaError as error:
        print(f"error: {printable(str(error))}", file=sys.stderr)
        return EXIT_USAGE
    except ImportError as error:
        if stopped:  # a library's C code, being imported, made an error of its own of it
            return _ended(command, stopped[0])
        from morph_vla.doctor import missing

        if not isinstance(error, ModuleNotFoundError) or not (words := missing(error)):
            raise
        print(f"error: {words}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt as error:
        return _ended(command, error)
    except BrokenPipeError:  # `morph-vla robots list | head -1`: the reader has what it wanted
        assert sys.stdout is not None  # it is what broke
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder that may not be written, a port that is taken
        if not error.strerror:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        print(f"error: {where}{error.strerror}", file=sys.stderr)
        return EXIT_USAGE


def _ended(command: str, interruption: KeyboardInterrupt) -> int:
    """Say that the command was ended and what it keeps; its exit status."""
    kept = ": what is finished is kept; the same command goes on" if command in RESUMED else ""
    is_told = isinstance(interruption, Terminated)
    print(f"\n{'terminated' if is_told else 'interrupted'}{kept}", file=sys.stderr)
    return EXIT_TERMINATED if is_told else EXIT_INTERRUPTED


def _run(command: str, words: list[str]) -> int:
    if not command.startswith("-") and command not in COMMANDS:
        raise MorphVlaError(f"no command '{command}'{nearest(command, COMMANDS)} ({', '.join(COMMANDS)})")
    namespace = build_parser(command).parse_args(words or ["--help"])
    return namespace.run(namespace) or 0


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of the whole command line; only `command`'s own arguments are filled in."""
    parser = Parser(
        prog="morph-vla",
        description="Vision-language-action policies that know the body they drive.",
        epilog="`morph-vla COMMAND --help` shows a command's options and examples.",
    )
    parser.add_argument("--version", action="version", version=f"morph-vla {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (summary, module_name) in COMMANDS.items():
        subparser = subparsers.add_parser(
            name, help=summary, description=f"{summary[0].upper()}{summary[1:]}."
        )
        if name == command:
            module = importlib.import_module(module_name)
            subparser.epilog = f"examples:\n{module.EXAMPLES.strip(chr(10))}"
            module.configure(subparser)
    return parser
