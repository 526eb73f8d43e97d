"""Write what is made from the models: the chart's CRD template and docs/manifest.md.

`python hack/crd.py` writes both, `--check` only says whether they are up to date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gradientmail.crd import custom_resource_definition, model_schema
from gradientmail.manifest_sentences import PATTERNS
from gradientmail.run import Data, Exchange, MailboxSpec, Part, Pool, Spec, Trainer
from gradientmail.run_rules import Rule, Transition

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "charts/gradientmail/templates/crd.yaml"
DOCUMENT = ROOT / "docs/manifest.md"

HEAD = """\
{{- /* Made from the models in gradientmail.run by `make crd`: change those, not this. */}}
{{- if .Values.crds.enabled }}
"""
METADATA = """\
  labels:
    {{- include "gradientmail.commonLabels" . | nindent 4 }}
  {{- if .Values.crds.keep }}
  annotations:
    helm.sh/resource-policy: keep
  {{- end }}
"""
TAIL = "{{- end }}\n"


def plain() -> str:
    """Return the CRD as YAML that `kubectl apply` takes."""
    return yaml.safe_dump(custom_resource_definition(), sort_keys=False, allow_unicode=True, width=120)


def template() -> str:
    """Return the CRD as the chart's template."""
    escaped = plain().replace("{{", '{{ "{{" }}')
    before, name, after = escaped.partition("  name: gradientruns.gradientmail.io\n")
    return HEAD + before + name + METADATA + after + TAIL


INTRODUCTION = """\
# The GradientRun manifest

<!-- Made from the models in gradientmail.run by `make crd`: change those, or hack/crd.py. -->

One file describes a run, here and on a cluster: `gradientmail local run.yaml` starts it on this machine,
`kubectl apply -f run.yaml` on Kubernetes, and `gradientmail plan run.yaml` says beforehand what it will do and cost.

```yaml
apiVersion: gradientmail.io/v1alpha1
kind: GradientRun
metadata:
  name: first
spec:
  data: {steps: 4000, batch: 1024, lanes: 4}
  mailbox: {url: s3://bucket/runs}
  nodes:
  - {name: a100, replicas: 1}
  - {name: l4, replicas: 3}
```

Everything else has a default. A file may hold other objects too: the one GradientRun in it is read. JSON serves too.

`metadata.name` has at most 63 lower-case letters, digits and dashes. Names that the controller makes from it and from
the pools' names are shortened, with a hash, where Kubernetes wants them shorter.
"""

PARTS: tuple[tuple[str, type[Part]], ...] = (
    ("spec", Spec),
    ("spec.data", Data),
    ("spec.mailbox", MailboxSpec),
    ("spec.trainer", Trainer),
    ("spec.trainer.exchange", Exchange),
    ("spec.nodes[]", Pool),
)

LAST = """\
## What must hold

Said of a manifest that breaks the rule:

{rules}

The library and the API server refuse the same manifests. Two things are refused on a cluster only: a manifest without
a mailbox, and a mailbox that is a folder.

## What may change while a run exists

`replicas` of each pool, and new pools; `suspend`; `attempt`, upwards; `restartsPerNode`, `maxLostUnits` and the
deadlines. The API server refuses any other change:

{transitions}

It cannot see one change: an entry of `args`, or at the top of a pool's `template`, replaced by one of another name.
The pods of an attempt read the manifest as it was when the attempt began; such a change counts from the next one.

## What a mistake looks like

One sentence per problem, with file, line, path, value and what is allowed; the exit code is 2.

```
run.yaml:12: spec.nodes[1].replicas is "4": expected a whole number from 0 to 1000; write it without quotes
run.yaml:5: spec.data.unit_steps is not a field: did you mean unitSteps?
run.yaml:5: spec.data.lanes: lanes is 3 and batch is 1024: the lanes must divide the batch evenly
```

Values are read as kubectl reads them: `3e-4` is a number, `on` without quotes is `true`, a date is text. A key that is
given twice is refused. Values of `secretName`, `url` and `endpointURL` are never repeated in a message.
"""


EXCLUDED = {"exclusiveMinimum": "above ", "exclusiveMaximum": "below "}


def document() -> str:
    """Return docs/manifest.md."""
    sections = [f"## `{path}`\n\n{''.join(_rows(model))}" for path, model in PARTS]
    rules = [_point(path, rule) for path, model in PARTS for rule in model.rules]
    changes = [_point(path, transition) for path, model in PARTS for transition in model.transitions]
    last = LAST.format(rules="\n".join(rules), transitions="\n".join(changes))
    return "\n".join([INTRODUCTION, *sections, last])


def _point(path: str, rule: Rule | Transition) -> str:
    return f"- `{path}.{rule.path}`: {re.sub(r'{[a-z_]+}', '…', rule.sentence)}"


def _rows(model: type[Part]) -> Iterator[str]:
    schema = model_schema(model)
    yield "| field | value | default | meaning |\n|---|---|---|---|\n"
    for name, field in schema["properties"].items():
        needed = name in schema.get("required", ())
        default = "**required**" if needed else f"`{json.dumps(field['default'])}`" if "default" in field else ""
        yield f"| `{name}` | {_allowed(field)} | {default} | {field['description']} |\n"


def _allowed(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("pattern") in PATTERNS:
        return PATTERNS[schema["pattern"]]
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        above, below = (word if schema.get(key) else "" for key, word in EXCLUDED.items())
        return f"{above}{low:,.15g} to {below}{high:,.15g}"
    if "items" in schema:
        return f"{schema['minItems']} to {schema['maxItems']} pools"
    if "properties" in schema:
        return "see below"
    return {"boolean": "`true` or `false`", "object": "mapping"}[schema["type"]]


def main() -> int:
    """Write or check the files, or print the plain CRD."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is stale")
    parser.add_argument("--plain", action="store_true", help="print the CRD alone, for kubectl apply -f -")
    arguments = parser.parse_args()
    if arguments.plain:
        sys.stdout.write(plain())
        return 0
    made = {TEMPLATE: template(), DOCUMENT: document()}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        if arguments.check:
            print(f"{path.relative_to(ROOT)} is stale: run `make crd`", file=sys.stderr)
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(made[path], encoding="utf-8")
    return int(arguments.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
