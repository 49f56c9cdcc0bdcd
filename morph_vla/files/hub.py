"""The Hub of Hugging Face, through its own client and into its own cache: repositories fetched and uploaded.

What lies there is a stranger's. A repository's list is read before anything else: the files that we read, by
their names, each inside its folder and of a bounded size. No pickle is among them, and nothing is executed.
"""

import contextlib
import importlib.util
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Literal

from morph_vla.errors import MissingExtraError, MorphVlaError, reason, require
from morph_vla.files.cache import cache_folder
from morph_vla.files.writing import write_text

LOG = logging.getLogger(__name__)
Kind = Literal["model", "dataset"]
NEEDED = (
    "*.safetensors",
    "*.json",
    "params/*",
    "averaged/*",
    "frozen/*",
    "about/robots/*",
)  # what is fetched
TEXTS = (".json", ".yaml", ".urdf")
MAX_TEXT, MAX_WEIGHTS, MAX_FILES = 64 * 2**20, 128 * 2**30, 20_000  # bytes of one; of all files; files
AGAIN = "with a network, the same command goes on where it stopped"
GO_ON = f"{AGAIN}; a copy from elsewhere can be named by its path"
NO_COPY = "the Hub cannot be reached, and this machine has no whole copy"
LOG_IN = "`hf auth login`, or HF_TOKEN"


@dataclass(frozen=True)
class Address:
    """`hf://OWNER/NAME[/FOLDER][@REVISION]`, taken apart."""

    repository: str
    """`OWNER/NAME`"""
    folder: str = ""
    """Within the repository"""
    revision: str = ""
    """A branch, a tag or a commit; the main branch where none is named"""

    @classmethod
    def parse(cls, source: str) -> "Address":
        """Raises MorphVlaError for anything else."""
        named, _, revision = source.removeprefix("hf://").partition("@")
        owner, name, folder = [*named.strip("/").split("/", 2), "", ""][:3]
        if not is_repository(f"{owner}/{name}") or not is_inside(folder or "."):
            expected = "hf://OWNER/NAME[/FOLDER][@REVISION]"
            raise MorphVlaError(f"{source} is not a repository of the Hub; expected {expected}")
        return cls(f"{owner}/{name}", folder.strip("/"), revision)


def is_repository(name: str) -> bool:
    """Whether a repository can have that name, `OWNER/NAME`."""
    return re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", name, re.ASCII) is not None


def is_inside(name: str) -> bool:
    """Whether a file's name stays in its folder, on every system."""
    path = PurePosixPath(name)
    return not (path.is_absolute() or ".." in path.parts or re.search(r"[\\:\x00-\x1f]", name))


def needed(sizes: Mapping[str, int], folder: str = "") -> list[str]:
    """The files to fetch from a repository that lists these (name -> bytes).

    Raises MorphVlaError for a name that leads outside, for too many files, and for one that is too large.
    """
    names = [name for name in sizes if any(fnmatch(name, pattern) for pattern in _patterns(folder))]
    check_listed({name: sizes[name] for name in names}, "the repository")
    return names


def check_listed(sizes: Mapping[str, int], place: str) -> None:
    """Raise MorphVlaError for files (name -> bytes) that a stranger's `place` lists and we do not fetch.

    These are names that lead outside, texts that are too large, and too much of all.
    """
    for name, size in sizes.items():
        if not is_inside(name):
            raise MorphVlaError(f"{place} names a file outside its folder ({name!r})")
        if name.endswith(TEXTS) and size > MAX_TEXT:
            raise MorphVlaError(f"{name} has {size:,} bytes; at most {MAX_TEXT:,} are read")
    total = sum(sizes.values())
    if len(sizes) > MAX_FILES or total > MAX_WEIGHTS:
        most = f"at most {MAX_FILES:,} files and {MAX_WEIGHTS:,} bytes are fetched"
        raise MorphVlaError(f"{place} has {len(sizes):,} files of {total:,} bytes; {most}")


def _patterns(folder: str) -> list[str]:
    return [f"{folder}/{pattern}" if folder else pattern for pattern in NEEDED]


def fetch(source: str) -> Path:
    """The folder of `hf://OWNER/NAME[/FOLDER][@REVISION]`, in the Hub's cache or in MORPH_VLA_CACHE.

    Without a network, a whole copy that was fetched before is taken. Raises MorphVlaError, one sentence, for
    what is not there, cannot be fetched, or is not what we read.
    """
    address, (client, errors) = Address.parse(source), _doors()
    options: dict[str, Any] = {"revision": address.revision or None, "local_files_only": True}
    commit = ""
    if os.environ.get("MORPH_VLA_CACHE"):
        options["cache_dir"] = cache_folder() / "hub"
    with _worded(f"{source} could not be fetched", address, GO_ON):
        try:
            info = client.HfApi().repo_info(
                address.repository, revision=address.revision or None, files_metadata=True
            )
        except (OSError, errors.HTTPError) as error:
            if _status(error) is not None:
                raise
        else:
            sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
            if not needed(sizes, address.folder):
                where = f"folder '{address.folder}'" if address.folder else "file"
                raise MorphVlaError(f"the repository has no {where} with weights")
            # The commit whose list was checked: a branch may move before its files are asked for.
            commit = info.sha
            options |= {"revision": commit, "local_files_only": False}
        if commit:
            with contextlib.suppress(OSError):  # a cache that may only be read holds whole copies
                _unfinished(address, commit).parent.mkdir(parents=True, exist_ok=True)
                _unfinished(address, commit).touch()
        snapshot = Path(
            client.snapshot_download(address.repository, allow_patterns=_patterns(address.folder), **options)
        )
        if commit:
            with contextlib.suppress(OSError):
                _unfinished(address, commit).unlink()
            _remember(snapshot.parent.parent, address.revision or "main", commit)
        elif _unfinished(address, snapshot.name).exists():
            raise MorphVlaError(f"{NO_COPY}: it was cut off; {GO_ON}")
    return snapshot / address.folder


def cached(source: str) -> Path | None:
    """The folder of an address where it was fetched before, without asking the Hub; None where it was not.

    Raises MorphVlaError for what is no address.
    """
    address = Address.parse(source)
    options: dict[str, Any] = {}
    if os.environ.get("MORPH_VLA_CACHE"):
        options["cache_dir"] = cache_folder() / "hub"
    with contextlib.suppress(OSError, MissingExtraError):
        client, _ = _doors()
        whole = client.snapshot_download(
            address.repository,
            revision=address.revision or None,
            allow_patterns=_patterns(address.folder),
            local_files_only=True,
            **options,
        )
        folder = Path(whole) / address.folder
        return None if _unfinished(address, Path(whole).name).exists() or not folder.is_dir() else folder
    return None


def _unfinished(address: Address, commit: str) -> Path:
    """A file that is there while a folder of a commit is fetched: without a network nothing else tells."""
    name = "--".join([*address.repository.split("/"), commit, *filter(None, address.folder.split("/"))])
    return cache_folder() / "unfinished" / "hub" / name


def _remember(cached: Path, revision: str, commit: str) -> None:
    """Note in the Hub's cache which commit a branch or tag was, as its client does and offline looks up."""
    path = cached / "refs" / revision
    if revision == commit or not is_inside(revision):
        return
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != commit:
            write_text(path, commit)
    except OSError as error:  # a cache that several people share, for one
        LOG.warning("%s cannot be written (%s): offline, %s is not found", path, reason(error), revision)


def pinned(source: str, folder: Path) -> str:
    """`hf://OWNER/NAME[/FOLDER]@COMMIT` of what `fetch` laid into `folder`; "" for any other source.

    All of the commit: it can be fetched again, and offline the Hub's client finds no shorter one.

    >>> pinned("hf://me/arm@main", Path("hub/models--me--arm/snapshots/0123456789abcdef"))
    'hf://me/arm@0123456789abcdef'
    """
    parts = folder.parts
    if not source.startswith("hf://") or "snapshots" not in parts[:-1]:
        return ""
    commit = parts[len(parts) - parts[::-1].index("snapshots")]
    return f"{source.partition('@')[0]}@{commit}"


def check_upload(repository: str) -> None:
    """Raise MorphVlaError for another name than USER/NAME, and where this machine has no token."""
    if not is_repository(repository):
        raise MorphVlaError(f"'{repository}' is no name of a repository; expected USER/NAME")
    if not _doors()[0].get_token():
        raise MorphVlaError(f"the Hub asks who uploads, and this machine has no token ({LOG_IN})")


def upload(
    repository: str,
    files: Mapping[str, Path | bytes],
    *,
    kind: Kind = "model",
    private: bool = False,
    revision: str = "",
    owned: Sequence[str] = (),
    tag: str = "",
) -> str:
    """Write `files` (name -> file or content) into a repository of the Hub in one commit; its address.

    The repository and the branch `revision` are made where they are missing. What was uploaded before an
    interruption is not sent again, and until the commit nothing is seen. Files below the folders `owned` that
    are not among `files` are removed; `tag` names the commit.

    Raises MorphVlaError, one sentence, for what the Hub refuses, and for `private` where the repository is
    public.
    """
    check_upload(repository)
    client, errors = _doors()
    api, where = client.HfApi(), {"repo_id": repository, "repo_type": kind}
    with _worded(f"{repository} could not be uploaded", Address(repository, "", revision), AGAIN):
        api.create_repo(**where, private=private or None, exist_ok=True)
        if private and not api.repo_info(**where).private:
            raise MorphVlaError("it is public; make it private on the Hub, or leave out --private")
        if revision:
            api.create_branch(**where, branch=revision, exist_ok=True)
        old = api.list_repo_files(**where, revision=revision or None)
        stale = [name for name in old if name.startswith(tuple(owned)) and name not in files]
        commit = api.create_commit(
            **where,
            operations=[
                *(client.CommitOperationAdd(name, file) for name, file in files.items()),
                *map(client.CommitOperationDelete, stale),
            ],
            commit_message="Upload with morph-vla",
            revision=revision or None,
        )
        if tag:
            with contextlib.suppress(errors.RevisionNotFoundError):
                api.delete_tag(**where, tag=tag)
            api.create_tag(**where, tag=tag, revision=commit.oid)
    return str(commit.commit_url)


def _doors() -> tuple[Any, Any]:
    """The Hub's client and its errors."""
    client: ModuleType = require("huggingface_hub", "model")
    return client, require("huggingface_hub.errors", "model")


def _status(error: BaseException) -> int | None:
    """The HTTP status the Hub answered with; None where it was not reached."""
    return getattr(getattr(error, "response", None), "status_code", None)


@contextlib.contextmanager
def _worded(what: str, address: Address, remedy: str) -> Iterator[None]:
    """Whatever goes wrong inside, as one sentence; `remedy` is that of an interruption."""
    errors = _doors()[1]
    try:
        yield
    except MorphVlaError as error:
        raise MorphVlaError(f"{what}: {error}") from error
    # The Hub's errors are OSErrors; a wrong name is a ValueError, a broken upload a RuntimeError.
    except (OSError, ValueError, RuntimeError, errors.HTTPError) as error:
        raise MorphVlaError(
            f"{what}: {_why(error, address) or f'{_interruption(error)}; {remedy}'}"
        ) from error


def _why(error: Exception, address: Address) -> str:
    """What the Hub refuses; "" where it was something else."""
    errors, status = _doors()[1], _status(error)
    if isinstance(error, errors.GatedRepoError):
        return f"it is gated: ask for access at https://huggingface.co/{address.repository}, then {LOG_IN}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"it has no revision '{address.revision or 'main'}'"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the Hub has no such repository, or hides it from whoever asks here ({LOG_IN})"
    if status in (401, 403):
        return f"the Hub refuses this machine's token: it may not do that, or has expired ({LOG_IN})"
    return ""


def _interruption(error: Exception) -> str:
    errors = _doors()[1]
    cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
    if isinstance(cause, errors.LocalEntryNotFoundError):
        return NO_COPY
    if isinstance(cause, errors.OfflineModeIsEnabled):
        return "the Hub cannot be reached, because HF_HUB_OFFLINE is set"
    if _is_of_xet(cause):
        return f"{reason(cause)}, from Xet's storage (HF_HUB_DISABLE_XET=1 does without it)"
    return reason(cause)


def _is_of_xet(error: BaseException) -> bool:
    """Whether hf_xet raised it: an error of its own, or one of Python's that no system call made."""
    constants: ModuleType = require("huggingface_hub.constants", "model")
    if constants.HF_HUB_DISABLE_XET or importlib.util.find_spec("hf_xet") is None:
        return False
    of_python = type(error).__module__ == "builtins" and getattr(error, "errno", None) is None
    return (of_python and isinstance(error, OSError | RuntimeError)) or type(error).__module__ == "hf_xet"
