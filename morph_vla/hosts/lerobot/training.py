"""LeRobot's own trainer in a process of its own: `lerobot-train` on our recordings, killed and gone on with.

    FOLDER/run/checkpoints/000600/   what LeRobot writes; `last` is a link to the newest
    FOLDER/merged/                   several recordings as one, by LeRobot's own tool
    FOLDER/log.txt                   what it prints, of all processes one after the other

The folder is of one training: whoever asks for another one removes it.
"""

import contextlib
import io
import logging
import math
import os
import re
import selectors
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from morph_vla.errors import MorphVlaError, reason, require
from morph_vla.hosts.lerobot.options import Training, require_trainer
from morph_vla.termination import terminable

if TYPE_CHECKING:
    from morph_vla.training.progress import Report

LOG = logging.getLogger(__name__)
PROGRAM = (sys.executable, "-m", "morph_vla.hosts.lerobot.watched")
LINES, CHECKPOINTS = 50, 5  # of a training
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
WAITING = {"OMP_WAIT_POLICY": "PASSIVE"}
"""Threads that wait sleep: on a busy machine they would take the time of those they wait for"""
LINE = re.compile(r"step:\S+ .*?\bloss:(?P<loss>\S+) .*?\blr:(?P<lr>\S+) .*?\bsmp/s:(?P<pace>\S+)")
PARAMETERS = re.compile(r"\bnum_total_params=(\d+)")
LINE_END = re.compile(rb"\r\n|[\r\n]")  # a bar's lines end with \r
SIGNALS_S = 1.0
"""How long a signal may wait that comes just before a read"""
BAR = re.compile(r"^Training: .*?(?:\b(?P<done>\d+)/\d+ .*?)?(?:step/s|s/step)\]")


@dataclass(frozen=True)
class Demonstrations:
    """What is trained on: a dataset, and its episodes by their numbers."""

    dataset: Path
    episodes: tuple[int, ...]
    total: int
    """How many the dataset has"""


@dataclass(frozen=True)
class Trained:
    """What a training left."""

    checkpoint: Path
    """What `theirs.LerobotPolicy` loads"""
    parameters: int | None
    loss: float | None
    """Mean since the line before the last of the log"""


@dataclass(frozen=True)
class _Run:
    """One process's worth of a training."""

    training: Training
    folder: Path
    on_report: "Callable[[Report], None]"

    @property
    def output(self) -> Path:
        return self.folder / "run"

    @property
    def log(self) -> Path:
        return self.folder / "log.txt"

    @property
    def log_every(self) -> int:
        return int(self.training.value("log_freq", str(max(1, self.training.steps // LINES))))

    @property
    def last(self) -> Path:
        return self.output / "checkpoints" / "last"

    @property
    def done(self) -> int:
        """Steps of the newest checkpoint."""
        return int(self.last.resolve().name) if self.last.exists() else 0


def train(
    training: Training,
    parts: Sequence[Demonstrations],
    seed: int,
    folder: Path,
    on_report: "Callable[[Report], None]",
) -> Trained:
    """Train into `folder`, from LeRobot's newest checkpoint in it where there is one; where LeRobot makes no
    step from that and was not killed, that is put aside and it begins anew. Any other failure leaves what is
    there.

    Raises MorphVlaError where lerobot-train fails or its loss is no number, and KeyboardInterrupt where
    SIGTERM stopped it.
    """
    require_trainer()
    folder.mkdir(parents=True, exist_ok=True)
    run = _Run(training, folder, on_report)
    if run.done < training.steps:
        begin = _words(run, _joined(parts, folder / "merged"), seed)
        if run.done:
            try:
                _follow(run, [*begin, "resume=true", f"config_path={run.last / CONFIG}"])
            except _FailedError as error:
                if error.went_on:
                    raise
                refused = run.output.with_name("run.refused")
                shutil.rmtree(refused, ignore_errors=True)
                run.output.rename(refused)
                words = "LeRobot cannot go on from its checkpoint, which %s keeps, and begins anew: %s"
                LOG.warning(words, refused, error)
        if run.done < training.steps:
            shutil.rmtree(run.output, ignore_errors=True)
            run.log.unlink(missing_ok=True)
            _follow(run, begin)
    parameters, loss = _read(run.log)
    return Trained(run.last.resolve() / "pretrained_model", parameters, loss)


CONFIG = "pretrained_model/train_config.json"


class _FailedError(MorphVlaError):
    """lerobot-train ended before its last step."""

    def __init__(self, words: str, went_on: bool):
        """`went_on`: whether it made a step or was killed, so that nothing is wrong with its checkpoint."""
        super().__init__(words)
        self.went_on = went_on


def _words(run: _Run, demonstrations: Demonstrations, seed: int) -> list[str]:
    """The options of lerobot-train, those asked for last."""
    every = max(1, run.training.steps // CHECKPOINTS)
    kept = len(demonstrations.episodes) < demonstrations.total
    numbers = ",".join(map(str, demonstrations.episodes))
    return [
        "dataset.repo_id=local/recording",
        f"dataset.root={demonstrations.dataset.resolve()}",
        *([f"dataset.episodes=[{numbers}]"] if kept else []),
        f"output_dir={run.output.resolve()}",
        f"seed={seed}",
        f"policy.device={'cuda' if require('torch', 'lerobot').cuda.is_available() else 'cpu'}",
        "policy.push_to_hub=false",
        "wandb.enable=false",
        "num_workers=0",
        "env_eval_freq=0",
        f"log_freq={run.log_every}",
        f"save_freq={every}",
        *run.training.words,
    ]


def _joined(parts: Sequence[Demonstrations], folder: Path) -> Demonstrations:
    """Several recordings as one, by LeRobot's own tool, once; one as it is."""
    if len(parts) == 1:
        return parts[0]
    if not folder.exists():
        _merge([part.dataset for part in parts], folder)
    before = [sum(part.total for part in parts[:place]) for place in range(len(parts))]
    numbers = [first + n for first, part in zip(before, parts, strict=True) for n in part.episodes]
    return Demonstrations(folder, tuple(numbers), sum(part.total for part in parts))


def _merge(datasets: Sequence[Path], folder: Path) -> None:
    """Write datasets as one, whole or not at all. Raises MorphVlaError with LeRobot's reason."""
    aggregate = require("lerobot.datasets.aggregate", "lerobot").aggregate_datasets
    unfinished = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    names = [f"local/{place}" for place in range(len(datasets))]
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # its bars
            aggregate(names, "local/merged", roots=[*datasets], aggr_root=unfinished)
    except Exception as error:  # whatever LeRobot raises
        those = ", ".join(map(str, datasets))
        raise MorphVlaError(f"LeRobot cannot merge {those}: {reason(error)}") from error
    unfinished.rename(folder)


def _follow(run: _Run, words: Sequence[str]) -> None:
    """Run lerobot-train to its end, and report its lines."""
    begun, lines, stepped = run.done, 0, False
    with _started(run, words) as (process, output), run.log.open("a", encoding="utf-8") as log:
        for line in output:
            if bar := BAR.match(line):  # long before the first line of the log
                stepped = stepped or int(bar["done"] or 0) > 0
                line = line[bar.end() :]
            if not line.strip():
                continue
            print(line, file=log, flush=True)
            if values := LINE.search(line):
                lines += 1
                step = (begun // run.log_every + lines) * run.log_every
                run.on_report(_report(run.training.steps, step, values))
        status = process.wait()
    if run.done < run.training.steps:
        text = [line for line in run.log.read_text(encoding="utf-8").splitlines() if line.strip()]
        last_line = text[-1].strip() if text else "it printed nothing"
        words = f"lerobot-train ended with status {status}: {last_line} (all of it: {run.log})"
        raise _FailedError(words, went_on=stepped or lines > 0 or run.done > begun or status < 0)


@contextlib.contextmanager
def _started(run: _Run, words: Sequence[str]) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    """The process and the lines it prints. It ends with this block; SIGTERM ends both."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = WAITING | dict.fromkeys(THREADS, str(cores)) | os.environ
    threads.pop("SLURM_JOB_ID", None)  # LeRobot then shows no bar, by which steps are counted
    process = subprocess.Popen(
        [*PROGRAM, *(f"--{word}" for word in words)], bufsize=0,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=threads,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        with terminable(), process.stdout as output:
            yield process, _lines(output.fileno())
    finally:
        process.kill()
        process.wait()
        if process.stdin:
            process.stdin.close()


def _lines(pipe: int) -> Iterator[str]:
    """Lines from a pipe, without their ends.

    It never waits longer than a second, so that a signal that comes just before it waits is answered.
    """
    rest, ended = b"", False
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not ended:
            if not selector.select(SIGNALS_S):
                continue
            piece = os.read(pipe, 1 << 16)
            ended = not piece
            *whole, rest = LINE_END.split(rest + piece)
            yield from (line.decode("utf-8", "replace") for line in whole)
    yield rest.decode("utf-8", "replace")


def _report(steps: int, step: int, values: re.Match[str]) -> "Report":
    """A line of LeRobot's log. Raises MorphVlaError where the loss is no number."""
    from morph_vla.training.progress import Report

    loss, lr, pace = (float(values[name]) for name in ("loss", "lr", "pace"))
    if not math.isfinite(loss):
        raise MorphVlaError(f"LeRobot's loss is {loss} at step {step}; lower policy.optimizer_lr")
    nothing: dict[str, Any] = {"robots": {}, "held_out": None, "held_out_loss": None, "gradient_norms": {}}
    return Report(
        step=step, steps=steps, loss=loss, lr=lr, samples_per_s=pace, steps_per_s=math.nan, waiting=0.0,
        gradient_norm=math.nan, **nothing,
    )  # fmt: skip


def _read(log: Path) -> tuple[int | None, float | None]:
    """Parameters and the last loss, as a log says them."""
    text = log.read_text(encoding="utf-8") if log.exists() else ""
    parameters, lines = PARAMETERS.findall(text), LINE.findall(text)
    return int(parameters[-1]) if parameters else None, float(lines[-1][0]) if lines else None
