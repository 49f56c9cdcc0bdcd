"""Plain values as YAML that a person reads: an entry a line, small mappings and lists on one."""

import json
import re
from collections.abc import Iterator, Mapping

from morph_vla.files.plain import to_plain

MOST = 6  # entries of a mapping on one line
DIGITS = 5  # of a number
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*\Z")
_KEYWORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def lines(values: Mapping[str, object], indent: str = "") -> Iterator[str]:
    """The lines of a mapping; numbers to five digits."""
    for key, value in to_plain(values).items():
        nested = isinstance(value, dict) and (
            len(value) > MOST or any(isinstance(item, dict) for item in value.values())
        )
        if nested:
            yield f"{indent}{_word(key)}:"
            yield from lines(value, f"{indent}  ")
        else:
            yield f"{indent}{_word(key)}: {_flow(value)}"


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_word(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, float):
        return f"{value:.{DIGITS}g}" if abs(value) > 1e-9 else "0.0"
    return _word(value) if isinstance(value, str) else json.dumps(value)


def _word(text: str) -> str:
    """A word as YAML reads it back: quoted where it is no plain one."""
    plain = _PLAIN.match(text) and not text.endswith(" ") and text.lower() not in _KEYWORDS
    return text if plain else json.dumps(text, ensure_ascii=False)
