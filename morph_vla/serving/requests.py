"""From a frame to what the policy is asked, and from its answer to a frame. No JAX, no socket."""

import dataclasses
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from morph_vla.engines.engine import ENVIRONMENT, Observation, actions_of
from morph_vla.errors import MorphVlaError
from morph_vla.findings import visible
from morph_vla.results.values import listing, text
from morph_vla.serving import keys, wire
from morph_vla.serving.bounds import Bounds
from morph_vla.serving.card import REAL_TIME, SERVED_BY, Card
from morph_vla.serving.worker import Computed

MAX_ROWS = 256
"""Observations in one request"""
MAX_NAME = 200
"""Letters of a session's name and of a request's id"""
MAX_SESSIONS = 4096
"""Of one connection; beyond, the one that was asked longest ago begins anew"""
"""RoboArena's answer to `endpoint: reset`"""
PROMPT = "warm up"
"""With which a policy is compiled that knows no task"""


@dataclasses.dataclass(frozen=True)
class Request:
    """What one frame asks."""

    observations: tuple[Observation, ...]
    request_id: str | int | None = None
    deadline_s: float | None = None
    is_batch: bool = False
    """Answered by a list"""
    is_reset: bool = False
    """RoboArena's `endpoint: reset`: nothing is computed"""
    sessions: tuple[str, ...] = ()
    """Of the observations"""


class Sessions:
    """Where the random numbers of one connection's answers come from: its sessions' episodes and steps.

    A request that says `episode` and `step` has them from there. Else they are counted for each session
    (`env_id` or `session_id`): `reset` begins the next episode. Other connections have no part in it. Of
    sessions that ask for real-time chunking their last answer is kept.
    """

    def __init__(self) -> None:
        self.connection = uuid.uuid4().hex
        """What tells this connection's episodes from those of others that count alike"""
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._answers: OrderedDict[str, tuple[Any, np.ndarray]] = OrderedDict()

    def going_on(self, request: Mapping[str, Any], horizon: int) -> Observation:
        """What a session that asks for real-time chunking adds to its observation.

        The client says `inference_delay`, and with `executed_steps` how much of the last answer it had
        executed when it observed. Without that, after `reset`, in another `episode`, and where the last
        answer is not known (another connection), an answer stands for itself.
        """
        delay, executed = (_steps(request, key) for key in REAL_TIME)
        begins, kept = _truth(request, "reset"), self._answers.get(_session(request))
        moment = _moment(request)
        last = kept[1] if kept and (moment is None or moment[0] == kept[0]) else None
        if delay is None or begins:  # else it stays until it is replaced: this question may yet be refused
            self._answers.pop(_session(request), None)
        if delay is None:
            return {}
        if executed is None or last is None or begins:
            return {"inference_delay": min(delay, horizon)}
        return {"inference_delay": min(delay, horizon), "previous_actions": last[executed:]}

    def keep(self, name: str, observation: Observation, actions: np.ndarray) -> None:
        """Keep a session's answer, from which its next one goes on."""
        if "inference_delay" in observation:
            self._answers[name] = observation.get("episode"), actions
            self._answers.move_to_end(name)
            if len(self._answers) > MAX_SESSIONS:
                self._answers.popitem(last=False)

    def moment(self, request: Mapping[str, Any]) -> tuple[int, int]:
        """(episode, step) of an observation, as `engines.engine` has them."""
        if (given := _moment(request)) is not None:
            return given
        name = _session(request)
        episode, step = self._counts.pop(name, (0, 0))
        if _truth(request, "reset") and step:
            episode, step = episode + 1, 0
        self._counts[name] = (episode, step + 1)
        if len(self._counts) > MAX_SESSIONS:
            self._counts.popitem(last=False)
        return zlib.crc32(f"{name}/{episode}".encode()), step

    def reset(self, request: Mapping[str, Any]) -> None:
        """Begin the next episode of a session, or of those in `session_ids`."""
        several = request.get("session_ids")
        several = several.ravel().tolist() if isinstance(several, np.ndarray) else several
        if not isinstance(several, list | None):
            raise MorphVlaError("session_ids: expected a list of sessions")
        names = [_name(value, "session_ids") for value in several or []]
        for name in names or [_session(request)]:
            self._answers.pop(name, None)
            episode, step = self._counts.get(name, (0, 0))
            if step:
                self._counts[name] = (episode + 1, 0)


def _moment(request: Mapping[str, Any]) -> tuple[int, int] | None:
    """The (episode, step) that a request says; None where it says neither."""
    given = {key: _alone(request.get(key)) for key in ("episode", "step")}
    if all(value is None for value in given.values()):
        return None
    for key, value in given.items():
        if value is not None and not (type(value) is int and 0 <= value < 2**32):
            raise MorphVlaError(f"{key}: expected a whole number from 0 to 2^32 - 1")
    if lacking := [key for key, value in given.items() if value is None]:
        other = "step" if lacking == ["episode"] else "episode"
        raise MorphVlaError(
            f"{other}: given without `{lacking[0]}`; an answer's random numbers need both or neither"
        )
    return given["episode"], given["step"]


def _steps(request: Mapping[str, Any], key: str) -> int | None:
    value = _alone(request.get(key))
    if value is None or (type(value) is int and value >= 0):
        return value
    raise MorphVlaError(f"{key}: expected control steps, a whole number from 0 on")


def _session(request: Mapping[str, Any]) -> str:
    """The session's name: a text or a number, also in an array of one, as RoboArena has it."""
    key = "env_id" if request.get("env_id") is not None else "session_id"
    value = _alone(request.get(key))
    return "" if value is None else _name(value, key)


def _name(value: Any, key: str) -> str:
    if isinstance(value, str | int) and len(str(value)) <= MAX_NAME:
        return str(value)
    raise MorphVlaError(f"{key}: expected a whole number, or a text of at most {MAX_NAME} letters")


def _truth(request: Mapping[str, Any], key: str) -> bool:
    value = _alone(request.get(key))
    if value is None or isinstance(value, bool | int):
        return bool(value)
    raise MorphVlaError(f"{key}: expected a truth value")


def _alone(value: Any) -> Any:
    """The value in an array, a scalar or a list of one."""
    if isinstance(value, np.ndarray | np.generic) and value.size == 1:
        return value.item()
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def example(card: Card) -> Observation:
    """An observation that a policy can answer, with which a server warms up."""
    known = next(map(str, listing(card.trained.get("prompts"))), PROMPT)  # of no task, some cannot answer
    prompt = text(card.keys.get("prompt")) or known
    return {
        **blank(card.cameras, card.image_size, card.trained, card.joints),
        "prompt": prompt,
        "robot": card.robot,
    }


def blank(
    cameras: Mapping[str, str], image_size: int | None, trained: Mapping[str, object], joints: Sequence[str]
) -> Observation:
    """A first moment that shows nothing: black pictures, a state of zeros, poses that are upright at 0."""
    size = image_size or 1
    pictures = {f"images/{name}": np.zeros((size, size, 3), np.uint8) for name in cameras.values()}
    names = list(map(str, listing(trained.get("environment"))))
    upright = np.array([name.endswith("qw") for name in names], np.float32)
    poses = {ENVIRONMENT: upright} if names else {}
    state = np.zeros(len(joints), np.float32)
    return {**pictures, **poses, "state": state, "prompt": PROMPT, "episode": 0, "step": 0}


def examples(card: Card, prompts: Iterable[str] = ()) -> list[Observation]:
    """Observations with which a server compiles all that it computes; of a policy with several `prompts`."""
    alone, nothing = example(card), np.zeros((0, len(card.joints)), np.float32)
    prompts = [*filter(None, [text(card.keys.get("prompt"))]), *prompts]
    each = [{**alone, "prompt": prompt} for prompt in dict.fromkeys(prompts)] or [alone]
    if not card.real_time:
        return each
    return [
        asked for row in each for asked in (row, {**row, "inference_delay": 0, "previous_actions": nothing})
    ]


def read(
    frame: str | bytes, card: Card, known: keys.Keys, sessions: Sessions, bounds: Bounds | None = None
) -> Request:
    """What a frame asks. Raises MorphVlaError, in one sentence, for what is wrong with it.

    A state that is beyond all `bounds` is wrong too; what is wrong counts as no step of its session.
    """
    if isinstance(frame, str):
        raise wire.WireError("a text frame came; a request is a binary frame of msgpack")
    message = wire.decode(frame)
    if not isinstance(message, dict):
        raise wire.WireError(f"a request is a map, not a value of type '{type(message).__name__}'")
    rows = message.pop("batch", None)
    outer = keys.flat(message)
    endpoint = outer.pop("endpoint", None)
    if endpoint is not None and not (isinstance(endpoint, str) and endpoint in ("infer", "reset")):
        raise MorphVlaError(f"endpoint: expected 'infer' or 'reset', not {_shown(endpoint)}")
    about = {"request_id": _request_id(outer), "deadline_s": _deadline(outer)}
    if endpoint == "reset":
        sessions.reset(outer)
        return Request((), **about, is_reset=True)
    if rows is None:
        row = _row(outer, card, known, sessions, bounds)
        return Request((row,), **about, sessions=(_session(outer),))
    if not isinstance(rows, list) or not 0 < len(rows) <= MAX_ROWS:
        count = f"a list of {len(rows)}" if isinstance(rows, list) else f"a '{type(rows).__name__}'"
        raise MorphVlaError(f"batch: expected a list of 1 to {MAX_ROWS} observations, not {count}")
    outer = keys.converted(outer, known)  # once, and not for every row
    observations, names = [], []
    for index, row in enumerate(rows):
        try:
            if not isinstance(row, dict):
                raise MorphVlaError(f"expected a map, not a value of type '{type(row).__name__}'")
            row = {**outer, **keys.flat(row)}
            observations.append(_row(row, card, known, sessions, bounds))
            names.append(_session(row))
        except MorphVlaError as error:
            raise MorphVlaError(f"batch[{index}]: {error}") from None
    told_apart = {(name, row["episode"]) for name, row in zip(names, observations, strict=True)}
    if card.looks_back and len(told_apart) < len(names):
        raise MorphVlaError(
            "batch: this policy looks back, and two rows are of one episode of one session; give each its "
            "own env_id"
        )
    if any("inference_delay" in row for row in observations) and len({*names}) < len(names):
        raise MorphVlaError(
            "batch: with inference_delay each row goes on from its own last answer; give each its own env_id"
        )
    return Request(tuple(observations), **about, is_batch=True, sessions=tuple(names))


def _check_state(observation: Observation, bounds: Bounds) -> None:
    """Raise MorphVlaError for a state that no robot has: in another unit, or of another robot.

    Answers are bounded around the state, so that one which is far off bounds nothing.
    """
    state = observation["state"]
    assert isinstance(state, np.ndarray)
    if strays := np.flatnonzero(bounds.strays(state)).tolist():
        index, more = strays[0], len(strays) - 1
        others = f", and so {'is' if more == 1 else 'are'} {more} more" if more else ""
        raise MorphVlaError(
            f"state: '{bounds.names[index]}' is {state[index]:g}{others}, and its limits are "
            f"{bounds.lower[index]:g} and {bounds.upper[index]:g}; are these values in another unit? "
            "(`morph-vla serve --unit` says which the clients have)"
        )


def _row(
    request: Mapping[str, Any], card: Card, known: keys.Keys, sessions: Sessions, bounds: Bounds | None
) -> Observation:
    robot = request.get("robot", card.robot)
    if not isinstance(robot, str) or robot != card.robot:
        raise MorphVlaError(f"robot: this policy drives '{card.robot}', not {_shown(robot)}")
    if card.looks_back and _moment(request) is None:  # counted requests are no control steps
        raise MorphVlaError(
            "this policy looks back: every request has to say `episode` and `step`, whole numbers; `step` "
            "counts the episode's control steps from 0"
        )
    observation = keys.observation(request, known, card.joints)
    if bounds is not None:
        _check_state(observation, bounds)
    going_on = sessions.going_on(request, card.horizon or 0) if card.real_time else {}
    episode, step = sessions.moment(request)
    # Robots of one connection may count alike, as connections may.
    moment = {"connection": (sessions.connection, _session(request)), "episode": episode, "step": step}
    return {**observation, "robot": card.robot, **moment, **going_on}


def _shown(value: Any) -> str:
    return visible(repr(value), 60) if isinstance(value, str) else f"a value of type '{type(value).__name__}'"


def _request_id(request: Mapping[str, Any]) -> str | int | None:
    value = _alone(request.get("request_id"))
    if value is None or (isinstance(value, str) and len(value) <= MAX_NAME) or type(value) is int:
        return value
    raise MorphVlaError(f"request_id: expected a whole number, or a text of at most {MAX_NAME} letters")


def _deadline(request: Mapping[str, Any]) -> float | None:
    value = _alone(request.get("deadline_s"))
    if value is None:
        return None
    if isinstance(value, int | float) and value > 0:
        return float(value)
    raise MorphVlaError("deadline_s: expected a number above 0, in seconds")


@dataclasses.dataclass(frozen=True)
class Spent:
    """How long a request took until now [s]."""

    decode_s: float
    total_s: float


def write(
    request: Request,
    computed: Sequence[Computed],
    card: Card,
    bounds: Bounds,
    spent: Spent,
    sessions: Sessions,
) -> bytes | str:
    """The frame that answers a request; what its sessions go on from is kept.

    Raises MorphVlaError where the policy's answer is none.
    """
    if request.is_reset:
        return wire.RESET
    answers = [
        _answer(request, observation, answer, card, bounds, spent)
        for observation, answer in zip(request.observations, computed, strict=True)
    ]
    for name, observation, answer in zip(request.sessions, request.observations, answers, strict=True):
        sessions.keep(name, observation, answer["actions"])
    return wire.encode(answers if request.is_batch else answers[0])


def _answer(
    request: Request, observation: Observation, computed: Computed, card: Card, bounds: Bounds, spent: Spent
) -> dict[str, Any]:
    state = observation["state"]
    assert isinstance(state, np.ndarray)
    chunk = actions_of(dict(computed.answer), len(card.joints))
    actions, limited = bounds.apply(chunk, state)
    usable_s = request.deadline_s or len(actions) / bounds.rate
    answer: dict[str, Any] = {
        "actions": actions,
        "served_by": SERVED_BY,
        "late": spent.total_s > usable_s,
        "server_timing": {
            "decode_ms": 1e3 * spent.decode_s,
            "wait_ms": 1e3 * computed.waited_s,
            "infer_ms": 1e3 * computed.infer_s,
            "total_ms": 1e3 * spent.total_s,
            "batch": computed.company,
        },
    }
    if request.request_id is not None:
        answer["request_id"] = request.request_id
    if isinstance(timing := computed.answer.get("policy_timing"), Mapping):
        answer["policy_timing"] = dict(timing)
    if "inference_delay" in observation:
        answer["real_time"] = _went_on(observation, card)
    if limited is not None:
        answer["limited"] = dataclasses.asdict(limited)
    return answer


def _went_on(observation: Observation, card: Card) -> dict[str, int]:
    """What an answer says of real-time chunking.

    Of its rows, the first `frozen` are the last answer's, and the first `guided` depend on it: all that were
    left, or by a policy that was trained to go on from rows (`delay_max`) those that are given or fade.
    """
    left, delay = observation.get("previous_actions"), observation["inference_delay"]
    guided = len(left) if isinstance(left, np.ndarray) else 0
    assert isinstance(delay, int)
    frozen = min(max(delay, card.delay_min), guided)
    return {"frozen": frozen, "guided": min(frozen + card.fading, guided) if card.delay_max else guided}
