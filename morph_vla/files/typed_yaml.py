"""YAML read into frozen dataclasses, with every problem named at once.

Two steps. The first keeps what the file says (numbers and booleans as in YAML 1.2: `1e-4` is a number and
`on` is a word) and on which line; the second holds it against the schema and words every problem.
"""

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union

import yaml

from morph_vla.errors import ConfigError, nearest
from morph_vla.files import kinds
from morph_vla.findings import Finding, Line

T = TypeVar("T")

MAX_BYTES = 1 << 20  # a recipe is a page; a megabyte of YAML is a mistake
MAX_NODES = 20_000  # what aliases of aliases may unfold to
MAX_DIGITS = 1000  # of a whole number; Python makes no int of more than 4,300


@dataclasses.dataclass(frozen=True)
class OneOf:
    """In the annotation of a union of dataclasses: the word at `key` of a mapping says which one it is.

    Each has a field of that name whose type is a Literal of one word. A mapping without the key is the
    `default`'s. So problems are told of that one alone, and not of all members.
    """

    key: str
    default: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        members = {
            typing.get_args(typing.get_type_hints(kind)[self.key])[0]: kind for kind in _alternatives(source)
        }
        *others, last = (f"'{word}'" for word in members)

        def chosen(value: Any) -> str | None:
            """The member that the mapping's word names; None for a word that names none."""
            word = value.get(self.key, self.default) if isinstance(value, dict) else self.default
            return members[word].__name__ if isinstance(word, str) and word in members else None

        return core_schema.tagged_union_schema(
            {kind.__name__: handler(kind) for kind in members.values()},
            chosen,
            custom_error_type="one_of",
            custom_error_message="one of several",
            custom_error_context={"key": self.key, "expected": f"{', '.join(others)} or {last}"},
        )


@dataclasses.dataclass(frozen=True)
class ByShape:
    """In the annotation of a union of two dataclasses and a list: what a value looks like says which it is.

    A list is the list; a mapping with `key` is the dataclass that has that field, any other the other one. So
    problems are told of that one alone.
    """

    key: str

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        members = {kind.__name__: kind for kind in _alternatives(source)}
        (several,) = [name for name, kind in members.items() if not dataclasses.is_dataclass(kind)]
        (marked,) = [name for name, kind in members.items() if self.key in _fields(kind)]
        (other,) = members.keys() - {several, marked}

        def chosen(value: Any) -> str:
            """The member of this shape."""
            if isinstance(value, list):
                return several
            return marked if isinstance(value, dict) and self.key in value else other

        return core_schema.tagged_union_schema(
            {name: handler(kind) for name, kind in members.items()}, chosen
        )


class _Loader(yaml.SafeLoader):
    """YAML 1.2's core schema: only null, booleans, integers and floats are recognised in plain scalars."""

    yaml_implicit_resolvers: dict[Any, Any] = {}


class _Dumper(yaml.SafeDumper):
    """Puts quotes around a word that `_Loader`, or YAML 1.1, reads as something else."""


for _tag, _pattern, _first in (
    ("null", r"^(~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("bool", r"^(true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^([-+]?[0-9]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    ("float", r"^[-+]?(\.[0-9]+|[0-9]+\.?[0-9]*)([eE][-+]?[0-9]+)?$", list("-+.0123456789")),
    ("float", r"^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$", list("-+.")),
    ("float", r"^-?Infinity$", list("-I")),  # as Python's json writes it: a run's recipe is read back
):
    for _kind in (_Loader, _Dumper):
        _kind.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def dump(value: object) -> str:
    """The YAML of a plain value, in its order, which `read` reads back as it is."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


@functools.lru_cache(16)
def _composed(text: str) -> yaml.Node | None:
    """The nodes of a text, which nothing changes: a suite's is read for its kind, its tasks and its keys."""
    return yaml.compose(text, Loader=_Loader)


Place = tuple[str | int, ...]  # where a value stands: ("training", "steps") or ("objects", 0, "size")


class _Document:
    """The plain value of a YAML text, with the line on which each key or element stands."""

    def __init__(self, text: str, source: str):
        self.source = source
        self.lines: dict[Place, int] = {}
        self.nodes = 0
        try:
            node = _composed(text)
            self.rest = text[node.end_mark.index :] if node else text  # comments
            self.value = None if node is None else self._plain(node, ())
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 0
            raise _refusal("not-yaml", Line(source, line), f"not YAML: {error.problem}") from error
        except yaml.YAMLError as error:  # a control character, for one
            text = f"not YAML: {' '.join(str(error).split())}"
            raise _refusal("not-yaml", Line(source), text) from error
        except RecursionError as error:
            raise _refusal("too-deep", Line(source), "nested too deeply") from error

    def _plain(self, node: yaml.Node, place: Place) -> Any:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _refusal("too-many-values", Line(self.source), f"more than {MAX_NODES} values")
        self.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.MappingNode):
            return dict(self._items(node, place))
        if isinstance(node, yaml.SequenceNode):
            return [self._plain(child, (*place, index)) for index, child in enumerate(node.value)]
        return self._scalar(node)

    def _items(self, node: yaml.MappingNode, place: Place) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for key_node, child in node.value:
            line, key = Line(self.source, key_node.start_mark.line + 1), key_node.value
            if not isinstance(key_node, yaml.ScalarNode):
                raise _refusal("not-a-word", line, "a key must be a word")
            if key in seen:
                raise _refusal("given-twice", line, f"{dotted((*place, key))}: given twice")
            seen.add(key)
            self.lines[*place, key] = line.line
            yield key, self._plain(child, (*place, key))

    def _scalar(self, node: yaml.Node) -> Any:
        text, kind = node.value, node.tag.rpartition(":")[2]
        line = Line(self.source, node.start_mark.line + 1)
        match kind:
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int":
                if len(text) > MAX_DIGITS:
                    raise _refusal("long-number", line, f"a number of more than {MAX_DIGITS} digits")
                return _number(node, line, lambda: int(text, 16 if text.startswith("0x") else 10))
            case "float":
                plain = text.lower().replace(".inf", "inf").replace(".nan", "nan")
                return _number(node, line, lambda: float(plain))
            case "str":
                return text
        raise _refusal("unknown-tag", line, f"the tag {node.tag} is not supported")


def _number(node: yaml.Node, line: Line, read: Callable[[], int | float]) -> int | float:
    """What `read` gives. Raises ConfigError for a word that its tag calls a number: `!!int abc`."""
    try:
        return read()
    except ValueError as error:
        raise _refusal("not-a-number", line, f"'{node.value}' is no number, and its tag says so") from error


def _refusal(code: str, where: Line, text: str) -> ConfigError:
    return ConfigError.of([Finding(code, "error", where, (), text, "", "")])


def dotted(place: Place) -> str:
    """A place in a file as the command line spells it: `objects.0.size`."""
    return ".".join(str(part) for part in place)


def _override(value: Any, assignment: str, source: str) -> Place:
    """Put one `a.b=value` into the plain value, in place; returns where it went."""
    left, equals, right = assignment.partition("=")
    parts = left.strip().split(".")
    if not equals or not all(parts):
        raise ConfigError(f"override '{assignment}': expected KEY=VALUE, for example training.steps=200")
    document = _Document(right, f"override '{assignment}'")
    if rest := document.rest.strip():
        raise ConfigError(
            f"override '{assignment}': '{rest}' is a comment in YAML; if it belongs to the value, put quotes "
            f"around that, within those of the shell: '{left}=\"{right.strip()}\"'"
        )
    new = document.value
    place: Place = ()
    for part in parts:
        key = _key(value, part, f"{source}: override '{assignment}': {dotted(place) or 'the file'}")
        place = (*place, key)
        if len(place) == len(parts):
            value[key] = new
        else:
            if isinstance(value, dict) and value.get(key) is None:
                value[key] = {}  # a key the file leaves out, or leaves empty
            value = value[key]
    return place


def _key(value: Any, part: str, where: str) -> str | int:
    """A part of an override as the key or index it is in `value`."""
    if isinstance(value, list):
        if not part.isdecimal() or int(part) >= len(value):
            raise ConfigError(f"{where} is a list of {len(value)}, numbered from 0")
        return int(part)
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is a value and has no keys")
    return part


def read(
    path: Path, schema: type[T], overrides: Sequence[str] = (), layer: tuple[str, str] | None = None
) -> T:
    """Read a YAML file into `schema`, a (frozen) dataclass of the standard library, nested as you like.

    `overrides` are applied before the file is judged: `"training.steps=200"`, the value parsed as YAML.
    `layer`, (key, name), first lays the mapping at `key: name:` over the rest of the file and takes `key`
    away: mappings are merged, everything else is replaced.
    Types are strict (`"3"` is not an integer), except that a whole number is a float and a list is a tuple.

    Raises ConfigError listing every problem, one line each:
    `recipe.yaml:12: training.stpes: no such key; did you mean 'steps'?`
    """
    document = _Document(_text(path), str(path))
    if layer is not None:
        _lay_over(document, *layer)
    value = {} if document.value is None else document.value
    overridden = {_override(value, assignment, str(path)): assignment for assignment in overrides}
    return _judge(value, schema, document, overridden)


def of_plain(value: object, schema: type[T], source: str) -> T:
    """The same of a plain value that was read elsewhere, as from a record. Raises ConfigError as `read`."""
    return _judge(value, schema, _Document("", source), {})


def layers(path: Path, key: str) -> tuple[str, ...]:
    """The names under `key` of a YAML file, in its order, each of a mapping; none where it has no such key.

    Raises ConfigError for anything else under `key`.
    """
    document = _Document(_text(path), str(path))
    given = document.value.get(key) if isinstance(document.value, dict) else None
    if given is None:
        return ()
    if not isinstance(given, dict) or not given or not all(isinstance(v, dict) for v in given.values()):
        line = document.lines[key,]
        raise ConfigError(f"{path}:{line}: {key}: expected names, each with the keys it changes")
    return tuple(given)


def top(path: Path, key: str) -> object:
    """The plain value at `key` of a YAML file; None where it has no such key."""
    value = _Document(_text(path), str(path)).value
    return value.get(key) if isinstance(value, dict) else None


def keys(schema: Any, under: str = "") -> tuple[str, ...]:
    """Every key of a schema, as an override spells it; none of those whose names a file chooses."""
    found: dict[str, None] = {}
    hints = typing.get_type_hints(schema, include_extras=True)
    for name, hint in ((name, hints[name]) for name in _fields(schema)):
        inner = [kind for kind in _alternatives(hint) if dataclasses.is_dataclass(kind)]
        found[f"{under}{name}"] = None
        found |= dict.fromkeys(key for kind in inner for key in keys(kind, f"{under}{name}."))
    return tuple(found)


def _lay_over(document: _Document, key: str, name: str) -> None:
    """Merge the mapping at `key: name:` into the rest of the document; lines follow the values."""
    under: dict[str, Any] = document.value or {}
    over = under.pop(key)[name]
    document.lines |= {p[2:]: line for p, line in document.lines.items() if p[:2] == (key, name) and p[2:]}
    merge(under, over)


def merge(under: dict[str, Any], over: Mapping[str, Any]) -> None:
    """Lay `over` over `under`, in place: mappings are merged, everything else is replaced."""
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(under.get(key), dict):
            merge(under[key], value)
        else:
            under[key] = value


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            text = f"larger than {MAX_BYTES} bytes, so it is not a configuration file"
            raise _refusal("too-large", Line(str(path)), text)
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refusal("not-text", Line(str(path)), f"not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise _refusal("unreadable", Line(str(path)), f"cannot be read: {error.strerror}") from error


@functools.lru_cache(64)
def _adapter(schema: Any) -> Any:
    """What holds a value against a schema; made once, for a recipe's takes a fiftieth of a second."""
    # Imported here because it costs a tenth of a second, and `morph-vla --help` reads no file.
    from pydantic import ConfigDict, TypeAdapter

    # In JSON's strict mode a list is a tuple and a word a Path or an Enum, and nothing else is converted.
    # The tuple of one carries the settings, which pydantic passes on into nested standard dataclasses.
    alone: Any = tuple[schema]
    return TypeAdapter(alone, config=ConfigDict(extra="forbid", strict=True))


def _judge(value: Any, schema: type[T], document: _Document, overridden: Mapping[Place, str]) -> T:
    from pydantic import ValidationError

    try:
        return _adapter(schema).validate_json(json.dumps([value]))[0]
    except ValidationError as error:
        problems = error.errors(include_url=False)
    if isinstance(value, dict) and (kind := kinds.other(value, _fields(schema))):
        raise _refusal("other-kind", Line(document.source), f"this is {kind.noun}; {kind.remedy}")
    findings: dict[Finding, int] = {}  # once each: a union's members complain alike
    for problem in problems:
        place, keys = _locate(schema, problem["loc"][1:])
        where, text = _source(place, document, overridden), _sentence(place, keys, problem)
        findings[Finding(problem["type"], "error", where, (dotted(place),), text, "", "")] = where.line
    raise ConfigError.of(sorted(findings, key=findings.__getitem__))


def _source(place: Place, document: _Document, overridden: Mapping[Place, str]) -> Line:
    """Where a place stands: file and line (0 when it has none), or the override it is from."""
    for length in range(len(place), -1, -1):
        if place[:length] in overridden:
            return Line(f"override '{overridden[place[:length]]}'")
        line = document.lines.get(place[:length], 0) if length else 0
        if line:
            return Line(document.source, line)
    return Line(document.source)


def _sentence(place: Place, keys: Sequence[str], problem: Any) -> str:
    where, kind, given = dotted(place) or "the file", problem["type"], problem["input"]
    match kind:
        case "unexpected_keyword_argument":
            known = nearest(str(place[-1]), keys) or f" (the keys here are {', '.join(keys)})"
            return f"{where}: no such key{known}"
        case "missing":
            return f"{where}: missing"
        case "value_error":
            return f"{where}: {problem['ctx']['error']}"
        case "one_of" | "literal_error" | "enum":
            expected = problem["ctx"]["expected"]
            if kind == "one_of":
                where, given = f"{where}.{problem['ctx']['key']}", given[problem["ctx"]["key"]]
            near = nearest(str(given), re.findall(r"'([^']*)'", expected))
            return f"{where}: expected {expected}, got {_quote(given)}{near}"
        case "dataclass_type":
            return f"{where}: expected the keys {', '.join(keys)}, got {_quote(given)}"
    message = problem["msg"].replace("Input should be ", "expected ").replace("a valid array", "a list")
    wants_word = message.endswith("a valid string")
    none = '; for no word, write "" (on a command line, \'KEY=""\')' if wants_word and given is None else ""
    return f"{where}: {message.replace('a valid string', 'a word')}, got {_quote(given)}{none}"


def _quote(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _locate(schema: Any, location: Sequence[str | int]) -> tuple[Place, list[str]]:
    """A pydantic location as a place in the file, and the keys known there.

    pydantic inserts the name of the class it tried where a field may hold several; the file has no such
    level. For an unknown key, the keys are those of its neighbours.
    """
    place: list[str | int] = []
    here, parent = _alternatives(schema), []
    for part in location:
        tried = [kind for kind in here if getattr(kind, "__name__", None) == part]
        if tried and not any(part in _fields(kind) for kind in here):
            here = tried
            continue
        place.append(part)
        parent, here = here, [inner for kind in here for inner in _inside(kind, part)]
    keys = {name: None for kind in (here or parent) for name in _fields(kind)}
    return tuple(place), list(keys)


def _alternatives(kind: Any) -> list[Any]:
    """The types a value may have: a union's members, an annotation's own type."""
    origin = typing.get_origin(kind)
    if origin is Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if origin in (Union, types.UnionType):
        return [inner for member in typing.get_args(kind) for inner in _alternatives(member)]
    return [kind]


def _fields(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []


def _inside(kind: Any, part: str | int) -> list[Any]:
    """The types found one level below `kind`, at the key or index `part`."""
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind, include_extras=True)
        return _alternatives(hints[part]) if part in _fields(kind) else []
    origin, arguments = typing.get_origin(kind), [a for a in typing.get_args(kind) if a is not Ellipsis]
    if not arguments:
        return []
    if origin is tuple and isinstance(part, int):
        return _alternatives(arguments[min(part, len(arguments) - 1)])
    return _alternatives(arguments[-1])
