"""Reading a manifest as a person wrote it: places, files, documents, YAML's traps, several problems at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradientmail.exits import Exit
from gradientmail.manifest import ManifestError, dump_manifest, load_manifest, parse_manifest, run_from_object

RUN = """\
apiVersion: gradientmail.io/v1alpha1
kind: GradientRun
metadata: {name: first}
spec:
  data: {steps: 4000, batch: 1024, lanes: 4}
  mailbox: {url: s3://bucket/runs}
  trainer:
    args: {layers: 2}
  nodes:
  - name: a100
  - name: l4
    replicas: 2
"""


NO_OBJECT = "run.yaml:1: this is not an object: it needs a GradientRun manifest, which begins with apiVersion and kind"


def refusal(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, source="run.yaml")
    return str(caught.value)


def with_args(text: str) -> object:
    args = parse_manifest(RUN.replace("{layers: 2}", text)).spec.trainer.args
    return args["value"]


def test_a_manifest_as_written() -> None:
    run = parse_manifest(RUN)
    assert run.metadata.name == "first"
    assert run.metadata.namespace == "default"
    assert run.spec.data.share == 256
    assert [(pool.name, pool.replicas) for pool in run.spec.nodes] == [("a100", 1), ("l4", 2)]
    assert run.spec.trainer.micro_batch == 8


def test_a_problem_is_named_by_file_line_path_value_and_what_is_allowed() -> None:
    assert refusal(RUN.replace("replicas: 2", "replicas: -2")) == (
        "run.yaml:12: spec.nodes[1].replicas is -2: expected a whole number from 0 to 1000"
    )


def test_a_missing_field_is_explained() -> None:
    assert refusal(RUN.replace("steps: 4000, ", "")) == (
        "run.yaml:5: spec.data.steps is missing: it needs a whole number from 1 to 10000000 (dataset steps of the run)"
    )


def test_a_rule_gives_an_example() -> None:
    assert refusal(RUN.replace("args: {layers: 2}", "microBatch: 7")) == (
        "run.yaml:8: spec.trainer.microBatch: microBatch is 7 and batch / lanes is 256: "
        "microBatch must divide it evenly, as 4 does"
    )


def test_all_problems_are_told_at_once_in_the_order_of_the_fields() -> None:
    text = RUN.replace("lanes: 4", "lanes: 0").replace("replicas: 2", 'replicas: "2"').replace("trainer:", "trainr:")
    assert refusal(text).splitlines() == [
        "run.yaml has 3 problems:",
        "  run.yaml:5: spec.data.lanes is 0: expected a whole number from 1 to 1000",
        '  run.yaml:12: spec.nodes[1].replicas is "2": expected a whole number from 0 to 1000; write it without quotes',
        "  run.yaml:7: spec.trainr is not a field: did you mean trainer?",
    ]


def test_a_field_that_is_like_no_other_is_answered_with_the_names() -> None:
    assert refusal(RUN.replace("{url: s3://bucket/runs}", "{url: s3://bucket/runs, xyz: 1}")) == (
        "run.yaml:6: spec.mailbox.xyz is not a field here: "
        "the fields are url, endpointURL, region, checksums, addressing, secretName"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accessKey", "hunter2"),
        ("secretName", "AKIA/hunter2"),
        ("secretName", "{key: hunter2}"),
        ("secretName", "[hunter2]"),
        ("endpointURL", "https://hunter2@store"),
        ("endpointURL", "hunter2"),
    ],
)
def test_a_secret_in_the_wrong_place_is_not_repeated(field: str, value: str) -> None:
    assert "hunter2" not in refusal(RUN.replace("runs}", f"runs, {field}: {value}}}"))
    assert field in refusal(RUN.replace("runs}", f"runs, {field}: {value}}}"))


def test_a_secret_in_a_broken_file_is_not_repeated() -> None:
    assert "hunter2" not in refusal(RUN + "  env: {key: hunter2\n")
    assert "hunter2" not in refusal("kind: Secret\ndata: {key: hunter2}\n---\nkind: Other\nvalue: hunter2\n")


# YAML itself.


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (RUN.replace("first}", "first"), "run.yaml:4:5: not valid YAML: expected ',' or '}', but got ':'"),
        (RUN.replace("  - name", "\t- name"), "run.yaml:10:1: not valid YAML: a tab stands where YAML takes spaces"),
        (RUN.replace("first", "@"), "run.yaml:3:18: not valid YAML: found character '@' that cannot start any token"),
        (RUN.replace("first", "fi\x00rst"), "run.yaml:3: not valid YAML: the character 0 is not allowed in it"),
        (RUN.replace("first", "*first"), "run.yaml:3:18: not valid YAML: found undefined alias 'first'"),
        (RUN + "spec: {}\n", "run.yaml:13:1: not usable: spec is given twice, first in line 4"),
        (RUN.replace("batch", "steps"), "run.yaml:5:23: not usable: steps is given twice, first in line 5"),
        (RUN.replace("layers", "on"), "run.yaml:8:12: not usable: a key must be text; put it in quotes"),
        (RUN.replace("layers", "1"), "run.yaml:8:12: not usable: a key must be text; put it in quotes"),
        (RUN.replace("layers", "[a]"), "run.yaml:8:12: not usable: a key must be text; put it in quotes"),
        (RUN.replace("{layers: 2}", "&a [*a]"), "run.yaml:8:11: not usable: an alias stands inside what it stands for"),
        (RUN.replace("layers: 2", "x: .nan"), "run.yaml:8:15: not usable: .nan is a number that JSON lacks"),
        (RUN.replace("layers: 2", "x: -.inf"), "run.yaml:8:15: not usable: -.inf is a number that JSON lacks"),
        (RUN.replace("layers: 2", "x: 1e999"), "run.yaml:8:15: not usable: 1e999 is a number that JSON lacks"),
        (
            RUN.replace("layers: 2", "x: !!python/object/apply:os.getcwd []"),
            "run.yaml:8:15: not usable: the tag tag:yaml.org,2002:python/object/apply:os.getcwd is not supported",
        ),
        (RUN.replace("layers: 2", "x: !!int a"), "run.yaml:8:15: not usable: this is not of the type int"),
        (RUN.replace("layers: 2", 'x: "\\ud800"'), "run.yaml:8:15: not usable: this is not of the type str"),
        (RUN.replace("{layers: 2}", "{<<: 3}"), "run.yaml:8:16: not usable: << takes a mapping"),
        (RUN.replace("2}", "[" * 3000), "run.yaml: not usable: its parts are nested too deeply"),
    ],
)  # fmt: skip
def test_yaml_that_cannot_be_used_is_refused_with_its_place(text: str, sentence: str) -> None:
    assert refusal(text) == sentence


def test_aliases_cannot_blow_a_manifest_up() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 9)
    )
    assert "not usable: it has more than 100000 values" in refusal(bomb)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4), ("1e3", 1000.0), ("-.5", -0.5), ("2.", 2.0), ("0x10", 16), ("010", 8), ("0o10", 8), ("0b11", 3),
        ("1_000", 1000), ("-7", -7), ("+7", 7), ("0", 0), ("on", True), ("No", False), ("~", None), ("", None),
        ("2024-01-02", "2024-01-02"), ("12:30:45", "12:30:45"), ("1.2.3", "1.2.3"), ("e5", "e5"), ("'4'", "4"),
        ('"on"', "on"),
        ("=", "="), ("y", "y"), ("|\n        a\n        b", "a\nb\n"),
    ],
)  # fmt: skip
def test_scalars_mean_what_kubectl_takes_them_for(text: str, value: object) -> None:
    read = with_args(f"\n      value: {text}")
    assert read == value
    assert type(read) is type(value)


def test_anchors_and_merges_serve() -> None:
    text = RUN.replace(
        "  - name: a100\n  - name: l4\n", "  - &pool {name: a100, gpus: 2}\n  - <<: *pool\n    name: l4\n"
    )
    assert [(pool.name, pool.gpus, pool.replicas) for pool in parse_manifest(text).spec.nodes] == [
        ("a100", 2, 1),
        ("l4", 2, 2),
    ]


@pytest.mark.parametrize(("written", "meant"), [("on", "true"), ("No", "false"), ("yes", "true")])
def test_a_word_that_yaml_takes_for_a_truth_value_is_named(written: str, meant: str) -> None:
    sentence = refusal(RUN.replace("name: l4", f"name: {written}"))
    assert sentence.startswith(f"run.yaml:11: spec.nodes[1].name is {meant}: expected lower-case letters")
    assert sentence.endswith(f"; without quotes YAML takes {written} for {meant}, so put it in quotes")


def test_a_whole_number_with_a_point_is_answered_with_the_number() -> None:
    assert refusal(RUN.replace("lanes: 4", "lanes: 4.0")).endswith("expected a whole number from 1 to 1000; write 4")


def test_a_label_must_be_text() -> None:
    assert refusal(RUN.replace("first}", "first, labels: {rank: 1}}")) == (
        "run.yaml:3: metadata.labels.rank is 1: expected text; put it in quotes"
    )


# Files and documents.


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("\ufeff" + RUN, encoding="utf-8")
    assert load_manifest(file) == parse_manifest(RUN)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary, large = tmp_path / "binary", tmp_path / "large"
    binary.write_bytes(b"kind: \xff\xfe")
    large.write_bytes(b"#" * (1 << 20) + b"#")
    sentences = {
        tmp_path / "none.yaml": "no such file: give the path of a GradientRun manifest",
        tmp_path: "is a folder: give the path of a GradientRun manifest in it",
        binary: "is not UTF-8 text (byte 6 is 0xff): give a manifest in YAML or JSON",
        large: "has 1048577 bytes: a manifest has at most 1048576",
        binary / "inside": "cannot be read: Not a directory",
    }
    for path, sentence in sentences.items():
        with pytest.raises(ManifestError) as caught:
            load_manifest(path)
        assert str(caught.value) == f"{path}: {sentence}"
        assert caught.value.exit is Exit.CONFIGURATION


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "---\n---\n"])
def test_an_empty_file(text: str) -> None:
    assert refusal(text) == "run.yaml: is empty: it needs a GradientRun manifest"


def test_json_is_read_and_its_tabs_too() -> None:
    run = parse_manifest(RUN)
    assert parse_manifest(json.dumps(json.loads(dump_manifest(run, "json")), indent="\t")) == run


def test_other_objects_in_the_file_are_left_alone() -> None:
    assert parse_manifest(f"kind: Secret\ndata: {{a: !x b, a: c}}\n---\n{RUN}---\n") == parse_manifest(RUN)


def test_a_line_counts_from_the_files_begin() -> None:
    sentence = refusal("kind: Namespace\n---\n" + RUN.replace("replicas: 2", "replicas: -2"))
    assert sentence.startswith("run.yaml:14: spec.nodes[1].replicas is -2")


def test_one_run_a_file() -> None:
    assert (
        refusal(f"{RUN}---\n{RUN}") == "run.yaml: holds 2 GradientRuns, at lines 1, 14: put each in a file of its own"
    )
    assert refusal("kind: Secret\n---\na: 1\n") == (
        "run.yaml: holds no GradientRun among its 2 objects (Secret, one without a kind)"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n", NO_OBJECT),
        ("first\n", NO_OBJECT),
        (
            "spec: {}\n",
            "run.yaml:1: apiVersion and kind are missing: "
            "begin with apiVersion: gradientmail.io/v1alpha1 and kind: GradientRun",
        ),
        ("apiVersion: v1\nkind: Pod\n", "run.yaml:2: kind is Pod: this command takes a GradientRun"),
        ("apiVersion: v1\n", "run.yaml:1: kind is missing: this command takes a GradientRun"),
        ("kind: GradientRun\n", "run.yaml:1: apiVersion is missing: expected gradientmail.io/v1alpha1"),
        (
            RUN.replace("io/v1alpha1", "io/v1"),
            "run.yaml:1: apiVersion is gradientmail.io/v1: "
            "expected gradientmail.io/v1alpha1, the only version that this release knows of gradientmail.io",
        ),
    ],
)  # fmt: skip
def test_something_else_than_a_run(text: str, sentence: str) -> None:
    assert refusal(text) == sentence


# Writing.


def test_a_dump_has_every_default_and_no_more() -> None:
    text = dump_manifest(parse_manifest(RUN))
    assert "  maxLostUnits: 5%\n" in text
    assert "clipNorm: 1.0\n" in text
    assert "namespace" not in text
    assert "null" not in text


def test_a_null_that_means_something_is_written() -> None:
    run = parse_manifest(RUN.replace("args: {layers: 2}", "clipNorm: null"))
    assert "clipNorm: null\n" in dump_manifest(run)
    assert parse_manifest(dump_manifest(run)) == run


scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"]), max_size=12)
values = st.recursive(
    scalars | texts, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


@settings(max_examples=40)
@given(args=st.dictionaries(texts, values, max_size=4))
@pytest.mark.parametrize("form", ["yaml", "json"])
def test_any_arguments_come_back_equal(args: dict[str, object], form: str) -> None:
    data = json.loads(dump_manifest(parse_manifest(RUN), "json"))
    data["spec"]["trainer"]["args"] = args
    run = run_from_object(data)
    assert parse_manifest(dump_manifest(run, "json" if form == "json" else "yaml")) == run


@pytest.mark.parametrize("text", ["1e100", "1e-4", "0o17", "2026-01-31", "12:30:45", "on", "~", "<<", "=", ""])
def test_text_that_looks_like_something_else_comes_back_as_text(text: str) -> None:
    data = json.loads(dump_manifest(parse_manifest(RUN), "json"))
    data["spec"]["trainer"]["args"] = {"value": text, text: 1}
    assert parse_manifest(dump_manifest(run_from_object(data))).spec.trainer.args == {"value": text, text: 1}


def test_importing_the_manifest_imports_no_torch() -> None:
    code = "import gradientmail.manifest, gradientmail.crd, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
