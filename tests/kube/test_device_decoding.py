"""Device objects as they are read: both spellings, what is wrong with them, and HAMi's GPUs."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.decode.device import (
    DEVICES_MAX,
    FAULTS_MAX,
    DeviceDocument,
    read_device,
    read_hami_node,
    read_hami_scores,
)
from aischeduler.model.device import Device, NodeDevices, Partition, VirtualFunction

PARTITIONS = "scheduling.koordinator.sh/gpu-partitions"
LINKS = "resource.aibee.cn/gpu-links"
POLICY = "node.koordinator.sh/gpu-partition-policy"
MODEL = "node.koordinator.sh/gpu-model"
MEMORY = 15472384 * 1024
TOTALS = (("gpu-core", 100), ("gpu-memory", MEMORY), ("gpu-memory-ratio", 100))
WHOLE_GPU = {"kubernetes.io/gpu-core": "100", "kubernetes.io/gpu-memory": "15472384Ki"}


def decoded(devices: Any = None, *, spec: Any = None, **metadata: Any) -> DeviceDocument:
    document = {"metadata": {"name": "node-1", "uid": "u", **metadata}, "spec": spec or {"devices": devices}}
    return msgspec.json.decode(json.dumps(document), type=DeviceDocument)


def read(*devices: Any, **metadata: Any) -> NodeDevices:
    return read_device(decoded(list(devices), **metadata))


def gpu(minor: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "gpu", "minor": minor, "health": True, "resources": WHOLE_GPU, **fields}


def test_both_spellings_and_both_prefixes_are_one_device() -> None:
    proposal = {"deviceType": "gpu", "id": "GPU-1", "health": True, "resource": WHOLE_GPU}
    shipped = {
        "type": "gpu",
        "id": "GPU-1",
        "minor": 0,
        "moduleID": 2,
        "health": True,
        "resources": {
            "koordinator.sh/gpu-core": "100",
            "koordinator.sh/gpu-memory": "15472384Ki",
            "koordinator.sh/gpu-memory-ratio": "100",
        },
    }
    older = {**proposal, "resource": {"kubernetes.io/gpu-mem": MEMORY, "kubernetes.io/gpu-mem-ratio": 100}}
    expected = NodeDevices("node-1", (Device("gpu", 0, "GPU-1", TOTALS),), uid="u")
    assert [read(one) for one in (proposal, shipped, older)] == [expected] * 3


def test_everything_is_read() -> None:
    found = read(
        gpu(
            1,
            id="GPU-1",
            topology={"socketID": 0, "nodeID": 1, "pcieID": "pci0000:80", "busID": "0000:81:00.0"},
            labels={"a": "b"},
            conditions=[{"type": "Healthy", "status": "True"}],
        ),
        {
            "type": "rdma",
            "id": "0000:1f:00.0",
            "health": True,
            "resources": {"koordinator.sh/rdma": "100"},
            "topology": {"socketID": -1, "nodeID": -1, "pcieID": "", "busID": "0000:1f:00.0"},
            "vfGroups": [
                {"labels": {"kind": "fast"}, "vfs": [{"minor": 1, "busID": "0000:1f:00.3"}, {"busID": "0000:1f:00.2"}]}
            ],
        },
        gpu(0, id="GPU-0"),
        annotations={
            PARTITIONS: '{"2":[{"minors":[1,0],"ringBusBandwidth":"400G","allocationScore":3}]}',
            LINKS: '{"1-0":18}',
        },
        labels={POLICY: "Honor", "node.koordinator.sh/gpu-vendor": "amd"},
    )
    assert found == NodeDevices(
        "node-1",
        (
            Device("gpu", 0, "GPU-0", TOTALS),
            Device("gpu", 1, "GPU-1", TOTALS, numa=1, pcie="pci0000:80", bus_id="0000:81:00.0", labels={"a": "b"}),
            Device(
                "rdma",
                0,
                "0000:1f:00.0",
                (("rdma", 100),),
                bus_id="0000:1f:00.0",
                functions=(
                    VirtualFunction(0, "0000:1f:00.2", {"kind": "fast"}),
                    VirtualFunction(1, "0000:1f:00.3", {"kind": "fast"}),
                ),
            ),
        ),
        partitions=(Partition((0, 1), 400, 3),),
        partitions_only=True,
        links={"0-1": 18},
        vendor="amd",
        uid="u",
    )


@pytest.mark.parametrize(
    ("health", "conditions", "healthy"),
    [
        (None, None, False),
        (False, None, False),
        (True, None, True),
        (True, [{"type": "Healthy", "status": "False", "reason": "Xid79"}], False),
        (True, [{"type": "Healthy", "status": "Unknown"}, {"type": "Other", "status": "False"}], True),
        (False, [{"type": "Healthy", "status": "True"}], False),
    ],
)
def test_device_is_healthy_only_if_nothing_says_otherwise(health: Any, conditions: Any, healthy: bool) -> None:
    (device,) = read(gpu(health=health, conditions=conditions)).devices
    assert device.healthy is healthy


@pytest.mark.parametrize(
    ("kind", "resources", "totals"),
    [
        ("gpu", None, (("gpu-core", 100), ("gpu-memory-ratio", 100))),
        ("gpu", {"koordinator.sh/gpu-core": "0"}, (("gpu-memory-ratio", 100),)),
        (
            "gpu",
            {"koordinator.sh/gpu-memory": "1.5"},
            (("gpu-core", 100), ("gpu-memory", 1), ("gpu-memory-ratio", 100)),
        ),
        ("gpu", {"example.com/gpu-memory": "x"}, (("gpu-core", 100), ("gpu-memory-ratio", 100))),
        ("fpga", {}, (("fpga", 100),)),
        ("xpu", {"kubernetes.io/xpu": 8, "koordinator.sh/xpu": "8"}, (("xpu", 8),)),
    ],
)
def test_device_is_one_whole_device_unless_it_says_otherwise(kind: str, resources: Any, totals: Any) -> None:
    found = read({"type": kind, "resources": resources})
    assert (found.devices[0].totals, found.faults) == (totals, ())


BOTH = {"kubernetes.io/gpu-core": "50", "koordinator.sh/gpu-core": "100"}


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (5, "spec.devices[1]: must be a mapping, not a whole number"),
        ({"minor": 7}, "spec.devices[1].type: is missing"),
        ({"type": "a/b"}, "spec.devices[1].type: 'a/b' is not a type of devices such as gpu, rdma or fpga"),
        ({"type": "gpu-core"}, "spec.devices[1].type: 'gpu-core' is not a type of devices such as gpu, rdma or fpga"),
        (gpu(7, id="a,b"), "spec.devices[1].id: 'a,b' is not the id of a device"),
        (gpu(-1), "spec.devices[1].minor: must be from 0 to 2147483647, not -1"),
        ({"type": "gpu", "minor": "7"}, "spec.devices[1].minor: must be a whole number, not a string"),
        (gpu(0), "spec.devices[1].minor: another gpu before it has the minor 0"),
        (gpu(7, health="yes"), "spec.devices[1].health: must be true or false, not a string"),
        (
            gpu(7, resources={"kubernetes.io/gpu-memory": "32GB"}),
            "spec.devices[1].resources[kubernetes.io/gpu-memory]: '32GB' is not a quantity such as 1, 500m, 1.5 or 2Gi",
        ),
        (
            gpu(7, resources=None, resource={"kubernetes.io/gpu-core": "-1"}),
            "spec.devices[1].resource[kubernetes.io/gpu-core]: must be from 0 to 9223372036854775807, not '-1'",
        ),
        (
            {"type": "fpga", "resources": {"koordinator.sh/fpga": 2**63}},
            f"spec.devices[1].resources[koordinator.sh/fpga]: must be from 0 to {2**63 - 1}, not {2**63}",
        ),
        (
            gpu(7, resources={"koordinator.sh/gpu-core": True}),
            "spec.devices[1].resources[...]: must be a whole number or a fraction or a string, not true or false",
        ),
        (
            gpu(7, resources=BOTH),
            "spec.devices[1].resources[kubernetes.io/gpu-core]: another name of gpu-core has another amount",
        ),
        (gpu(7, topology={"nodeID": "1"}), "spec.devices[1].topology.nodeID: must be a whole number, not a string"),
        (
            gpu(7, vfGroups=[{"vfs": [{"minor": minor} for minor in range(257)]}]),
            "spec.devices[1].vfGroups: has 257 virtual functions, which is more than 256",
        ),
    ],
)
def test_device_that_cannot_be_read_is_named_and_leaves_the_others(wrong: Any, fault: str) -> None:
    found = read(gpu(0), wrong, gpu(2))
    assert [device.minor for device in found.devices] == [0, 2]
    assert found.faults == (fault,)


def test_minor_missing_is_0() -> None:
    (device,) = read({"type": "gpu"}).devices
    assert device.minor == 0


def test_devices_beyond_the_limit_of_a_type_are_left_out_and_counted() -> None:
    gpus = [gpu(minor) for minor in range(DEVICES_MAX + 3)]
    found = read(*gpus, {"type": "rdma"})
    assert len(found.of_type("gpu")) == DEVICES_MAX
    assert len(found.of_type("rdma")) == 1
    assert found.faults == ("spec.devices: 3 of type gpu are too many: 64 count",)
    types = read(*({"type": f"t{number}"} for number in range(17)), {"type": "t0", "minor": 1})
    assert (len(types.devices), types.faults) == (17, ("spec.devices: 1 of type t16 are too many: 16 types count",))


def test_faults_beyond_eight_are_only_counted() -> None:
    faults = read(*([{}] * (FAULTS_MAX + 4))).faults
    assert faults == (*(f"spec.devices[{number}].type: is missing" for number in range(FAULTS_MAX)), "and 4 more")


@pytest.mark.parametrize(
    ("spec", "faults"),
    [
        ({"other": 1}, ()),
        ({"devices": None}, ()),
        ({"devices": 5}, ("spec.devices: must be a list, not a whole number",)),
        ([5], ("spec: must be a mapping, not a list",)),
    ],
)
def test_object_without_devices_has_none(spec: Any, faults: tuple[str, ...]) -> None:
    assert read_device(decoded(spec=spec)) == NodeDevices("node-1", faults=faults, uid="u")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"1":[{"minors":[0]', ": Input data was truncated"),
        ("[]", ": must be a mapping, not a list"),
        ('{"1":[{"NVLINK":{"minors":[0]}}]}', "[...][0].minors: is missing"),
        ('{"1":[{"minors":[-1]}]}', "[...][0].minors[0]: Expected `int` >= 0"),
        ('{"2":[{"minors":[0]}]}', ".'2'[0].minors: must be '2' minors, each once"),
        ('{"2":[{"minors":[0,0]}]}', ".'2'[0].minors: must be '2' minors, each once"),
        (
            '{"1":[{"minors":[0],"ringBusBandwidth":"fast"}]}',
            ".'1'[0].ringBusBandwidth: 'fast' is not a quantity such as 1, 500m, 1.5 or 2Gi",
        ),
        (
            json.dumps({"1": [{"minors": [number]} for number in range(513)]}),
            ": has 513 partitions, which is more than 512",
        ),
    ],
)
def test_partition_table_that_cannot_be_read_is_none_and_its_policy_stays(text: str, fault: str) -> None:
    found = read(gpu(0), annotations={PARTITIONS: text}, labels={POLICY: "Honor", MODEL: "H100"})
    assert (found.partitions, found.partitions_only) == ((), True)
    assert found.faults == (f"metadata.annotations[{PARTITIONS}]{fault}",)


def test_partitions_are_sorted_by_size_and_minors_and_scores_may_be_texts() -> None:
    table = {
        "2": [{"minors": [2, 3], "allocationScore": "2"}, {"minors": [1, 0], "gpuLinkType": "NVLink"}],
        "1": [{"minors": [5], "ringBusBandwidth": "400Gi"}],
    }
    found = read(annotations={PARTITIONS: json.dumps(table)}, labels={POLICY: "Prefer"})
    assert found.partitions == (Partition((5,), 429), Partition((0, 1)), Partition((2, 3), score=2))
    assert not found.partitions_only


@pytest.mark.parametrize("model", ["H100", "H800", "H20", "NVIDIA-H100-80GB-HBM3"])
def test_eight_hopper_cards_have_the_partitions_of_their_board(model: str) -> None:
    gpus = [gpu(minor) for minor in range(8)]
    found = read(*gpus, labels={MODEL: model})
    sizes = [len(partition.minors) for partition in found.partitions]
    assert [sizes.count(size) for size in (1, 2, 4, 8)] == [8, 4, 2, 1]
    for size in (1, 2, 4, 8):
        minors = [
            minor for partition in found.partitions if len(partition.minors) == size for minor in partition.minors
        ]
        assert minors == list(range(8))
    assert read(*gpus[:7], labels={MODEL: model}).partitions == ()
    assert read(*gpus[1:], gpu(8), labels={MODEL: model}).partitions == ()
    assert read(*gpus, labels={MODEL: model}, annotations={PARTITIONS: "{}"}).partitions == ()


@pytest.mark.parametrize("model", ["H100-PCIe", "NVIDIA-H100-NVL", "H200", "A100", "", "H100-MIG-1g.10gb"])
def test_eight_other_cards_have_no_partitions(model: str) -> None:
    assert read(*(gpu(minor) for minor in range(8)), labels={MODEL: model}).partitions == ()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", ": Input data was truncated"),
        ('{"0":1}', ": '0' is not a pair of minors such as 0-1"),
        ('{"1-1":1}', ": '1-1' is not a pair of minors such as 0-1"),
        ('{"0-1":"many"}', "[...]: must be a whole number, not a string"),
        ('{"0-1":-1}', "[...]: Expected `int` >= 0"),
        ('{"0-1":1,"1-0":2}', ": '1-0' has another number of links in the other order"),
    ],
)
def test_links_that_cannot_be_read_are_none(text: str, fault: str) -> None:
    found = read(gpu(0), annotations={LINKS: text})
    assert (found.links, len(found.devices)) == ({}, 1)
    assert found.faults == (f"metadata.annotations[{LINKS}]{fault}",)


def test_devices_of_the_kubelet_are_those_of_both_annotations() -> None:
    entry = {"podUID": "a", "containerName": "c", "resourceName": "nvidia.com/gpu", "deviceIDs": ["GPU-1"]}
    keys = ("node.koordinator.sh/devices-checkpoints", "node.koordinator.sh/gpu-checkpoints")
    texts = json.dumps([entry, {}]), json.dumps([{**entry, "deviceIDs": {"0": ["GPU-0"]}}])
    found = read_device(decoded(spec={}, annotations=dict(zip(keys, texts, strict=True))))
    assert (found.node, found.kubelet) == ("node-1", {"a": (("nvidia.com/gpu", "GPU-0"), ("nvidia.com/gpu", "GPU-1"))})
    assert found.faults == (f"metadata.annotations[{keys[0]}][1].podUID: is missing",)
    cut = read_device(decoded(spec={}, annotations={keys[1]: texts[0][:-3]}))
    assert (cut.kubelet, cut.faults) == ({}, (f"metadata.annotations[{keys[1]}]: Input data was truncated",))
    assert read_device(decoded()).kubelet == {}


OLD = "GPU-a,10,16384,100,NVIDIA-Tesla V100,1,true:GPU-b,10,16384,100,NVIDIA-Tesla V100,0,false:"
NEW = json.dumps(
    [
        {"id": "GPU-a", "count": 10, "devmem": 16384, "devcore": 100, "type": "V100", "numa": 1, "health": True},
        {"id": "GPU-b", "index": 1, "count": 10, "devmem": 16384, "devcore": 100, "type": "V100", "mode": "hami-core"},
    ]
)


@pytest.mark.parametrize("text", [OLD, OLD.replace("true", "true,0,hami-core").replace("false", "false,1,mig"), NEW])
def test_all_forms_of_hami_are_the_same_gpus(text: str) -> None:
    totals = (("gpu-core", 100), ("gpu-memory", 16 * 2**30), ("gpu-memory-ratio", 100))
    assert read_hami_node(text) == (
        Device("gpu", 0, "GPU-a", totals, numa=1),
        Device("gpu", 1, "GPU-b", totals, healthy=False, numa=0),
    )


def test_hami_gpus_without_an_index_are_numbered_by_their_place() -> None:
    found = read_hami_node(json.dumps([{"id": "GPU-a"}, {"id": "GPU-b"}]))
    assert [(device.minor, device.id) for device in found] == [(0, "GPU-a"), (1, "GPU-b")]


@pytest.mark.parametrize(
    "text", ["", ":", "GPU-a,10", "[", "{}", "[5]", '[{"id":5}]', '[{"id":"a,b"}]', "null", "a,,,,,,"]
)
def test_hami_gpus_that_cannot_be_read_are_none(text: str) -> None:
    assert read_hami_node(text) == ()


def hami_gpus(count: int) -> tuple[Device, ...]:
    return read_hami_node(json.dumps([{"id": f"GPU-{minor}", "index": minor} for minor in range(count)]))


def test_scores_of_hami_are_links_and_switches() -> None:
    scores = [
        {"uuid": "GPU-0", "score": {"GPU-1": 1860, "GPU-2": 20, "GPU-9": 100}},
        {"uuid": "GPU-1", "score": {"GPU-0": 1860, "GPU-2": 10}},
        {"uuid": "GPU-2", "score": {"GPU-3": 50, "GPU-2": 300}},
        {"uuid": "GPU-4", "score": {"GPU-3": 50, "GPU-0": 240}},
    ]
    gpus, links = read_hami_scores(json.dumps(scores), hami_gpus(6))
    assert links == (("0-1", 18), ("0-4", 2))
    assert [gpu.pcie for gpu in gpus] == ["switch-0", "switch-0", "switch-2", "switch-2", "switch-2", ""]


@pytest.mark.parametrize("text", ["", "{}", "[5]", '[{"uuid":5}]', '[{"score":{"GPU-1":-1}}]', "null", "["])
def test_scores_of_hami_that_cannot_be_read_tell_nothing(text: str) -> None:
    assert read_hami_scores(text, hami_gpus(2)) == (hami_gpus(2), ())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
QUANTITIES = st.dictionaries(st.sampled_from((*BOTH, "kubernetes.io/gpu-memory", "koordinator.sh/rdma")), ANYTHING)
TYPES = st.sampled_from(("gpu", "rdma", "xpu"))
MINORS = st.integers(-1, 3)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "type": TYPES | ANYTHING,
        "deviceType": TYPES | ANYTHING,
        "minor": MINORS | ANYTHING,
        "health": st.booleans() | ANYTHING,
        "id": ANYTHING,
        "resources": QUANTITIES | ANYTHING,
        "resource": QUANTITIES | ANYTHING,
        "topology": st.dictionaries(st.sampled_from(("nodeID", "pcieID", "busID")), ANYTHING) | ANYTHING,
        "labels": ANYTHING,
        "vfGroups": st.lists(st.fixed_dictionaries({"vfs": st.lists(ANYTHING, max_size=2)}), max_size=2) | ANYTHING,
        "conditions": ANYTHING,
    },
)
TEXTS = st.none() | st.text(max_size=40) | ANYTHING.map(json.dumps)


@given(ANYTHING | st.lists(ENTRIES, max_size=6).map(lambda found: {"devices": found}), TEXTS, TEXTS)
def test_reading_never_raises_and_what_is_read_holds_together(spec: Any, table: str | None, links: str | None) -> None:
    document = decoded(spec=spec, annotations={PARTITIONS: table, LINKS: links})
    found = read_device(document)
    keys = [(device.type, device.minor) for device in found.devices]
    assert keys == sorted(set(keys))
    assert all(amount > 0 for device in found.devices for _, amount in device.totals)
    assert all(int(first) < int(second) for first, second in (pair.split("-") for pair in found.links))
    assert len(found.faults) <= FAULTS_MAX + 1
    assert all(fault.startswith(("spec", "metadata.annotations[", "and ")) for fault in found.faults)


@given(TEXTS.filter(lambda text: text is not None))
def test_reading_hami_never_raises(text: str) -> None:
    minors = [device.minor for device in read_hami_node(text)]
    assert minors == sorted(set(minors))
