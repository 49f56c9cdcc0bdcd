"""What TensorBoard and Weights & Biases are told, read back from the files they leave."""

import struct
import time
from pathlib import Path

import pytest

from morph_vla.recipes.recipe import load
from morph_vla.training import trackers
from morph_vla.training.progress import Report

REPORT = Report(
    step=7, steps=11, loss=0.5, held_out_loss=0.25, lr=1e-3, steps_per_s=3.0, samples_per_s=15.0,
    robots={"panda": 0.75, "so101": 0.125}, held_out={"panda": {"loss": 0.25, "panda_joint1": 0.0625}},
    gradient_norm=0.5, gradient_norms={"action expert": 0.375, "morphology": 0.25}, waiting=0.0,
)  # fmt: skip


def test_a_line_of_the_log_becomes_flat_numbers():
    assert trackers.numbers(REPORT) == {
        "loss": 0.5, "held_out_loss": 0.25, "lr": 1e-3, "steps_per_s": 3.0, "samples_per_s": 15.0,
        "gradient_norm": 0.5, "gradient_norm/action_expert": 0.375, "gradient_norm/morphology": 0.25,
        "waiting": 0.0, "loss/panda": 0.75, "loss/so101": 0.125, "held_out/panda/loss": 0.25,
        "held_out/panda/panda_joint1": 0.0625,
    }  # fmt: skip


def test_tensorboards_files_hold_every_number_at_its_step(tmp_path):
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    board = trackers.TensorBoard(tmp_path)
    board.add(7, trackers.numbers(REPORT))
    board.close()
    (path,) = (tmp_path / "tensorboard").iterdir()
    data, result = path.read_bytes(), {}
    while data:  # TFRecord: length, its checksum, the event, its checksum
        (length,) = struct.unpack("<Q", data[:8])
        event = event_pb2.Event.FromString(data[12 : 12 + length])
        result |= {value.tag: (event.step, value.simple_value) for value in event.summary.value}
        data = data[16 + length :]
    assert result == {
        name: (7, pytest.approx(value, rel=1e-6)) for name, value in trackers.numbers(REPORT).items()
    }


@pytest.mark.slow
def test_weights_and_biases_offline_leaves_files_here_and_goes_on_in_the_same_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for place in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{place}_DIR", str(tmp_path / "wandb-own"))
    for step in (7, 9):  # a run that was stopped, and went on
        tracker = trackers.Wandb(tmp_path, "morph", {"seed": 0})
        tracker.add(step, trackers.numbers(REPORT))
        tracker.close()
    written = sorted((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(written) == 2
    assert len({path.name for path in written}) == 1  # one run's name
    for path in written:  # its service writes in a process of its own, which may lag on a busy machine
        assert holds(path, b"held_out/panda/panda_joint1"), f"{path.name}: {path.read_bytes()!r}"


def holds(path: Path, name: bytes, patience_s: float = 60.0) -> bool:
    """Whether `name` stands in a file that another process may still be writing."""
    end = time.monotonic() + patience_s
    while name not in path.read_bytes() and time.monotonic() < end:
        time.sleep(0.1)
    return name in path.read_bytes()


def test_trackers_that_are_asked_for_are_closed_whatever_happens(tmp_path, monkeypatch):
    closed: list[str] = []
    recipe = load("panda_demo", ["data.dataset=nowhere"])
    close = trackers.TensorBoard.close

    def closing(self):
        close(self)
        closed.append("tensorboard")

    monkeypatch.setattr(trackers.TensorBoard, "close", closing)
    with trackers.opened(tmp_path, recipe) as none:
        assert none == []

    def interrupted():
        with trackers.opened(tmp_path, recipe, tensorboard=True) as opened:
            assert [type(tracker) for tracker in opened] == [trackers.TensorBoard]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert closed == ["tensorboard"]
