"""Files written whole or not at all, and locks between processes."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all, in UTF-8; see `write_bytes`."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary file in the same folder, then a rename.

    Missing folders are made. An interruption leaves the old file, or none, never half of one. Raises OSError,
    which names a file, where the disk is full or may not be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:  # what a full disk says of a file that is open names none
        if error.strerror and error.filename is None:
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)


def link_or_copy(source: str | Path, target: str | Path) -> None:
    """Another name for a file, or a copy of it where the disk has no hard links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time, on systems that have such locks; a lock ends with its process."""
    with path.open("a") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def taken(path: Path) -> Iterator[bool]:
    """Whether this process alone has the lock within the block; it never waits. See `locked`.

    The file must stay: whoever opened one that is removed has another lock than whoever comes next.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            with contextlib.suppress(ImportError):
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
