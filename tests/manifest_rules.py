"""Manifests good and bad, and updates allowed and refused, with what each is told.

One table for both judges: the library (`tests/unit/test_manifest_rules.py`) and the API server, by the CRD's schema
and CEL rules (`tests/cluster`). They must agree on every manifest; where their words differ, both are given.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

REMOVED = object()
"""Stands for a field that is left out."""

BASE: dict[str, Any] = {
    "apiVersion": "gradientmail.io/v1alpha1",
    "kind": "GradientRun",
    "metadata": {"name": "first"},
    "spec": {
        "data": {"steps": 4000, "batch": 1024, "lanes": 4},
        "mailbox": {"url": "s3://bucket/runs"},
        "nodes": [{"name": "a100"}, {"name": "l4", "replicas": 2}],
    },
}

Changes = Mapping[str, Any]
"""Values by path, such as `spec.nodes[1].replicas`."""


@dataclass(frozen=True)
class Case:
    """A manifest made by changing the base, and part of what it is told."""

    name: str
    changes: Changes = field(default_factory=dict)
    library: str = ""
    """Part of the library's sentence; empty if it takes the manifest."""
    server: str = ""
    """Part of the API server's; empty if it takes the manifest."""

    @property
    def manifest(self) -> dict[str, Any]:
        return changed(BASE, self.changes)


@dataclass(frozen=True)
class Update:
    """An update of a run that exists, and part of what the API server says; empty if it is allowed."""

    name: str
    changes: Changes
    server: str = ""
    before: Changes = field(default_factory=dict)

    @property
    def first(self) -> dict[str, Any]:
        return changed(BASE, self.before)

    @property
    def second(self) -> dict[str, Any]:
        return changed(self.first, self.changes)


def changed(manifest: dict[str, Any], changes: Changes) -> dict[str, Any]:
    """Return a copy of the manifest with the changes."""
    result = copy.deepcopy(manifest)
    for path, value in changes.items():
        *around, last = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
        target: Any = result
        for part in around:
            target = target.setdefault(part, {}) if isinstance(target, dict) else target[part]
        if value is REMOVED:
            del target[last]
        elif isinstance(target, list) and last == len(target):
            target.append(copy.deepcopy(value))
        else:
            target[last] = copy.deepcopy(value)
    return result


def rule(path: str, sentence: str) -> tuple[str, str]:
    """Return what the library and the API server say where they share the sentence."""
    return f"{path}: {sentence}", sentence


GOOD = [
    Case("the base"),
    Case("every field of the data", {"spec.data": {"steps": 1, "batch": 8, "lanes": 1, "unitSteps": 1, "taper": True}}),
    Case("a bucket alone", {"spec.mailbox.url": "s3://bucket"}),
    Case(
        "every field of the mailbox",
        {
            "spec.mailbox": {
                "url": "s3://my-bucket.example/a/b c",
                "endpointURL": "http://127.0.0.1:9000",
                "region": "eu-west-1",
                "checksums": "WhenRequired",
                "addressing": "Path",
                "secretName": "store.keys",
            }
        },
    ),
    Case(
        "every field of the trainer",
        {
            "spec.trainer": {
                "image": "registry.example:5000/trainer@sha256:0123",
                "imagePullPolicy": "Never",
                "task": "task:build",
                "args": {"layers": 2, "rate": 0.0003, "names": ["a"], "nested": {"deep": None}},
                "prefetch": 1,
                "claimAhead": 0,
                "microBatch": 256,
                "clipNorm": 0.5,
                "precision": "BFloat16",
                "evaluateEvery": 100,
                "logEvery": 1,
                "seed": 0,
                "outageSeconds": 0,
            }
        },
    ),
    Case(
        "every field of the exchange",
        {
            "spec.trainer": {
                "exchange": {
                    "mode": "Asynchronous",
                    "syncEvery": 1,
                    "fragments": 256,
                    "outerLr": 0.7,
                    "outerMomentum": 0.9,
                    "transferDtype": "Float32",
                    "patienceSeconds": 0,
                    "takeoverSeconds": 0,
                    "flushSeconds": 0,
                    "pollSeconds": 0.5,
                }
            }
        },
    ),
    Case("no exchange", {"spec.trainer": {"exchange": {"mode": "Solo"}}}),
    Case("an exchange left empty", {"spec.trainer": {"exchange": None}}),
    Case("a take-over left empty", {"spec.trainer": {"exchange": {"takeoverSeconds": None, "pollSeconds": 1}}}),
    Case("no outer momentum", {"spec.trainer": {"exchange": {"outerMomentum": 0, "outerLr": 1}}}),
    Case("no clipping", {"spec.trainer": {"clipNorm": None}}),
    Case("whole numbers where fractions may be", {"spec.trainer": {"clipNorm": 1}, "spec.nodes[0].simulatedSpeed": 4}),
    Case("arguments left empty", {"spec.trainer": {"args": None}}),
    Case("a null means the default", {"spec.trainer": {"prefetch": None}, "spec.suspend": None}),
    Case("a null for what may be left out", {"spec.activeDeadlineSeconds": None, "spec.trainer": {"claimAhead": None}}),
    Case(
        "every field of a pool",
        {
            "spec.nodes[0]": {
                "name": "a100-80gb",
                "replicas": 0,
                "gpus": 0,
                "placement": "OnePerHost",
                "simulatedSpeed": 0.25,
                "template": {"spec": {"tolerations": [{"operator": "Exists"}]}},
            }
        },
    ),
    Case("lost units as a number", {"spec.maxLostUnits": 12}),
    Case("lost units as digits", {"spec.maxLostUnits": "12"}),
    Case("lost units as a percentage", {"spec.maxLostUnits": "100%"}),
    Case("suspended from the start", {"spec.suspend": True}),
    Case("no deadline for the start", {"spec.startDeadlineSeconds": None}),
    Case("deadlines", {"spec.activeDeadlineSeconds": 1, "spec.ttlSecondsAfterFinished": 0, "spec.restartsPerNode": 0}),
    Case("a million units", {"spec.data": {"steps": 250_000, "batch": 32, "lanes": 4, "unitSteps": 1}}),
    Case("a thousand nodes", {"spec.nodes": [{"name": "a", "replicas": 1000}, {"name": "b", "replicas": 0}]}),
    Case("a name of 63 characters", {"metadata.name": "a" * 63}),
    Case("labels and annotations", {"metadata.labels": {"team": "a"}, "metadata.annotations": {"note": "b c"}}),
]

BAD = [
    # Rules across fields: one sentence for both.
    Case(
        "lanes that do not divide the batch",
        {"spec.data.lanes": 3},
        *rule("spec.data.lanes", "lanes is 3 and batch is 1024: the lanes must divide the batch evenly"),
    ),
    Case(
        "micro-batches that do not divide the share",
        {"spec.trainer": {"microBatch": 7}},
        *rule(
            "spec.trainer.microBatch",
            "microBatch is 7 and batch / lanes is 256: microBatch must divide it evenly",
        ),
    ),
    Case(
        "the default micro-batch does not divide the share",
        {"spec.data.batch": 16},
        *rule(
            "spec.trainer.microBatch",
            "microBatch is 8 and batch / lanes is 4: microBatch must divide it evenly",
        ),
    ),
    Case(
        "too many units",
        {"spec.data.steps": 5_000_020},
        *rule(
            "spec.data.unitSteps",
            "unitSteps is 20, which makes 1000004 units: raise it, a run has at most 1000000",
        ),
    ),
    Case(
        "no replica at all",
        {"spec.nodes": [{"name": "a", "replicas": 0}]},
        *rule(
            "spec.nodes",
            "no pool has a replica: give at least one pool a replica, or set suspend to pause the run",
        ),
    ),
    Case(
        "too many nodes",
        {"spec.nodes[0].replicas": 999},
        *rule("spec.nodes", "the pools have 1001 replicas together: a run has at most 1000 nodes"),
    ),
    Case(
        "two pools of one name",
        {"spec.nodes[1].name": "a100"},
        "spec.nodes: two pools are named a100: give each pool a name of its own",
        'spec.nodes[1]: Duplicate value: {"name":"a100"}',
    ),
    # What is missing or unknown.
    Case("no spec", {"spec": REMOVED}, "spec is missing", "spec: Required value"),
    Case("no data", {"spec.data": REMOVED}, "spec.data is missing", "spec.data: Required value"),
    Case("no steps", {"spec.data.steps": REMOVED}, "spec.data.steps is missing", "spec.data.steps: Required value"),
    Case("no nodes", {"spec.nodes": REMOVED}, "spec.nodes is missing", "spec.nodes: Required value"),
    Case("a nameless pool", {"spec.nodes[1].name": REMOVED}, "spec.nodes[1].name is missing", "name"),
    Case("no pools", {"spec.nodes": []}, "spec.nodes is a list of 0 items: expected a list of 1 to 50", "at least 1"),
    Case(
        "an unknown field",
        {"spec.data.unitstep": 3},
        "spec.data.unitstep is not a field: did you mean unitSteps?",
        'unknown field "spec.data.unitstep"',
    ),
    Case(
        "Python's name of a field",
        {"spec.data.unit_steps": 3},
        "spec.data.unit_steps is not a field: did you mean unitSteps?",
        'unknown field "spec.data.unit_steps"',
    ),
    Case(
        "an unknown field of a pool",
        {"spec.nodes[1].replica": 3},
        "spec.nodes[1].replica is not a field: did you mean replicas?",
        'unknown field "spec.nodes[1].replica"',
    ),
    # Numbers.
    Case(
        "no steps to train",
        {"spec.data.steps": 0},
        "spec.data.steps is 0: expected a whole number from 1 to 10000000",
        "spec.data.steps in body should be greater than or equal to 1",
    ),
    Case(
        "a negative number of replicas",
        {"spec.nodes[1].replicas": -1},
        "spec.nodes[1].replicas is -1: expected a whole number from 0 to 1000",
        "spec.nodes[1].replicas in body should be greater than or equal to 0",
    ),
    Case(
        "digits in quotes",
        {"spec.nodes[1].replicas": "4"},
        'spec.nodes[1].replicas is "4": expected a whole number from 0 to 1000; write it without quotes',
        "spec.nodes[1].replicas in body must be of type integer",
    ),
    Case(
        "a fraction of a lane",
        {"spec.data.lanes": 1.5},
        "spec.data.lanes is 1.5: expected a whole number from 1 to 1000",
        "spec.data.lanes in body must be of type",
    ),
    Case(
        "a truth value for a number",
        {"spec.data.lanes": True},
        "spec.data.lanes is true: expected a whole number from 1 to 1000",
        "spec.data.lanes in body must be of type integer",
    ),
    Case(
        "no speed",
        {"spec.nodes[0].simulatedSpeed": 0},
        "spec.nodes[0].simulatedSpeed is 0: expected a number above 0 and at most 1000",
        "spec.nodes[0].simulatedSpeed in body should be greater than 0",
    ),
    Case(
        "no buffer",
        {"spec.trainer": {"prefetch": 0}},
        "spec.trainer.prefetch is 0: expected a whole number from 1 to 10000",
        "spec.trainer.prefetch in body should be greater than or equal to 1",
    ),
    Case(
        "no round ever",
        {"spec.trainer": {"exchange": {"syncEvery": 0}}},
        "spec.trainer.exchange.syncEvery is 0: expected a whole number from 1 to 1000000",
        "spec.trainer.exchange.syncEvery in body should be greater than or equal to 1",
    ),
    Case(
        "an outer step that does not move",
        {"spec.trainer": {"exchange": {"outerLr": 0}}},
        "spec.trainer.exchange.outerLr is 0: expected a number above 0 and at most 100",
        "spec.trainer.exchange.outerLr in body should be greater than 0",
    ),
    Case(
        "a momentum that never ends",
        {"spec.trainer": {"exchange": {"outerMomentum": 1}}},
        "spec.trainer.exchange.outerMomentum is 1: expected a number from 0 to less than 1",
        "spec.trainer.exchange.outerMomentum in body should be less than 1",
    ),
    # Text.
    Case(
        "a truth value in quotes",
        {"spec.data.taper": "true"},
        'spec.data.taper is "true": expected true or false; write it without quotes',
        "spec.data.taper in body must be of type boolean",
    ),
    Case(
        "a number for a name",
        {"spec.nodes[1].name": 4},
        "spec.nodes[1].name is 4: expected lower-case letters, digits and dashes",
        "spec.nodes[1].name in body must be of type string",
    ),
    Case(
        "capitals in a pool's name",
        {"spec.nodes[1].name": "L4"},
        'spec.nodes[1].name is "L4": expected lower-case letters, digits and dashes',
        "spec.nodes[1].name in body should match",
    ),
    Case(
        "a long name of a pool",
        {"spec.nodes[1].name": "a" * 41},
        "with a letter or digit at both ends, at most 40 characters",
        "may not be more than 40 bytes",
    ),
    Case(
        "a long name of the run",
        {"metadata.name": "a" * 64},
        "with a letter or digit at both ends, at most 63 characters",
        "may not be more than 63 bytes",
    ),
    Case(
        "a dot in the run's name",
        {"metadata.name": "a.b"},
        'metadata.name is "a.b": expected lower-case letters, digits and dashes',
        "metadata.name in body should match",
    ),
    Case(
        "a task without a callable",
        {"spec.trainer": {"task": "package.module"}},
        'spec.trainer.task is "package.module": expected package.module:callable',
        "spec.trainer.task in body should match",
    ),
    Case(
        "a mailbox of another kind",
        {"spec.mailbox.url": "gs://bucket/runs"},
        "spec.mailbox.url is not usable (its value is not shown): expected s3://bucket/prefix or file:///folder",
        "spec.mailbox.url in body should match",
    ),
    Case(
        "a mailbox's address over two lines",
        {"spec.mailbox.url": "s3://bucket/runs\nand more"},
        "spec.mailbox.url is not usable (its value is not shown)",
        "spec.mailbox.url in body should match",
    ),
    Case(
        "credentials in the mailbox's address",
        {"spec.mailbox.url": "s3://bucket/key:secret@runs"},
        "spec.mailbox.url is not usable (its value is not shown)",
        "spec.mailbox.url in body should match",
    ),
    Case(
        "credentials in the endpoint",
        {"spec.mailbox.endpointURL": "https://key:secret@store.example"},
        "spec.mailbox.endpointURL is not usable (its value is not shown)",
        "spec.mailbox.endpointURL in body should match",
    ),
    Case(
        "a placement in lower case",
        {"spec.nodes[0].placement": "spread"},
        'spec.nodes[0].placement is "spread": expected one of Spread, OnePerHost; did you mean Spread?',
        'spec.nodes[0].placement: Unsupported value: "spread"',
    ),
    Case(
        "an exchange of a kind that does not exist",
        {"spec.trainer": {"exchange": {"mode": "solo"}}},
        'spec.trainer.exchange.mode is "solo": expected one of Asynchronous, Solo; did you mean Solo?',
        'spec.trainer.exchange.mode: Unsupported value: "solo"',
    ),
    Case(
        "Python's name of the transfer type",
        {"spec.trainer": {"exchange": {"transferDtype": "bfloat16"}}},
        'spec.trainer.exchange.transferDtype is "bfloat16": expected one of BFloat16, Float32; did you mean BFloat16?',
        'spec.trainer.exchange.transferDtype: Unsupported value: "bfloat16"',
    ),
    Case(
        "an unknown field of the exchange",
        {"spec.trainer": {"exchange": {"enabled": False}}},
        "spec.trainer.exchange.enabled is not a field here: the fields are mode, syncEvery",
        'unknown field "spec.trainer.exchange.enabled"',
    ),
    Case(
        "an exchange that is false",
        {"spec.trainer": {"exchange": False}},
        "spec.trainer.exchange is false: expected a mapping",
        "spec.trainer.exchange in body must be of type object",
    ),
    Case(
        "no such reaction",
        {"spec.onNodeFailure": "Ignore"},
        'spec.onNodeFailure is "Ignore": expected Abandon',
        'spec.onNodeFailure: Unsupported value: "Ignore"',
    ),
    Case(
        "lost units beyond all",
        {"spec.maxLostUnits": "101%"},
        'spec.maxLostUnits is "101%": expected a number such as 12, or a percentage such as "5%"',
        "spec.maxLostUnits in body should match",
    ),
    Case(
        "fewer lost units than none",
        {"spec.maxLostUnits": -1},
        'spec.maxLostUnits is "-1": expected a number such as 12',
        "spec.maxLostUnits in body should be greater than or equal to 0",
    ),
    Case(
        "an empty image",
        {"spec.trainer": {"image": ""}},
        'spec.trainer.image is "": expected one word',
        "spec.trainer.image in body should match",
    ),
    # Parts of the wrong shape.
    Case(
        "a mailbox that is text",
        {"spec.mailbox": "s3://bucket"},
        'spec.mailbox is "s3://bucket": expected a mapping',
        "spec.mailbox in body must be of type object",
    ),
    Case(
        "arguments in a list",
        {"spec.trainer": {"args": ["a"]}},
        "spec.trainer.args is a list of 1 items: expected a mapping",
        "spec.trainer.args in body must be of type object",
    ),
    Case(
        "another version",
        {"apiVersion": "gradientmail.io/v1"},
        "apiVersion is gradientmail.io/v1: expected gradientmail.io/v1alpha1",
        'in version "',
    ),
]

CLUSTER_ONLY = [
    Case("no mailbox", {"spec.mailbox": REMOVED}, "", "spec.mailbox: Required value"),
    Case(
        "a mailbox in a folder",
        {"spec.mailbox.url": "file:///runs"},
        "",
        "nodes on a cluster share a bucket: give an s3:// address",
    ),
]
"""Taken by the library, since one machine can run them, and refused by the API server."""

OTHER_RUN = "cannot change once the run exists: create another run"
ADD_A_POOL = "cannot change while the run exists"
POOLS_STAY = "pools can be added but neither removed nor renamed"

ALLOWED_UPDATES = [
    Update("more replicas", {"spec.nodes[0].replicas": 5}),
    Update("fewer replicas", {"spec.nodes[1].replicas": 0}),
    Update("suspend", {"spec.suspend": True}),
    Update("resume", {"spec.suspend": False}, before={"spec.suspend": True}),
    Update("another attempt", {"spec.attempt": 2}),
    Update("a deadline", {"spec.activeDeadlineSeconds": 60}),
    Update("no deadline", {"spec.activeDeadlineSeconds": REMOVED}, before={"spec.activeDeadlineSeconds": 60}),
    Update("a deadline for the start", {"spec.startDeadlineSeconds": None}),
    Update("a time to live", {"spec.ttlSecondsAfterFinished": 60}),
    Update("more lost units", {"spec.maxLostUnits": 7}),
    Update("more restarts", {"spec.restartsPerNode": 9}),
    Update("another pool", {"spec.nodes[2]": {"name": "h100", "replicas": 2}}),
    Update("pools in another order", {"spec.nodes": [{"name": "l4", "replicas": 2}, {"name": "a100"}]}),
    Update("a default written out", {"spec.data.unitSteps": 20, "spec.trainer": {"prefetch": 8}}),
    Update("a default of the exchange written out", {"spec.trainer": {"exchange": {"syncEvery": 50}}}),
    Update("labels", {"metadata.labels": {"team": "a"}}),
]

REFUSED_UPDATES = [
    Update("more steps", {"spec.data.steps": 8000}, f"data {OTHER_RUN}"),
    Update("another bucket", {"spec.mailbox.url": "s3://other"}, f"mailbox {OTHER_RUN}"),
    Update("another secret", {"spec.mailbox.secretName": "other"}, f"mailbox {OTHER_RUN}"),
    Update("another image", {"spec.trainer": {"image": "other"}}, f"trainer {OTHER_RUN}"),
    Update(
        "other arguments",
        {"spec.trainer.args.layers": 4},
        f"trainer {OTHER_RUN}",
        before={"spec.trainer.args": {"layers": 2}},
    ),
    Update("more arguments", {"spec.trainer": {"args": {"layers": 4}}}, f"trainer {OTHER_RUN}"),
    Update("an exchange less often", {"spec.trainer": {"exchange": {"syncEvery": 100}}}, f"trainer {OTHER_RUN}"),
    Update("no exchange", {"spec.trainer": {"exchange": {"mode": "Solo"}}}, f"trainer {OTHER_RUN}"),
    Update("an earlier attempt", {"spec.attempt": 1}, "attempt can only be raised", before={"spec.attempt": 2}),
    Update("a pool less", {"spec.nodes[1]": REMOVED}, POOLS_STAY),
    Update("a pool of another name", {"spec.nodes[1].name": "l40"}, POOLS_STAY),
    Update("more GPUs", {"spec.nodes[0].gpus": 2}, f"gpus {ADD_A_POOL}"),
    Update("another placement", {"spec.nodes[0].placement": "OnePerHost"}, f"placement {ADD_A_POOL}"),
    Update("a speed", {"spec.nodes[0].simulatedSpeed": 2}, f"simulatedSpeed {ADD_A_POOL}"),
    Update(
        "no speed",
        {"spec.nodes[0].simulatedSpeed": REMOVED},
        f"simulatedSpeed {ADD_A_POOL}",
        before={"spec.nodes[0].simulatedSpeed": 2},
    ),
    Update("a template", {"spec.nodes[0].template": {"spec": {"hostNetwork": True}}}, f"template {ADD_A_POOL}"),
    Update(
        "another template",
        {"spec.nodes[0].template.spec.priorityClassName": "b"},
        f"template {ADD_A_POOL}",
        before={"spec.nodes[0].template": {"spec": {"priorityClassName": "a"}}},
    ),
    Update("no replica at all", {"spec.nodes[0].replicas": 0, "spec.nodes[1].replicas": 0}, "no pool has a replica"),
]
