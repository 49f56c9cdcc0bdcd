"""The one way a command answers: as JSON, or in the words that a result has for itself, `str(answer)`."""

import json
import math
from collections.abc import Sequence
from typing import Any

from morph_vla.files.plain import to_plain
from morph_vla.findings import printable


def render(answer: Any, as_json: bool, *properties: str, text: object = None, **more: object) -> None:
    """Print an answer as JSON, or as `text`, which is `str(answer)` where it is not given.

    JSON has a dataclass's fields, the `properties` named and the values `more`; of a list, each item has.
    """
    if as_json:
        print_json(answer, *properties, **more)
    else:
        print(printable(str(answer if text is None else text)))


def print_json(answer: Any, *properties: str, **more: object) -> None:
    """Print JSON that every reader accepts: what is not finite becomes null. See `render`."""
    if isinstance(answer, list | tuple) and (properties or more):
        plain = [_beside(item, properties, more) for item in answer]
    else:
        plain = _beside(answer, properties, more) if properties or more else to_plain(answer)
    text = json.dumps(_finite(plain), indent=2, ensure_ascii=False, allow_nan=False)
    print(text if _is_unicode(text) else json.dumps(_finite(plain), indent=2, allow_nan=False))


def _is_unicode(text: str) -> bool:
    """Whether it can be written: a file's name that is no UTF-8 has halves of characters."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _beside(item: Any, properties: Sequence[str], more: dict[str, object]) -> dict[str, Any]:
    return {**to_plain(item), **to_plain({name: getattr(item, name) for name in properties} | more)}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
