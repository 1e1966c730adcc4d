"""What a node says of its devices: as the scheduler reads it, and what stays where nothing can be read."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.device_reporter.hardware import DriverError, DriverHangsError, Gpu, Gpus, Place
from aischeduler.device_reporter.report import (
    DRIVER_LABEL,
    LOST,
    MODEL_LABEL,
    RECORD_BYTES_MAX,
    VENDOR_LABEL,
    Facts,
    Json,
    capacity,
    device_object,
    difference,
    labels,
    status_change,
    unhealthy,
    without_nulls,
)
from aischeduler.kube.decode.device import CHECKPOINT_KEYS, LINKS_KEY, DeviceDocument, read_device
from aischeduler.model.device import Device, VirtualFunction

NOW, LATER = "2026-12-01T08:00:00Z", "2026-12-01T09:00:00Z"
GIB = 1024**3


def gpu(minor: int, *, gib: int = 80, model: str = "NVIDIA H100 80GB HBM3", **more: Any) -> Gpu:
    place = Place(f"0000:{minor + 16:02x}:00.0", 0, "pci0000:10")
    return Gpu(f"GPU-{minor}", minor, model, gib * GIB, place, **more)


def nic(address: str, *, functions: int = 0, healthy: bool = True, minor: int = 0) -> Device:
    virtual = tuple(VirtualFunction(number, f"{address[:-1]}{number + 1}") for number in range(functions))
    return Device("rdma", minor, address, (("rdma", 100),), healthy, 1, "pci0000:18", address, functions=virtual)


def facts(*gpus: Gpu, **more: Any) -> Facts:
    given = {"gpus": Gpus("580.159.04", gpus), "now": NOW, **more}
    return Facts("gpu-0", "uid-of-the-node", **given)


def wanted(of: Facts, existing: Json | None = None) -> Json:
    device = device_object(of, existing)
    assert device is not None
    return device


def stored(of: Facts, existing: Json | None = None) -> Json:
    """Return the Device object as an API server has it after the report."""
    change = difference(existing or {}, wanted(of, existing))
    after: Json = merge(existing or {}, change)
    assert difference(after, wanted(of, after)) == {}, "a second report writes nothing"
    return after


def decoded(document: Json) -> DeviceDocument:
    return msgspec.json.decode(json.dumps(document), type=DeviceDocument)


def merge(target: Any, change: Any) -> Any:
    """Apply a merge patch as RFC 7396 says."""
    if not isinstance(change, dict):
        return change
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in change.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def ids_and_minors(document: Json) -> dict[str, int]:
    return {info["id"]: info["minor"] for info in document["spec"]["devices"]}


def test_h100_is_reported_as_koordinator_has_it() -> None:
    place = Place("0000:00:06.0", -1, "pci0000:00")
    h100 = Gpu("GPU-11111111-2222", 0, "NVIDIA H100 80GB HBM3", 85_520_809_984, place, module=2)
    assert without_nulls(wanted(facts(h100))) == {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {
            "name": "gpu-0",
            "labels": {MODEL_LABEL: "H100-80GB-HBM3", DRIVER_LABEL: "580.159.04", VENDOR_LABEL: "nvidia"},
            "annotations": {},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "gpu-0", "uid": "uid-of-the-node", "controller": True}
            ],
        },
        "spec": {
            "devices": [
                {
                    "type": "gpu",
                    "id": "GPU-11111111-2222",
                    "minor": 0,
                    "health": True,
                    "moduleID": 2,
                    "resources": {
                        "koordinator.sh/gpu-core": "100",
                        "koordinator.sh/gpu-memory": "85520809984",
                        "koordinator.sh/gpu-memory-ratio": "100",
                    },
                    "topology": {"socketID": -1, "nodeID": -1, "pcieID": "pci0000:00", "busID": "0000:00:06.0"},
                }
            ]
        },
    }


MINORS = st.lists(st.integers(0, 9), unique=True, max_size=4).map(sorted)


@given(MINORS, st.lists(st.integers(0, 3), max_size=3), st.data())
def test_scheduler_reads_what_the_node_has(minors: list[int], functions: list[int], data: st.DataObject) -> None:
    gpus = [gpu(minor, gib=data.draw(st.integers(1, 200))) for minor in minors]
    sick = data.draw(st.sets(st.sampled_from(minors))) if minors else set()
    nics = tuple(
        nic(f"0000:{index + 32:02x}:00.0", functions=count, healthy=data.draw(st.booleans()), minor=index)
        for index, count in enumerate(functions)
    )
    pairs = [(first, second) for first in minors for second in minors if first < second]
    links = data.draw(st.dictionaries(st.sampled_from(pairs), st.integers(1, 18))) if pairs else {}
    found = device_object(
        Facts(
            "gpu-0",
            "u",
            NOW,
            Gpus("580", tuple(gpus), links),
            nics,
            problems={f"GPU-{minor}": "Xid79" for minor in sick},
        ),
        None,
    )
    if found is None:
        assert gpus == []
        assert nics == ()
        return
    node = read_device(decoded(without_nulls(found)))
    assert (node.faults, node.links, node.vendor) == (
        (),
        {f"{a}-{b}": count for (a, b), count in links.items()},
        "nvidia",
    )
    assert [
        (device.minor, device.id, device.healthy, device.total("gpu-memory")) for device in node.of_type("gpu")
    ] == [(one.minor, one.uuid, one.minor not in sick, one.memory_bytes) for one in gpus]
    assert node.of_type("rdma") == nics
    whole = {"gpu-core": 100 * len(gpus), "gpu-memory": sum(one.memory_bytes for one in gpus), "rdma": 100 * len(nics)}
    whole |= {"gpu": whole["gpu-core"], "gpu-memory-ratio": whole["gpu-core"]}
    assert capacity(found) == {
        f"{prefix}{name}": whole[name]
        for prefix in ("kubernetes.io/", "koordinator.sh/")
        for name in sorted(whole)
        if whole[name]
    }


def test_node_without_devices_gets_no_object_and_one_that_lost_all_is_empty() -> None:
    assert device_object(facts(), None) is None
    after = stored(facts(), stored(facts(gpu(0))))
    assert (after["spec"]["devices"], capacity(after)) == ([], {})
    assert after["metadata"]["labels"] == {}


@pytest.mark.parametrize("error", [DriverError("Driver Not Loaded"), DriverHangsError("no answer")])
def test_driver_that_says_nothing_leaves_the_gpus_unhealthy_and_the_capacity(error: DriverError) -> None:
    before = stored(facts(gpu(0), gpu(1), others=(nic("0000:18:00.0"),)))
    after = stored(facts(gpus=error, others=(nic("0000:18:00.0"),), now=LATER), before)
    assert unhealthy(after) == {"gpu GPU-0": error.reason, "gpu GPU-1": error.reason}
    assert capacity(after) == capacity(before)
    assert after["metadata"]["labels"] == before["metadata"]["labels"]
    assert stored(facts(gpu(0), gpu(1), others=(nic("0000:18:00.0"),)), after) == before


def test_driver_that_says_nothing_of_a_node_nobody_knows_leaves_its_other_devices() -> None:
    assert device_object(facts(gpus=DriverError("no driver")), None) is None
    found = wanted(facts(gpus=DriverError("no driver"), others=(nic("0000:18:00.0"),)))
    assert (ids_and_minors(found), found["metadata"]["labels"]) == ({"0000:18:00.0": 0}, {})


def test_lost_gpu_stays_and_one_that_was_taken_out_goes() -> None:
    before = stored(facts(gpu(0), gpu(1)))
    lost = stored(facts(gpus=Gpus("580.159.04", (gpu(1),), lost=1)), before)
    assert (ids_and_minors(lost), unhealthy(lost)) == ({"GPU-0": 0, "GPU-1": 1}, {"gpu GPU-0": LOST})
    assert capacity(lost) == capacity(before)
    assert ids_and_minors(stored(facts(gpu(1)), lost)) == {"GPU-1": 1}


def test_unhealthy_device_says_since_when_until_it_is_healthy() -> None:
    first = stored(facts(gpu(0), problems={"GPU-0": "Xid79"}))
    second = stored(facts(gpu(0, problem="MigEnabled"), now=LATER), first)
    assert [info["conditions"] for info in (*first["spec"]["devices"], *second["spec"]["devices"])] == [
        [{"type": "Healthy", "status": "False", "reason": why, "message": "", "lastTransitionTime": NOW}]
        for why in ("Xid79", "MigEnabled")
    ]
    healthy = stored(facts(gpu(0)), second)
    assert "conditions" not in healthy["spec"]["devices"][0]


def test_adapters_keep_their_minors_while_others_come_and_go() -> None:
    first = stored(facts(others=(nic("0000:18:00.0"), nic("0000:5e:00.0", minor=1))))
    second = stored(facts(others=(nic("0000:5e:00.0"), nic("0000:70:00.0", minor=1))), first)
    assert ids_and_minors(second) == {"0000:70:00.0": 0, "0000:5e:00.0": 1}


def test_labels_that_others_gave_to_devices_and_functions_stay() -> None:
    before = stored(facts(gpu(0), others=(nic("0000:18:00.0", functions=2),)))
    given = json.loads(json.dumps(before))
    given["spec"]["devices"][0]["labels"] = {"tier": "gold"}
    groups = [
        {"labels": {"net": "a"}, "vfs": [function]} for function in given["spec"]["devices"][1]["vfGroups"][0]["vfs"]
    ]
    given["spec"]["devices"][1]["vfGroups"] = groups
    assert stored(facts(gpu(0), others=(nic("0000:18:00.0", functions=2),)), given) == given
    fewer = stored(facts(gpu(0), others=(nic("0000:18:00.0", functions=1),)), given)
    assert fewer["spec"]["devices"][1]["vfGroups"] == [{"vfs": [{"minor": 0, "busID": "0000:18:00.1"}]}]


def test_devices_of_other_types_and_vendors_stay_as_others_wrote_them() -> None:
    before = stored(facts(gpu(0), others=(nic("0000:18:00.0"),)))
    npu = {"type": "npu", "id": "npu-0", "minor": 0, "health": False}
    given = merge(before, {"spec": {"devices": [*before["spec"]["devices"], npu, {"id": "without a type"}]}})
    after = stored(facts(gpu(0)), given)
    assert after["spec"]["devices"] == [before["spec"]["devices"][0], npu]
    assert unhealthy(after) == {"npu npu-0": ""}
    of_amd = merge(before, {"metadata": {"labels": {VENDOR_LABEL: "amd"}}})
    assert stored(facts(gpus=DriverError("no driver"), others=(nic("0000:18:00.0"),)), of_amd) == of_amd


def test_adapters_that_had_one_minor_get_different_ones() -> None:
    before = stored(facts(others=(nic("0000:18:00.0"), nic("0000:5e:00.0", minor=1))))
    same = merge(before, {"spec": {"devices": [info | {"minor": 1} for info in before["spec"]["devices"]]}})
    after = stored(facts(others=(nic("0000:18:00.0"), nic("0000:5e:00.0", minor=1))), same)
    assert ids_and_minors(after) == {"0000:5e:00.0": 0, "0000:18:00.0": 1}


HELD = {
    "ours": (("nvidia.com/gpu", "GPU-0"),),
    "theirs": (("nvidia.com/gpu", "GPU-1"), ("example.com/fuse", "fuse")),
    "network": (("example.com/vf", "0000:18:00.1"),),
    "nothing": (("example.com/fuse", "fuse"),),
}


def test_record_of_the_kubelet_leaves_out_exactly_the_pods_that_say_it_themselves() -> None:
    of = facts(gpu(0), gpu(1), others=(nic("0000:18:00.0", functions=1),), held=HELD, own=frozenset({"ours"}))
    document = stored(of)
    texts = {document["metadata"]["annotations"][key] for key in CHECKPOINT_KEYS}
    assert [json.loads(text) for text in texts] == [
        [
            {"podUID": "network", "resourceName": "example.com/vf", "deviceIDs": ["0000:18:00.1"]},
            {"podUID": "theirs", "resourceName": "nvidia.com/gpu", "deviceIDs": ["GPU-1"]},
        ]
    ]
    read_back = read_device(decoded(document))
    assert read_back.kubelet == {
        "network": (("example.com/vf", "0000:18:00.1"),),
        "theirs": (("nvidia.com/gpu", "GPU-1"),),
    }


def test_record_stays_where_the_kubelet_says_nothing_and_goes_where_no_pod_has_devices() -> None:
    before = stored(facts(gpu(0), held=HELD))
    assert stored(facts(gpu(0), held=None), before) == before
    assert stored(facts(gpu(0), held={}), before)["metadata"]["annotations"] == {}


def test_record_of_any_number_of_pods_fits_an_object() -> None:
    held = {f"{number:036}": (("nvidia.com/gpu", "GPU-" + "f" * 36),) for number in range(4000)}
    annotations = stored(facts(gpu(0), held=held))["metadata"]["annotations"]
    assert 0.9 * RECORD_BYTES_MAX < len(annotations[CHECKPOINT_KEYS[0]]) <= RECORD_BYTES_MAX


def test_links_are_reported_while_there_are_any() -> None:
    linked = stored(facts(gpus=Gpus("580.159.04", (gpu(0), gpu(1)), {(0, 1): 18})))
    assert json.loads(linked["metadata"]["annotations"][LINKS_KEY]) == {"0-1": 18}
    assert LINKS_KEY not in stored(facts(gpu(0), gpu(1)), linked)["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("model", "label"),
    [
        ("NVIDIA H200", "H200"),
        ("Tesla V100-SXM2-32GB", "Tesla-V100-SXM2-32GB"),
        ("A (x) " + "y" * 99, "A-x-" + "y" * 59),
        ("", None),
    ],
)
def test_model_is_a_label_value(model: str, label: str | None) -> None:
    assert labels(Gpus("580", (gpu(0, model=model),)))[MODEL_LABEL] == label


def node_with(**amounts: str) -> Json:
    return {"status": {"capacity": {"cpu": "8", **amounts}, "allocatable": {"cpu": "7", **amounts}}}


AMOUNTS = {"kubernetes.io/gpu-core": 1000, "koordinator.sh/rdma": 100}


def test_capacity_that_the_node_has_in_another_form_is_not_written() -> None:
    have = {"kubernetes.io/gpu-core": "1k", "koordinator.sh/rdma": "100"}
    assert status_change(node_with(**have), AMOUNTS, complete=True) == {}


@pytest.mark.parametrize(
    "have", [{}, {"kubernetes.io/gpu-core": "1k", "koordinator.sh/rdma": "0"}, {"koordinator.sh/rdma": "x"}]
)
def test_capacity_that_the_node_lost_is_written_again(have: Mapping[str, str]) -> None:
    after = merge(node_with(**have), status_change(node_with(**have), AMOUNTS, complete=True))
    for field, cpu in (("capacity", "8"), ("allocatable", "7")):
        assert after["status"][field].pop("cpu") == cpu
        assert after["status"][field].pop("kubernetes.io/gpu-core") in ("1000", "1k")
        assert after["status"][field] == {"koordinator.sh/rdma": "100"}


def test_resources_of_devices_that_are_gone_go_only_where_all_devices_are_known() -> None:
    have = node_with(**{"koordinator.sh/rdma": "100", "koordinator.sh/fpga": "100", "nvidia.com/gpu": "8"})
    wanted_amounts = {"koordinator.sh/rdma": 100}
    assert status_change(have, wanted_amounts, complete=False) == {}
    gone = {"koordinator.sh/fpga": None}
    assert status_change(have, wanted_amounts, complete=True) == {"status": {"capacity": gone, "allocatable": gone}}


TREES = st.recursive(
    st.one_of(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=2)),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=3),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


@given(TREES, TREES)
def test_difference_makes_an_object_as_wanted_and_changes_nothing_else(have: Json, want: Json) -> None:
    after = merge(have, difference(have, want))
    assert after == merge(have, want)
    assert difference(after, want) == {}
