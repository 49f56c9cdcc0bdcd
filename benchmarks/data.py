"""`morph-vla bench data`: samples per second of our loader and of LeRobot's own, on the same dataset.

The sides take turns in one run, with batches of the same size, the same chunks of actions and as many worker
processes. Each turn begins with batches that are not counted, made ahead while another had its turn.
A sample is all of the dataset's cameras scaled to the model's image size, the state and a chunk of actions.
On a machine that does other work too, the processor time of a sample says more than the clock.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import lerobot_loader
from benchmarks.harness import add_common, load, processor_s, show
from morph_vla.cli.render import print_json
from morph_vla.data import frames, lerobot, mixture, pool, transforms
from morph_vla.recipes import recipe as config

EXAMPLES = """
  morph-vla bench data                        # on a dataset that it writes itself
  morph-vla bench data runs/demos --workers 8
  morph-vla bench data panda_demo data.dataset=runs/demos --json
"""
AHEAD = 4  # steps under way at once in our loader, as in training


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench data`."""
    parser.add_argument(
        "data",
        nargs="?",
        default="",
        metavar="DATASET|RECIPE",
        help="a dataset's folder, or a recipe, whose datasets, batch, horizon and image size are taken "
        "(default: a dataset of 2 cameras of 240x320 that LeRobot's writer makes here)",
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="changes to the recipe")
    parser.add_argument("--batch", type=int, default=0, metavar="N", help="samples of a batch (default 32)")
    parser.add_argument("--horizon", type=int, default=0, metavar="N", help="actions of a chunk (default 16)")
    parser.add_argument("--size", type=int, default=0, metavar="N", help="of the images (default 224 pixels)")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes of each side")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="turns of each side (default 3)")
    parser.add_argument("--batches", type=int, default=8, metavar="N", help="counted in a turn (default 8)")
    add_common(parser, run)


def run(arguments: argparse.Namespace) -> None:
    """Print samples per second of each loader, and how many times LeRobot's that is."""
    roots, batch, horizon, size = _asked(arguments)
    workers = arguments.workers or pool.default_workers()
    with tempfile.TemporaryDirectory() as folder:
        if not roots:
            roots = [str(Path(folder) / "example")]
            lerobot_loader.write_example(Path(roots[0]), episodes=8, frames=40)
        found = []
        for root in roots:
            sides = Sides(root, Path(folder), batch, horizon, size, workers)
            found.append(sides.measure(max(1, arguments.rounds), max(1, arguments.batches)))
            if not arguments.json:
                show(found[-1], HEADER, _cells, as_json=False, right=(1, 2, 3))
                print()
    if arguments.json:
        print_json(found)


def _asked(arguments: argparse.Namespace) -> tuple[list[str], int, int, int]:
    """Datasets, batch, horizon and image size: of a recipe, or of the options."""
    roots, batch, horizon, size = [arguments.data] if arguments.data else [], 32, 16, 224
    if arguments.data and not Path(arguments.data).is_dir():
        recipe = config.load(arguments.data, arguments.overrides)
        roots = list(dict.fromkeys(source.dataset for source in recipe.data.sources))
        batch, horizon, size = recipe.training.batch, recipe.model.horizon, recipe.model.image_size
    return roots, arguments.batch or batch, arguments.horizon or horizon, arguments.size or size


class Sides:
    """Our loader in both modes and LeRobot's, on one dataset."""

    def __init__(self, root: str, folder: Path, batch: int, horizon: int, size: int, workers: int):
        """Read the dataset and decode its frames for the cache."""
        self.recordings = lerobot.read(root)
        self.batch, self.horizon, self.size, self.workers = batch, horizon, size, workers
        self.pool = pool.Pool(workers, size)
        footage = {name: lerobot.footage(self.recordings, name) for name in self.recordings.cameras}
        begun = time.perf_counter()
        kept = {
            name: frames.Kept(frames.cached(one, size, folder / "cache", workers=self.pool))
            for name, one in footage.items()
        }
        self.decoding_s = time.perf_counter() - begun
        video = {name: frames.opened(one, self.pool) for name, one in footage.items()}
        data = lerobot_loader.dataset(self.recordings.root, horizon)
        theirs = lerobot_loader.Resized(data, size)
        self.loaders: dict[str, Iterator[Any]] = {
            "LeRobot's DataLoader, scaled as openpi does": lerobot_loader.batches(theirs, batch, workers),
            "LeRobot's DataLoader, not scaled": lerobot_loader.batches(data, batch, workers),
            "ours, video": self.ours(video),
            "ours, memory-mapped frames": self.ours(kept),
        }

    def ours(self, opened: dict[str, Any]) -> Iterator[Any]:
        """Batches without end from these frames, ordered and made ahead as in training."""
        recordings = self.recordings
        order = mixture.mix([np.arange(recordings.frames)], [1], self.batch, seed=0)

        def at(step: int) -> Any:
            _, rows = order.at(step)
            waiting = {name: one.ask(rows) for name, one in opened.items()}
            chunk = transforms.chunks(recordings, rows, self.horizon)
            return {name: wait() for name, wait in waiting.items()}, recordings.state[rows], chunk

        return mixture.ahead(at, 0, 1 << 30, AHEAD)

    def measure(self, rounds: int, batches: int) -> dict[str, Any]:
        """Median samples per second of each side over `rounds` turns."""
        before = load()
        rates: dict[str, list[float]] = {name: [] for name in self.loaders}
        costs: dict[str, list[float]] = {name: [] for name in self.loaders}
        uncounted = 3 * AHEAD + 2 * self.workers
        for _ in range(rounds):
            for name, loader in self.loaders.items():
                for _ in range(uncounted):
                    next(loader)
                begun, used = time.perf_counter(), self._processor_s(loader)
                for _ in range(batches):
                    next(loader)
                rates[name].append(batches * self.batch / (time.perf_counter() - begun))
                costs[name].append((self._processor_s(loader) - used) / (batches * self.batch))
        self.pool.close()
        medians = {name: statistics.median(found) for name, found in rates.items()}
        reference = next(iter(medians.values()))
        return {
            "dataset": str(self.recordings.root),
            "episodes": len(self.recordings.starts),
            "frames": self.recordings.frames,
            "cameras": list(self.recordings.cameras),
            "batch": self.batch,
            "horizon": self.horizon,
            "image_size": self.size,
            "workers": self.workers,
            "cores": os.cpu_count(),
            "lerobot_decodes_with": lerobot_loader.backend(),
            "decoding_all_once_s": self.decoding_s,
            "load_before": before,
            "load_after": load(),
            "rows": [
                {
                    "loader": name,
                    "samples_per_s": rate,
                    "ratio": rate / reference,
                    "processor_ms_per_sample": 1e3 * statistics.median(costs[name]),
                    "turns": rates[name],
                }
                for name, rate in medians.items()
            ],
        }

    def _processor_s(self, loader: Any) -> float:
        """Processor time of this process and a loader's workers so far; nan where there is no /proc."""
        workers = [worker.pid for worker in getattr(loader, "_workers", ())] or self.pool.pids
        return time.process_time() + processor_s(workers)


HEADER = ("loader", "samples/s", "of LeRobot's", "processor ms a sample")


def _cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["loader"],
        f"{row['samples_per_s']:.1f}",
        f"{row['ratio']:.2f}",
        f"{row['processor_ms_per_sample']:.2f}",
    )
