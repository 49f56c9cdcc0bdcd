"""`morph-vla bench serve`: requests per second of the server, and how long one waits, against clients.

Clients are in a process of their own; each asks as soon as it is answered, with two pictures of 224 x 224.
The reference is the same policy given whole batches in this process, measured before and after each row, so
that what else the machine does falls on both sides of a ratio. Without `--checkpoint` a stand-in answers,
which sleeps for as long as a batch takes on a GPU.

`--openpi` names a checkout of openpi, whose own server is asked by the same clients after ours: in a thread
of this process too, with the same policy, one observation at a time, which is all that it can.
"""

import argparse
import asyncio
import concurrent.futures
import contextlib
import dataclasses
import importlib
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import add_common, load, show
from morph_vla import robots
from morph_vla.errors import MorphVlaError
from morph_vla.files.plain import to_plain
from morph_vla.serving import bounds, keys
from morph_vla.serving import card as cards
from morph_vla.serving.card import Card
from morph_vla.serving.client import AsyncWebsocketClientPolicy
from morph_vla.serving.requests import example
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings

EXAMPLES = """
  morph-vla bench serve
  morph-vla bench serve --checkpoint runs/first/checkpoints/1400 --clients 1 8 64 --seconds 120 --json
  morph-vla bench serve --checkpoint runs/first/checkpoints/1400 --openpi ../openpi
"""
PIXELS = 224
CAMERAS = {"base_0_rgb": "exterior", "left_wrist_0_rgb": "wrist"}


class StandIn:
    """Sleeps for a batch, then answers with the state, moved by the observation's episode and step."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def infer(self, observation: dict[str, Any]) -> dict[str, Any]:
        """One answer."""
        return self.infer_batch([observation])[0]

    def infer_batch(self, observations: Any) -> list[dict[str, Any]]:
        """An answer each."""
        time.sleep(self.seconds)
        return [{"actions": expected(observation)} for observation in observations]


def expected(observation: dict[str, Any]) -> np.ndarray:
    """What the stand-in answers."""
    away = np.float32(1e-3 * observation["episode"] + 1e-6 * (observation["step"] % 1000))
    return np.tile(observation["state"] + away, (16, 1))


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `morph-vla bench serve`."""
    about = "connections at once (default 1 8 64)"
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64], metavar="N", help=about)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a row (default 5)")
    parser.add_argument("--batch", type=int, default=10, help="computed at once (default 10)")
    parser.add_argument("--ms", type=float, default=50.0, help="a batch of the stand-in (default 50)")
    parser.add_argument("--checkpoint", type=Path, default=None, help="a policy to ask")
    about = "a checkout of openpi, whose own server is asked beside ours"
    parser.add_argument("--openpi", type=Path, default=None, metavar="PATH", help=about)
    add_common(parser, run)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per number of clients."""
    for name in ("clients", "batch"):
        least = min(np.atleast_1d(getattr(arguments, name)))
        if least < 1:
            raise MorphVlaError(f"--{name} must be at least 1, not {least}")
    policy, card, limits = _served(arguments)
    with contextlib.ExitStack() as servers:
        openpi = None
        if arguments.openpi is not None:
            openpi = servers.enter_context(openpi_server(arguments.openpi, _alone(arguments, policy)))
        ours = PolicyServer(policy, card, limits, Settings(port=0)).background([example(card)])
        port = servers.enter_context(ours).port
        rows = [_row(policy, card, (port, openpi), count, arguments.seconds) for count in arguments.clients]
    found = {
        "policy": str(arguments.checkpoint or f"stand-in of {arguments.ms:g} ms"),
        "batch": arguments.batch,
        "seconds": arguments.seconds,
        "cores": os.cpu_count(),
        "load": load(),
        "rows": rows,
    }
    header = HEADER if arguments.openpi is None else (*HEADER, *OPENPI_HEADER)
    show(found, header, _cells, as_json=arguments.json, right=range(len(header)))


def _served(arguments: argparse.Namespace) -> tuple[Any, Card, bounds.Bounds]:
    """The policy, what its server says of it, and its bounds; a stand-in's answers have none."""
    if arguments.checkpoint is not None:
        from morph_vla.serving.policy import CheckpointPolicy  # JAX: only where a checkpoint is asked

        policy = CheckpointPolicy(arguments.checkpoint, batch=arguments.batch, any_size=True)
        return policy, *cards.of(policy)
    robot = robots.load("panda")
    affine = [(joint.scale, joint.zero) for joint in robot.joints]
    card = Card(
        name="stand-in", robot="panda", joints=robot.names, control_rate=15.0, batch=arguments.batch,
        keys=to_plain(keys.of(CAMERAS)), cameras=CAMERAS, image_size=PIXELS,
    )  # fmt: skip
    anywhere = np.full(len(robot.joints), np.inf)
    limits = dataclasses.replace(
        bounds.of(robot, affine, 15.0), lower=-anywhere, upper=anywhere, speed=anywhere
    )
    return StandIn(1e-3 * arguments.ms), card, limits


def _alone(arguments: argparse.Namespace, policy: Any) -> Any:
    """The policy that answers one observation soonest; it has answered one."""
    if arguments.checkpoint is None:
        return policy
    from morph_vla.serving.policy import CheckpointPolicy

    alone = CheckpointPolicy(arguments.checkpoint, batch=1)
    alone.infer(example(cards.of(alone)[0]))
    return alone


@contextlib.contextmanager
def openpi_server(checkout: Path, policy: Any) -> Iterator[int]:
    """The server of openpi itself for a policy, in a thread of this process; its port."""
    places = [checkout / "src", checkout / "packages" / "openpi-client" / "src"]
    if not all(place.is_dir() for place in places):
        raise MorphVlaError(f"--openpi {checkout}: no checkout of openpi ({places[0]} and {places[1]})")
    sys.path[:0] = map(str, places)
    module = importlib.import_module("openpi.serving.websocket_policy_server")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    loop = asyncio.new_event_loop()
    task = loop.create_task(module.WebsocketPolicyServer(policy, "127.0.0.1", port).run())

    def live() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=live, name="openpi", daemon=True)
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(15.0)
        if not thread.is_alive():
            loop.close()


def _asked(port: int, card: Card, clients: int, seconds: float) -> "Asked":
    """What clients in a process of their own met."""
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=spawn) as process:
        return process.submit(drive, port, card, clients, seconds).result()


def _row(
    policy: Any, card: Card, ports: tuple[int, int | None], clients: int, seconds: float
) -> dict[str, Any]:
    """One measurement, the reference before and after it; `ports` are of our server and of openpi's."""
    before = offline(policy, card, seconds / 2)
    asked, theirs = _asked(ports[0], card, clients, seconds), None
    alone = (before + offline(policy, card, seconds / 2)) / 2
    if ports[1] is not None:
        theirs = _asked(ports[1], card, clients, seconds)
    waited = np.array(asked.waited_s or [np.nan])
    rate = len(asked.waited_s) / asked.wall_s
    row = {
        "clients": clients,
        "requests_per_s": rate,
        "p50_ms": 1e3 * float(np.quantile(waited, 0.5)),
        "p99_ms": 1e3 * float(np.quantile(waited, 0.99)),
        "offline_per_s": alone,
        "share": rate / alone,
        "lost": asked.lost,
        "mixed": asked.mixed,
    }
    if theirs is not None:
        row["openpi_per_s"] = len(theirs.waited_s) / theirs.wall_s
        row["openpi_p99_ms"] = 1e3 * float(np.quantile(theirs.waited_s or [np.nan], 0.99))
        row["openpi_lost"] = theirs.lost
    return row


def offline(policy: Any, card: Card, seconds: float) -> float:
    """Observations per second of whole batches in this process."""
    batch, count, begun = [example(card)] * (card.batch or 1), 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        policy.infer_batch(batch)
        count += len(batch)
    return count / (time.perf_counter() - begun)


@dataclasses.dataclass
class Asked:
    """What clients met."""

    waited_s: list[float] = dataclasses.field(default_factory=list)
    lost: int = 0
    mixed: int = 0
    wall_s: float = 0.0


def drive(port: int, card: Card, clients: int, seconds: float) -> Asked:
    """Ask with so many clients for so long, in this process."""
    return asyncio.run(_drive(port, card, clients, seconds))


async def _drive(port: int, card: Card, clients: int, seconds: float) -> Asked:
    asked, stands_in = Asked(), card.name == "stand-in"
    policies = [AsyncWebsocketClientPolicy("127.0.0.1", port, timeout_s=60.0) for _ in range(clients)]
    await asyncio.gather(*(policy.connect() for policy in policies))
    begun = time.monotonic()

    async def ask(number: int, policy: AsyncWebsocketClientPolicy) -> None:
        step = 0
        while time.monotonic() - begun < seconds:
            observation = {**example(card), "episode": number, "step": step}
            since = time.monotonic()
            try:
                answer = await policy.infer(observation)  # which checks the id of the request
            except MorphVlaError:
                asked.lost += 1
                continue
            asked.waited_s.append(time.monotonic() - since)
            asked.mixed += stands_in and not np.array_equal(answer["actions"], expected(observation))
            step += 1

    await asyncio.gather(*(ask(number, policy) for number, policy in enumerate(policies)))
    asked.wall_s = time.monotonic() - begun
    await asyncio.gather(*(policy.close() for policy in policies))
    return asked


HEADER = ("clients", "requests/s", "p50 ms", "p99 ms", "offline/s", "share", "lost", "mixed")
OPENPI_HEADER = ("openpi/s", "p99 ms", "lost")


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    numbers = (f"{row[key]:.1f}" for key in ("requests_per_s", "p50_ms", "p99_ms", "offline_per_s"))
    ours = (row["clients"], *numbers, f"{row['share']:.2f}", row["lost"], row["mixed"])
    if "openpi_per_s" not in row:
        return ours
    return (*ours, f"{row['openpi_per_s']:.1f}", f"{row['openpi_p99_ms']:.1f}", row["openpi_lost"])
