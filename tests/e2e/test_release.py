"""Upgrades and changes of a release while pods are created: service account, RBAC rules, versions."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from threading import Event, Thread

import pytest

from tests.controlplane.commands import ACCOUNT
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import (
    CPU_POOL,
    CRD,
    CRDS,
    EXAMPLES,
    POOLS_PATH,
    apply,
    backlog,
    create_nodes,
    create_pods,
    create_pools,
    create_priority,
    events,
    kubectl,
    later,
    wait_for_event,
    wait_until,
)
from tests.e2e.conftest import SHORT_LEASE
from tests.e2e.crowd_invariants import judge
from tests.e2e.elastic_stage import APPS, POOL, elastic, scaled
from tests.e2e.history import History
from tests.e2e.release import NAME, NAMESPACE, Release
from tests.e2e.replicas import Arrivals, KubeconfigContext, Replica, judge_terms, two_replicas
from tests.e2e.rights import granted, used
from tests.objects import (
    Json,
    claim_object,
    node_object,
    pod_object,
    pool_object,
    storage_class_object,
    volume_object,
)
from tests.queue_objects import queue_object

ALL = 300
BEFORE = 30
FEW = 20
BACKOFF_SECONDS = 1.5
"""Longer than a pod waits after its first attempt."""
SUSPENDING = ("batch", "jobs", "patch")
GANG_GROUPS = (
    "scheduling.x-k8s.io",
    "scheduling.volcano.sh",
    "scheduling.k8s.io",
    "jobset.x-k8s.io",
    "batch.volcano.sh",
    "scheduling.koordinator.sh",
)
"""Groups whose kinds are not served here; tests/e2e/test_gangs.py and test_devices.py use them."""
OF_CLAIMS = {("", f"persistentvolume{kind}", verb) for kind in ("s", "claims") for verb in ("get", "patch")}
"""What binds volumes to claims that wait for their first pod: an object is read again where it changed meanwhile."""
CLAIMS_SECONDS = 90.0
LOOKS_PER_CLAIM = 8
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"
ELECTION = {"leaderElection": SHORT_LEASE}


def reasons(replica: Replica) -> str:
    """Return the reasons of all its warnings."""
    return "\n".join(str(line.get("reason", "")) for line in replica.lines() if line["level"] == "warning")


@pytest.mark.usefixtures("cluster")
def test_token_that_expires_is_replaced_by_the_one_in_its_file(
    control_plane: ControlPlane, namespace: str, history: History, release: Release
) -> None:
    release.install(config=ELECTION)
    old = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "old", "namespace": NAMESPACE}}
    kubectl(control_plane, "create", "-f", "-", stdin=json.dumps(old))
    bound = release.new_token("--bound-object-kind=Secret", "--bound-object-name=old")
    access = release.access(token=bound)
    pods = [*backlog(namespace), *later(namespace)]
    with two_replicas(control_plane, access) as (leader, standby), Arrivals(control_plane, namespace, pods, 12):
        history.wait_for_bound(namespace, BEFORE)
        release.token_path.write_text(release.new_token())
        control_plane.api("DELETE", f"{SECRETS}/old")  # the token that is bound to this Secret is no longer valid
        history.wait_for_bound(namespace, ALL, 90)
        assert [leader.stop(), standby.stop()] == [0, 0]
    judge_terms(control_plane, history, namespace)


@pytest.mark.usefixtures("cluster")
def test_revoked_permissions_are_named_and_work_continues_when_they_are_granted_again(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext
) -> None:
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{NAME}"
    pods = [*backlog(namespace), *later(namespace)]
    with two_replicas(control_plane, access) as (leader, standby), Arrivals(control_plane, namespace, pods, 6):
        history.wait_for_bound(namespace, BEFORE)
        binding = control_plane.api("GET", path).body
        assert control_plane.api("DELETE", path).status == 200
        wait_until(
            lambda: 'cannot create resource "pods/binding"' in reasons(leader),
            "the missing permission, by verb and resource",
        )
        assert leader.running()
        del binding["metadata"]["resourceVersion"], binding["metadata"]["uid"]
        assert control_plane.api("POST", path.rpartition("/")[0], binding).status == 201
        history.wait_for_bound(namespace, ALL, 90)
        assert [leader.stop(), standby.stop()] == [0, 0]
    judge(control_plane, history, namespace)


@pytest.mark.usefixtures("cluster")
def test_definition_of_pools_may_be_deleted_and_created_again_under_both_schedulers(
    control_plane: ControlPlane, namespace: str, history: History, access: KubeconfigContext
) -> None:
    with two_replicas(control_plane, access) as (leader, standby):
        create_pods(control_plane, namespace, backlog(namespace)[:BEFORE])
        history.wait_for_bound(namespace, BEFORE)
        kubectl(control_plane, "delete", "crd", CRD, "--wait")
        wait_until(lambda: bool(leader.said("Pool definition missing")), "the line about the definition")
        homeless = pod_object("homeless", namespace=namespace, memory="64Mi", pool=CPU_POOL)
        create_pods(control_plane, namespace, [homeless])
        history.wait_for_bound(namespace, BEFORE + 1)
        kubectl(control_plane, "apply", "-f", str(CRDS))
        kubectl(control_plane, "wait", "--for=condition=Established", f"crd/{CRD}")
        kubectl(control_plane, "apply", "-f", str(EXAMPLES / "pools.yaml"))
        wait_until(lambda: CPU_POOL in statuses(control_plane), "the pools seen again")
        create_pods(control_plane, namespace, [pod_object("cared-for", namespace=namespace, pool=CPU_POOL)])
        history.wait_until(lambda: "cared-for" in history.bound(namespace), "the pod bound")
        assert history.bound(namespace)["cared-for"].startswith("cpu-"), "its pool exists again"
        assert [leader.stop(), standby.stop()] == [0, 0]
    judge(control_plane, history, namespace)


def rolled_out(plane: ControlPlane, access: KubeconfigContext, old: Replica, name: str) -> Replica:
    """Start a scheduler of the new version, and stop an old one once the new one is ready, as a Deployment does."""
    new = Replica(plane, access.kubeconfig, "--config", str(access.config), name=name)
    new.start()
    wait_until(lambda: bool(new.said("standing by") or new.said("leading")), f"{name} ready")
    assert old.stop() == 0
    return new


def test_upgrade_and_rollback_lose_no_waiting_pod_and_end_no_loan(
    control_plane: ControlPlane, namespace: str, history: History, release: Release
) -> None:
    create_nodes(control_plane, [node_object("own", cpu="4", labels={"pool": "a"})])
    create_nodes(control_plane, [node_object("lent", cpu="4", labels={"pool": "b"})])
    create_pools(control_plane, pool_object("a", labels={"pool": "a"}), pool_object("b", labels={"pool": "b"}))
    release.install(config=ELECTION)
    guests = [pod_object(f"guest-{n}", namespace=namespace, cpu="2", pool="a") for n in range(4)]
    waits = pod_object("waits", namespace=namespace, cpu="3", pool="a")
    with two_replicas(control_plane, release.access()) as (leader, standby):
        create_pods(control_plane, namespace, guests)
        history.wait_for_bound(namespace, 4)
        create_pods(control_plane, namespace, [waits])
        wait_for_event(control_plane, history, namespace, "FailedScheduling", "waits")
        release.upgrade(config={**ELECTION, "bindInFlight": 16})
        access = release.access()
        assert "bindInFlight: 16" in access.config.read_text()
        with (
            rolled_out(control_plane, access, leader, "upgraded") as first,
            rolled_out(control_plane, access, standby, "upgraded too") as second,
        ):
            release.run("rollback", NAME, "1")
            access = release.access()
            assert "bindInFlight" not in access.config.read_text()
            with (
                rolled_out(control_plane, access, first, "rolled back") as third,
                rolled_out(control_plane, access, second, "rolled back too") as fourth,
            ):
                wait_until(lambda: bool(third.said("leading") or fourth.said("leading")), "a leader of the old version")
                assert set(history.bound(namespace)) == {f"guest-{n}" for n in range(4)}
                create_nodes(control_plane, [node_object("more", cpu="4", labels={"pool": "a"})])
                history.wait_until(lambda: history.bound(namespace).get("waits") == "more", "the pod that waited")
                assert [third.stop(), fourth.stop()] == [0, 0]
    judge(control_plane, history, namespace)


@pytest.mark.parametrize("eviction", ["Delete", "Evict"])
def test_used_permissions_equal_the_granted_ones(
    control_plane: ControlPlane, namespace: str, history: History, release: Release, eviction: str
) -> None:
    """Every request of the daemon occurs once: none is refused, and no permission is unused but those of gangs."""
    since = control_plane.audit_log.stat().st_size
    release.install(config={"eviction": eviction, "requestTimeoutSeconds": 1})
    create_nodes(control_plane, [node_object("n", cpu="110", labels={"pool": "a"})])
    create_pools(control_plane, pool_object("a", labels={"pool": "a"}), pool_object(POOL, labels={"pool": POOL}))
    apply(control_plane, queue_object("default"))
    create_priority(control_plane, "high", 1000)
    small = [pod_object(f"small-{n:03d}", namespace=namespace, memory="1Mi", pool="a") for n in range(100)]
    with two_replicas(control_plane, release.access()) as (leader, standby):
        bind_volumes(control_plane, history, namespace)
        lose_an_answer(control_plane, history, namespace, small, since)
        create_pods(control_plane, namespace, [pod_object("vast", namespace=namespace, cpu="640", pool="a")])
        wait_for_event(control_plane, history, namespace, "FailedScheduling", "vast")
        urgent = pod_object("urgent", namespace=namespace, cpu="20", memory="1Mi", pool="a", priority_class="high")
        create_pods(control_plane, namespace, [urgent])
        history.wait_until(lambda: bool(events(control_plane, namespace, "Preempted")), "an eviction")
        history.wait_until(lambda: "a" in statuses(control_plane), "the status of the Pool")
        queue = f"{POOLS_PATH.removesuffix('pools')}queues/default"
        wait_until(lambda: "used" in control_plane.api("GET", queue).body.get("status", {}), "the status of the Queue")
        adopt(control_plane, APPS.format(namespace, "deployments"), "Deployment")
        adopt(control_plane, APPS.format(namespace, "statefulsets"), "StatefulSet")
        assert [leader.stop(), standby.stop()] == [0, 0]
    rights = list(used(control_plane, ACCOUNT, since))
    assert [right for right, status in rights if status == 403] == []
    of_gangs = {right for right in granted(release.rules()) if right[0] in GANG_GROUPS} | {SUSPENDING}
    assert granted(release.rules()) - {right for right, _ in rights} - of_gangs == set()


def adopt(plane: ControlPlane, path: str, kind: str) -> None:
    """Create an elastic workload of this kind, and wait until it has its minimum."""
    created = plane.api("POST", path, elastic(scaled(kind, "one", 5), 2, 60))
    assert created.status == 201, created.body
    one = f"{path}/one"
    wait_until(lambda: plane.api("GET", one).body["spec"]["replicas"] == 2, f"the minimum of the {kind}")
    plane.api("DELETE", one)


def bind_volumes(plane: ControlPlane, history: History, namespace: str) -> None:
    """Create pods with claims that wait for them, and change these and their volumes meanwhile, until all is used."""
    classes = {
        "local": storage_class_object("local"),
        "cloud": storage_class_object("cloud", provisioner="csi.example"),
    }
    for one in classes.values():
        plane.api("POST", "/apis/storage.k8s.io/v1/storageclasses", one)
    unused, until = set(OF_CLAIMS), time.monotonic() + CLAIMS_SECONDS
    claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    for number in count():
        since = plane.audit_log.stat().st_size
        name, kind = f"late-{number}", ("local", "cloud")[number % 2]
        plane.api("POST", claims, claim_object(name, namespace=namespace, storage_class=kind))
        changing = f"{claims}/{name}"
        if kind == "local":
            changing = f"/api/v1/persistentvolumes/{name}"
            plane.api("POST", "/api/v1/persistentvolumes", volume_object(name, storage_class=kind))
            plane.api("PATCH", f"{changing}/status", {"status": {"phase": "Available"}})
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
        with changed_all_the_time(plane, changing):
            create_pods(plane, namespace, [pod_object(name, namespace=namespace, cpu="1m", pool="a", volumes=volumes)])
            for _ in range(LOOKS_PER_CLAIM):
                time.sleep(0.2)
                unused -= {right for right, _ in used(plane, ACCOUNT, since)}
                if not unused:
                    break
        plane.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})
        history.wait_until(lambda: not history.pods(namespace), f"the end of {name}")
        if not unused or time.monotonic() > until:
            return


@contextmanager
def changed_all_the_time(plane: ControlPlane, path: str) -> Iterator[None]:
    """Change an object again and again, so that the next writer finds it changed."""
    done = Event()

    def change() -> None:
        while not done.is_set():
            plane.api("PATCH", path, {"metadata": {"annotations": {"example.com/at": str(time.monotonic())}}})

    thread = Thread(target=change)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def lose_an_answer(plane: ControlPlane, history: History, namespace: str, pods: list[Json], since: int) -> None:
    """Stop the API server during Bindings until the outcome of one had to be read; then wait until all pods are bound.

    The audit log is read from this byte on. The pods of one turn wait for the node and are bound at once, so that
    Bindings are on their way when the first is seen.
    """
    for few in range(0, len(pods), FEW):
        lost = ("", "pods", "get") in {right for right, _ in used(plane, ACCOUNT, since)}
        if not lost:
            plane.api("PATCH", "/api/v1/nodes/n", {"spec": {"unschedulable": True}})
        create_pods(plane, namespace, pods[few : few + FEW])
        if not lost:
            time.sleep(BACKOFF_SECONDS)
            plane.api("PATCH", "/api/v1/nodes/n", {"spec": {"unschedulable": False}})
            history.wait_for_bound(namespace, few + 1)
            plane.pause("kube-apiserver")
            time.sleep(1.5)  # longer than the timeout of a request here
            plane.resume("kube-apiserver")
        history.wait_for_bound(namespace, few + FEW)


def statuses(plane: ControlPlane) -> set[str]:
    """Return the Pools with a status."""
    return {item["metadata"]["name"] for item in plane.api("GET", POOLS_PATH).body["items"] if item.get("status")}
