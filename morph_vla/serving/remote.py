"""A policy on a server, as `morph-vla eval --policy ws://HOST:PORT` asks it. No JAX.

A morph-vla server says what its policy was trained with, so that it is held against the suite as a checkpoint
is. Of another server nothing is known but what it answers: one question is asked before the first episode.
"""

import logging
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from morph_vla import robots
from morph_vla.engines.engine import ENVIRONMENT, Observation, actions_of, environment_names
from morph_vla.errors import MorphVlaError
from morph_vla.evaluation import fit
from morph_vla.findings import errors, visible
from morph_vla.results.values import text
from morph_vla.serving import card as cards
from morph_vla.serving import keys, wire
from morph_vla.serving.card import Card
from morph_vla.serving.client import ServerError, WebsocketClientPolicy
from morph_vla.serving.requests import MAX_ROWS
from morph_vla.suites.environment import EnvironmentSuite
from morph_vla.suites.suite import Suite

LOG = logging.getLogger(__name__)
SCHEMES = ("ws://", "wss://")
KEY = "MORPH_VLA_API_KEY"
"""The environment variable with a server's key."""
CONNECT_S = 30.0
"""For how long a server that does not answer yet is waited for, at most"""


class RemotePolicy:
    """A policy on any server of openpi's protocol."""

    def __init__(self, client: WebsocketClientPolicy, known: keys.Keys):
        self.client, self._keys = client, known
        self._roboarena = "needs_session_id" in client.get_server_metadata()
        self._sessions: dict[object, str] = {}
        """Of episodes, for servers of RoboArena's dialect, whose policies may remember"""

    def infer(self, observation: Observation) -> Mapping[str, Any]:
        """Actions for one observation; raises ServerError."""
        return self._answer(self.client.infer(self._request(observation)))

    def describe(self) -> dict[str, Any]:
        """What a record says of this policy."""
        name = text(self.client.get_server_metadata().get("name")) or self.client.address
        return {"name": name, "checkpoint": None, "step": None, "server": self.client.address}

    def _request(self, observation: Observation) -> dict[str, Any]:
        request = keys.request(observation, self._keys)
        if not self._roboarena:
            return request
        for name, *others in self._keys.images.values():
            request.update(dict.fromkeys(others, request[name]))
        episode = observation.get("episode", 0)
        if observation.get("step", 0) == 0 or episode not in self._sessions:  # also one that is played again
            self._sessions[episode] = uuid.uuid4().hex
        return {**request, "endpoint": "infer", "session_id": self._sessions[episode]}

    @staticmethod
    def _answer(answer: Any) -> Mapping[str, Any]:
        """As ours: some servers of RoboArena's dialect answer with the array alone."""
        return {"actions": answer} if isinstance(answer, np.ndarray) else answer


class ServedPolicy(RemotePolicy):
    """A policy on a morph-vla server: batches in one frame, and `evaluation.fit.Trained`."""

    def __init__(self, client: WebsocketClientPolicy, card: Card):
        cards.check(card)
        super().__init__(client, card.request_keys())
        self._roboarena, self.card = False, card
        self.robot_name, self.cameras = card.robot, dict(card.cameras)
        self.trained: dict[str, Any] = dict(card.trained)
        self.image_size = card.image_size or 0

    def infer_batch(self, observations: Sequence[Observation]) -> list[Mapping[str, Any]]:
        """Actions for several observations, in order; in parts where a server takes no more at once."""
        requests = [self._request(observation) for observation in observations]
        return [answer for part in _parts(requests) for answer in self.client.infer_batch(part)]

    @property
    def real_time(self) -> bool:
        """Whether it goes on from `previous_actions`."""
        return self.card.real_time

    def _request(self, observation: Observation) -> dict[str, Any]:
        """The server has the previous actions itself: it is told how many of them were executed."""
        left = observation.get("previous_actions")
        request = super()._request({k: v for k, v in observation.items() if k != "previous_actions"})
        if "inference_delay" in observation:
            request["env_id"] = str(observation["episode"])
        if isinstance(left, np.ndarray) and self.card.horizon is not None:
            request["executed_steps"] = self.card.horizon - len(left)
        return request

    def describe(self) -> dict[str, Any]:
        """Beside that: which parameters, how they are sampled, how many rows at once."""
        card = self.card
        several = max(len(card.sizes), len(card.prompt_tokens)) > 1
        batch = None if several else card.batch  # of several programs: answers differ by rounding
        known = {"step": card.step, "sha256": card.sha256, "sampler": dict(card.sampler), "batch": batch}
        return {**super().describe(), **known}


def _parts(requests: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """The requests in turn, together as far as their arrays fit into one frame with room to spare."""
    begin, together = 0, 0
    for index, request in enumerate(requests):
        size = _nbytes(request)
        is_full = together + size > wire.REQUEST.frame_bytes // 2 or index - begin == MAX_ROWS
        if index > begin and is_full:
            yield requests[begin:index]
            begin, together = index, 0
        together += size
    yield requests[begin:]


def _nbytes(value: Any) -> int:
    """Bytes of the arrays in a request, whose pictures may lie in a map of their own."""
    if isinstance(value, Mapping):
        return sum(map(_nbytes, value.values()))
    return value.nbytes if isinstance(value, np.ndarray) else 0


def connect(
    address: str,
    tasks: Sequence[Suite] | Sequence[EnvironmentSuite],
    *,
    preset: str = "",
    timeout_s: float = 600.0,
) -> RemotePolicy:
    """The policy at an address, asked once in each task of ours; `preset` says another server's keys.

    Raises MorphVlaError where no server answers, where its actions are not joint positions or not as many as
    the suite's robot has joints, and with both sides where a morph-vla server's policy does not fit.
    """
    first = tasks[0]
    cameras = list(first.cameras if isinstance(first, Suite) else first.images)
    policy = reach(address, cameras, preset=preset, timeout_s=timeout_s)
    for task in tasks:
        if not isinstance(task, Suite):
            continue
        if not (isinstance(policy, ServedPolicy) and errors(fit.check(policy, task))):
            probe(policy, task)  # what does not fit is refused by `evaluate`, with both sides
    return policy


def reach(
    address: str, cameras: Sequence[str], *, preset: str = "", timeout_s: float = 600.0
) -> RemotePolicy:
    """The policy at an address, not yet asked; `cameras` are those whose frames another's server is sent.

    Raises MorphVlaError where no server answers, and where its actions are not joint positions.
    """
    if not address.startswith(SCHEMES):
        raise MorphVlaError(f"a policy's address is ws://HOST:PORT or wss://HOST, not '{address}'")
    key, connect_s = os.environ.get(KEY) or None, min(CONNECT_S, timeout_s)
    client = WebsocketClientPolicy(address, None, key, timeout_s=timeout_s, connect_s=connect_s)
    metadata, address = client.get_server_metadata(), client.address
    card = cards.read(metadata)
    if card is not None:
        return ServedPolicy(client, card)
    space = metadata.get("action_space", "joint_position")
    if str(space) != "joint_position":
        kind = visible(str(space))
        raise MorphVlaError(f"{address} answers with '{kind}'; a suite takes absolute joint positions")
    LOG.warning(
        "%s does not say what joints, units and rate its actions have: they are taken as the suite's", address
    )
    if not preset:  # what it is not asked for, a server leaves
        return RemotePolicy(client, keys.of({name: name for name in cameras}))
    if keys.left_out(cameras):
        LOG.warning(
            "%s does not say its cameras: %s; without --preset it is sent every one, as images/NAME",
            address, keys.by_their_names(cameras),
        )  # fmt: skip
    return RemotePolicy(client, keys.of(keys.roles(cameras), preset))


def probe(policy: RemotePolicy, suite: Suite) -> None:
    """Ask once, of black pictures and the rest pose. Raises MorphVlaError where the answer is no chunk."""
    robot = robots.load(suite.robot)
    pictures = {
        f"images/{name}": np.zeros((camera.height, camera.width, 3), np.uint8)
        for name, camera in suite.cameras.items()
    }
    state = robot.to_dataset(robot.rest).astype(np.float32)
    about: Observation = {"prompt": suite.task, "robot": robot.name, "episode": 0, "step": 0}
    if isinstance(policy, ServedPolicy) and policy.card.request_keys().environment:
        about[ENVIRONMENT] = np.zeros(len(environment_names(suite.success)), np.float32)
    try:
        actions_of(policy.infer({**pictures, "state": state, **about}), len(robot.joints))
    except ServerError:
        raise
    except MorphVlaError as error:
        raise MorphVlaError(f"{policy.client.address} does not fit suite '{suite.label}': {error}") from None
