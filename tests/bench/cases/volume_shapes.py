"""Pods with one volume each on one real API server, beside kube-scheduler: bound claims, and claims that wait for pods.

Bound claims have CSI volumes, of which a node takes 39, as in scheduler_perf. The claims that wait take free volumes
that can be used on one node each; the controller of claims and volumes runs and confirms each choice.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.bench.arena import PEER, Arena, Scene, arena, node_name
from tests.bench.cases.backlog import run_backlog
from tests.bench.cases.shapes import OF_PEER, PODS_BY_NODES, ZONES
from tests.bench.spec import OURS, Case, Goal, Measure, Measured, VoidRunError
from tests.controlplane.many import create
from tests.objects import Json, claim_object, storage_class_object, volume_object

BOUND_PODS, LATE_PODS = 2_000, 200
BOUND = "pv.kubernetes.io/bind-completed"
DRIVER, ON_NODE = "csi.example.com", 39
"""The driver of the bound volumes, and how many of them a node takes."""
LATE = "late"
AVAILABLE_SECONDS = 300.0
"""How long the controller may need until all free volumes are available."""


def cases(shrink: int) -> tuple[Case, ...]:
    """Return the cases of this module, with sizes divided by `shrink`."""
    return tuple(_case(nodes // shrink, shrink, late=late) for late in (False, True) for nodes in PODS_BY_NODES)


def _case(nodes: int, shrink: int, *, late: bool) -> Case:
    pods = min((LATE_PODS if late else BOUND_PODS) // shrink, nodes)
    about = "each with a claim that waits for it, free volumes" if late else "each with a bound claim, 39 for a node"
    return Case(
        name=f"shape-volumes-{'late' if late else 'bound'}-{nodes}n",
        about=f"{pods:,} waiting pods, {nodes:,} nodes, one API server: {about}",
        sides=(OURS, PEER),
        open=partial(opened, nodes, pods, late),
        rounds=1,
        goals=(Goal("pods/s", OF_PEER, peer=PEER),),
        needs_server=True,
    )


@contextmanager
def opened(nodes: int, pods: int, late: bool) -> Iterator[Measure]:
    def dress(number: int, document: Json) -> None:
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": _name(number)}}
        document["spec"]["volumes"] = [claim]

    with arena(Scene(nodes, zones=ZONES, dress=dress)) as ground:
        if late:
            ground.plane.api("POST", "/apis/storage.k8s.io/v1/storageclasses", storage_class_object(LATE))
            ground.plane.volume_controllers().start()
        else:
            limits = [_limit_object(node_name(number)) for number in range(nodes)]
            create(ground.plane.connect, "/apis/storage.k8s.io/v1/csinodes", limits)
        prepare = partial(_free_volumes if late else _bound_claims, ground, pods)
        yield partial(_run, ground, pods, prepare)


def _run(ground: Arena, pods: int, prepare: "partial[None]", side: str) -> Measured:
    return run_backlog(ground, pods, side, prepare)


def _bound_claims(ground: Arena, pods: int, namespace: str) -> None:
    """Create bound claims and their volumes, as the controller leaves them."""
    claims, volumes = [], []
    for number in range(pods):
        volume = volume_object(f"{namespace}-{_name(number)}", claim=(namespace, _name(number)))
        del volume["spec"]["nfs"]
        volume["spec"]["csi"] = {"driver": DRIVER, "volumeHandle": volume["metadata"]["name"]}
        claim = claim_object(_name(number), namespace=namespace, volume=volume["metadata"]["name"])
        claim["metadata"]["annotations"] = {BOUND: "yes"}
        volumes.append(volume)
        claims.append(claim)
    _create(ground, namespace, volumes, claims)


def _free_volumes(ground: Arena, pods: int, namespace: str) -> None:
    """Create as many free volumes and waiting claims as pods, each volume on a node of its own."""
    nodes = range(0, ground.scene.nodes, max(ground.scene.nodes // pods, 1))
    free = zip(range(pods), nodes, strict=False)
    volumes = [
        volume_object(f"{namespace}-{_name(number)}", node=node_name(node), storage_class=LATE) for number, node in free
    ]
    claims = [claim_object(_name(number), namespace=namespace, storage_class=LATE) for number in range(pods)]
    _create(ground, namespace, volumes, claims)
    deadline = time.monotonic() + AVAILABLE_SECONDS
    while _available(ground, namespace) < pods:
        if time.monotonic() > deadline:
            raise VoidRunError("the free volumes are not available in time")
        time.sleep(1.0)


def _create(ground: Arena, namespace: str, volumes: list[Json], claims: list[Json]) -> None:
    create(ground.plane.connect, "/api/v1/persistentvolumes", volumes)
    create(ground.plane.connect, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claims)


def _available(ground: Arena, namespace: str) -> int:
    items = ground.plane.api("GET", "/api/v1/persistentvolumes").body["items"]
    ours = (one for one in items if one["metadata"]["name"].startswith(f"{namespace}-"))
    return sum(one["status"].get("phase") == "Available" for one in ours)


def _limit_object(node: str) -> Json:
    """Return the object by which a node says how many volumes of the driver it takes."""
    driver = {"name": DRIVER, "nodeID": node, "allocatable": {"count": ON_NODE}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": node},
        "spec": {"drivers": [driver]},
    }


def _name(number: int) -> str:
    return f"data-{number:05d}"
