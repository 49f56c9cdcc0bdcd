"""From an address to a folder on this machine: names, `gs://` and `hf://`. Two names are folders of ours.

A folder of a bucket is fetched into a folder beside its final place, file by file; each is held against the
size and the checksum that the bucket gives, and the whole is renamed when nothing is missing. So an
interrupted download leaves nothing that could be taken for a checkpoint, and the next one goes on where it
stopped. `hub` has the repositories of the Hub.
"""

import base64
import contextlib
import hashlib
import http.client
import itertools
import json
import os
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from morph_vla.errors import MorphVlaError, nearest, reason
from morph_vla.files import dropin, hub
from morph_vla.files.cache import cache_folder
from morph_vla.files.home import expanded
from morph_vla.files.writing import locked, write_bytes, write_text

# Short names of addresses. MORPH_VLA_PI05_BASE, for one, names another source for `pi05-base`.
NAMES = {
    "pi05-base": "gs://openpi-assets/checkpoints/pi05_base",
    "pi05-base-lerobot": "hf://lerobot/pi05_base",
    "pi05-nano": "shipped://pi05_nano",
    "pi05-arms": "shipped://pi05_arms",
}
SHIPPED, BASES = "shipped://", "bases"  # a folder that comes with the package, and where it lies
GOOGLE = "https://storage.googleapis.com"  # public buckets, without an account
WHOLE = ".whole"  # in a folder that came as one: the names of its files
NOT_NEEDED = ("train_state/",)  # openpi's optimizer, as large as the parameters again
PIECE, SECONDS, PAGE = 2**20, 60, 64 * 2**20  # bytes at a time; without a byte, it has failed; of one listing


def resolve(source: str | Path) -> Path:
    """The file or folder that a source names, fetched when it is elsewhere.

    Args:
        source: A name of NAMES (or what its environment variable says), a path, `gs://BUCKET/FOLDER`, or
            `hf://OWNER/NAME[/FOLDER][@REVISION]`.

    Raises MorphVlaError, in one sentence, when it is nowhere or cannot be fetched.
    """
    text = address_of(source)
    if text.startswith("gs://"):
        return from_bucket(text)
    if text.startswith("hf://"):
        return hub.fetch(text)
    if "://" in text:
        raise MorphVlaError(f"{text}: weights come from a path, gs://, hf:// or a name ({', '.join(NAMES)})")
    path = expanded(text)
    if not path.exists():
        near = nearest(text, NAMES) or f" (and no name of {', '.join(NAMES)})"
        raise MorphVlaError(f"{path}: there is no such file or folder{near}")
    return path


def folder_of(source: str | Path) -> Path:
    """The folder that an address or a name stands for, as `resolve`; else a path, there or not."""
    text = str(source)
    return resolve(text) if "://" in text or text in NAMES else expanded(text)


def kept(source: str | Path) -> Path | None:
    """The file or folder that a source names where it is on this machine, without asking anybody; else None.

    Raises MorphVlaError as `address_of` and `check_address`.
    """
    text = address_of(source)
    check_address(text)
    if text.startswith("hf://"):
        return hub.cached(text)
    if text.startswith("gs://"):
        folder = cache_folder().joinpath("weights", *_place(text.rstrip("/"), "folder"))
        return folder if _is_whole(folder) else None
    path = expanded(text)
    return path if path.exists() else None


def address_of(source: str | Path) -> str:
    """What a name of NAMES stands for: what its environment variable says, an address, or a folder of ours.

    Any other source is itself. Raises MorphVlaError where a base that comes with the package did not.
    """
    name = text = str(source)
    if name in NAMES:
        variable = f"MORPH_VLA_{name.upper().replace('-', '_')}"
        text = os.environ.get(variable) or NAMES[name]
        if text.startswith(SHIPPED):
            return str(_shipped(name, text.removeprefix(SHIPPED), variable))
    return text


def check_address(source: str) -> None:
    """Raise MorphVlaError for an address of a hub or a bucket that cannot be one, without asking anybody."""
    if source.startswith("hf://"):
        hub.Address.parse(source)
    elif source.startswith("gs://"):
        _place(source, "folder")


def _shipped(name: str, folder: str, variable: str) -> Path:
    """The folder of a base that comes with the package."""
    places = [place / folder for place in dropin.packaged(BASES)]
    if not any(place.is_dir() for place in places):
        raise MorphVlaError(
            f"{name} is not here ({places[-1]} is missing): take a release that has it, name a copy with "
            f"{variable}, or make it again in a checkout: python scripts/make_base.py --recipe {folder} "
            f"-o runs/{folder} --base {BASES}/{folder}"
        )
    return next(place for place in places if place.is_dir())


def from_bucket(source: str) -> Path:
    """A folder of a public bucket, in the cache.

    Raises MorphVlaError, in one sentence, for what is not there, cannot be fetched, or is too large.
    """
    bucket, prefix = _place(source.rstrip("/"), "folder")
    final = cache_folder() / "weights" / bucket / prefix
    if _is_whole(final):
        return final
    # Not beside the final one, whose folder may be one that somebody fetches too.
    unfinished = cache_folder() / "unfinished" / bucket / urllib.parse.quote(prefix, safe="")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    with locked(unfinished.with_name(f".{unfinished.name}.lock")):
        if _is_whole(final):  # another process was quicker
            return final
        try:
            listed = itertools.islice(_listed(bucket, prefix), hub.MAX_FILES + 1)
            objects = {entry["name"].removeprefix(f"{prefix}/"): entry for entry in listed}
            if not objects:
                raise MorphVlaError(f"{source}: there is no such folder in the bucket")
            hub.check_listed({name: int(entry["size"]) for name, entry in objects.items()}, "the bucket")
            for name, entry in objects.items():
                _fetch(bucket, entry, unfinished / name)
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise MorphVlaError(_cannot(source, error)) from error
        write_text(unfinished / WHOLE, "\n".join(objects))
        _put(unfinished, final)
    return final


def _is_whole(folder: Path) -> bool:
    """Whether a folder was fetched as one, or within one, and nobody has begun to remove it since."""
    for place in (folder, *folder.parents):
        if (place / WHOLE).is_file():
            names = [Path(name) for name in (place / WHOLE).read_text(encoding="utf-8").splitlines()]
            inside = [name for name in names if name.is_relative_to(folder.relative_to(place))]
            return folder.is_dir() and all((place / name).is_file() for name in inside)
    return False


def _put(unfinished: Path, final: Path) -> None:
    """Rename a folder; what was fetched of it before makes room."""
    final.parent.mkdir(parents=True, exist_ok=True)
    before = unfinished.with_name(f".{unfinished.name}.before")
    if final.is_dir():
        final.rename(before)
    unfinished.rename(final)
    shutil.rmtree(before, ignore_errors=True)


def file_of_bucket(source: str, kind: str, most: int) -> Path:
    """A file of a public bucket, of at most `most` bytes, in the cache's folder `kind`.

    Raises MorphVlaError, in one sentence, when it is larger or cannot be fetched.
    """
    bucket, name = _place(source, "file")
    final = cache_folder() / kind / bucket / name
    if final.is_file():
        return final
    try:
        url = f"{GOOGLE}/{bucket}/{urllib.parse.quote(name)}"
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            data = answer.read(most + 1)
            length = int(answer.headers.get("Content-Length") or len(data))
        if len(data) < min(length, most):
            raise OSError(f"{len(data)} of {length} bytes came")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise MorphVlaError(_cannot(source, error)) from error
    if len(data) > most:
        raise MorphVlaError(f"{source} is larger than {most >> 20} MiB")
    write_bytes(final, data)
    return final


def _place(source: str, kind: str) -> tuple[str, str]:
    """The bucket and the name within it. Raises MorphVlaError for one that would leave the cache's folder."""
    bucket, _, name = source.removeprefix("gs://").partition("/")
    if not bucket or not name or not (hub.is_inside(bucket) and hub.is_inside(name)):
        raise MorphVlaError(f"{source} is not a {kind} in a bucket; expected gs://BUCKET/{kind.upper()}")
    return bucket, name


def _listed(bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
    """Name, size and checksum of every object below a folder that is needed."""
    token = ""
    while True:
        query = {"prefix": f"{prefix}/", "fields": "nextPageToken,items(name,size,md5Hash)"}
        text = urllib.parse.urlencode(query | ({"pageToken": token} if token else {}))
        with urllib.request.urlopen(f"{GOOGLE}/storage/v1/b/{bucket}/o?{text}", timeout=SECONDS) as answer:
            page = json.loads(answer.read(PAGE))
        for entry in page.get("items", []):
            inside = entry["name"].removeprefix(f"{prefix}/")
            if inside and not inside.endswith("/") and not inside.startswith(NOT_NEEDED):
                yield entry
        token = page.get("nextPageToken", "")
        if not token:
            return


def _fetch(bucket: str, entry: dict[str, Any], path: Path) -> None:
    """One object, from where an earlier attempt stopped; it gets its name when its checksum is right."""
    size, part = int(entry["size"]), path.with_name(f"{path.name}.part")
    if path.is_file() and path.stat().st_size == size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    have = part.stat().st_size if part.is_file() else 0
    if have > size:
        part.unlink()
        have = 0
    if have < size or not size:
        url = f"{GOOGLE}/{bucket}/{urllib.parse.quote(entry['name'])}"
        request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
        with contextlib.ExitStack() as opened:
            answer = opened.enter_context(urllib.request.urlopen(request, timeout=SECONDS))
            file = opened.enter_context(part.open("ab" if answer.status == 206 else "wb"))
            shutil.copyfileobj(answer, file, PIECE)
    with part.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).digest()
    checksum = base64.b64encode(digest).decode()
    if part.stat().st_size != size:
        raise OSError(f"{part.stat().st_size} of {size} bytes of {path.name} came")
    if checksum != entry.get("md5Hash", checksum):
        part.unlink()
        raise OSError(f"{path.name} does not match the checksum that the bucket gives")
    part.rename(path)


def _cannot(source: str, error: Exception) -> str:
    why = reason(error)
    if isinstance(error, urllib.error.URLError):
        status = f"HTTP {error.code} " if isinstance(error, urllib.error.HTTPError) else ""
        why = f"{status}{error.reason}".rstrip(".")
    return f"{source} could not be fetched: {why}; {hub.GO_ON}"
