"""Files written whole or not at all."""

import errno
import os

import pytest

from morph_vla.files.writing import write_text


def test_a_full_disk_names_the_file_and_leaves_the_old_one(monkeypatch, tmp_path):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "record.json"
    write_text(path, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*/record\.json'$"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
