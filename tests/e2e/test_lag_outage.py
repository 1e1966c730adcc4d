"""The watches return one after the other after an outage of the API server, with Pools created in the first second.

Invariant: a client retries every 50 ms, so that its Pools and the pods that name them exist before any watch returns.
"""

import http.client
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import Event, Thread

import pytest

from aischeduler.model.names import MARK_HOME_POOL
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane, PartName
from tests.e2e.cluster import POOLS_PATH, REPEAT, condition, create_nodes, create_pods, create_pools, create_priority
from tests.e2e.daemon import Daemon
from tests.e2e.record import Record
from tests.objects import Json, node_object, pod_object, pool_object

RETRY_SECONDS = 0.05
DEFAULT_NODES = 6
NEW_POOLS = 8
APART_SECONDS = 0.1
HIGH = "high-after-outage"
LABEL = "outage.example/pool"
WATCHES_BACK_SECONDS = 150.0
"""After an outage of etcd, the API server connects to it again for each kind of objects, with separate backoffs."""


class Newcomers:
    """A client that creates Pools, their nodes and pods that name them, as soon as the API server answers."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._plane, self._namespace = plane, namespace
        self._go = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.failure: BaseException | None = None

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Create the objects while the context is open; the end waits until all exist."""
        self._thread.start()
        yield
        self._thread.join(120)
        assert not self._thread.is_alive(), "the new objects were not created"
        assert self.failure is None, self.failure

    def _run(self) -> None:
        try:
            for number in range(NEW_POOLS):
                labels = {LABEL: f"new-{number}"}
                pool = pool_object(f"new-{number}", labels=labels, disableBorrowing=True)  # owners end loans at once
                self._make(POOLS_PATH, pool)
                self._make(f"/api/v1/namespaces/{self._namespace}/pods", newcomer(self._namespace, number))
                if number % 2:
                    self._make("/api/v1/nodes", home_of_newcomer(number))
                time.sleep(APART_SECONDS)
        except AssertionError as failure:
            self.failure = failure

    def _make(self, path: str, document: Json) -> None:
        """Create an object; retry until the API server has it."""
        deadline = time.monotonic() + 100
        while True:
            assert time.monotonic() < deadline, f"the API server does not accept {document}"
            try:
                answer = self._plane.api("POST", path, document)
            except (OSError, http.client.HTTPException):
                time.sleep(RETRY_SECONDS)
                continue
            if answer.status in (201, 409):
                return
            time.sleep(RETRY_SECONDS)


def newcomer(namespace: str, number: int) -> Json:
    return pod_object(
        f"new-{number}", namespace=namespace, cpu="4", memory="64Mi", pool=f"new-{number}", priority_class=HIGH
    )


def home_of_newcomer(number: int) -> Json:
    return node_object(f"new-{number}", cpu="4", labels={LABEL: f"new-{number}"})


def outage(plane: ControlPlane, part: PartName, end: str) -> None:
    """End a part by SIGKILL or SIGTERM, and start it again."""
    if end == "SIGTERM":
        plane.stop(part)
    plane.restart(part)


def seconds_of(line: Json) -> float:
    return datetime.fromisoformat(line["timestamp"]).timestamp()


def tell_lags(daemon: Daemon) -> None:
    """Print how many seconds after its pod each Pool was seen."""
    heard: dict[str, float] = {}
    for line in daemon.said("pool condition"):
        heard.setdefault(line["pool"], seconds_of(line))
    tried: dict[str, float] = {}
    for line in [*daemon.said("warned"), *daemon.said("wait"), *daemon.said("bind")]:
        name = str(line.get("pod", line.get("name"))).rpartition("/")[2]
        tried[name] = min(seconds_of(line), tried.get(name, float("inf")))
    lags = {name: round(heard[name] - tried[name], 2) for name in sorted(tried) if name in heard}
    print("seconds from the first line about a pod to that of its Pool:", lags)
    print("warned of unknown Pools:", sorted(one["name"] for one in daemon.said("warned")))
    print("evicted:", [(one["pod"], one["beneficiary"]) for one in daemon.said("evict")])


@pytest.mark.parametrize("run", range(REPEAT))
@pytest.mark.parametrize(
    "blow",
    [
        ("kube-apiserver", "SIGKILL"),
        # on a busy machine the API server itself may watch nothing for minutes after etcd has ended
        pytest.param(("etcd", "SIGKILL"), marks=pytest.mark.soak),
        pytest.param(("etcd", "SIGTERM"), marks=pytest.mark.soak),
        pytest.param(("kube-apiserver", "SIGTERM"), marks=pytest.mark.soak),
    ],
    ids=" ".join,
)
def test_new_pools_after_an_outage_get_their_pods_and_no_pod_is_evicted(
    control_plane: ControlPlane,
    namespace: str,
    pools_served: None,
    kubelets: Part,
    blow: tuple[PartName, str],
    run: int,
) -> None:
    create_priority(control_plane, HIGH, 1000)
    create_pools(control_plane, pool_object("default"))
    create_nodes(control_plane, [node_object(f"old-{number}", cpu="4") for number in range(DEFAULT_NODES)])
    old = [pod_object(f"old-{number}", namespace=namespace, cpu="4", memory="64Mi") for number in range(DEFAULT_NODES)]
    with Record(control_plane) as record, Daemon(control_plane) as daemon:
        daemon.start()
        create_pods(control_plane, namespace, old)
        record.wait_until(
            lambda: bound(record, namespace) == {f"old-{n}" for n in range(DEFAULT_NODES)}, "a full cluster"
        )
        with Newcomers(control_plane, namespace).beside():
            outage(control_plane, *blow)
        create_nodes(control_plane, [home_of_newcomer(number) for number in range(0, NEW_POOLS, 2)])
        expected = {f"new-{n}" for n in range(NEW_POOLS)}

        def unseen() -> dict[str, list[str]]:
            there = {kind: {name for _, name in record.now(kind)} for kind in ("pools", "pods", "nodes")}
            return {kind: sorted(expected - names) for kind, names in there.items() if not expected <= names}

        awaited = "the new objects in the watches of the API server"
        record.wait_until(lambda: not unseen(), awaited, WATCHES_BACK_SECONDS, unseen)
        record.wait_until(lambda: expected <= bound(record, namespace), "the new pods on nodes")
        record.wait_until(lambda: expected <= accepted(record), "the new Pools in force")
        tell_lags(daemon)
        pods = record.now("pods")
    homes = {name: pods[namespace, name]["metadata"]["annotations"].get(MARK_HOME_POOL) for name in sorted(expected)}
    marked = {
        change.key[1] for change in record.changes["pods"] if condition(change.document, "DisruptionTarget") != {}
    }
    assert (homes, marked) == ({name: name for name in sorted(expected)}, set())


def bound(record: Record, namespace: str) -> set[str]:
    """Return the names of the pods on nodes."""
    return {
        name for (where, name), pod in record.now("pods").items() if where == namespace and pod["spec"].get("nodeName")
    }


def accepted(record: Record) -> set[str]:
    """Return the names of the Pools that the scheduler has seen."""
    return {name for (_, name), pool in record.now("pools").items() if condition(pool, "Accepted") != {}}
