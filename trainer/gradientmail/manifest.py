"""Reading and writing manifests: a file as a person wrote it, in; sentences or a GradientRun, out.

Reads what kubectl would: YAML or JSON, other objects in the same file skipped. What Kubernetes
would refuse is refused here too, in the same words where the rule is the project's own. Secrets
that were put in a wrong place never show in a message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ValidationError

from gradientmail.exits import UserError
from gradientmail.manifest_sentences import dotted, sentences
from gradientmail.run import API_VERSION, GROUP, KIND, GradientRun
from gradientmail.strict_yaml import Document, YAMLProblem, compose, dump, read, top_level

MOST_BYTES = 1 << 20
"""Bytes of a manifest; Kubernetes takes little more."""


@dataclass(frozen=True, slots=True)
class ManifestProblem:
    """One thing that is wrong with a manifest."""

    path: str
    """Such as `spec.nodes[1].replicas`; empty for the file as a whole."""
    sentence: str
    """What is wrong, what is expected and what to do; begins with the path."""
    line: int | None = None
    column: int | None = None


class ManifestError(UserError):
    """A manifest that cannot be used. `problems` holds one sentence each; the text holds them all."""

    def __init__(self, source: str, problems: tuple[ManifestProblem, ...]) -> None:
        self.source = source
        self.problems = problems
        told = [_located(source, problem) for problem in problems]
        summary = f"{source} has {len(problems)} problems:\n  "
        super().__init__(told[0] if len(told) == 1 else summary + "\n  ".join(told))


def _located(source: str, problem: ManifestProblem) -> str:
    place = [source, *(str(number) for number in (problem.line, problem.column) if number is not None)]
    return f"{':'.join(place)}: {problem.sentence}"


def load_manifest(path: str | Path) -> GradientRun:
    """Return the GradientRun in the file. Raises ManifestError."""
    return manifest_of(manifest_bytes(path), str(path))


def manifest_bytes(path: str | Path) -> bytes:
    """Return what the file holds, read once: a pipe gives it only once. Raises ManifestError."""
    source = str(path)
    try:
        raw = Path(path).read_bytes()
    except FileNotFoundError:
        raise _refused(source, "no such file: give the path of a GradientRun manifest") from None
    except IsADirectoryError:
        raise _refused(source, "is a folder: give the path of a GradientRun manifest in it") from None
    except OSError as error:
        raise _refused(source, f"cannot be read: {error.strerror}") from None
    if len(raw) > MOST_BYTES:
        raise _refused(source, f"has {len(raw)} bytes: a manifest has at most {MOST_BYTES}")
    return raw


def manifest_of(raw: bytes, source: str) -> GradientRun:
    """Return the GradientRun in a file's bytes; `source` names the file in messages. Raises ManifestError."""
    try:
        return parse_manifest(raw.decode("utf-8-sig"), source=source)
    except UnicodeDecodeError as error:
        raise _refused(
            source,
            f"is not UTF-8 text (byte {error.start} is {raw[error.start]:#04x}): give a manifest in YAML or JSON",
        ) from None


def parse_manifest(text: str, source: str = "manifest") -> GradientRun:
    """Return the GradientRun in a YAML or JSON text; `source` names it in messages. Raises ManifestError."""
    try:
        document = read(_only_run(text, source))
    except YAMLProblem as problem:
        raise ManifestError(source, (ManifestProblem("", str(problem), problem.line, problem.column),)) from None
    return _validated(document, source)


def run_from_object(value: Mapping[str, Any], source: str = "GradientRun") -> GradientRun:
    """Return the GradientRun of an object as the API server gives it. Raises ManifestError."""
    return _validated(Document(dict(value)), source)


def dump_manifest(run: GradientRun, form: Literal["yaml", "json"] = "yaml") -> str:
    """Return the manifest with every default written out; it loads back equal."""
    value = run.model_dump(mode="json", by_alias=True)
    if form == "json":
        return json.dumps(value, indent=2, allow_nan=False) + "\n"
    return dump(value)


def _refused(source: str, sentence: str) -> ManifestError:
    return ManifestError(source, (ManifestProblem("", sentence),))


def _only_run(text: str, source: str) -> yaml.Node:
    documents = compose(text)
    if not documents:
        raise _refused(source, f"is empty: it needs a {KIND} manifest")
    if len(documents) == 1:
        return documents[0]
    runs = [document for document in documents if top_level(document, "kind") == KIND]
    if len(runs) == 1:
        return runs[0]
    if runs:
        lines = ", ".join(str(run.start_mark.line + 1) for run in runs)
        raise _refused(source, f"holds {len(runs)} {KIND}s, at lines {lines}: put each in a file of its own")
    kinds = ", ".join(top_level(document, "kind") or "one without a kind" for document in documents)
    raise _refused(source, f"holds no {KIND} among its {len(documents)} objects ({kinds})")


def _validated(document: Document, source: str) -> GradientRun:
    problems = _header_problems(document.value)
    if not problems:
        try:
            return GradientRun.model_validate(document.value, strict=True, by_alias=True, by_name=False)
        except ValidationError as error:
            problems = sentences(error, document)
    raise ManifestError(source, tuple(_placed(path, sentence, document) for path, sentence in problems))


def _placed(path: tuple[str | int, ...], sentence: str, document: Document) -> ManifestProblem:
    place = document.place(path)
    return ManifestProblem(dotted(path), sentence, place.line if place else None)


def _header_problems(value: Any) -> list[tuple[tuple[str | int, ...], str]]:
    """Say what else it is before its fields are looked at: another kind has other fields."""
    if not isinstance(value, dict):
        return [((), f"this is not an object: it needs a {KIND} manifest, which begins with apiVersion and kind")]
    kind, version = value.get("kind"), value.get("apiVersion")
    if kind is None and version is None:
        return [((), f"apiVersion and kind are missing: begin with apiVersion: {API_VERSION} and kind: {KIND}")]
    if kind != KIND:
        return [(("kind",), f"kind is {_shown(kind)}: this command takes a {KIND}")]
    if version != API_VERSION:
        group = isinstance(version, str) and version.startswith(f"{GROUP}/")
        only = f", the only version that this release knows of {GROUP}" if group else ""
        return [(("apiVersion",), f"apiVersion is {_shown(version)}: expected {API_VERSION}{only}")]
    return []


def _shown(value: Any) -> str:
    return "missing" if value is None else value[:60] if isinstance(value, str) else "not text"
