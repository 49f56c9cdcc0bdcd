"""Where the cameras of a recording stood, as its own file says."""

import json

import pytest

from morph_vla.data import recorded

CAMERA = {"link": "hand", "position": [0.09, 0, 0.005], "look_at": [0.02, 0, 0.125], "fovy": 75}
SUITE = {
    "cameras": {"wrist": CAMERA, "front": {**CAMERA, "link": None}},
    "start": {"joint1": -0.6},
    "table": {"center": [0.53, 0.1], "height": 0.0},
}


def write(folder, suites, name: str = "fingerprint") -> None:
    text = json.dumps([suites, 40, {"arm": "0a1b"}, []])
    (folder / "recording.json").write_text(json.dumps({"suite": "arm", name: text}))


def test_every_suite_of_a_recording_is_a_scene(tmp_path):
    write(tmp_path, [SUITE, {**SUITE, "start": {}}])
    first, second = recorded.scenes(tmp_path)
    assert first.cameras["wrist"] == ("hand", [0.09, 0.0, 0.005], [0.02, 0.0, 0.125])
    assert first.cameras["front"][0] is None
    assert (first.start, second.start) == ({"joint1": -0.6}, {})
    assert first.middle == (0.53, 0.1)


@pytest.mark.parametrize(
    "suites",
    [
        [{**SUITE, "cameras": {"wrist": {**CAMERA, "link": 3}}}],
        [{**SUITE, "cameras": {"wrist": {**CAMERA, "position": [0.1, 0.2]}}}],
        [{**SUITE, "cameras": {"wrist": {**CAMERA, "position": "abc"}}}],
        [{**SUITE, "cameras": {"wrist": {**CAMERA, "look_at": [0, 0, float("nan")]}}}],
        [{**SUITE, "cameras": [CAMERA]}],
        [{**SUITE, "start": {"joint1": "far"}}],
        [{**SUITE, "start": None}],
        [{**SUITE, "table": {}}],
        [{**SUITE, "table": {"center": [0.5, 0.1, 0.2]}}],
        [SUITE, "robosuite's Lift"],
        {"arm": SUITE},
        None,
    ],
)
def test_what_says_it_otherwise_says_nothing(tmp_path, suites):
    write(tmp_path, suites)
    assert recorded.scenes(tmp_path) == ()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "[" * 5000, '{"fingerprint": 3}', '{"fingerprint": "[]"}']
)
def test_a_damaged_file_says_nothing(tmp_path, text):
    (tmp_path / "recording.json").write_text(text)
    assert recorded.scenes(tmp_path) == ()


def test_a_dataset_of_others_has_none(tmp_path, monkeypatch):
    assert recorded.scenes(tmp_path) == ()
    write(tmp_path, [SUITE])
    assert len(recorded.scenes(tmp_path)) == 1
    monkeypatch.setattr(recorded, "MAX_BYTES", 100)  # of a stranger's file no more is read
    assert recorded.scenes(tmp_path) == ()
