"""Many pods in many pools: all idle room is lent, and reclaimed when its owners need it."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.controlplane.many import Request, send
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import condition, create_nodes, create_pods, create_pools
from tests.e2e.crowd_invariants import judge
from tests.e2e.daemon import Daemon
from tests.e2e.history import History
from tests.objects import Json, node_object, pod_object, pool_object

EACH = [2, pytest.param(10, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
"""The number of pools that borrow, and of pools that lend: 400 pods in 4 pools, and 2,000 pods in 20."""
NODES_EACH, NODE_CPU = 5, 15
ROOM = NODES_EACH * NODE_CPU
"""Pods of one CPU that a pool's nodes hold."""
LENT_MOST = 65
BORROWERS_EACH, OWNERS_EACH = ROOM + LENT_MOST, 60
KEPT = ROOM - LENT_MOST
"""Room in each lender that is never lent: its own pods start there without an eviction."""
RECLAIMED_EACH = OWNERS_EACH - KEPT
PATIENCE_SECONDS = 90.0
TURN_SECONDS = 0.25
SUCCEEDED = {"status": {"phase": "Succeeded"}}


def nodes(crowd: "Crowd") -> list[Json]:
    return [
        node_object(f"{pool}-n{number}", cpu=str(NODE_CPU), memory="64Gi", labels={"team": pool})
        for pool in (*crowd.borrowing, *crowd.lending)
        for number in range(NODES_EACH)
    ]


def pools(crowd: "Crowd") -> list[Json]:
    """Return pools that only borrow, and pools that only lend, each up to a limit."""
    borrowing = [pool_object(name, labels={"team": name}, disableSharing=True) for name in crowd.borrowing]
    lending = [
        pool_object(name, labels={"team": name}, disableBorrowing=True, lendingLimit={"cpu": str(LENT_MOST)})
        for name in crowd.lending
    ]
    default = pool_object("default", disableSharing=True)
    return [*borrowing, *lending, default]


@dataclass
class Crowd:
    """The pods of this test, and a controller that replaces evicted pods."""

    plane: ControlPlane
    namespace: str
    history: History
    each: int
    replaced: int = 0

    @property
    def borrowing(self) -> list[str]:
        return [f"borrow-{number}" for number in range(self.each)]

    @property
    def lending(self) -> list[str]:
        return [f"lend-{number}" for number in range(self.each)]

    def create(self, homes: list[str], each: int) -> None:
        create_pods(
            self.plane, self.namespace, [self._pod(home, f"{number}") for number in range(each) for home in homes]
        )

    def victims(self) -> list[str]:
        """Return the pods that are gone and had not finished."""
        return [sight.name for sight in list(self.history.sights) if sight.gone and sight.namespace == self.namespace]

    def replace(self) -> None:
        """Create a pod for each newly evicted pod."""
        new = self.victims()[self.replaced :]
        self.replaced += len(new)
        create_pods(self.plane, self.namespace, [self._pod(home_of(name), f"again-{name}") for name in new])

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds, and replace evicted pods meanwhile; the poll interval is long to save CPU."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_SECONDS:.0f} s"
            time.sleep(TURN_SECONDS)
            self.replace()

    def where(self) -> Counter[tuple[str, str]]:
        """Count the unfinished pods by home pool and by the pool of their node; waiting pods have an empty pool."""
        there = [sight for sight in self.history.pods(self.namespace) if not sight.finished]
        return Counter((home_of(sight.name), sight.node.rpartition("-")[0]) for sight in there)

    def lent(self) -> int:
        return sum(count for (home, pool), count in self.where().items() if pool and pool != home)

    def _pod(self, home: str, name: str) -> Json:
        full = name if name.startswith("again-") else f"{home}-p{name}"
        return pod_object(full, namespace=self.namespace, cpu="1", memory="64Mi", pool=home)


def home_of(name: str) -> str:
    """Return the pool of a pod of this name."""
    return name.replace("again-", "").rpartition("-")[0]


def at_home(homes: list[str], count: int) -> dict[tuple[str, str], int]:
    return {(home, home): count for home in homes}


@pytest.mark.parametrize("each", EACH)
@pytest.mark.usefixtures("pools_served", "kubelets")
def test_many_pods_borrow_give_back_and_borrow_again(
    control_plane: ControlPlane, namespace: str, history: History, each: int
) -> None:
    crowd = Crowd(control_plane, namespace, history, each)
    create_nodes(control_plane, nodes(crowd))
    create_pools(control_plane, *pools(crowd))
    with Daemon(control_plane, metrics=True) as daemon:
        daemon.start()
        crowd.create(crowd.borrowing, BORROWERS_EACH)
        crowd.until(lambda: crowd.lent() == each * LENT_MOST, "all room lent that may be")
        assert crowd.victims() == []

        crowd.create(crowd.lending, OWNERS_EACH)
        owners = at_home(crowd.lending, OWNERS_EACH)
        crowd.until(lambda: owners.items() <= crowd.where().items(), "every owner at home")
        crowd.until(lambda: len(crowd.victims()) == crowd.replaced == each * RECLAIMED_EACH, "the evicted replaced")
        judge_the_reclaim(crowd, daemon)
        full = Counter({True: each * RECLAIMED_EACH})
        crowd.until(lambda: told_of_full_lenders(crowd) == full, "for each that waits, that every lender is full")

        ending = [f"{home}-p{number}" for home in crowd.lending for number in range(OWNERS_EACH // 2)]
        path = f"/api/v1/namespaces/{namespace}/pods"
        send(control_plane.connect, [Request("PATCH", f"{path}/{name}/status", SUCCEEDED) for name in ending])
        crowd.until(lambda: crowd.lent() == lent_again(each), "the room that the finished pods left, lent again")
        assert len(crowd.victims()) == each * RECLAIMED_EACH
        assert daemon.net_saves() == 0
    judge(control_plane, history, namespace)


def told_of_full_lenders(crowd: Crowd) -> Counter[bool]:
    """Count the reasons by whether they name every lender as full; a reason of before the last owner does not yet."""
    return Counter(f"; no node fits: {', '.join(crowd.lending[:2])}" in reason for reason in reasons(crowd))


def lent_again(each: int) -> int:
    """Return the number of loans at the end: those that stayed, and half of the owners' room."""
    return each * (LENT_MOST - RECLAIMED_EACH + OWNERS_EACH // 2)


def judge_the_reclaim(crowd: Crowd, daemon: Daemon) -> None:
    """Check that all pods are in the expected pools, and that no eviction was unnecessary.

    Each lender had room for some of its pods; exactly one borrower was evicted for each further pod.
    """
    where = crowd.where()
    assert where.items() >= at_home(crowd.borrowing, ROOM).items()
    on_loan = {(home, pool): count for (home, pool), count in where.items() if pool not in ("", home)}
    assert Counter(pool for _, pool in on_loan for _ in range(on_loan[_, pool])) == Counter(
        dict.fromkeys(crowd.lending, LENT_MOST - RECLAIMED_EACH)
    )
    evictions = daemon.said("evict")
    assert {line["cause"] for line in evictions} == {"Reclaimed"}
    assert {line["home_pool"] for line in evictions} <= set(crowd.borrowing)
    assert Counter(line["pool"] for line in evictions) == Counter(dict.fromkeys(crowd.lending, RECLAIMED_EACH))
    assert all(home_of(line["beneficiary"].partition("/")[2]) == line["pool"] for line in evictions)
    assert {line["pod"] for line in evictions} == set(crowd.victims())


def reasons(crowd: Crowd) -> list[str]:
    """Return the last reasons of the waiting pods."""
    items = crowd.plane.api("GET", f"/api/v1/namespaces/{crowd.namespace}/pods?fieldSelector=spec.nodeName=").body[
        "items"
    ]
    told = [condition(pod, "PodScheduled").get("message", "") for pod in items]
    return [reason for reason in told if reason]
