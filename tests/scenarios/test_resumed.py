"""A watch that an API server ends goes on without a gap."""

from collections.abc import Iterator, Sequence

import pytest

from tests.api_contract.world import Json
from tests.scenarios.resumed import Resumed


def an_event(name: str, version: int, kind: str = "ADDED") -> Json:
    return {"type": kind, "object": {"metadata": {"name": name, "resourceVersion": str(version)}}}


class Server:
    """Answers each watch with one event, the next after the version that it asks for, and ends it."""

    def __init__(self, events: Sequence[Json]) -> None:
        self.events = events
        self.urls: list[str] = []

    def watch(self, url: str) -> "OneEvent":
        self.urls.append(url)
        since = int((url + "&resourceVersion=0").split("&resourceVersion=")[1])
        later = (one for one in self.events if int(one["object"]["metadata"]["resourceVersion"]) > since)
        return OneEvent(later)


class OneEvent:
    def __init__(self, events: Iterator[Json]) -> None:
        self._event = next(events, None)

    @property
    def ended(self) -> bool:
        return self._event is None

    def next(self, seconds: float) -> Json | None:
        event, self._event = self._event, None
        return event

    def close(self) -> None:
        """Do nothing: no connection is open."""


def test_watch_that_ends_after_each_event_goes_on_with_the_next() -> None:
    server = Server([an_event("a", 3), an_event("b", 7), an_event("c", 9)])
    stream = Resumed(server.watch, "/pods")
    assert [event["object"]["metadata"]["name"] for _ in range(6) if (event := stream.next(0.0))] == ["a", "b", "c"]
    assert server.urls == [f"/pods?watch=true{since}" for since in ("", *(f"&resourceVersion={n}" for n in (3, 7, 9)))]
    assert not stream.ended


def test_watch_that_the_server_cannot_go_on_with_raises() -> None:
    stream = Resumed(Server([an_event("", 1, "ERROR")]).watch, "/pods", "0")
    with pytest.raises(AssertionError, match="ERROR"):
        stream.next(0.0)
