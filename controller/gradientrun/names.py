"""Names, labels and the mailbox prefix of everything that belongs to a run: pure and deterministic.

A child's name is a readable part, shortened where it must be, and a hash over the run's UID,
the attempt and the pool. So a name never meets that of an earlier attempt, of an earlier run of
the same name, or of a neighbour whose name joins to the same text ("a" + "b-c", "a-b" + "c").
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

CONTROLLER = "gradientrun-controller"
"""Field manager, reporting component and `app.kubernetes.io/managed-by`."""

RUN_LABEL = "gradientmail.io/run"
RUN_UID_LABEL = "gradientmail.io/run-uid"
POOL_LABEL = "gradientmail.io/pool"
ATTEMPT_LABEL = "gradientmail.io/attempt"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_LABEL = "kueue.x-k8s.io/priority-class"
INDEX_LABEL = "batch.kubernetes.io/job-completion-index"

CONTAINER = "trainer"
METRICS_PORT = 9090

NAME_LIMIT = 63
POD_SUFFIX = len("-999-abcde")
"""What the Job controller adds to a Job's name for a pod: the index, of at most 1,000, and five random characters."""
HASH_LENGTH = 6


def job_name(*, run: str, uid: str, attempt: int, pool: str) -> str:
    """Return the name of a pool's Job. Names of its pods stay within 63 characters."""
    return _hashed(f"{run}-{pool}", f"{uid}/{attempt}/{pool}", NAME_LIMIT - POD_SUFFIX)


def config_map_name(*, run: str, uid: str, attempt: int, pools: Iterable[str]) -> str:
    """Return the name of an attempt's ConfigMap: another once a pool is added, for its nodes' sake."""
    return _hashed(run, "/".join((uid, str(attempt), *pools)), NAME_LIMIT)


def mailbox_prefix(url: str, *, namespace: str, run: str, uid: str, attempt: int) -> str:
    """Return the attempt's mailbox. The UID keeps it from ever being used twice."""
    return f"{url.rstrip('/')}/{namespace}/{run}/{uid}-{attempt}"


def _hashed(readable: str, identity: str, limit: int) -> str:
    digest = sha256(identity.encode()).hexdigest()[:HASH_LENGTH]
    room = limit - HASH_LENGTH - 1
    return f"{readable.replace('.', '-')[:room].rstrip('-')}-{digest}"
