"""A thousand malformed frames, each to a server of its dialect; `docs/serving.md` has the table."""

from collections import Counter

import numpy as np
from stand_ins import CAMERAS, LIMIT_S, observation, serving
from websockets.sync.client import connect

from morph_vla.serving import keys, wire

KINDS = ("cut short", "a byte changed", "bytes put in", "noise")
EACH = 42  # of a kind, in a dialect
# What a sentence has in it -> what was wrong, the first that fits; the rest is a wrong key or array.
FAULTS = {
    "ends in the middle": "ends too soon",
    "the message ends after": "goes on after its end",
    "is not msgpack": "no msgpack",
    "is no type of": "no msgpack",
    "the frame has more than": "too large",
    "a text has": "too large",
}
COLUMNS = ("answered", *dict.fromkeys(FAULTS.values()), "wrong key or array")


def spoilt(whole: bytes, kind: str, rng: np.random.Generator) -> bytes:
    """A frame with bytes left out, changed or put in, or as many random ones."""
    frame, place = bytearray(whole), int(rng.integers(len(whole)))
    if kind == "cut short":
        del frame[place:]
    elif kind == "a byte changed":
        frame[place % 120] ^= int(rng.integers(1, 256))
    elif kind == "bytes put in":
        frame[place:place] = rng.bytes(int(rng.integers(1, 9)))
    else:
        frame = bytearray(rng.bytes(place + 1))
    return bytes(frame)


def column(reply: str | bytes) -> str:
    if isinstance(reply, bytes):
        return "answered"
    assert reply.isprintable()
    assert not reply.startswith("the server could not answer")
    return next((fault for words, fault in FAULTS.items() if words in reply), "wrong key or array")


def test_a_thousand_malformed_frames_crash_nothing(root):
    """Each gets a sentence, or an answer where it is whole after all; connection and server live on."""
    rng, counts = np.random.default_rng(0), Counter()
    for preset in ("", *keys.PRESETS):
        row = keys.request(observation(), keys.of(CAMERAS, preset))
        forms = [row, {"batch": [row, row]}, {**row, "endpoint": "infer", "session_id": "a"}]
        frames = [wire.encode(form) for form in forms]
        with serving(preset=preset) as server, connect(f"ws://127.0.0.1:{server.port}") as connection:
            connection.recv(timeout=LIMIT_S)
            for kind in KINDS:
                for number in range(EACH):
                    connection.send(spoilt(frames[number % len(frames)], kind, rng))
                    counts[kind, column(connection.recv(timeout=LIMIT_S))] += 1
            assert connection.ping().wait(LIMIT_S)
    assert counts.total() >= 1000
    assert counts["cut short", "answered"] == counts["noise", "answered"] == 0
    page = (root / "docs/serving.md").read_text(encoding="utf-8")
    assert f"| {' | '.join(['frames', *COLUMNS])} |" in page
    for kind in KINDS:
        cells = [str(counts[kind, name]) for name in COLUMNS]
        assert f"| {' | '.join([f'{EACH * (1 + len(keys.PRESETS))} {kind}', *cells])} |" in page


def test_faults_are_treated_alike_in_other_words(reword):
    row = keys.request(observation(), keys.of(CAMERAS, ""))
    faults = [{}, {**row, "state": np.zeros(2, np.float32)}, {**row, "prompt": 3}, {"batch": [row, {}]}]
    frames = [b"\xc1", *map(wire.encode, faults), wire.encode(row)]

    def replies() -> list[str | bytes]:
        with serving() as server, connect(f"ws://127.0.0.1:{server.port}") as connection:
            connection.recv(timeout=LIMIT_S)
            answers = []
            for frame in frames:
                connection.send(frame)
                answers.append(connection.recv(timeout=LIMIT_S))
            return answers

    before = replies()
    reword()
    after = replies()
    assert [*map(type, after)] == [*map(type, before)] == [*[str] * 5, bytes]
    assert not {*before[:-1]} & {*after[:-1]}
