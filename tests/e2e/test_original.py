"""The CRD of the original Ai-Scheduler, stored as in its clusters, is replaced by this one.

No API server accepts `preserveUnknownFields: true` any more, so the test writes it into etcd.
"""

import base64
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.binaries import the_helm
from tests.controlplane.plane import ControlPlane
from tests.e2e.cluster import CRD, CRDS, POOLS_PATH, ROOT, condition, create_nodes, install, wait_until
from tests.e2e.conftest import LEASES
from tests.e2e.daemon import Daemon
from tests.e2e.release import Release
from tests.e2e.terminal import Terminal
from tests.objects import Json, node_object

PAGE = (ROOT / "docs" / "install.md").read_text()
GROUP = "resource.aibee.cn"
POOL_KEY = f"/registry/{GROUP}/pools/cpu-pool"
KEY = f"/registry/apiextensions.k8s.io/customresourcedefinitions/{CRD}"
NAMES = {"kind": "Pool", "listKind": "PoolList", "plural": "pools", "singular": "pool", "shortNames": ["pool"]}
FLAGS = ("disablePreemption", "disableBorrowing", "disableSharing")
SCHEMA = {
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {
            "type": "object",
            "properties": {
                "weight.value": {"format": "int32", "type": "integer"},
                **{flag: {"format": "bool", "type": "boolean"} for flag in FLAGS},
            },
        },
    },
}
CONDITIONS = [
    {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": "2019-09-25T00:00:00Z"}
    for kind in ("NamesAccepted", "Established")
]
OF_THE_ORIGINAL = {
    "supportResources": ["cpu"],
    "weight": {"cpu": 1, "nvidia.com/gpu": 0},
    "quota": {"cpu": "10", "nvidia.com/gpu": "10"},
    "priorities": [{"name": "MostRequestedPriority", "weight": 1}],
}
STILL_THERE: Json = {"nodeSelector": {"matchLabels": {"cpu": "true"}}, "disableBorrowing": True}
METADATA = {"uid": "6f5b2d0e-0000-4000-8000-000000000001", "generation": 1, "creationTimestamp": "2019-09-25T00:00:00Z"}
POOL: Json = {
    "apiVersion": f"{GROUP}/v1alpha1",
    "kind": "Pool",
    "metadata": {"name": "cpu-pool", **METADATA},
    "spec": STILL_THERE | OF_THE_ORIGINAL,
}


def definition(version: str) -> Json:
    """Return the original's definition as an API server stores it in this version of the type."""
    one: Json = {"name": "v1alpha1", "served": True, "storage": True}
    spec: Json = {"group": GROUP, "scope": "Cluster", "names": NAMES, "preserveUnknownFields": True}
    if version == "v1":
        one["schema"] = {"openAPIV3Schema": SCHEMA}
    else:
        spec |= {"version": "v1alpha1", "validation": {"openAPIV3Schema": SCHEMA}}
    metadata = METADATA | {"name": CRD, "finalizers": ["customresourcecleanup.apiextensions.k8s.io"]}
    return {
        "apiVersion": f"apiextensions.k8s.io/{version}",
        "kind": "CustomResourceDefinition",
        "metadata": metadata | {"annotations": {"helm.sh/hook": "crd-install"}},
        "spec": spec | {"versions": [one], "conversion": {"strategy": "None"}},
        "status": {"conditions": CONDITIONS, "acceptedNames": NAMES, "storedVersions": ["v1alpha1"]},
    }


def etcd(plane: ControlPlane, method: str, **fields: str) -> Any:
    """Send a request to etcd's JSON gateway; keys and values are strings."""
    coded = {name: base64.b64encode(text.encode()).decode() for name, text in fields.items()}
    connection = HTTPConnection("127.0.0.1", plane.ports.etcd_client, timeout=30)
    try:
        connection.request("POST", f"/v3/kv/{method}", body=json.dumps(coded))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return json.loads(response.read())
    finally:
        connection.close()


def stored_pool(plane: ControlPlane) -> Json:
    (found,) = etcd(plane, "range", key=POOL_KEY)["kvs"]
    document: Json = json.loads(base64.b64decode(found["value"]))
    return document


def ways() -> list[str]:
    """Return the commands of the page that take over the definition, one block for each way."""
    section = PAGE.partition("\n### Take over the definition\n")[2].partition("\n### ")[0]
    return re.findall(r"```sh\n(.*?)```", section, re.DOTALL)


@pytest.fixture(params=["v1beta1", "v1"])
def original(control_plane: ControlPlane, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControlPlane]:
    """Yield a control plane with the original's definition and a Pool of it; restore the definition at the end."""
    control_plane.kubectl("delete", "crd", CRD, "--ignore-not-found", "--wait")
    etcd(control_plane, "put", key=KEY, value=json.dumps(definition(request.param)))
    etcd(control_plane, "put", key=POOL_KEY, value=json.dumps(POOL))
    wait_until(
        lambda: read_pool(control_plane).get("spec") == POOL["spec"], "the original's Pool served with all fields"
    )
    yield control_plane
    Release(control_plane, the_helm(), tmp_path).uninstall()
    control_plane.kubectl("delete", "crd", CRD, "--ignore-not-found", "--wait")
    control_plane.api("DELETE", f"{LEASES}/ai-scheduler")
    install(control_plane)


def read_pool(plane: ControlPlane) -> Json:
    document: Json = plane.api("GET", f"{POOLS_PATH}/cpu-pool").body or {}
    return document


def is_in_force(plane: ControlPlane) -> bool:
    """Say whether a scheduler has accepted the Pool's present spec and the Pool owns the node."""
    pool = read_pool(plane)
    accepted = condition(pool, "Accepted")
    of_this_spec = accepted.get("observedGeneration") == pool["metadata"]["generation"]
    return accepted.get("status") == "True" and of_this_spec and pool["status"]["nodes"] == 1


@pytest.mark.parametrize("way", range(2))
def test_definition_of_the_original_is_replaced_and_its_pools_keep_working(original: ControlPlane, way: int) -> None:
    terminal = Terminal(original, original.kubeconfig, the_helm())
    commands = ways()[way].splitlines()
    assert [ran.stdout for ran in map(terminal.run, commands) if ran.returncode != 0] == []
    next_time = commands[-1].replace("helm install", "helm upgrade").partition(" --take-ownership")[0]
    upgraded = terminal.run(next_time)
    assert upgraded.returncode == 0, upgraded.stdout
    established = original.kubectl("wait", "--for=condition=Established", f"crd/{CRD}")
    assert established.returncode == 0, established.stderr
    wait_until(
        lambda: set(OF_THE_ORIGINAL).isdisjoint(read_pool(original)["spec"]), "fields of the original not served"
    )
    assert read_pool(original)["spec"].items() >= STILL_THERE.items()
    assert original.kubectl("get", "pools", "-o", "name").stdout.split() == [f"pool.{GROUP}/cpu-pool"]
    create_nodes(original, [node_object("cpu-0", labels={"cpu": "true"})])
    with Daemon(original) as daemon:
        daemon.start()
        wait_until(lambda: is_in_force(original), "the Pool accepted as the original wrote it")
        edit = json.dumps({"spec": {"disableSharing": True}})
        edited = original.kubectl("patch", "pool", "cpu-pool", "--type=merge", "-p", edit)
        assert edited.returncode == 0, edited.stderr
        wait_until(lambda: is_in_force(original), "the edited Pool accepted")
    kept = stored_pool(original)["spec"]
    assert kept.items() >= (STILL_THERE | {"disableSharing": True}).items()
    assert set(OF_THE_ORIGINAL).isdisjoint(kept)


def test_page_has_both_ways() -> None:
    assert len(ways()) == 2


def test_definition_without_the_field_is_refused(original: ControlPlane) -> None:
    said = "  preserveUnknownFields: false\n"
    text = (CRDS / "pools.yaml").read_text()
    assert said in text
    refused = original.kubectl("apply", "-f", "-", stdin=text.replace(said, ""))
    assert refused.returncode == 1
    assert "spec.preserveUnknownFields: Invalid value: true: must be false" in refused.stderr


def test_helm_refuses_a_definition_that_it_did_not_install_without_the_options(original: ControlPlane) -> None:
    (command,) = [line for line in ways()[0].splitlines() if line.startswith("helm install")]
    terminal = Terminal(original, original.kubeconfig, the_helm())
    plain = terminal.run(command.replace(" --take-ownership --force-conflicts", ""))
    assert (plain.returncode, "cannot be imported into the current release" in plain.stdout) == (1, True)
    taking = terminal.run(command.replace(" --force-conflicts", ""))
    assert (taking.returncode, 'conflicts with "before-first-apply"' in taking.stdout) == (1, True)
