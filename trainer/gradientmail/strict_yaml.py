"""YAML as Kubernetes reads it, with the place of every value, and nothing guessed.

Reads with PyYAML's composer, so no tag can construct an object. Scalars resolve as kubectl
resolves them: `3e-4` is a number, a date is text, `on` is a boolean. Refused, with line and
column: duplicate keys, keys that are not text, tags, recursion, numbers that JSON lacks, and
documents that grow past a limit by their aliases. Raises YAMLProblem. Values never show in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

Entry = tuple[yaml.Node, yaml.Node]

MOST_VALUES = 100_000
MERGE = "tag:yaml.org,2002:merge"


@dataclass(frozen=True, slots=True)
class Place:
    """A value's place in its file, counted from 1, and the text of a plain scalar."""

    line: int
    column: int
    plain: str | None = None


class YAMLProblem(ValueError):
    """Why a file is not usable YAML, in one sentence without the place."""

    def __init__(self, sentence: str, line: int | None = None, column: int | None = None) -> None:
        super().__init__(sentence)
        self.line = line
        self.column = column


@dataclass(slots=True)
class Document:
    """One document: its value, and the place of each value in it by path."""

    value: Any = None
    places: dict[Path, Place] = field(default_factory=dict)

    def place(self, path: Path) -> Place | None:
        """Return the place of the value, or of the nearest part around it."""
        return next((self.places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self.places), None)


class _Resolver(yaml.resolver.BaseResolver):
    """Scalars as Kubernetes resolves them (YAML 1.1 without dates and base 60, floats without a point)."""


def _resolve(tag: str, pattern: str, first: str) -> None:
    _Resolver.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), list(first))


_resolve("bool", r"^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$", "yYnNtTfFoO")
_resolve("int", r"^[-+]?(?:0b[01_]+|0o?[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$", "-+0123456789")
_resolve("float", r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$", "-+.0123456789")
_resolve("float", r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", "-+.")
_resolve("merge", r"^<<$", "<")
_Resolver.yaml_implicit_resolvers.setdefault("", []).append(("tag:yaml.org,2002:null", re.compile(r"^$")))
_resolve("null", r"^(?:~|null|Null|NULL)$", "~nN")


class _Composer(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser, yaml.composer.Composer, _Resolver):
    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)
        yaml.composer.Composer.__init__(self)
        _Resolver.__init__(self)


def compose(text: str) -> list[yaml.Node]:
    """Return the documents of a YAML or JSON text, empty ones left out. Nothing but the syntax is checked."""
    # Tabs stand between a JSON text's tokens, never in its strings; PyYAML takes none there.
    try:
        composer = _Composer(text.replace("\t", " ") if _is_json(text) else text)
        return [node for node in _nodes(composer) if node.tag != "tag:yaml.org,2002:null"]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (None, None)
        reason = (
            "a tab stands where YAML takes spaces" if "'\\t'" in str(error.problem) else error.problem or error.context
        )
        raise YAMLProblem(f"not valid YAML: {reason}", *place) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, int(error.position)) + 1
        raise YAMLProblem(f"not valid YAML: the character {error.character!a} is not allowed in it", line) from None
    except RecursionError:
        raise YAMLProblem("not usable: its parts are nested too deeply") from None


class _Dumper(yaml.SafeDumper):
    """Quotes text that either PyYAML or Kubernetes would take for something else, as `1e100`."""


for _first, _rules in _Resolver.yaml_implicit_resolvers.items():
    for _tag, _pattern in _rules:
        _Dumper.add_implicit_resolver(_tag, _pattern, [_first])


def dump(value: Any) -> str:
    """Return a value as YAML that `read` gives back."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _nodes(composer: _Composer) -> Iterator[yaml.Node]:
    while composer.check_node():
        if (node := composer.get_node()) is not None:
            yield node


def top_level(node: yaml.Node, key: str) -> str | None:
    """Return the text of a scalar at the top of a document, without reading anything else of it."""
    if not isinstance(node, yaml.MappingNode):
        return None
    scalars = ((name.value, value.value) for name, value in node.value if isinstance(value, yaml.ScalarNode))
    return next((text for name, text in scalars if name == key), None)


def read(node: yaml.Node) -> Document:
    """Return a document's value and places. Raises YAMLProblem."""
    return _Reader().document(node)


class _Reader:
    def __init__(self) -> None:
        self._document = Document()
        self._around: list[int] = []

    def document(self, node: yaml.Node) -> Document:
        try:
            self._document.value = self._value(node, ())
        except RecursionError:
            raise YAMLProblem("not usable: its parts are nested too deeply") from None
        return self._document

    def _value(self, node: yaml.Node, path: Path, key: yaml.Node | None = None) -> Any:
        if id(node) in self._around:
            raise _problem(node, "not usable: an alias stands inside what it stands for")
        if len(self._document.places) >= MOST_VALUES:
            raise _problem(node, f"not usable: it has more than {MOST_VALUES} values")
        plain = node.value if isinstance(node, yaml.ScalarNode) and not node.style else None
        mark = (key or node).start_mark
        self._document.places[path] = Place(mark.line + 1, mark.column + 1, plain)
        self._around.append(id(node))
        try:
            return self._parts(node, path)
        finally:
            self._around.pop()

    def _parts(self, node: yaml.Node, path: Path) -> Any:
        match node:
            case yaml.MappingNode(tag="tag:yaml.org,2002:map"):
                entries = self._entries(node).items()
                return {name: self._value(item, (*path, name), key) for name, (key, item) in entries}
            case yaml.SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
            case yaml.ScalarNode():
                return _scalar(node)
        raise _problem(node, f"not usable: the tag {node.tag} is not supported")

    def _entries(self, node: yaml.MappingNode) -> dict[str, Entry]:
        """Return the entries by name: merged ones first, the mapping's own in their place where both have them."""
        merged: dict[str, Entry] = {}
        own: dict[str, Entry] = {}
        for key, item in node.value:
            if key.tag == MERGE:
                for source in _merge_sources(item):
                    merged = {**self._entries(source), **merged}
                continue
            name = _name(key)
            if name in own:
                first = own[name][0].start_mark.line + 1
                raise _problem(key, f"not usable: {name} is given twice, first in line {first}")
            own[name] = key, item
        return {**merged, **own}


def _name(key: yaml.Node) -> str:
    name = _scalar(key) if isinstance(key, yaml.ScalarNode) else None
    if not isinstance(name, str):
        raise _problem(key, "not usable: a key must be text; put it in quotes")
    return name


def _merge_sources(node: yaml.Node) -> list[yaml.MappingNode]:
    sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
    if not all(isinstance(source, yaml.MappingNode) for source in sources):
        raise _problem(node, "not usable: << takes a mapping")
    return list(sources)


def _scalar(node: yaml.ScalarNode) -> Any:
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind not in _SCALARS:
        raise _problem(node, f"not usable: the tag {node.tag} is not supported")
    try:
        value = _SCALARS[kind](node.value)
    except ValueError:
        raise _problem(node, f"not usable: this is not of the type {kind}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise _problem(node, f"not usable: {node.value} is a number that JSON lacks")
    return value


def _text(text: str) -> str:
    """Join the two halves that JSON writes a character beyond 16 bits in. Raises ValueError for half a character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def _null(_: str) -> None:
    return None


def _bool(text: str) -> bool:
    return text.lower() in ("yes", "true", "on")


def _integer(text: str) -> int:
    digits = text.lstrip("+-").replace("_", "")
    value = int(digits, 8) if re.fullmatch("0[0-7]+", digits) else int(digits, 0)
    return -value if text.startswith("-") else value


def _float(text: str) -> float:
    return math.inf if text.lstrip("+-")[:2].lower() in (".i", ".n") else float(text)


_SCALARS: Mapping[str, Callable[[str], Any]] = {
    "str": _text,
    "merge": _text,
    "null": _null,
    "bool": _bool,
    "int": _integer,
    "float": _float,
}


def _problem(node: yaml.Node, sentence: str) -> YAMLProblem:
    return YAMLProblem(sentence, node.start_mark.line + 1, node.start_mark.column + 1)
