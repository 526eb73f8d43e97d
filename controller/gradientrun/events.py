"""Events as the API server takes them, each once, with a count when it happens again."""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime, timedelta
from hashlib import sha256

from gradientmail.run import API_VERSION, KIND
from gradientrun.cluster import Cluster, Missing
from gradientrun.names import CONTROLLER
from gradientrun.runs import Manifest, Run, write_time
from gradientrun.transitions import Note

REMEMBERED = 1000
SAME_FOR = timedelta(minutes=30)
"""How long the same words about the same run count as the same event; the API server forgets events after an hour."""
MESSAGE_LIMIT = 1024


class Events:
    """Posts what has happened to runs. Raises what Cluster raises; posting is never needed for a run's sake."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._posted: OrderedDict[str, tuple[str, int, datetime]] = OrderedDict()

    async def post(self, run: Run, note: Note, now: datetime) -> None:
        """Post one event about a run."""
        identity = sha256(f"{run.uid}/{note.reason}/{note.message}".encode()).hexdigest()
        name, count, since = self._posted.get(identity, ("", 0, now))
        if not name or now - since >= SAME_FOR or not await self._repeat(run, name, count + 1, now):
            name, count, since = f"{run.name}.{identity[:8]}.{int(now.timestamp()):x}", 0, now
            await self._cluster.create_event(build_event(run, note, name, now))
        self._posted[identity] = (name, count + 1, since)
        self._posted.move_to_end(identity)
        while len(self._posted) > REMEMBERED:
            self._posted.popitem(last=False)

    async def _repeat(self, run: Run, name: str, count: int, now: datetime) -> bool:
        """Count an event that was posted before; False if the API server has it no more."""
        try:
            await self._cluster.repeat_event(run.namespace, name, count, write_time(now))
        except Missing:
            return False
        return True


def build_event(run: Run, note: Note, name: str, now: datetime) -> Manifest:
    """Return an event about a run."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": run.namespace},
        "involvedObject": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "name": run.name,
            "namespace": run.namespace,
            "uid": run.uid,
        },
        "type": note.kind,
        "reason": note.reason,
        "message": note.message[:MESSAGE_LIMIT],
        "source": {"component": CONTROLLER},
        "reportingComponent": CONTROLLER,
        "reportingInstance": CONTROLLER,
        "firstTimestamp": write_time(now),
        "lastTimestamp": write_time(now),
        "count": 1,
    }
