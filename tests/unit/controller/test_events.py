"""Events: posted once, counted when they happen again, posted anew when the API server has forgotten them."""

from __future__ import annotations

from gradientrun.cluster import Cluster
from gradientrun.events import Events
from gradientrun.transitions import Note
from tests.unit.controller.api_server import Answer, ApiServer, against
from tests.unit.controller.manifests import a_run, at

POST = "POST /api/v1/namespaces/team/events"
NOTE = Note("Warning", "Unschedulable", "no host has room")


def posted(seconds: list[float], patch: Answer) -> list[str]:
    """Post the same event at these times and return the verbs it took."""
    run = a_run()
    first = f"/api/v1/namespaces/team/events/{run.name}"

    class Server(ApiServer):
        def answer_for(self, key: str) -> list[Answer] | None:
            return [patch] if key.startswith(f"PATCH {first}.") else super().answer_for(key)

    async def scenario(cluster: Cluster) -> None:
        events = Events(cluster)
        for second in seconds:
            await events.post(run, NOTE, at(second))

    server = Server({POST: (201, {})})
    against(server, scenario)
    return [asked.verb for asked in server.asked]


def test_an_event_that_happens_again_is_counted() -> None:
    assert posted([0, 60, 120], patch=(200, {})) == ["POST", "PATCH", "PATCH"]


def test_after_half_an_hour_it_is_another_event() -> None:
    assert posted([0, 1799, 1800], patch=(200, {})) == ["POST", "PATCH", "POST"]


def test_one_that_the_api_server_has_forgotten_is_posted_anew() -> None:
    assert posted([0, 60], patch=(404, {"message": "not found"})) == ["POST", "PATCH", "POST"]
