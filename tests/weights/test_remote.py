"""Addresses, against a bucket and a Hub of our own on the loopback interface."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from morph_vla import weights
from morph_vla.errors import MorphVlaError
from morph_vla.files import dropin, hub, remote

PREFIX = "checkpoints/pi05_base"


class Server(ThreadingHTTPServer):
    """Counts what it is asked for; breaks off, or answers wrongly, when it is told to."""

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler], files: dict[str, bytes]):
        super().__init__(("127.0.0.1", 0), handler)
        self.files, self.asked, self.breaks_at, self.wrong = files, [], "", ""
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """What both have in common."""

    server: Server

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def give(self, data: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


class Bucket(Handler):
    """Two names a page; ranges."""

    def do_GET(self) -> None:
        url = urllib.parse.urlparse(self.path)
        query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
        if url.path.startswith("/storage/v1/b/"):
            names = sorted(n for n in self.server.files if n.startswith(query["prefix"]))
            start = int(query.get("pageToken", 0))
            items = [self.described(name) for name in names[start : start + 2]]
            more = {"nextPageToken": str(start + 2)} if start + 2 < len(names) else {}
            return self.give(json.dumps({"items": items} | more).encode())
        name = urllib.parse.unquote(url.path).split("/", 2)[2]
        self.server.asked.append((name, self.headers.get("Range")))
        data = self.server.files[name]
        start = int(re.sub(r"\D", "", self.headers.get("Range") or "0"))
        if self.server.wrong and name.endswith(self.server.wrong):
            return self.give(bytes(len(data)))
        if self.server.breaks_at and name.endswith(self.server.breaks_at):
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            return self.wfile.flush()
        return self.give(data[start:], 206 if start else 200)

    def described(self, name: str) -> dict[str, str]:
        data = self.server.files[name]
        checksum = base64.b64encode(hashlib.md5(data).digest()).decode()
        return {"name": name, "size": str(len(data)), "md5Hash": checksum}


@pytest.fixture
def bucket(openpi, tmp_path, monkeypatch):
    """openpi's bucket, with a tiny pi05_base."""
    files = {
        f"{PREFIX}/{path.relative_to(openpi).as_posix()}": path.read_bytes()
        for path in openpi.rglob("*")
        if path.is_file()
    }
    files[f"{PREFIX}/train_state/huge"] = bytes(1000)
    files[f"{PREFIX}_droid/params/_METADATA"] = b"another checkpoint"
    server = Server(Bucket, files)
    monkeypatch.setattr(remote, "GOOGLE", server.url)
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    yield server
    server.shutdown()
    server.server_close()


def kept(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in (tmp_path / "cache/weights/openpi-assets/checkpoints").glob("*"))


def test_pi05_base_is_fetched_once(bucket, host, params, equal, tmp_path):
    loaded, report = weights.load("pi05-base", host)
    equal(loaded, params)
    assert report.source == "pi05-base"
    assert {name for name, _ in bucket.asked} == {n for n in bucket.files if n.startswith(f"{PREFIX}/params")}
    assert "pi05_base" in kept(tmp_path)
    assert not any("unfinished" in name or name.endswith(".part") for name in kept(tmp_path))
    bucket.asked.clear()
    bucket.files.clear()  # from here on there is no network
    equal(weights.load("gs://openpi-assets/checkpoints/pi05_base", host)[0], params)
    assert not bucket.asked


def test_an_interrupted_download_leaves_nothing_half_and_goes_on(bucket, host, params, equal, tmp_path):
    largest = max(bucket.files, key=lambda name: len(bucket.files[name]))
    bucket.breaks_at = Path(largest).name
    with pytest.raises(
        MorphVlaError, match=r"pi05_base could not be fetched: .*; with a network, the same command"
    ):
        weights.load("pi05-base", host)
    assert "pi05_base" not in kept(tmp_path)
    before = {name for name, _ in bucket.asked} - {largest}
    bucket.asked.clear()
    bucket.breaks_at = ""
    equal(weights.load("pi05-base", host)[0], params)
    assert (largest, f"bytes={len(bucket.files[largest]) // 2}-") in bucket.asked
    assert not before & {name for name, _ in bucket.asked}


def test_a_wrong_checksum_is_not_kept(bucket, host, params, equal, tmp_path):
    bucket.wrong = "_METADATA"
    with pytest.raises(MorphVlaError, match="_METADATA does not match the checksum that the bucket gives"):
        weights.load("pi05-base", host)
    assert "pi05_base" not in kept(tmp_path)
    bucket.wrong = ""
    equal(weights.load("pi05-base", host)[0], params)


def test_two_at_once_fetch_once(bucket, host, params, equal):
    results: list = []
    threads = [threading.Thread(target=lambda: results.append(remote.resolve("pi05-base"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert len(set(results)) == 1
    assert len(bucket.asked) == len({name for name, _ in bucket.asked})
    equal(weights.load(results[0], host)[0], params)


def test_a_file_outside_the_folder_is_refused(bucket, tmp_path):
    bucket.files[f"{PREFIX}/../../../escaped"] = b"x"
    with pytest.raises(MorphVlaError, match="the bucket names a file outside its folder"):
        remote.resolve("pi05-base")
    assert not list(tmp_path.rglob("escaped"))


def test_a_folder_within_another_does_not_stand_for_it(bucket, host, params, equal, tmp_path):
    inner = "gs://openpi-assets/checkpoints/pi05_base/params"  # openpi's own spelling
    bucket.files[f"{PREFIX}/assets/norm_stats.json"] = b"{}"
    bucket.breaks_at = "_METADATA"
    with pytest.raises(MorphVlaError, match="could not be fetched"):
        remote.resolve(inner)
    bucket.breaks_at = ""
    assert not (remote.resolve(inner) / "assets").exists()
    whole = remote.resolve("pi05-base")
    assert (whole / "assets" / "norm_stats.json").is_file()
    equal(weights.load("pi05-base", host)[0], params)
    bucket.files.clear()
    assert remote.resolve("pi05-base") == whole
    assert remote.resolve(inner) == whole / "params"
    assert not list((tmp_path / "cache/unfinished").rglob("_METADATA"))


@pytest.mark.parametrize("lost", [".whole", "_METADATA", "norm_stats.json"])
def test_a_copy_that_was_removed_by_half_is_fetched_again(bucket, host, params, equal, lost):
    bucket.files[f"{PREFIX}/assets/norm_stats.json"] = b"{}"
    whole = remote.resolve("pi05-base")
    next(whole.rglob(lost)).unlink()
    assert remote.resolve("pi05-base") == whole
    assert next(whole.rglob(lost)).is_file()
    equal(weights.load("pi05-base", host)[0], params)


def test_a_bucket_that_lists_too_much_is_not_fetched(bucket, monkeypatch):
    monkeypatch.setattr(hub, "MAX_FILES", 3)
    with pytest.raises(MorphVlaError, match=r"the bucket has 4 files of .* bytes; at most 3 files and"):
        remote.resolve("pi05-base")
    monkeypatch.setattr(hub, "MAX_FILES", 1000)
    monkeypatch.setattr(hub, "MAX_WEIGHTS", 7)
    with pytest.raises(MorphVlaError, match=r"the bucket has .* bytes; at most 1,000 files and 7 bytes are"):
        remote.resolve("pi05-base")
    assert not bucket.asked


def test_a_folder_that_is_not_there(bucket):
    with pytest.raises(
        MorphVlaError, match="gs://openpi-assets/checkpoints/pi06: there is no such folder in the"
    ):
        remote.resolve("gs://openpi-assets/checkpoints/pi06")


def test_without_a_network_it_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(remote, "GOOGLE", "http://127.0.0.1:9")
    with pytest.raises(
        MorphVlaError, match=r"gs://b/f could not be fetched: .*refused; with a network, the same"
    ) as e:
        remote.resolve("gs://b/f")
    assert "\n" not in str(e.value)
    with pytest.raises(
        MorphVlaError, match=r"hf://lerobot/pi05_base could not be fetched: .*with a network"
    ) as e:
        remote.resolve("hf://lerobot/pi05_base")
    assert "\n" not in str(e.value)


def test_a_name_can_be_given_another_address(openpi, host, params, equal, monkeypatch):
    monkeypatch.setenv("MORPH_VLA_PI05_BASE", str(openpi))
    assert remote.address_of("pi05-base") == str(openpi)
    equal(weights.load("pi05-base", host)[0], params)


@pytest.mark.parametrize("name", ["pi05-nano", "pi05-arms"])
def test_a_name_of_ours_is_a_folder_of_the_package(name, tmp_path, monkeypatch):
    folder, variable = name.replace("-", "_"), f"MORPH_VLA_{name.replace('-', '_').upper()}"
    monkeypatch.delenv(variable, raising=False)
    inside, root = tmp_path / "shipped" / "bases", tmp_path / "bases"
    monkeypatch.setattr(dropin, "packaged", lambda kind: [inside, root] if kind == "bases" else [])
    missing = f"{name} is not here ({root}/{folder} is missing): take a release that has it, name a copy "
    missing += (
        f"with {variable}, or make it again in a checkout: python scripts/make_base.py --recipe {folder} "
    )
    for call in (remote.resolve, remote.folder_of, remote.address_of, weights.load):
        with pytest.raises(MorphVlaError, match=f"^{re.escape(missing)}"):
            call(name)
    for place in (root, inside):  # in a wheel that lies in a checkout the wheel's own
        (place / folder).mkdir(parents=True)
        assert remote.resolve(name) == remote.folder_of(name) == place / folder
    monkeypatch.setenv(variable, str(tmp_path))
    assert remote.resolve(name) == remote.folder_of(name) == tmp_path
    assert remote.folder_of("pi06") == Path("pi06")


def test_what_comes_with_the_package_is_at_the_root_of_a_checkout(root):
    assert root / "bases" in dropin.packaged("bases")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("gs://bucket", "gs://bucket is not a folder in a bucket; expected gs://BUCKET/FOLDER"),
        ("gs://bucket/a/../../b", "is not a folder in a bucket"),
        ("gs://bucket//etc/x", "gs://bucket//etc/x is not a folder in a bucket"),
        ("gs://../a", "is not a folder in a bucket"),
        (
            "hf://name",
            r"hf://name is not a repository of the Hub; expected hf://OWNER/NAME\[/FOLDER\]\[@REVISION\]",
        ),
        ("s3://bucket/a", r"s3://bucket/a: weights come from a path, gs://, hf:// or a name \(pi05-base, "),
        ("pi05-bas", "pi05-bas: there is no such file or folder; did you mean 'pi05-base'"),
    ],
)
def test_an_address_that_is_none(source, sentence):
    with pytest.raises(MorphVlaError, match=sentence):
        remote.resolve(source)


# ------------------------------------------------------------------------------------------------- the Hub

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(Handler):
    """One repository at one commit: what the Hub's client asks for."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = urllib.parse.urlparse(urllib.parse.unquote(self.path)).path
        self.server.asked.append((path, self.command))
        if path.startswith("/api/models/lerobot/pi05_base/tree/"):
            tree = [
                {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
                for name, data in self.server.files.items()
            ]
            return self.give(json.dumps(tree).encode(), Content_Type="application/json")
        if path.startswith("/api/models/lerobot/pi05_base"):
            files = [{"rfilename": name, "size": len(data)} for name, data in self.server.files.items()]
            about = {
                "id": "lerobot/pi05_base",
                "sha": COMMIT,
                "siblings": files,
                "private": False,
                "tags": [],
            }
            return self.give(json.dumps(about).encode(), Content_Type="application/json")
        name = path.partition("/resolve/")[2].partition("/")[2]
        if name not in self.server.files:
            return self.give(b"", 404, X_Error_Code="EntryNotFound")
        data = self.server.files[name]
        tag = f'"{hashlib.sha256(data).hexdigest()}"'
        return self.give(data, ETag=tag, X_Repo_Commit=COMMIT)


CHILD = """
import sys
from morph_vla.files import remote
for source in sys.argv[1:]:
    print(remote.resolve(source))
"""


@pytest.mark.slow
def test_the_hub_through_its_own_client(lerobot, host, params, equal, tmp_path):
    files = {path.name: path.read_bytes() for path in lerobot.iterdir()}
    files |= {"pytorch_model.bin": b"a pickle", "sub/model.safetensors": files["model.safetensors"]}
    server = Server(Hub, files)
    environment = os.environ | {
        "HF_ENDPOINT": server.url,
        "HF_HUB_OFFLINE": "0",
        "HF_HUB_DISABLE_XET": "1",
        "MORPH_VLA_CACHE": str(tmp_path),
        "HF_HOME": str(tmp_path / "home"),
        "no_proxy": "127.0.0.1",
    }
    sources = ["hf://lerobot/pi05_base", f"hf://lerobot/pi05_base/sub@{COMMIT}"]
    command = [sys.executable, "-c", CHILD, *sources]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    server.shutdown()
    server.server_close()
    whole, sub = map(Path, ended.stdout.split())
    assert whole.is_relative_to(tmp_path / "hub")
    assert not (whole / "pytorch_model.bin").exists()
    equal(weights.load(whole, host)[0], params)
    equal(weights.load(sub, host)[0], params)
