"""The SentencePiece tokenizer: openpi's ids, where its file comes from, and every way not to get it.

A small model trained in memory stands for PaliGemma's file; a server on this machine for the bucket.
"""

import hashlib
import http.server
import io
import threading

import numpy as np
import pytest
from recorded import FOLDER

from morph_vla.errors import ConfigError
from morph_vla.files import hub, remote
from morph_vla.pi05 import paligemma, tokenizer

pytest.importorskip("sentencepiece", reason="sentencepiece is not installed")


@pytest.fixture(scope="module")
def recorded():
    with np.load(FOLDER / "preprocessing.npz") as data:
        return {name: data[name] for name in data.files if name.startswith("tokens/")}


@pytest.fixture(scope="module")
def proto(recorded) -> bytes:
    """The recorded SentencePiece model, as a file's contents."""
    return recorded["tokens/model"].tobytes()


def trained(**options) -> bytes:
    """A SentencePiece model trained in memory."""
    import sentencepiece

    out = io.BytesIO()
    lines = [f"Task: pick up the cube {i}, State: {3 * i} {i};\nAction: " for i in range(30)]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=out, model_type="bpe", vocab_size=310, byte_fallback=True,
        minloglevel=2, num_threads=1, **{"pad_id": 0, "eos_id": 1, "bos_id": 2, "unk_id": 3, **options},
    )  # fmt: skip
    return out.getvalue()


@pytest.fixture
def file(tmp_path, proto):
    path = tmp_path / "small.model"
    path.write_bytes(proto)
    return path


@pytest.mark.parametrize("case", range(5))
def test_ids_and_masks_are_openpis(recorded, file, case, caplog):
    text, state, ids, mask = (recorded[f"tokens/{case}/{name}"] for name in ("text", "state", "ids", "mask"))
    state = np.where(state == 9, np.nan, state).astype(np.float32)  # how NaN was recorded
    result = tokenizer.tokenize(tokenizer.load(f"paligemma:{file}"), text.tobytes().decode(), state, len(ids))
    np.testing.assert_array_equal(result[0], ids)
    np.testing.assert_array_equal(result[1], mask)
    assert ids[0] == 2  # BOS
    assert bool(caplog.messages) == (case == 3)  # the one that is cut
    assert mask.all() == (case == 3)


def test_a_model_trained_in_memory(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(trained())
    by_file, by_folder = (tokenizer.load(f"paligemma:{source}") for source in (path, tmp_path))
    ids = by_file.encode("Task: pick up the cube, State: 3;\nAction: ")
    assert ids[0] == 2
    assert ids == by_folder.encode("Task: pick up the cube, State: 3;\nAction: ")
    assert max(ids) < by_file.vocab == 310
    # The same file under two names is the same tokenizer.
    assert by_file.name != by_folder.name
    assert by_file.sha256 == by_folder.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    tokenizer.check_same(tokenizer.describe(by_file), by_folder, "here")


def test_two_files_are_two_tokenizers(tmp_path, file):
    other = tmp_path / "other.model"
    other.write_bytes(trained())
    with pytest.raises(
        Exception, match=r"^here: trained with tokenizer 'paligemma:.*small\.model' .* is another"
    ):
        tokenizer.check_same(
            tokenizer.describe(tokenizer.load(f"paligemma:{file}")),
            tokenizer.load(f"paligemma:{other}"),
            "here",
        )


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda p: p / "none.model", r"no tokenizer at '.*none\.model': no such file; expected a file, .*"),
        (lambda p: p, r"no tokenizer at '.*': the folder holds no tokenizer\.model"),
        (lambda p: "a/b/c", r"no tokenizer at 'a/b/c': no such file; expected a file, a folder with .*"),
        (lambda p: "gs://bucket", r"gs://bucket is not a file in a bucket; expected gs://BUCKET/FILE"),
        (lambda p: "gs://b//etc/x", r"gs://b//etc/x is not a file in a bucket; expected gs://BUCKET/FILE"),
        (lambda p: "gs://../c", r"gs://\.\./c is not a file in a bucket; expected gs://BUCKET/FILE"),
        (lambda p: "gs://b/../c", r"gs://b/\.\./c is not a file in a bucket; expected gs://BUCKET/FILE"),
    ],
)
def test_a_source_that_is_none(tmp_path, make, sentence):
    with pytest.raises(ConfigError, match=rf"^tokenizer: {sentence}$"):
        tokenizer.load(f"paligemma:{make(tmp_path)}")


def test_a_file_that_is_none(tmp_path):
    path = tmp_path / "junk.model"
    path.write_bytes(b"not a model " * 9)
    with pytest.raises(ConfigError, match=rf"^tokenizer: '{path}' is not a SentencePiece model$"):
        tokenizer.load(f"paligemma:{path}")
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match=rf"^tokenizer: '{path}' is not a SentencePiece model$"):
        tokenizer.load(f"paligemma:{path}")
    path.write_bytes(trained(bos_id=-1))
    with pytest.raises(
        ConfigError, match=rf"^tokenizer: '{path}' has no BOS token, and pi0\.5's prompts .*$"
    ):
        tokenizer.load(f"paligemma:{path}")


def test_a_file_that_is_too_large(file, monkeypatch):
    monkeypatch.setattr(paligemma, "MAX_BYTES", 99)
    with pytest.raises(ConfigError, match=rf"^tokenizer: '{file}' is larger than 0 MiB$"):
        tokenizer.load(f"paligemma:{file}")


# ---------------------------------------------------------------------------------------- bucket and Hub


@pytest.fixture
def bucket(monkeypatch, tmp_path, proto):
    """A server on this machine in the bucket's place; what it does is in `served`."""
    served: dict = {"body": proto, "length": len(proto), "status": 200, "paths": []}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            served["paths"].append(self.path)
            self.send_response(served["status"])
            self.send_header("Content-Length", str(served["length"]))
            self.end_headers()
            self.wfile.write(served["body"])

        def log_message(self, *_) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setattr(remote, "GOOGLE", f"http://127.0.0.1:{server.server_port}")
        yield served
        server.shutdown()
        thread.join()


def test_the_bucket_is_asked_once(bucket, proto, tmp_path):
    for _ in range(2):
        result = tokenizer.load("paligemma")
        assert result.sha256 == hashlib.sha256(proto).hexdigest()
    assert result.name == "paligemma:gs://big_vision/paligemma_tokenizer.model"
    assert bucket["paths"] == ["/big_vision/paligemma_tokenizer.model"]
    kept = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert [path.name for path in kept] == ["paligemma_tokenizer.model"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"status": 404}, r"HTTP 404 Not Found"),
        ({"length": 10**6}, r"\S.*"),  # the connection ends before the file does
    ],
)
def test_a_bucket_that_fails_leaves_nothing_half(bucket, tmp_path, change, reason):
    bucket.update(change)
    with pytest.raises(
        ConfigError,
        match=rf"^tokenizer: gs://big_vision/paligemma_tokenizer\.model could not be fetched: {reason}; "
        rf"{hub.GO_ON}$",
    ):
        tokenizer.load("paligemma")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_no_network_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("MORPH_VLA_CACHE", str(tmp_path))
    monkeypatch.setattr(remote, "GOOGLE", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(ConfigError, match=r"could not be fetched: .*refused"):
        tokenizer.load("paligemma")


class Refused(OSError):
    def __init__(self, status: int):
        super().__init__(f"{status} Client Error")
        self.response = type("Response", (), {"status_code": status})()


@pytest.mark.parametrize("status", [401, 403])
def test_a_gated_repository_is_one_sentence(monkeypatch, status):
    import huggingface_hub

    def refuse(name: str, file: str) -> str:
        assert (name, file) == ("google/paligemma-3b-pt-224", "tokenizer.model")
        raise Refused(status)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    with pytest.raises(
        ConfigError,
        match=rf"^tokenizer: the Hub refuses 'google/paligemma-3b-pt-224' \({status}\): accept the licence "
        r"on the repository's page, log in with `hf auth login`, or use "
        r"'paligemma:gs://big_vision/paligemma_tokenizer\.model', which is public$",
    ):
        tokenizer.load("paligemma:google/paligemma-3b-pt-224")


def test_a_repository_of_the_hub(monkeypatch, file):
    import huggingface_hub

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda name, _: str(file))
    for source in ("google/paligemma-3b-pt-224", "hf://google/paligemma-3b-pt-224"):
        assert tokenizer.load(f"paligemma:{source}").encode("a")[0] == 2

    def missing(*_):
        raise OSError("Entry Not Found\nmore")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", missing)
    with pytest.raises(ConfigError, match=r"^tokenizer: no tokenizer at 'someone/else': Entry Not Found$"):
        tokenizer.load("paligemma:someone/else")


def test_the_hub_offline_is_one_sentence():
    with pytest.raises(ConfigError, match=r"^tokenizer: no tokenizer at 'someone/who-is-not-cached': \S"):
        tokenizer.load("paligemma:someone/who-is-not-cached")
