"""A list of the cluster with the caller's rights: what it asks for, and what it says of what it may not see."""

import pytest

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, PriorityClass
from aischeduler.kube.http import connection
from aischeduler.kube.http.client import Client
from aischeduler.kube.watch.cluster_lister import PRIORITY_CLASSES, WITHOUT, ListError, list_cluster
from aischeduler.kube.watch.watched_resources import UNFINISHED
from aischeduler.model.events import QueuesServed, Seen
from aischeduler.model.gang import GANG_KEY, Gang, GangClaim, GangKey, GangSource
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.workload import Workload
from tests.kube.scripted_server import Answer, Script, reply, serving, slam, status

NODES, PODS, POOLS = "/api/v1/nodes", "/api/v1/pods", "/apis/resource.aibee.cn/v1alpha1/pools"
PATHS = {
    "Namespace": "/api/v1/namespaces",
    "Pool": POOLS,
    "Node": NODES,
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "Device": "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    "Queue": "/apis/resource.aibee.cn/v1alpha1/queues",
    "Queue of Volcano": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "CSINode": "/apis/storage.k8s.io/v1/csinodes",
    "CSIDriver": "/apis/storage.k8s.io/v1/csidrivers",
    "CSIStorageCapacity": "/apis/storage.k8s.io/v1/csistoragecapacities",
    "PersistentVolume": "/api/v1/persistentvolumes",
    "PersistentVolumeClaim": "/api/v1/persistentvolumeclaims",
    "VolumeAttachment": "/apis/storage.k8s.io/v1/volumeattachments",
    "PodGroup": "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "PodGroup of Volcano": "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "PodGroup of the server": "/apis/scheduling.k8s.io/v1beta1/podgroups",
    "PodGroup of the server, older": "/apis/scheduling.k8s.io/v1alpha2/podgroups",
    "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/jobsets",
    "Job": "/apis/batch/v1/jobs",
    "Service": "/api/v1/services",
    "ReplicationController": "/api/v1/replicationcontrollers",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "DaemonSet": "/apis/apps/v1/daemonsets",
    "Deployment": "/apis/apps/v1/deployments",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "Pod": PODS,
    "PriorityClass": PRIORITY_CLASSES,
}
FORBIDDEN = status(403, "Forbidden", "you cannot list it")
KEY = GangKey(GangSource.JOB, "team", "j")


def items(*found: object) -> Answer:
    return reply(200, {"metadata": {"resourceVersion": "7"}, "items": list(found)})


def owner(name: str, uid: str) -> dict[str, object]:
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid, "controller": True}


def a_cluster(**answers: Answer) -> Script:
    """Return a cluster with a node, a pod and a Pool; `answers` by kind replace the lists."""
    node = {"metadata": {"name": "n", "uid": "1"}, "status": {"allocatable": {"cpu": "4"}}}
    pod = {"metadata": {"name": "p", "namespace": "team", "uid": "2"}, "spec": {"containers": []}}
    pool = {"metadata": {"name": "a", "uid": "3"}, "spec": {}}
    found = {"Node": items(node), "Pod": items(pod), "Pool": items(pool)}
    script = Script()
    for kind, path in PATHS.items():
        script.on("get", path, answers.get(kind, found.get(kind, items())))
    return script


async def listed(script: Script, *, cached: bool = False) -> ClusterSnapshot:
    async with serving(script) as server, Client(server) as client:
        return await list_cluster(client, "https://here", 5.7, cached=cached)


async def test_cached_list_asks_for_the_first_page_of_each_kind_from_the_cache_alone() -> None:
    script = a_cluster()
    more = {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": []}
    script.waiting.pop(("get", PODS))
    script.on("get", PODS, reply(200, more), items())
    await listed(script, cached=True)
    asked = [request for request in script.requests if request.path != PRIORITY_CLASSES]
    assert [request.path for request in asked if request.query.get("resourceVersion") != "0"] == [PODS]
    assert asked[-1].query == {"limit": "500", "fieldSelector": UNFINISHED, "continue": "more"}


async def test_cached_list_that_is_too_large_is_listed_in_pages_from_etcd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_BYTES_MAX", 10_000)
    script = a_cluster()
    page = script.waiting["get", PODS][0]
    script.on("get", PODS, page)
    script.waiting["get", PODS].appendleft(reply(200, b"x" * 10_001))
    snapshot = await listed(script, cached=True)
    assert [type(event.object) for event in snapshot.events if isinstance(event, Seen)] == [Pool, Node, Pod]
    assert [request.query.get("resourceVersion") for request in script.asked("get", PODS)] == ["0", None]


async def test_every_kind_is_listed_once_in_the_order_of_the_daemon() -> None:
    script = a_cluster()
    snapshot = await listed(script)
    assert [request.path for request in script.requests] == list(PATHS.values())
    assert {request.method for request in script.requests} == {"GET"}
    assert [type(event.object) for event in snapshot.events if isinstance(event, Seen)] == [Pool, Node, Pod]
    assert (snapshot.taken_seconds, snapshot.gaps) == (5, ())


async def test_gangs_come_before_the_pods_and_kinds_that_are_not_served_leave_no_gap() -> None:
    missing = status(404, "NotFound", "the server could not find the requested resource")
    job = {"metadata": {"name": "j", "namespace": "team", "uid": "u", "annotations": {GANG_KEY: "true"}}}
    plain = {"metadata": {"name": "plain", "namespace": "team", "uid": "v"}, "spec": {"parallelism": 4}}
    member = {"name": "p", "namespace": "team", "uid": "2", "ownerReferences": [owner("j", "u")]}
    other = {"name": "q", "namespace": "team", "uid": "3", "ownerReferences": [owner("plain", "v")]}
    pods = [{"metadata": metadata, "spec": {"containers": []}} for metadata in (member, other)]
    absent = {kind: missing for kind in PATHS if kind == "JobSet" or kind.startswith("PodGroup")}
    snapshot = await listed(a_cluster(Job=items(job, plain), Pod=items(*pods), **absent))
    *_, workload, gang, other_workload, first, second = snapshot.events
    assert [seen.object for seen in (workload, other_workload) if isinstance(seen, Seen)] == [
        Workload("Job", "team", "j", "u", retries=6),
        Workload("Job", "team", "plain", "v", retries=6),
    ]
    assert (gang, snapshot.gaps) == (Seen(Gang(KEY, min_member=1, uid="u")), ())
    claims = [
        event.object.gang for event in (first, second) if isinstance(event, Seen) and isinstance(event.object, Pod)
    ]
    assert claims == [GangClaim(KEY), None]


async def test_finished_pods_are_left_to_the_server() -> None:
    script = a_cluster()
    await listed(script)
    (pods,) = script.asked("get", PODS)
    assert pods.query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"


@pytest.mark.parametrize("kind", WITHOUT)
async def test_kind_that_may_not_be_listed_is_a_gap_that_says_what_the_answer_is_worth(kind: str) -> None:
    snapshot = await listed(a_cluster(**{kind: FORBIDDEN}))
    (gap,) = snapshot.gaps
    assert gap.startswith(f"https://here does not allow you to list {kind}")
    assert gap.endswith(f"(you cannot list it): {WITHOUT[kind]}")
    assert sum(isinstance(event, Seen) for event in snapshot.events) == 3


@pytest.mark.parametrize("kind", ["Node", "Pod", "Pool"])
async def test_there_is_no_answer_without_nodes_pods_and_pools(kind: str) -> None:
    sentence = f"does not allow you to list {kind}s .*: there is no answer without them"
    with pytest.raises(ListError, match=sentence):
        await listed(a_cluster(**{kind: FORBIDDEN}))


async def test_cluster_without_the_definition_of_pools_says_how_to_install_it() -> None:
    with pytest.raises(ListError, match=r"https://here does not serve Pools: .* kubectl apply"):
        await listed(a_cluster(Pool=status(404, "NotFound", "no such path")))


async def test_refused_credentials_are_no_gap() -> None:
    with pytest.raises(ListError, match="https://here does not accept your credentials"):
        await listed(a_cluster(Namespace=status(401, "Unauthorized", "who are you")))


async def test_server_that_breaks_off_is_named() -> None:
    with pytest.raises(ListError, match="https://here cannot be reached"):
        await listed(a_cluster(Node=slam))


async def test_objects_that_cannot_be_read_are_a_gap_and_the_others_count() -> None:
    wrong = {"metadata": {"name": "w", "namespace": "team", "uid": "9"}, "spec": {"containers": 1}}
    good = {"metadata": {"name": "p", "namespace": "team", "uid": "2"}, "spec": {"containers": []}}
    snapshot = await listed(a_cluster(Pod=items(wrong, good, wrong)))
    (gap,) = snapshot.gaps
    problem = "Pod team/w: spec.containers: must be a list, not a whole number (and 1 more)"
    assert gap == f"{problem}: the answer leaves the object out"
    assert [
        event.object.name for event in snapshot.events if isinstance(event, Seen) and isinstance(event.object, Pod)
    ] == ["p"]


async def test_priority_classes_are_sorted_by_name() -> None:
    high = {"metadata": {"name": "high"}, "value": 10, "preemptionPolicy": "Never"}
    base = {"metadata": {"name": "base"}, "value": 1, "globalDefault": True}
    snapshot = await listed(a_cluster(PriorityClass=items(high, base)))
    assert snapshot.priority_classes == (
        PriorityClass("base", 1, global_default=True),
        PriorityClass("high", 10, preemption_policy="Never"),
    )


@pytest.mark.parametrize("served", [True, False])
async def test_queues_that_are_served_without_objects_count_as_served(served: bool) -> None:
    missing = status(404, "NotFound", "the server could not find the requested resource")
    absent = {"Queue": missing, "Queue of Volcano": missing}
    snapshot = await listed(a_cluster(**({} if served else absent)))
    assert (QueuesServed(served=True) in snapshot.events, snapshot.gaps) == (served, ())
