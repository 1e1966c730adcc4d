"""The operator on a real API server: gangs come, heal, end and go, whatever kills the operator."""

import json
import re
import time
from random import Random  # noqa: TID251 - seeded by the run
from typing import Any

import pytest

from tests import seeds
from tests.controlplane.commands import OPERATOR
from tests.controlplane.part import Part
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import (
    ROOT,
    apply,
    condition,
    create_namespace,
    create_nodes,
    create_pools,
    events,
    kubectl,
    nodes,
    wait_until,
)
from tests.e2e.daemon import Daemon
from tests.e2e.operator_program import OURS, OperatorProgram, fail, path, pods_of
from tests.e2e.rights import granted, used
from tests.objects import Json, pool_object
from tests.operator.documents import BRAINPP, EXAMPLE, batch_process, role

PAGE = (ROOT / "docs" / "batchprocess.md").read_text()
KILLS = [3, pytest.param(20, marks=[pytest.mark.soak, pytest.mark.timeout(0)])]
BRAINPP_DEFINITION: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "batchprocesses.workspace.brainpp.cn"},
    "spec": {
        "group": "workspace.brainpp.cn",
        "scope": "Namespaced",
        "names": {"kind": "BatchProcess", "plural": "batchprocesses", "singular": "batchprocess"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
                    }
                },
            }
        ],
    },
}
"""A definition that keeps no status at all."""


@pytest.fixture
def some_nodes(control_plane: ControlPlane, clean_cluster: None) -> None:
    """Create nodes of no Pool of their own: the pool `default` has them."""
    create_nodes(control_plane, nodes())


def status(plane: ControlPlane, namespace: str, name: str = "train") -> Any:
    return plane.api("GET", path(namespace, name)).body.get("status", {})


def attempt_of(pod: Json) -> int:
    return int(pod["metadata"]["annotations"]["resource.aibee.cn/attempt"])


def attempts_noted(plane: ControlPlane, namespace: str) -> dict[str, int]:
    """Return the attempts of each pod that the record has."""
    roles = status(plane, namespace).get("roles", ())
    return {f"train-{one['name']}-{n}": count for one in roles for n, count in enumerate(one["attempts"])}


def two_roles(**more: Any) -> Json:
    small = {"resources": {"requests": {"cpu": "10m", "memory": 16}}}
    return batch_process(role(2, 1, name="master", **small), role(4, 2, name="worker", **small), minimum=4, **more)


TWO_ROLES = [f"train-master-{n}" for n in range(2)] + [f"train-worker-{n}" for n in range(4)]


def test_example_of_brainpp_runs_under_its_own_group(
    control_plane: ControlPlane, operator: OperatorProgram, some_nodes: None, daemon: Daemon, kubelets: Part
) -> None:
    daemon.start()
    create_namespace(control_plane, "megvii-brain")
    apply(control_plane, BRAINPP_DEFINITION)
    served = f"/apis/{BRAINPP}/batchprocesses"
    wait_until(lambda: control_plane.api("GET", served).status == 200, "the definition served")
    kubectl(control_plane, "apply", "-f", str(EXAMPLE))

    def phases() -> list[str]:
        return [one["status"].get("phase") for one in pods_of(control_plane, "megvii-brain", "podgroup1").values()]

    wait_until(lambda: phases() == ["Running"] * 4, "the pods running")
    (first, *_) = pods_of(control_plane, "megvii-brain", "podgroup1").values()
    resources = first["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "2", "memory": "2Gi"}
    control_plane.kubectl("delete", "pod", first["metadata"]["name"], "-n", "megvii-brain", "--wait=false")
    wait_until(lambda: phases() == ["Running"] * 4, "the lost pod again")
    kubectl(control_plane, "delete", "crd", "batchprocesses.workspace.brainpp.cn")


def test_example_of_the_page_runs_and_shows_what_the_page_shows(
    control_plane: ControlPlane,
    operator: OperatorProgram,
    some_nodes: None,
    daemon: Daemon,
    kubelets: Part,
    namespace: str,
) -> None:
    daemon.start()
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (table,) = re.findall(r"^\$ kubectl get bp\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE)
    create_pools(control_plane, pool_object("gpu-pool", labels={"gpu": "true"}))
    kubectl(control_plane, "apply", "-n", namespace, "-f", "-", stdin=example)
    wait_until(lambda: status(control_plane, namespace).get("ready") == "6/6", "the pods running")
    shown = control_plane.kubectl("get", "bp", "-n", namespace)
    assert [line.split()[:-1] for line in shown.stdout.splitlines()] == [
        line.split()[:-1] for line in table.splitlines()
    ]
    assert {pod["spec"]["nodeName"][:3] for pod in pods_of(control_plane, namespace, "train").values()} == {"gpu"}
    found = control_plane.api("GET", path(namespace, "train")).body
    assert {one["type"]: one["status"] for one in found["status"]["conditions"]} == {
        "Accepted": "True",
        "Scheduled": "True",
    }
    explained = control_plane.kubectl("explain", "batchprocess.spec.simpleProcesses.resources")
    assert "A memory without a unit is in MiB" in explained.stdout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"podGroup": {"minAvailable": 0}}, "spec.podGroup.minAvailable"),
        ({"simpleProcesses": []}, "spec.simpleProcesses"),
        ({"simpleProcesses": [role(1, None, resources={"limits": {"memory": "2 Gi"}})]}, "resources.limits.memory"),
        ({"podGroup": {"minavailable": 1}}, 'unknown field "spec.podGroup.minavailable"'),
    ],
)
def test_api_server_refuses_what_one_field_shows(
    control_plane: ControlPlane, pools_served: None, namespace: str, changes: Json, words: str
) -> None:
    document = two_roles()
    document["spec"] |= changes
    document["metadata"]["namespace"] = namespace
    refused = control_plane.kubectl("create", "--validate=strict", "-f", "-", stdin=json.dumps(document))
    assert refused.returncode != 0
    assert words in refused.stderr


def test_contradiction_is_a_condition_and_an_event_and_makes_no_pod(
    control_plane: ControlPlane, operator: OperatorProgram, namespace: str
) -> None:
    document = two_roles()
    document["spec"]["podGroup"]["replicas"] = 7
    apply(control_plane, document, namespace=namespace)
    sentence = "spec.podGroup.replicas is 7, but the replicas of spec.simpleProcesses are 6 in all"

    def accepted() -> Json:
        return condition(control_plane.api("GET", path(namespace, "train")).body, "Accepted")

    wait_until(lambda: accepted().get("status") == "False", "the spec refused")
    assert (accepted()["reason"], accepted()["message"]) == ("Invalid", sentence)
    wait_until(lambda: events(control_plane, namespace, "Invalid") == {"train": sentence}, "an event")
    assert pods_of(control_plane, namespace, "train") == {}
    apply(control_plane, two_roles(), namespace=namespace)
    wait_until(lambda: sorted(pods_of(control_plane, namespace, "train")) == TWO_ROLES, "the mended spec carried out")


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.usefixtures("some_nodes", "kubelets")
def test_killed_operators_and_schedulers_lose_no_pod_and_make_none_twice(
    control_plane: ControlPlane, operator: OperatorProgram, daemon: Daemon, namespace: str, kills: int
) -> None:
    """Every pod of a name is made after the one before it is gone: `attempt` counts them, and restarts add up."""
    daemon.start()
    chance = Random(seeds.seed())
    apply(control_plane, two_roles(limit=100), namespace=namespace)
    seen: dict[tuple[str, int], str] = {}
    """Name and attempt -> uid."""

    def look() -> dict[str, Json]:
        pods = pods_of(control_plane, namespace, "train")
        for name, pod in pods.items():
            uid = pod["metadata"]["uid"]
            assert seen.setdefault((name, attempt_of(pod)), uid) == uid, f"two pods of {name} with one attempt"
        return pods

    def counted() -> list[Json]:
        """Return the pods that the operator has seen. Nobody can count one that is lost before."""
        known = attempts_noted(control_plane, namespace)
        return [pod for name, pod in sorted(look().items()) if attempt_of(pod) == known.get(name)]

    for _ in range(kills):
        wait_until(lambda: len(counted()) >= 3, "three pods noted")
        pods = counted()
        for pod in chance.sample(pods, len(pods) // 3):
            if chance.random() < 0.5:
                fail(control_plane, pod)
            else:
                control_plane.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
        time.sleep(chance.uniform(0.2, 2.5))
        killed = chance.choice(((operator,), (daemon,), (operator, daemon)))
        for program in killed:
            program.kill()
        look()
        for program in killed:
            program.start()

    def attempts() -> dict[str, int]:
        return {
            name: attempt_of(pod)
            for name, pod in look().items()
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]
        }

    wait_until(lambda: sorted(attempts()) == TWO_ROLES, "all pods running again")
    wait_until(lambda: attempts_noted(control_plane, namespace) == attempts(), "the record that of the pods")
    restarts = sum(attempts().values()) - len(TWO_ROLES)
    assert status(control_plane, namespace)["restarts"] == restarts >= kills
    assert len(seen) == restarts + len(TWO_ROLES)


def test_operator_that_starts_anew_writes_nothing_where_nothing_changed(
    control_plane: ControlPlane, operator: OperatorProgram, namespace: str
) -> None:
    apply(control_plane, two_roles(), namespace=namespace)
    wait_until(lambda: attempts_noted(control_plane, namespace) == dict.fromkeys(TWO_ROLES, 1), "the pods noted")
    assert operator.part.stop() == 0
    assert "operator stopped" in operator.log.read_text()
    before = control_plane.api("GET", path(namespace, "train")).body["metadata"]["resourceVersion"]
    since = control_plane.audit_log.stat().st_size
    operator.start()

    def looked() -> bool:
        return (("", "pods", "list"), 200) in used(control_plane, OPERATOR, since)

    wait_until(looked, "a look of the operator")
    time.sleep(1.0)
    assert control_plane.api("GET", path(namespace, "train")).body["metadata"]["resourceVersion"] == before
    assert {verb for (_, _, verb), _ in used(control_plane, OPERATOR, since)} <= {"get", "list", "watch"}


def test_deletion_leaves_nothing_even_without_an_operator(
    control_plane: ControlPlane,
    operator: OperatorProgram,
    some_nodes: None,
    daemon: Daemon,
    kubelets: Part,
    namespace: str,
) -> None:
    daemon.start()
    apply(control_plane, two_roles(), namespace=namespace)
    wait_until(lambda: status(control_plane, namespace).get("ready") == "6/6", "the pods running")
    operator.part.kill()
    deleted = control_plane.kubectl("delete", "bp", "train", "-n", namespace, "--timeout=10s")
    assert deleted.returncode == 0, deleted.stderr

    def left() -> list[str]:
        shown = control_plane.kubectl("get", "bp,pods,services", "-n", namespace, "-o", "name")
        return shown.stdout.split()

    wait_until(lambda: left() == [], "nothing left", 120.0)


def test_operator_survives_the_death_of_the_api_server(
    control_plane: ControlPlane, operator: OperatorProgram, namespace: str
) -> None:
    apply(control_plane, two_roles(), namespace=namespace)
    wait_until(lambda: attempts_noted(control_plane, namespace) == dict.fromkeys(TWO_ROLES, 1), "the pods noted")
    pid = operator.part.pid
    control_plane.kill("kube-apiserver")
    time.sleep(3.0)
    control_plane.restart("kube-apiserver")
    control_plane.api("DELETE", f"/api/v1/namespaces/{namespace}/pods/train-worker-3")
    wait_until(lambda: status(control_plane, namespace).get("restarts") == 1, "the lost pod made again")
    assert (operator.part.pid, operator.part.running()) == (pid, True)


def test_operator_uses_the_rights_of_the_chart_and_each_of_them(
    control_plane: ControlPlane, operator: OperatorProgram, namespace: str
) -> None:
    """A name that is taken and a smaller spec make it read, create and delete whatever it may."""
    since = control_plane.audit_log.stat().st_size
    operator.part.kill()
    operator.start()
    blocker = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "train", "namespace": namespace}}
    created = control_plane.api(
        "POST", f"/api/v1/namespaces/{namespace}/services", {**blocker, "spec": {"clusterIP": "None"}}
    )
    assert created.status == 201, created.body
    apply(control_plane, two_roles(), namespace=namespace)
    wait_until(lambda: "train" in events(control_plane, namespace, "NameTaken"), "a word that the name is taken")
    control_plane.api("DELETE", f"/api/v1/namespaces/{namespace}/services/train")
    wait_until(lambda: len(pods_of(control_plane, namespace, "train")) == 6, "the pods made")
    smaller = two_roles()
    smaller["spec"]["simpleProcesses"][1]["replicas"] = 2
    apply(control_plane, smaller, namespace=namespace)
    wait_until(lambda: len(pods_of(control_plane, namespace, "train")) == 4, "the pods deleted")
    asked = list(used(control_plane, OPERATOR, since))
    assert [(right, code) for right, code in asked if code in (401, 403)] == []
    rights = granted(operator.rules())
    assert {right for right, _ in asked} <= rights
    others = {right for right in rights if right[0] == "batch" or right[1].startswith("trainingjobs")}
    ours = {right for right in rights - others if right[0] != "workspace.brainpp.cn"}
    assert ours - {right for right, _ in asked} == {
        ("", "pods", "get"),
        ("resource.aibee.cn", "batchprocesses", "patch"),
    }, "read only where another owner has a name; written only where a definition keeps no status"
    assert OURS.startswith("resource.aibee.cn")
