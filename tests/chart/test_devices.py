"""The definition of Devices, which the chart has and installs only where it is asked for."""

from copy import deepcopy
from typing import Any

import pytest
import yaml

from aischeduler.kube.decode.device import DEVICES_MAX, FUNCTIONS_MAX, TYPES_MAX
from aischeduler.kube.watch.device_resources import devices
from aischeduler.sandbox.schema import errors, fill_defaults, prune
from tests.chart.rendering import CHART, Helm, Rendered, Values
from tests.crds import fields
from tools.chart import DEVICE_CRD

NAME = "devices.scheduling.koordinator.sh"
DEFINITION: dict[str, Any] = yaml.safe_load((CHART / "files" / DEVICE_CRD).read_text())
(SERVED,) = DEFINITION["spec"]["versions"]
SCHEMA: dict[str, Any] = SERVED["schema"]["openAPIV3Schema"]
FIELDS = dict(fields("device", SCHEMA))

OF_THE_PROPOSAL = {
    "id": "GPU-1",
    "deviceType": "gpu",
    "resource": {"kubernetes.io/gpu-core": 100, "kubernetes.io/gpu-memory": "32GB"},
}
OF_KOORDINATOR = {
    "type": "rdma",
    "id": "0000:1f:00.0",
    "minor": 0,
    "moduleID": 1,
    "labels": {"kind": "fast"},
    "health": True,
    "resources": {"koordinator.sh/rdma": "100"},
    "topology": {"socketID": -1, "nodeID": 0, "pcieID": "pci0000:1e", "busID": "0000:1f:00.0"},
    "vfGroups": [{"labels": {"kind": "fast"}, "vfs": [{"minor": 1, "busID": "0000:1f:00.2"}]}],
    "conditions": [
        {
            "type": "Healthy",
            "status": "False",
            "reason": "Xid79",
            "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        }
    ],
}
ALLOCATIONS = [{"type": "gpu", "entries": [{"namespace": "a", "name": "p", "uuid": "u", "minors": [0, 1]}]}]


def definitions(rendered: Rendered) -> list[dict[str, Any]]:
    return [found for found in rendered.all("CustomResourceDefinition") if found["metadata"]["name"] == NAME]


def test_definition_has_the_names_of_the_code() -> None:
    names, group = DEFINITION["spec"]["names"], DEFINITION["spec"]["group"]
    assert DEFINITION["metadata"] == {"name": f"{names['plural']}.{group}"}
    assert (names["kind"], DEFINITION["spec"]["scope"]) == (devices().kind, "Cluster")
    assert devices().path == f"/apis/{group}/{SERVED['name']}/{names['plural']}"


def test_definition_is_installed_only_on_demand(helm: Helm, defaults: Rendered) -> None:
    assert definitions(defaults) == []
    assert definitions(helm.render({"crds": {"install": True}})) == []


@pytest.mark.parametrize("crds", [{}, {"keep": False}, {"install": False}])
def test_installed_definition_is_that_of_the_file_and_always_stays(helm: Helm, crds: Values) -> None:
    (found,) = definitions(helm.render({"devices": {"installCRD": True}, "crds": crds}))
    assert found["spec"] == DEFINITION["spec"]
    assert found["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert found["metadata"]["labels"]["app.kubernetes.io/instance"] == "ai-scheduler"


def test_both_spellings_are_kept_and_nothing_is_added() -> None:
    document = {"spec": {"devices": [OF_THE_PROPOSAL, OF_KOORDINATOR]}, "status": {"allocations": ALLOCATIONS}}
    stored = deepcopy(document)
    fill_defaults(stored, SCHEMA)
    assert prune(stored, SCHEMA) == []
    assert errors(stored, SCHEMA) == []
    assert stored == document


def test_definition_takes_all_that_its_reader_takes() -> None:
    assert FIELDS["device.spec.devices"]["maxItems"] >= DEVICES_MAX * TYPES_MAX
    assert FIELDS["device.spec.devices[].vfGroups[].vfs"]["maxItems"] >= FUNCTIONS_MAX
    assert f"takes {DEVICES_MAX} of each type" in FIELDS["device.spec.devices"]["description"]
    for name in ("resources", "resource"):
        amount = FIELDS[f"device.spec.devices[].{name}{{}}"]
        assert (amount["x-kubernetes-int-or-string"], "pattern" in amount) == (True, False)


def test_every_field_is_described_and_limited() -> None:
    limits = {"array": "maxItems", "string": "maxLength", "object": "maxProperties"}
    assert [path for path, field in FIELDS.items() if path != "device.metadata" and not field.get("description")] == []
    unbounded = [
        path
        for path, field in FIELDS.items()
        if limits.get(field.get("type", "string")) not in field
        and field.get("type") not in {"boolean", "integer"}
        and not {"properties", "enum", "format"} & field.keys()
        and path not in {"device.metadata", "device.apiVersion", "device.kind"}
    ]
    assert unbounded == []
