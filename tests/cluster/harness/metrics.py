"""Pages of metrics, as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

WRITES = ("POST", "PUT", "PATCH", "DELETE")


def samples(page: str, name: str) -> Counter[tuple[tuple[str, str], ...]]:
    """Return the samples of one name, by their sorted labels."""
    lines = "\n".join(line for line in page.splitlines() if line.split("{", 1)[0].split(" ", 1)[0] == name)
    found: Counter[tuple[tuple[str, str], ...]] = Counter()
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            found[tuple(sorted(sample.labels.items()))] += int(sample.value)
    return found


def difference(after: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """Return what has been added, without what has not."""
    return {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
