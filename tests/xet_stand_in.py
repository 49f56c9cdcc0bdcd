"""A stand-in of Xet's storage on the loopback interface: what hf_xet asks when it uploads and fetches.

A file is cut into chunks; chunks lie in blocks ("xorbs"), and a list of files says which chunks of which
block a file is ("shard"). Both are read here as far as a file needs it, without compression.
"""

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

END = b"\xff" * 32  # in a file's place: there are no more
VERIFIED, DESCRIBED = (
    0x8000_0000,
    0x4000_0000,
)  # flags of a file: a row of 48 bytes for each part, and one more


class Part(NamedTuple):
    """Consecutive chunks of a block, a part of a file."""

    block: str
    size: int
    start: int
    end: int


def number(data: bytes) -> int:
    return int.from_bytes(data, "little")


def name_of(digest: bytes) -> str:
    """A digest of 32 bytes as addresses have it: four numbers of 8 bytes, each in hexadecimal."""
    return "".join(f"{number(digest[at : at + 8]):016x}" for at in range(0, 32, 8))


def chunks_of(block: bytes) -> list[tuple[int, bytes]]:
    """Where each chunk of a block begins, and its content. Its head: version, length, compression, size."""
    chunks, start = [], 0
    while start + 8 <= len(block) and block[start] == 0:
        length = number(block[start + 1 : start + 4])
        assert block[start + 4] == 0, "compressed"
        chunks.append((start, block[start + 8 : start + 8 + length]))
        start += 8 + length
    return [*chunks, (start, b"")]


def files_of(shard: bytes) -> dict[str, list[Part]]:
    """The files of a list: name -> parts. All its rows have 48 bytes."""
    rows = [shard[at : at + 48] for at in range(48, len(shard), 48)]
    files: dict[str, list[Part]] = {}
    while rows and rows[0][:32] != END:
        head = rows.pop(0)
        flags, count = number(head[32:36]), number(head[36:40])
        parts = [rows.pop(0) for _ in range(count)]
        del rows[: count * bool(flags & VERIFIED) + bool(flags & DESCRIBED)]
        files[name_of(head[:32])] = [
            Part(name_of(part[:32]), number(part[36:40]), number(part[40:44]), number(part[44:48]))
            for part in parts
        ]
    return files


class Store(ThreadingHTTPServer):
    """Blocks and files; what has come whole is an object of the Hub's."""

    daemon_threads = True

    def __init__(self, objects: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.objects = objects
        self.blocks: dict[str, bytes] = {}
        self.files: dict[str, list[Part]] = {}
        self.hashes: dict[str, str] = {}  # SHA-256 -> the file's name here
        self.asked: list[tuple[str, str]] = []
        self.is_down = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def take(self, shard: bytes) -> None:
        """Note the files of a list whose blocks have come."""
        for name, parts in files_of(shard).items():
            chunks = [chunks_of(self.blocks[part.block])[part.start : part.end] for part in parts]
            content = b"".join(chunk for some in chunks for _, chunk in some)
            assert len(content) == sum(part.size for part in parts)
            digest = hashlib.sha256(content).hexdigest()
            self.objects[digest], self.files[name], self.hashes[digest] = content, parts, name

    def parts(self, name: str) -> dict[str, Any]:
        """Where the parts of a file are fetched."""
        terms, places = [], {}
        for part in self.files[name]:
            span = {"start": part.start, "end": part.end}
            starts = [start for start, _ in chunks_of(self.blocks[part.block])]
            where = {"start": starts[part.start], "end": starts[part.end] - 1}
            terms.append({"hash": part.block, "unpacked_length": part.size, "range": span})
            url = f"{self.url}/blocks/{part.block}"
            places.setdefault(part.block, []).append({"range": span, "url": url, "url_range": where})
        return {"offset_into_first_range": 0, "terms": terms, "fetch_info": places}


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Store
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def give(self, content: Any, status: int = 200) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.asked.append(("POST", self.path))
        *_, kind, last = ["", *self.path.strip("/").split("/")]
        if self.server.is_down:
            return self.give({}, 403)
        if "/v1/xorbs/" in self.path:
            self.server.blocks[last] = body
            return self.give({"was_inserted": True})
        if self.path == "/v1/shards":
            self.server.take(body)
            return self.give({"result": 1})
        return self.give({"error": f"{kind} is not here"}, 404)

    def do_GET(self) -> None:
        self.server.asked.append(("GET", self.path))
        kind, name = ["", *self.path.strip("/").split("/")][-2:]
        if self.server.is_down:
            return self.give({}, 403)
        if self.path.startswith("/v1/reconstructions/") and name in self.server.files:
            return self.give(self.server.parts(name))
        if kind == "blocks":
            start, end = re.findall(r"\d+", self.headers["Range"])
            return self.give(self.server.blocks[name][int(start) : int(end) + 1], 206)
        return self.give({}, 404)
