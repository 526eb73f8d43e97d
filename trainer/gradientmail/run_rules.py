"""Rules across a manifest's fields, each once for Python and once for the API server's CEL. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Read = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Value:
    """A value that a sentence names: the CEL expression of an integer, and how Python reads it from the part."""

    cel: str
    read: Read


def constant(number: int) -> Value:
    """Return a value that is the same for every manifest."""
    return Value(str(number), lambda _: number)


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold in one part of the manifest. tests/manifest_rules.py holds both forms to the same verdicts."""

    path: str
    """The field to name, relative to the part."""
    holds: Read
    sentence: str
    """What is wrong and what to do; `{name}` stands for a value."""
    cel: str | None
    """None where the schema itself makes the API server refuse it."""
    values: Mapping[str, Value] = field(default_factory=dict)
    hint: Read | None = None
    """Ends the sentence with an example, where Python can work one out."""

    def sentence_for(self, part: Any) -> str:
        """Return the sentence with the part's values."""
        told = self.sentence.format_map({name: value.read(part) for name, value in self.values.items()})
        return told + (self.hint(part) if self.hint else "")

    @property
    def message_expression(self) -> str:
        """The sentence as a CEL expression.

        By `format`: the API server cannot bound the cost of joining strings made from integers.
        """
        names = re.findall(r"\{(\w+)\}", self.sentence)
        text = re.sub(r"\{\w+\}", "%d", self.sentence.replace("%", "%%"))
        return f"{cel_string(text)}.format([{', '.join(self.values[name].cel for name in names)}])"


@dataclass(frozen=True, slots=True)
class Transition:
    """What an update of a part must not do; by default, change the field at all."""

    path: str
    """The field to name, relative to the part."""
    sentence: str
    cel: str = ""
    optional: bool = False
    """Whether the field may be absent."""

    @property
    def rule(self) -> str:
        """The rule in CEL."""
        if self.cel:
            return self.cel
        same = f"self.{self.path} == oldSelf.{self.path}"
        if not self.optional:
            return same
        here, before = f"has(self.{self.path})", f"has(oldSelf.{self.path})"
        return f"{here} == {before} && (!{here} || {same})"


def cel_string(text: str) -> str:
    """Return a CEL literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
