"""A day of random changes while the watch of one kind lags by ten seconds, checked by the audit of decisions.

Invariant: random choices come from the seed of the run.
"""

import time
from collections.abc import Callable
from itertools import chain

import pytest

from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import (
    POOLS_PATH,
    REPEAT,
    create_namespace,
    create_nodes,
    create_pods,
    create_pools,
    create_priority,
)
from tests.e2e.daemon import Daemon
from tests.e2e.decision_audit import Judge
from tests.e2e.lagging_proxy import KINDS, LaggingProxy
from tests.e2e.record import Record
from tests.objects import Json, node_object, pdb_object, pod_object, pool_object
from tests.seeds import random

HELD_SECONDS = 10.0
DAY_SECONDS = 25.0
ROUND_SECONDS = 0.25
QUIET_SECONDS = 3.0
CALM_WITHIN_SECONDS = 60.0
POOLS = ("red", "blue", "green")
NODES_OF_A_POOL = 3
CHOOSY = "grey"
VISION = {"team": "vision"}
LABEL = "day.example/pool"
PRIORITIES = ("", "p5", "p10")


class Day:
    """Makes random changes: first an object, and in most cases at once a pod that the change concerns."""

    def __init__(self, plane: ControlPlane, namespace: str, record: Record, held: str, name: str) -> None:
        self._plane, self._namespace, self._record = plane, namespace, record
        self._chance = random(f"lag: {name}")
        self._count = 0
        self._vision = f"{namespace}-vision"
        """The namespace of the team whose pods the pool with allowedNamespaces takes."""
        self._pools = [*POOLS, CHOOSY]
        self._cordoned: list[str] = []
        deeds: dict[str, list[Callable[[], str]]] = {
            "pools": [self._new_pool, self._edit_of_flags, self._edit_of_flags],
            "nodes": [self._new_node, self._move_of_a_node, self._cordon, self._uncordon],
            "poddisruptionbudgets": [self._new_budget],
            "namespaces": [self._new_namespace, self._turn_of_a_namespace],
            "pods": [self._end_of_a_pod, self._end_of_a_pod, self._any_pool, self._any_pool],
        }
        self._deeds = [*chain.from_iterable(deeds.values()), *deeds.get(held, ()) * 2]
        """The possible changes; changes of the lagging kind are the most frequent."""

    def begin(self) -> None:
        """Set up pools that are full of pods of low priority, some of them on loan."""
        for name in PRIORITIES[1:]:
            create_priority(self._plane, f"{name}-{self._namespace}", int(name[1:]))
        create_namespace(self._plane, self._vision)
        self._patch(f"/api/v1/namespaces/{self._vision}", {"metadata": {"labels": VISION}}, "")
        create_pools(self._plane, pool_object("default"), *(pool_object(name, labels=_of(name)) for name in POOLS))
        create_pools(self._plane, pool_object(CHOOSY, labels=_of(CHOOSY), allowedNamespaces={"matchLabels": VISION}))
        nodes = [
            node_object(f"{pool}-{n}", cpu="4", labels=_of(pool))
            for pool in ("default", CHOOSY, *POOLS)
            for n in range(NODES_OF_A_POOL)
        ]
        create_nodes(self._plane, nodes)

    def fill(self) -> None:
        """Fill the nodes with pods of low priority."""
        pools = ("", CHOOSY, *POOLS) * (2 * NODES_OF_A_POOL)
        for pool in pools:
            self._create(self._pod(pool, cpu="2", priority=""))
        self._record.wait_until(lambda: self._running() == len(pools), "the first pods run")

    def round(self) -> None:
        """Make one change, and create a pod after it."""
        pool = self._chance.choice(self._deeds)()
        if self._chance.random() < 0.6:
            self._create(self._pod(pool, cpu=self._chance.choice("1224"), priority=self._chance.choice(PRIORITIES)))

    def _new_pool(self) -> str:
        name = f"new-{len(self._pools)}"
        if len(self._pools) > 8:
            return self._any_pool()
        self._pools.append(name)
        create_pools(self._plane, pool_object(name, labels=_of(name)))
        if self._chance.random() < 0.5:
            create_nodes(self._plane, [node_object(f"{name}-0", cpu="4", labels=_of(name))])
        return name

    def _edit_of_flags(self) -> str:
        chance, pool = self._chance, self._any_pool()
        spec: Json = {
            "disablePreemption": chance.random() < 0.4,
            "disableSharing": chance.random() < 0.3,
            "lendingLimit": chance.choice((None, {"cpu": str(chance.randrange(1, 8))})),
            "borrowingLimit": chance.choice((None, {"cpu": str(chance.randrange(1, 8))})),
            "reclaimPolicy": chance.choice(("OnDemand", "Evict")),
        }
        return self._patch(f"{POOLS_PATH}/{pool or 'default'}", {"spec": spec}, pool)

    def _new_node(self) -> str:
        pool = self._any_pool()
        self._count += 1
        create_nodes(self._plane, [node_object(f"late-{self._count}", cpu="4", labels=_of(pool))])
        return pool

    def _move_of_a_node(self) -> str:
        pool = self._any_pool()
        node = self._any_node()
        return self._patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": _of(pool)}}, pool)

    def _cordon(self) -> str:
        node = self._any_node()
        self._cordoned.append(node)
        return self._patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}}, self._pool_of(node))

    def _uncordon(self) -> str:
        if not self._cordoned:
            return self._any_pool()
        node = self._cordoned.pop()
        return self._patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}}, self._pool_of(node))

    def _new_budget(self) -> str:
        self._count += 1
        pool = self._any_pool()
        document = pdb_object(
            f"b{self._count}", namespace=self._namespace, min_available=1, labels={"app": pool or "default"}
        )
        path = f"/apis/policy/v1/namespaces/{self._namespace}/poddisruptionbudgets"
        assert self._plane.api("POST", path, document).status == 201
        return pool

    def _new_namespace(self) -> str:
        """Let the next pods of team vision come from a new namespace."""
        self._count += 1
        self._vision = f"{self._namespace}-{self._count}"
        create_namespace(self._plane, self._vision)
        return self._turn_of_a_namespace()

    def _turn_of_a_namespace(self) -> str:
        team = self._chance.choice((VISION, {"team": "speech"}))
        return self._patch(f"/api/v1/namespaces/{self._vision}", {"metadata": {"labels": team}}, CHOOSY)

    def _end_of_a_pod(self) -> str:
        pods = [pod for (where, _), pod in self._record.now("pods").items() if where == self._namespace]
        running = sorted(pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running")
        if running:
            name = self._chance.choice(running)
            assert self._plane.api("DELETE", f"/api/v1/namespaces/{self._namespace}/pods/{name}").status in (200, 404)
        return self._any_pool()

    def _create(self, pod: Json) -> None:
        create_pods(self._plane, pod["metadata"]["namespace"], [pod])

    def _any_pool(self) -> str:
        """Return a pool's name; empty for the default pool."""
        return self._chance.choice(["", *self._pools])

    def _any_node(self) -> str:
        return self._chance.choice(sorted(name for _, name in self._record.now("nodes")))

    def _pool_of(self, node: str) -> str:
        pool: str = self._record.now("nodes")["", node]["metadata"]["labels"][LABEL]
        return "" if pool == "default" else pool

    def _patch(self, path: str, change: Json, pool: str) -> str:
        assert self._plane.api("PATCH", path, change).status == 200, path
        return pool

    def _pod(self, pool: str, *, cpu: str, priority: str) -> Json:
        self._count += 1
        klass = f"{priority}-{self._namespace}" if priority else ""
        return pod_object(
            f"{pool or 'default'}-{self._count}",
            namespace=self._vision if pool == CHOOSY else self._namespace,
            cpu=cpu,
            memory="64Mi",
            pool=pool,
            priority_class=klass,
            labels={"app": pool or "default"},
        )

    def _running(self) -> int:
        return sum(pod["status"].get("phase") == "Running" for pod in self._record.now("pods").values())


def _of(pool: str) -> dict[str, str]:
    return {LABEL: pool or "default"}


@pytest.mark.soak
@pytest.mark.parametrize("run", range(REPEAT))
@pytest.mark.parametrize("held", ["nothing", *KINDS])
def test_no_pod_is_evicted_because_of_a_lagging_watch(
    control_plane: ControlPlane, namespace: str, pools_served: None, kubelets: Part, held: str, run: int
) -> None:
    with (
        LaggingProxy(control_plane) as proxy,
        Record(control_plane) as record,
        Daemon(control_plane, proxy.kubeconfig) as daemon,
    ):
        day = Day(control_plane, namespace, record, held, f"{held}, {run}")
        day.begin()
        daemon.start()
        day.fill()
        if held != "nothing":
            proxy.hold(held, HELD_SECONDS)
        end = time.monotonic() + DAY_SECONDS
        while time.monotonic() < end:
            day.round()
            time.sleep(ROUND_SECONDS)
        wait_until_calm_while_held = time.monotonic() + HELD_SECONDS + QUIET_SECONDS
        record.wait_until(lambda: time.monotonic() > wait_until_calm_while_held, "the last of what lags")
        proxy.release()
        judge = Judge(record, held, HELD_SECONDS)
        record.wait_until(
            lambda: judge.evictions() != [], "an eviction: without one the day tests nothing", CALM_WITHIN_SECONDS
        )
        record.wait_until_calm(QUIET_SECONDS, CALM_WITHIN_SECONDS)
        record.wait_until(lambda: judge.neglected() == [], "pods that fit on nodes", CALM_WITHIN_SECONDS)
        evictions = judge.evictions()
        print(f"{len(evictions)} evictions of {len(record.changes['pods'])} changes of pods")
        assert (list(judge.faults()), judge.strangers()) == ([], [])
