"""Policies, cards and clients for servers in tests: no JAX, no checkpoint, answers say what was asked."""

import dataclasses
import http.client
import threading
import time
import zlib
from typing import Any

import numpy as np
from websockets.sync.client import connect

from morph_vla import robots
from morph_vla.files.plain import to_plain
from morph_vla.serving import (
    bounds,
    keys,
    wire,
)
from morph_vla.serving.card import Card
from morph_vla.serving.client import WebsocketClientPolicy
from morph_vla.serving.requests import example
from morph_vla.serving.server import PolicyServer
from morph_vla.serving.settings import Settings

HORIZON, BATCH, LIMIT_S = 5, 3, 20.0
PANDA = robots.load("panda")
CAMERAS = {"base_0_rgb": "exterior", "left_wrist_0_rgb": "wrist"}


def card(preset: str = "") -> Card:
    affine = [(joint.scale, joint.zero) for joint in PANDA.joints]
    stats = {"q01": [-1.0] * 8, "q99": [1.0] * 8}
    trained = {
        "joints": list(PANDA.names), "control_rate": 15.0, "affine": affine, "actions": "absolute",
        "limits": [(joint.lower, joint.upper) for joint in PANDA.joints],
        "state_stats": stats, "action_stats": stats,
    }  # fmt: skip
    return Card(
        name="wave", step=7, sha256="12" * 32, robot="panda", joints=PANDA.names,
        units=tuple(joint.unit for joint in PANDA.joints), control_rate=15.0, horizon=HORIZON, preset=preset,
        keys=to_plain(keys.of(CAMERAS, preset)), cameras=CAMERAS, image_size=6, batch=BATCH, trained=trained,
    )  # fmt: skip


def limits(jump_s: float = 1e6) -> bounds.Bounds:
    affine = [(joint.scale, joint.zero) for joint in PANDA.joints]
    return bounds.of(PANDA, affine, 15.0, jump_s)


def rest() -> np.ndarray:
    return PANDA.to_dataset(PANDA.rest).astype(np.float32)


def observation(number: int = 0, **more) -> dict:
    rng = np.random.default_rng(number)
    pictures = {
        f"images/{name}": rng.integers(0, 256, (7, 11, 3), dtype=np.uint8) for name in CAMERAS.values()
    }
    state = rest() + np.linspace(0, 0.1, 8, dtype=np.float32) * (number % 7)
    return {**pictures, "state": state, "prompt": f"task {number}", **more}


def expected(asked: dict) -> np.ndarray:
    """What `Wave` answers: the rest pose moved by an amount that everything in the observation decides."""
    seen = zlib.crc32(asked["prompt"].encode())
    for key in ("state", *(f"images/{name}" for name in CAMERAS.values())):
        seen = zlib.crc32(np.ascontiguousarray(asked[key]).tobytes(), seen)
    rng = np.random.default_rng([seen, asked.get("episode", 0), asked.get("step", 0)])
    actions = np.tile(rest(), (HORIZON, 1))
    actions[:, 0] += rng.uniform(-0.3, 0.3, HORIZON).astype(np.float32)
    return actions


class Wave:
    """Answers `expected`. `seconds` it computes; `batches` are the sizes it was given."""

    def __init__(self, seconds: float = 0.0):
        self.seconds, self.batches, self.go = seconds, [], threading.Event()
        self.go.set()

    def infer(self, observation):
        return self.infer_batch([observation])[0]

    def infer_batch(self, observations):
        self.batches.append(len(observations))
        assert self.go.wait(LIMIT_S)
        time.sleep(self.seconds)
        return [self.answer(asked) for asked in observations]

    def answer(self, asked):
        if asked["prompt"] == "fail":
            raise ValueError("the arm is asleep")
        return {"actions": expected(asked), "policy_timing": {"sample_ms": 1.0}}


def serving(policy=None, *, preset: str = "", jump_s: float = 1e6, **settings):
    """A server on loopback, on a port of its own, ready within the block."""
    chosen, known = Settings(**{"port": 0, **settings}), card(preset)
    server = PolicyServer(policy or Wave(), known, limits(jump_s), chosen)
    return server.background([example(known)], ready_s=LIMIT_S)


def without(limited: Card, **changes) -> Card:
    return dataclasses.replace(limited, **changes)


def client(server, **options) -> WebsocketClientPolicy:
    return WebsocketClientPolicy("127.0.0.1", server.port, timeout_s=LIMIT_S, connect_s=2.0, **options)


def raw(server, **options):
    """A bare websocket, its metadata read."""
    opened = connect(f"ws://127.0.0.1:{server.port}", compression=None, max_size=None, **options)
    connection = opened.__enter__()
    connection.recv(timeout=LIMIT_S)
    return connection


def ask(connection, request) -> Any:
    connection.send(request if isinstance(request, bytes | str) else wire.encode(request))
    reply = connection.recv(timeout=LIMIT_S)
    return reply if isinstance(reply, str) else wire.decode(reply, wire.ANSWER)


def health(port: int) -> tuple[int, bytes]:
    page = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    page.request("GET", "/healthz")
    answer = page.getresponse()
    return answer.status, answer.read()


def wait_until(is_so) -> None:
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)
