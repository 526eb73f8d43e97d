"""Write the chart's CRD template from the models: `python hack/crd.py`, or `--check` that it is up to date."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import yaml

from gradientmail.crd import custom_resource_definition

TEMPLATE = Path(__file__).resolve().parent.parent / "charts/gradientmail/templates/crd.yaml"

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


def main() -> int:
    """Write or check the template, or print the plain CRD."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the template is stale")
    parser.add_argument("--plain", action="store_true", help="print the CRD alone, for kubectl apply -f -")
    arguments = parser.parse_args()
    if arguments.plain:
        sys.stdout.write(plain())
        return 0
    if arguments.check:
        stale = not TEMPLATE.exists() or TEMPLATE.read_text() != template()
        if stale:
            print(f"{TEMPLATE} is stale: run `make crd`", file=sys.stderr)
        return int(stale)
    TEMPLATE.write_text(template())
    return 0


if __name__ == "__main__":
    sys.exit(main())
