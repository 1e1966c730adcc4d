"""The plugin in an engine: events go in, and actions come out. No cluster is needed."""

import asyncio
from typing import Any

import pytest
from license_server import LicenseServer

from aischeduler.config.load import parse_config
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Bind, Refresh, ReportWaiting
from aischeduler.model.events import Refreshed, Seen, gone
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod, PodSpec
from aischeduler.model.resources import ContainerRequest, pod_request

CONFIG = """
profiles:
  - plugins:
      multiPoint: {enabled: [{name: LicenseServer}]}
    pluginConfig:
      - name: LicenseServer
        args: {licenses: {solver: 1}}
"""
AMOUNTS = {"cpu": 8000, "memory": 2**33, "pods": 110}
SPEC = PodSpec(b"s", pod_request([ContainerRequest({"cpu": 1000}, sidecar=False)], [], {}, {}))


def node(name: str, licenses: str = "") -> Seen:
    labels = {"example.com/licenses": licenses} if licenses else {}
    return Seen(Node(name, f"uid-{name}", labels, allocatable=AMOUNTS, capacity=AMOUNTS))


def a_pod(name: str, **labels: str) -> Pod:
    return Pod(f"uid-{name}", "default", name, SPEC, "ai-scheduler", labels=labels)


def pod(name: str, **labels: str) -> Seen:
    return Seen(a_pod(name, **labels))


class Engine:
    """An engine and its clock; `found` has pod -> node, or the reason why it waits."""

    def __init__(self, *events: Any) -> None:
        self.scheduler = Scheduler(profile_of(parse_config("config", CONFIG.encode())), "run")
        self.found: dict[str, str] = {}
        self.now = 0.0
        self.tell(Refreshed(""), *events)

    def tell(self, *events: Any, seconds: float = 0.0) -> None:
        self.now += seconds
        for event in (*events, Refreshed("")):
            self.scheduler.observe(event, self.now)
        while pools := self.scheduler.ready(self.now):
            for name in pools:
                for action in self.scheduler.decide(name, self.now, 64):
                    self.take(action)

    def take(self, action: object) -> None:
        match action:
            case Bind(bound, where):
                self.found[bound.name] = where
            case ReportWaiting(waits):
                self.found[waits.name] = action.message
            case Refresh(pool):
                self.scheduler.observe(Refreshed(pool), self.now)


def test_pod_runs_in_a_site_with_its_license() -> None:
    engine = Engine(node("bare"), node("site", "other.solver"), pod("p", license="solver"))
    assert engine.found == {"p": "site"}


def test_pod_without_a_license_keeps_the_site_free() -> None:
    assert Engine(node("a-site", "solver"), node("bare"), pod("p")).found == {"p": "bare"}


def test_site_without_the_license_is_named_in_the_reason() -> None:
    found = Engine(node("bare"), pod("p", license="solver")).found
    assert "1 node(s) were in a site without the license solver" in found["p"]


def test_binding_waits_for_a_free_license() -> None:
    engine = Engine(node("site", "solver"), pod("first", license="solver"), pod("second", license="solver"))
    assert engine.found == {"first": "site"}
    engine.tell(gone(Pod, "uid-first"), seconds=6.0)
    assert engine.found == {"first": "site", "second": "site"}


def test_pod_gives_its_node_back_when_no_license_becomes_free() -> None:
    engine = Engine(node("site", "solver"), pod("first", license="solver"), pod("second", license="solver"))
    engine.tell(seconds=601.0)
    assert engine.found["second"] == "LicenseServer does not permit the node site: no license solver became free"


def test_license_that_the_server_does_not_have_is_a_veto() -> None:
    engine = Engine(node("site", "cad"), pod("p", license="cad"))
    assert engine.found["p"] == "LicenseServer does not permit the node site: the server has no license cad"


def test_license_is_taken_before_the_binding_and_an_error_of_the_server_refuses_it() -> None:
    taken: list[tuple[str, str]] = []
    plugin = LicenseServer({}, lambda name, uid: taken.append((name, uid)))
    asyncio.run(plugin.pre_bind(a_pod("p", license="solver"), "site"))
    asyncio.run(plugin.pre_bind(a_pod("q"), "site"))
    assert taken == [("solver", "uid-p")]

    def refuse(name: str, uid: str) -> None:
        raise ConnectionError(f"{name} for {uid}")

    with pytest.raises(ConnectionError, match="solver for uid-p"):
        asyncio.run(LicenseServer({}, refuse).pre_bind(a_pod("p", license="solver"), "site"))
