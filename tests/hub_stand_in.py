"""A stand-in of the Hub on the loopback interface: what its client asks when it fetches and uploads."""

import base64
import hashlib
import json
import re
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from xet_stand_in import Store

TOKEN = "hf_writer"
LARGE = 500  # bytes from which a file is uploaded apart, as large files are


@dataclass
class Repository:
    """Its branches, each a list of commits, newest last: path -> content."""

    private: bool = False
    gated: bool = False
    branches: dict[str, list[dict[str, bytes]]] = field(default_factory=lambda: {"main": [{}]})
    tags: dict[str, str] = field(default_factory=dict)

    def files(self, revision: str = "main") -> dict[str, bytes] | None:
        """The files at a branch, a tag or a commit; None where there is no such revision."""
        if revision in self.branches:
            return self.branches[revision][-1]
        wanted = self.tags.get(revision, revision)
        commits = (files for commits in self.branches.values() for files in commits)
        return next((files for files in commits if commit_of(files) == wanted), None)


def commit_of(files: dict[str, bytes]) -> str:
    """A commit's name."""
    listed = sorted((name, hashlib.sha1(content).hexdigest()) for name, content in files.items())
    return hashlib.sha1(repr(listed).encode()).hexdigest()


class Hub(ThreadingHTTPServer):
    """Repositories by `models/OWNER/NAME` and `datasets/OWNER/NAME`; breaks off where it is told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, Repository] = {}
        self.objects: dict[str, bytes] = {}  # large files by their SHA-256
        self.asked: list[tuple[str, str]] = []
        self.cuts: tuple[str, str] = ("", "")  # method, and what the path ends with
        self.xet: Store | None = None  # where large files lie, of a Hub that has such a storage
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def handle_one_request(self) -> None:
        """Whoever breaks off is no error of the server's."""
        try:
            super().handle_one_request()
        except OSError:
            self.close_connection = True

    def do_HEAD(self) -> None:
        self.answer(b"")

    def do_GET(self) -> None:
        self.answer(b"")

    def do_DELETE(self) -> None:
        self.answer(b"")

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def do_PUT(self) -> None:
        size = int(self.headers["Content-Length"])
        if self.server.cuts == ("PUT", ""):
            self.rfile.read(size // 2)
            self.close_connection = True
            return
        content = self.rfile.read(size)
        self.server.asked.append(("PUT", self.path))
        self.server.objects[hashlib.sha256(content).hexdigest()] = content
        self.give({})

    def give(self, content: Any, status: int = 200, /, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "HEAD":
            return
        method, end = self.server.cuts
        if method == "GET" == self.command and end and self.path.endswith(end):
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        self.wfile.write(data)

    def refuse(self, status: int, code: str) -> None:
        self.give({"error": code}, status, X_Error_Code=code, X_Error_Message=code)

    def answer(self, body: bytes) -> None:
        path = urllib.parse.unquote(urllib.parse.urlparse(self.path).path)
        self.server.asked.append((self.command, path))
        may_write = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if path == "/api/validate-yaml":
            return self.give({"errors": [], "warnings": []})
        if path == "/api/repos/create":
            return self.create(json.loads(body), may_write)
        dataset = path.startswith(("/api/datasets/", "/datasets/"))
        plain = re.sub(r"^/(api/)?(models/|datasets/)?", "", path)
        owner, _, tail = plain.partition("/")
        name, *rest = tail.split("/")
        key = f"{'datasets' if dataset else 'models'}/{owner}/{name.removesuffix('.git')}"
        repository = self.server.repositories.get(key)
        if repository is None or (repository.private and not may_write):
            return self.refuse(404 if may_write else 401, "RepoNotFound")
        if rest and rest[0].startswith("xet-"):
            return self.allow(self.server.xet)
        if self.command in ("POST", "DELETE") and not may_write:
            return self.refuse(403, "Forbidden")
        if self.command in ("POST", "DELETE"):
            return self.write(repository, key, rest, body)
        return self.read(repository, key, rest, may_write)

    def create(self, asked: dict[str, Any], may_write: bool) -> None:
        if not may_write:
            return self.refuse(401, "Unauthorized")
        owner = asked.get("organization") or "me"
        key = f"{asked.get('type') or 'model'}s/{owner}/{asked['name']}"
        url = {"url": f"{self.server.url}/{key.removeprefix('models/')}"}
        if key in self.server.repositories:
            return self.give(url, 409)
        is_private = asked.get("private") or asked.get("visibility") == "private"
        self.server.repositories[key] = Repository(bool(is_private))
        return self.give(url)

    def read(self, repository: Repository, key: str, rest: list[str], may_write: bool) -> None:
        kind, revision, *inside = [*rest, "", ""][:2] + rest[2:]
        files = repository.files(revision or "main")
        if files is None:
            return self.refuse(404, "RevisionNotFound")
        if kind in ("", "revision"):
            listed = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            about = {"id": key.partition("/")[2], "sha": commit_of(files), "siblings": listed}
            return self.give({**about, "private": repository.private, "tags": []})
        if kind == "tree":
            return self.give([described(name, content) for name, content in files.items()])
        if repository.gated and not may_write:
            return self.refuse(403, "GatedRepo")
        name = "/".join(inside)
        if kind != "resolve" or name not in files:
            return self.refuse(404, "EntryNotFound")
        content = files[name]
        start = int(re.sub(r"\D", "", self.headers.get("Range") or "") or 0)
        digest = hashlib.sha256(content).hexdigest()
        status = 206 if self.headers.get("Range") else 200
        more: dict[str, Any] = {}
        if self.server.xet is not None and digest in self.server.xet.hashes:
            route = f"{self.server.url}/api/{key}/xet-read-token/{revision}"
            more = {"X_Xet_Hash": self.server.xet.hashes[digest], "X_Xet_Refresh_Route": route}
        tag = f'"{digest}"'
        return self.give(content[start:], status, ETag=tag, X_Repo_Commit=commit_of(files), **more)

    def allow(self, store: Store | None) -> None:
        """A token of the storage, and where it is."""
        if store is None:
            return self.refuse(404, "EntryNotFound")
        token, until = "xet", 2**31
        headers = {
            "X_Xet_Cas_Url": store.url,
            "X_Xet_Access_Token": token,
            "X_Xet_Token_Expiration": f"{until}",
        }
        return self.give({"accessToken": token, "exp": until, "casUrl": store.url}, **headers)

    def write(self, repository: Repository, key: str, rest: list[str], body: bytes) -> None:
        kind, revision, *more = [*rest, "", ""][:2] + rest[2:]
        if kind == "info":  # info/lfs/objects/batch
            objects = [self.upload_of(item) for item in json.loads(body)["objects"]]
            return self.give({"objects": objects, "transfer": "basic"})
        if kind == "preupload":
            modes = (
                {
                    "path": file["path"],
                    "uploadMode": "lfs" if file["size"] > LARGE else "regular",
                    "shouldIgnore": False,
                }
                for file in json.loads(body)["files"]
            )
            return self.give({"files": [*modes]})
        if kind == "branch":
            if revision in repository.branches:
                return self.refuse(409, "Conflict")
            repository.branches[revision] = [dict(repository.files() or {})]
            return self.give({})
        if kind == "tag" and self.command == "DELETE":
            known = repository.tags.pop(revision, None)
            return self.give({}) if known else self.refuse(404, "RevisionNotFound")
        if kind == "tag":
            repository.tags[json.loads(body)["tag"]] = revision
            return self.give({})
        assert kind == "commit", (key, rest, more)
        files = dict(repository.branches[revision][-1])
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        repository.branches[revision].append(files)
        commit = commit_of(files)
        url = f"{self.server.url}/{key.removeprefix('models/')}/commit/{commit}"
        return self.give({"success": True, "commitOid": commit, "commitUrl": url})

    def upload_of(self, item: dict[str, Any]) -> dict[str, Any]:
        """Where a large file goes; nowhere, where it has come before."""
        if item["oid"] in self.server.objects:
            return item
        href = f"{self.server.url}/objects/{item['oid']}"
        return {**item, "actions": {"upload": {"href": href, "header": {}}}}


def described(name: str, content: bytes) -> dict[str, Any]:
    """A file as the Hub lists it."""
    about = {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
    if len(content) <= LARGE:
        return about
    sha256 = hashlib.sha256(content).hexdigest()
    return {**about, "lfs": {"oid": sha256, "size": len(content), "pointerSize": 130}}
