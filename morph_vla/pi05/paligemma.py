"""PaliGemma's own tokenizer: a SentencePiece model from a file, a bucket or the Hub.

As openpi has it (`models/tokenizer.py`).
The bucket is public, the Hub's repository wants its licence accepted. A file from the bucket is kept in
`MORPH_VLA_CACHE` (or the user's cache folder) and appears there whole or not at all; the Hub keeps its own.
"""

import hashlib
from pathlib import Path

from morph_vla.errors import ConfigError, MorphVlaError, reason, require
from morph_vla.files import remote
from morph_vla.files.home import expanded

BUCKET = "gs://big_vision/paligemma_tokenizer.model"
HUB = "google/paligemma-3b-pt-224"
FILE = "tokenizer.model"  # in a folder, or in a repository of the Hub
MAX_BYTES = 64 << 20  # PaliGemma's has 4 MB


class PaligemmaTokenizer:
    """A SentencePiece model, from a file, a folder that holds `tokenizer.model`, `gs://...`, or the Hub."""

    def __init__(self, source: str = BUCKET):
        """Raises ConfigError when the file is missing, cannot be fetched, or is no SentencePiece model."""
        self.name = f"paligemma:{source}"
        data = _bounded(_find(source))
        self.sha256 = hashlib.sha256(data).hexdigest()
        sentencepiece = require("sentencepiece", "model")
        try:
            if not data:
                raise RuntimeError("empty")  # SentencePiece would take it and know no token
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=data)
        except (RuntimeError, TypeError) as error:
            raise ConfigError(f"tokenizer: '{source}' is not a SentencePiece model") from error
        if self._processor.bos_id() < 0:
            raise ConfigError(f"tokenizer: '{source}' has no BOS token, and pi0.5's prompts begin with one")
        self.vocab = int(self._processor.vocab_size())

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`, BOS first."""
        return list(self._processor.encode(text, add_bos=True))


def _find(source: str) -> Path:
    """The file of `source` on this machine, fetched when it is elsewhere."""
    if source.startswith("gs://"):
        try:
            return remote.file_of_bucket(source, "tokenizers", MAX_BYTES)
        except MorphVlaError as error:
            raise ConfigError(f"tokenizer: {error}") from error
    path = expanded(source)
    if path.is_dir():
        path = path / FILE
        if not path.is_file():
            raise ConfigError(f"tokenizer: no tokenizer at '{source}': the folder holds no {FILE}")
    if path.is_file():
        return path
    name = source.removeprefix("hf://")
    is_said = name != source  # by hf://; what has a suffix otherwise seems to be a file
    if name.count("/") == 1 and (is_said or not path.suffix) and not source.startswith((".", "~", "/")):
        return _from_hub(name)
    raise ConfigError(
        f"tokenizer: no tokenizer at '{source}': no such file; expected a file, a folder with {FILE}, "
        f"'{BUCKET}' or a Hub name such as '{HUB}'"
    )


def _from_hub(name: str) -> Path:
    """`tokenizer.model` of a repository of the Hub, kept by the Hub's own client."""
    hub = require("huggingface_hub", "model")
    try:
        return Path(hub.hf_hub_download(name, FILE))
    except (OSError, ValueError) as error:  # the Hub's errors are OSErrors, a wrong name is a ValueError
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in (401, 403):
            raise ConfigError(
                f"tokenizer: the Hub refuses '{name}' ({status}): accept the licence on the repository's "
                f"page, log in with `hf auth login`, or use 'paligemma:{BUCKET}', which is public"
            ) from error
        raise ConfigError(f"tokenizer: no tokenizer at '{name}': {reason(error)}") from error


def _bounded(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ConfigError(f"tokenizer: '{path}' is larger than {MAX_BYTES >> 20} MiB")
    return data
