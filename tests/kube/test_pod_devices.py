"""What pods ask of devices, and what their annotations say, as the API server sends them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aischeduler.kube.decode.api_types import PodDocument, PodSpecPart
from aischeduler.kube.decode.pod_devices import (
    UNKNOWN_MINOR,
    gpu_ids,
    read_allocated,
    read_devices,
    read_hami,
    read_hints,
    shows_gpus,
    write_allocated,
)
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.kube.decode.requests import NOTHING_GRANTED, read_request
from aischeduler.kube.write.pod_writes import binding
from aischeduler.model.actions import Bind
from aischeduler.model.allocation import NO_ALLOCATION, Allocation
from aischeduler.model.device import (
    DEVICES,
    NO_DEVICES,
    DeviceHint,
    DeviceRequest,
    GpuRequest,
    HeldDevice,
    HeldDevices,
    HolderSource,
    TopologyScope,
)
from aischeduler.model.device_request import (
    DEVICE_ALLOCATED_KEY,
    DEVICE_HINT_KEY,
    DEVICE_JOINT_KEY,
    GPU_PARTITION_KEY,
    GPU_UUIDS_KEY,
    HAMI_ALLOCATED_KEY,
)

GIB = 2**30
GPU = "kubernetes.io/gpu"
HALF = DeviceRequest(GpuRequest(1, 50, 50))
TWO = DeviceRequest(GpuRequest(2, 100, 100))
WITH_RDMA = DeviceRequest(GpuRequest(2, 100, 100), (("rdma", 100),))


def container(requests: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """Return a container; limits beside requests are `limits`."""
    resources = {"requests": requests or {}, "limits": parts.pop("limits", {})}
    return {"name": "c", "resources": resources, **parts}


def spec(*containers: dict[str, Any], **parts: Any) -> PodSpecPart:
    return msgspec.json.decode(json.dumps({"containers": containers, **parts}), type=PodSpecPart)


def asked(*containers: dict[str, Any], **parts: Any) -> tuple[DeviceRequest | None, str]:
    part = spec(*containers, **parts)
    request, _ = read_request(part, NOTHING_GRANTED)
    return read_devices(part, request)


def test_two_halves_are_one_card_and_an_init_container_runs_before() -> None:
    assert asked(container({GPU: "50"}), container({GPU: "50"})) == (DeviceRequest(GpuRequest(1, 100, 100)), "")
    init = container({GPU: "200"})
    assert asked(container({GPU: "100"}), initContainers=[init]) == (TWO, "")


def test_an_invalid_sum_names_the_containers_that_add_up() -> None:
    found, problem = asked(container({GPU: "60"}), container({"cpu": "1"}), container({GPU: "60"}))
    assert problem == (
        f"invalid resource unit {GPU}: 120: spec.containers[0].resources.requests[{GPU}] is 60,"
        f" spec.containers[2].resources.requests[{GPU}] is 60"
    )
    assert found == TWO


def test_names_that_may_not_be_together_are_named_with_their_fields() -> None:
    core = "kubernetes.io/gpu-core"
    found, problem = asked(container({"nvidia.com/gpu": "1"}), initContainers=[container({core: "50"})])
    assert problem == (
        f"invalid resource device requests: [{core} nvidia.com/gpu]:"
        f" spec.containers[0].resources.requests[nvidia.com/gpu] is 1,"
        f" spec.initContainers[0].resources.requests[{core}] is 50"
    )
    assert found == DeviceRequest(GpuRequest(1, 100, 100))


def test_many_containers_that_add_up_are_counted() -> None:
    _, problem = asked(*(container({GPU: "11"}) for _ in range(10)))
    assert problem.endswith(f"spec.containers[7].resources.requests[{GPU}] is 11 and 2 more")


@pytest.mark.parametrize("quantity", ["50.5", "500m", "50500m", 50.5])
def test_a_fraction_is_an_invalid_unit_and_asks_for_what_contains_it(quantity: Any) -> None:
    found, problem = asked(container({"cpu": "1"}), container({GPU: quantity}))
    field = f"spec.containers[1].resources.requests[{GPU}]"
    assert problem == f"invalid resource unit {GPU}: {quantity}: {field}: must be a whole number"
    assert found is not None
    assert found.gpu is not None
    assert found.gpu.core in (1, 51)


@pytest.mark.parametrize("quantity", ["50", "50.0", "5e1", "0.05k", "50000m", 50])
def test_a_whole_number_may_be_written_in_any_way(quantity: Any) -> None:
    assert asked(container({GPU: quantity})) == (HALF, "")


def test_a_limit_above_the_request_is_invalid_because_a_device_cannot_burst() -> None:
    _, problem = asked(container({GPU: "50"}, limits={GPU: "100"}))
    field = f"spec.containers[0].resources.requests[{GPU}]"
    assert problem == (
        f"invalid resource unit {GPU}: 100: {field}: is 50, and a device cannot burst to the limit of 100"
    )
    nothing, problem = asked(container({}, limits={GPU: "1"}))
    assert nothing is None
    assert problem.startswith(f"invalid resource unit {GPU}: 1: {field}: is 0")


def test_equal_limits_and_limits_of_what_is_no_device_are_valid() -> None:
    batch = "kubernetes.io/batch-cpu"
    requests, limits = {GPU: "50", batch: "1", "cpu": "1"}, {GPU: "50", batch: "2", "cpu": "2"}
    assert asked(container(requests, limits=limits)) == (HALF, "")


def test_a_pod_of_zeros_is_an_ordinary_pod() -> None:
    assert asked(container({GPU: "0", "koordinator.sh/gpu-core": "0"}, limits={GPU: "0"})) == (None, "")
    assert asked(container({"cpu": "1"})) == (None, "")


@pytest.mark.parametrize("resources", [{"requests": 5}, {"requests": {GPU: "x"}}, [], None])
def test_resources_that_are_reported_elsewhere_ask_for_nothing_here(resources: Any) -> None:
    assert asked(container() | {"resources": resources, "image": GPU}) == (None, "")


def hinted(asks: DeviceRequest, hint: Any) -> tuple[DeviceRequest, str]:
    return read_hints(asks, hint if isinstance(hint, str) else json.dumps(hint), None, None)


def test_hints_are_read_by_type() -> None:
    hint = {
        "rdma": {
            "selector": {"matchLabels": {"type": "fast"}},
            "vfSelector": {},
            "allocateStrategy": "ApplyForAll",
            "requiredTopologyScope": "NUMANode",
            "exclusivePolicy": "PCIeLevel",
        },
        "gpu": {"allocateStrategy": "RequestsAsCount", "exclusivePolicy": "DeviceLevel"},
    }
    found, problem = hinted(WITH_RDMA, hint)
    assert problem == ""
    assert [kind for kind, _ in found.hints] == ["gpu", "rdma"]
    assert found.hint("gpu") == DeviceHint(count=True)
    rdma = found.hint("rdma")
    assert rdma is not None
    assert rdma.selector is not None
    assert rdma.function_selector is not None
    assert (str(rdma.selector), str(rdma.function_selector)) == ("type=fast", "{}")
    assert (rdma.every, rdma.count, rdma.scope, rdma.exclusive) == (True, False, TopologyScope.NUMA_NODE, True)


@pytest.mark.parametrize(
    ("asks", "hint", "names"),
    [
        (TWO, {"gpu": {"selectr": {}}}, "gpu: Object contains unknown field `selectr`"),
        (TWO, {"gpu": {"selector": {"matchLabel": {}}}}, "gpu.selector: Object contains unknown field `matchLabel`"),
        (
            TWO,
            {"gpu": {"selector": {"matchLabels": {"a b": ""}}}},
            "gpu.selector.matchLabels: 'a b' is not a label key",
        ),
        (TWO, {"gpu": {"vfSelector": {"matchExpressions": [{"key": "a"}]}}}, "gpu.vfSelector.matchExpressions[0]"),
        (TWO, {"gpu": {"allocateStrategy": "All"}}, "gpu.allocateStrategy: Invalid enum value 'All'"),
        (TWO, {"gpu": {"requiredTopologyScope": "Rack"}}, "gpu.requiredTopologyScope: Invalid enum value 'Rack'"),
        (TWO, {"gpu": {"exclusivePolicy": 5}}, "gpu.exclusivePolicy: "),
        (TWO, {"gpu": []}, "gpu: must be a mapping, not a list"),
        (TWO, {"rdma": {}}, "'rdma': the pod asks for no devices of this type"),
        (HALF, {"gpu": {"allocateStrategy": "RequestsAsCount"}}, "gpu.allocateStrategy: RequestsAsCount needs"),
        (HALF, {"gpu": {"exclusivePolicy": "DeviceLevel"}}, "gpu.exclusivePolicy: DeviceLevel needs"),
        (
            TWO,
            {"gpu": {"selector": {"matchLabels": {f"a{n}": "" for n in range(65)}}}},
            "gpu.selector: has 65 requirem",
        ),
        (TWO, "{", ""),
    ],
)
def test_a_hint_that_cannot_be_kept_is_a_problem_that_names_its_key(asks: DeviceRequest, hint: Any, names: str) -> None:
    found, problem = hinted(asks, hint)
    where = f"metadata.annotations[{DEVICE_HINT_KEY}]"
    assert problem.startswith(f"{where}.{names}" if names else f"{where}: ")
    assert found == asks


def test_joint_types_are_read_in_their_order() -> None:
    found, problem = read_hints(WITH_RDMA, None, '{"deviceTypes":["rdma","gpu"],"requiredScope":"SamePCIe"}', None)
    assert (found.joint, found.same_pcie, problem) == (("rdma", "gpu"), True, "")
    found, problem = read_hints(WITH_RDMA, None, '{"deviceTypes":["gpu","rdma"]}', None)
    assert (found.joint, found.same_pcie, problem) == (("gpu", "rdma"), False, "")


@pytest.mark.parametrize(
    ("joint", "names"),
    [
        (
            '{"deviceTypes":["gpu","fpga"]}',
            ".deviceTypes: the pod asks for no 'fpga' (Device Joint-Allocate rules viol",
        ),
        ('{"deviceTypes":["gpu"]}', ".deviceTypes: must name two types or more"),
        ('{"deviceTypes":["gpu","gpu"]}', ".deviceTypes: must name two types or more, each once"),
        ("{}", ".deviceTypes: must name two types or more"),
        ('{"deviceTypes":["gpu","rdma"],"requiredScope":"SameNUMA"}', ".requiredScope: Invalid enum value 'SameNUMA'"),
        ('{"types":["gpu","rdma"]}', ": Object contains unknown field `types`"),
    ],
)
def test_joint_types_that_cannot_be_kept_are_a_problem(joint: str, names: str) -> None:
    found, problem = read_hints(WITH_RDMA, None, joint, None)
    assert problem.startswith(f"metadata.annotations[{DEVICE_JOINT_KEY}]{names}")
    assert found == WITH_RDMA


def test_a_partition_is_restricted_and_of_a_bandwidth() -> None:
    found, problem = read_hints(TWO, None, None, '{"allocatePolicy":"Restricted","ringBusBandwidth":"400G"}')
    assert (found.restricted, found.bandwidth_gbps, problem) == (True, 400, "")
    assert read_hints(TWO, None, None, '{"allocatePolicy":"BestEffort"}') == (TWO, "")
    assert read_hints(TWO, None, None, "{}") == (TWO, "")


@pytest.mark.parametrize(
    ("asks", "partition", "names"),
    [
        (TWO, '{"allocatePolicy":"Strict"}', ".allocatePolicy: Invalid enum value 'Strict'"),
        (TWO, '{"ringBusBandwidth":"fast"}', ".ringBusBandwidth: 'fast' is not a quantity"),
        (TWO, '{"ringBusBandwidth":"-1G"}', ".ringBusBandwidth: -1G is below zero"),
        (TWO, '{"policy":""}', ": Object contains unknown field `policy`"),
        (DeviceRequest(others=(("rdma", 1),)), "{}", ": the pod asks for no GPUs"),
    ],
)
def test_a_partition_that_cannot_be_kept_is_a_problem(asks: DeviceRequest, partition: str, names: str) -> None:
    found, problem = read_hints(asks, None, None, partition)
    assert problem.startswith(f"metadata.annotations[{GPU_PARTITION_KEY}]{names}")
    assert found == asks


def part(minor: int, core: int, gib: int, ratio: int, uuid: str = "") -> HeldDevice:
    amounts = (("gpu-core", core), ("gpu-memory", gib * GIB), ("gpu-memory-ratio", ratio))
    return HeldDevice("gpu", minor, tuple(named for named in amounts if named[1]), uuid)


def said(*minors: int, core: int = 100, ratio: int = 100, memory: str = "80Gi") -> list[dict[str, Any]]:
    """Return the GPUs of an annotation, as Koordinator writes them."""
    names = {"gpu-core": str(core), "gpu-memory": memory, "gpu-memory-ratio": str(ratio)}
    resources = {f"koordinator.sh/{name}": text for name, text in names.items()}
    return [{"minor": minor, "resources": resources, "id": f"GPU-{minor}"} for minor in minors]


def held(asks: DeviceRequest, **types: Any) -> HeldDevices | None:
    return read_allocated(json.dumps(types), asks)


def test_the_annotation_of_the_proposal_is_read_with_its_misspelt_names() -> None:
    resources = {"kubernetes.io/gpu-core": 100, "kubernetes.io/gpu-mem-ratio": 100, "kubernetes.io/gpu-mem": "16Gi"}
    devices = [{"minor": minor, "resouurces": resources} for minor in (1, 0)]
    assert held(TWO, gpu=devices) == HeldDevices((part(0, 100, 16, 100), part(1, 100, 16, 100)))


def test_types_that_the_pod_does_not_ask_for_are_not_read() -> None:
    found = held(TWO, gpu=said(3, 1), rdma=[{"minor": 0, "resources": {"koordinator.sh/rdma": 100}}], fpga="x")
    assert found == HeldDevices((part(1, 100, 80, 100, "GPU-1"), part(3, 100, 80, 100, "GPU-3")))


@pytest.mark.parametrize(("core", "ratio"), [(1, 1), (100, 100), (0, 1000)])
def test_a_pod_has_what_it_asks_for_whatever_its_annotation_says(core: int, ratio: int) -> None:
    assert held(HALF, gpu=said(0, core=core, ratio=ratio, memory="40Gi")) == HeldDevices(
        (part(0, 50, 40, 50, "GPU-0"),)
    )


def test_a_request_in_bytes_has_its_bytes_and_the_ratio_that_the_annotation_derived() -> None:
    asks = DeviceRequest(GpuRequest(1, memory_bytes=8 * GIB))
    assert held(asks, gpu=said(0, core=100, ratio=10, memory="1Gi")) == HeldDevices((part(0, 0, 8, 10, "GPU-0"),))
    assert held(asks, gpu=said(0, ratio=0)) == HeldDevices((part(0, 0, 8, 1, "GPU-0"),))


@pytest.mark.parametrize(
    "gpu",
    [
        pytest.param([], id="none"),
        pytest.param(said(0), id="too few"),
        pytest.param(said(0, 1, 2), id="too many"),
        pytest.param(said(0, 0), id="one twice"),
        pytest.param(said(0, -1), id="minor below zero"),
        pytest.param(said(0, 1, memory="80GB"), id="no quantity"),
        pytest.param(said(0, 1, memory="1Ei"), id="more than a node has"),
        pytest.param("all", id="another shape"),
        pytest.param([{"minor": "0"}, {"minor": 1}], id="minor as a text"),
        pytest.param([None, None], id="nothing twice"),
    ],
)
def test_an_allocation_that_is_not_what_the_pod_asks_for_is_not_read(gpu: Any) -> None:
    assert held(TWO, gpu=gpu) is None


def test_an_annotation_that_was_cut_is_never_read() -> None:
    whole = json.dumps({"gpu": said(0, 1)})
    assert read_allocated(whole, TWO) is not None
    assert [end for end in range(len(whole)) if read_allocated(whole[:end], TWO) is not None] == []


def test_a_type_that_the_annotation_leaves_out_is_held_of_unknown_devices() -> None:
    found = held(DeviceRequest(TWO.gpu, (("nic", 7), ("rdma", 200))), gpu=said(0, 1))
    assert found is not None
    assert (len(found.devices), found.unknown) == (2, (("nic", 7), ("rdma", 2)))


def of_rdma(*amounts: int) -> list[dict[str, Any]]:
    return [{"minor": minor, "resources": {"koordinator.sh/rdma": str(n)}} for minor, n in enumerate(amounts)]


@pytest.mark.parametrize(
    ("amount", "amounts", "readable"),
    [
        (100, (100,), True),
        (40, (40,), True),
        (200, (100, 100), True),
        (40, (10,), False),
        (40, (90,), False),
        (100, (50, 50), False),
        (200, (200,), False),
        (200, (200, 0), False),
    ],
)
def test_other_devices_are_read_where_they_add_up_to_the_request(
    amount: int, amounts: tuple[int, ...], readable: bool
) -> None:
    found = held(DeviceRequest(others=(("rdma", amount),)), rdma=of_rdma(*amounts))
    expected = tuple(HeldDevice("rdma", minor, (("rdma", n),)) for minor, n in enumerate(amounts))
    assert found == (HeldDevices(expected) if readable else None)


def test_devices_of_a_further_type_add_up_to_the_request_in_any_number() -> None:
    asks = DeviceRequest(others=(("nic", 8),))
    nics = [{"minor": minor, "resources": {"kubernetes.io/nic": 4}} for minor in (0, 1)]
    assert held(asks, nic=nics) == HeldDevices(tuple(HeldDevice("nic", minor, (("nic", 4),)) for minor in (0, 1)))
    assert held(asks, nic=nics[:1]) is None


def test_every_matching_device_has_the_amount_of_the_pod() -> None:
    every = (("gpu", DeviceHint(every=True)), ("rdma", DeviceHint(every=True)))
    asks = DeviceRequest(GpuRequest(1, 50, 50), (("rdma", 40),), hints=every)
    found = held(asks, gpu=said(0, 1, 2), rdma=of_rdma(40, 40))
    assert found is not None
    assert [device.minor for device in found.devices] == [0, 1, 2, 0, 1]
    assert held(asks, rdma=of_rdma(40, 10)) is None


SHARES = st.tuples(st.integers(0, 100), st.integers(1, 2**40), st.integers(1, 100))
FUNCTIONS = st.lists(st.tuples(st.integers(0, 63), st.sampled_from(["", "0000:09:00.2"])), max_size=2).map(tuple)


@given(
    SHARES,
    st.lists(st.integers(0, 15), min_size=1, max_size=8, unique=True),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 15), FUNCTIONS), max_size=3, unique_by=lambda nic: nic[0]),
)
def test_what_is_written_is_what_is_read(
    share: tuple[int, int, int], minors: list[int], in_bytes: bool, nics: list[tuple[int, tuple[Any, ...]]]
) -> None:
    core, memory, ratio = share
    amounts = (("gpu-core", core), ("gpu-memory", memory), ("gpu-memory-ratio", ratio))
    kept = tuple(named for named in amounts if named[1])
    devices = [HeldDevice("gpu", minor, kept, f"GPU-{minor}") for minor in minors]
    devices += [HeldDevice("rdma", minor, (("rdma", 100),), functions=functions) for minor, functions in nics]
    gpu = GpuRequest(len(minors), core, 0 if in_bytes else ratio, memory if in_bytes else 0)
    asks = DeviceRequest(gpu, (("rdma", 100 * len(nics)),) if nics else ())
    ordered = sorted(devices, key=lambda device: (device.type, device.minor))
    text = write_allocated(devices)
    assert read_allocated(text, asks) == HeldDevices(tuple(ordered))
    assert text == write_allocated(ordered)


def test_an_allocation_is_written_as_koordlet_reads_it() -> None:
    nic = HeldDevice("rdma", 3, (("rdma", 100),), "0000:09:00.0", ((2, "0000:09:00.2"),))
    assert write_allocated([nic, part(0, 50, 8, 10, "GPU-a")]) == (
        '{"gpu":[{"id":"GPU-a","minor":0,"resources":{"koordinator.sh/gpu-core":"50",'
        '"koordinator.sh/gpu-memory":"8Gi","koordinator.sh/gpu-memory-ratio":"10"}}],'
        '"rdma":[{"extension":{"vfs":[{"busID":"0000:09:00.2","minor":2}]},"id":"0000:09:00.0","minor":3,'
        '"resources":{"koordinator.sh/rdma":"100"}}]}'
    )
    assert write_allocated([]) == "{}"


def test_ids_of_gpus_are_in_the_order_of_minors() -> None:
    gpus = [part(minor, 100, 80, 100, uuid) for minor, uuid in ((10, "GPU-b"), (9, "GPU-z"))]
    assert gpu_ids([*gpus, HeldDevice("rdma", 0, (("rdma", 1),), "0000:09:00.0")]) == "GPU-z,GPU-b"
    assert gpu_ids([*gpus, part(0, 1, 1, 1)]) == ""
    assert gpu_ids([]) == ""


def test_shares_of_hami_are_known_by_id_and_add_up_over_containers() -> None:
    text = ";GPU-b,NVIDIA,1024,30:GPU-a,NVIDIA,2048,0:;GPU-b,NVIDIA,1024,10:;"
    assert read_hami(text) == HeldDevices(
        (
            HeldDevice("gpu", UNKNOWN_MINOR, (("gpu-memory", 2 * GIB),), "GPU-a"),
            HeldDevice("gpu", UNKNOWN_MINOR, (("gpu-core", 40), ("gpu-memory", 2 * GIB)), "GPU-b"),
        ),
        source=HolderSource.HAMI,
    )


def test_a_mig_slice_of_hami_is_a_share_of_its_gpu() -> None:
    found = read_hami("GPU-a[1-0],NVIDIA,9856,0:;")
    assert found is not None
    assert [device.id for device in found.devices] == ["GPU-a"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        ";;",
        "GPU-a,NVIDIA,1024,30",
        "GPU-a,NVIDIA,1024,30:",
        "GPU-a,NVIDIA,1024,30;",
        "GPU-a,NVIDIA,1024:;",
        "GPU-a,NVIDIA,0,0:;",
        "GPU-a,NVIDIA,-1,0:;",
        "GPU-a,NVIDIA,1\u0663,0:;",
        "GPU-a,NVIDIA,123456789,0:;",
        ",NVIDIA,1024,0:;",
        "{}",
    ],
)
def test_shares_of_hami_that_are_cut_or_name_no_gpu_are_not_read(text: str) -> None:
    assert read_hami(text) is None


VARIABLE = {
    "name": "NVIDIA_VISIBLE_DEVICES",
    "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{GPU_UUIDS_KEY}']"}},
}
OTHER = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}


@pytest.mark.parametrize(
    ("containers", "shown"),
    [
        pytest.param([container({GPU: "50"}, env=[VARIABLE])], True, id="has it"),
        pytest.param([container({GPU: "50"}, env=[OTHER, VARIABLE])], True, id="the last counts"),
        pytest.param([container({GPU: "50"}, env=[VARIABLE, OTHER])], False, id="overwritten"),
        pytest.param([container({GPU: "50"}, env=[VARIABLE | {"name": "X"}])], False, id="another name"),
        pytest.param([container({GPU: "50"})], False, id="lacks it"),
        pytest.param([container({GPU: "50"}, env=[VARIABLE]), container({GPU: "50"})], False, id="one lacks it"),
        pytest.param([container({GPU: "50"}, env=[VARIABLE]), container({"cpu": "1"})], True, id="one asks for none"),
        pytest.param([container({GPU: "0"}, env=[VARIABLE])], False, id="none asks"),
        pytest.param([container({"kubernetes.io/rdma": "1"}, env=[VARIABLE])], False, id="asks for no GPU"),
        pytest.param([container({GPU: "50"}, env={"x": GPU_UUIDS_KEY})], False, id="another shape"),
    ],
)
def test_each_container_that_asks_for_gpus_must_have_the_variable(
    containers: list[dict[str, Any]], shown: bool
) -> None:
    assert shows_gpus(spec(*containers)) is shown


def a_document(node: str, **annotations: str) -> PodDocument:
    container = {"name": "c", "resources": {"requests": {"kubernetes.io/gpu": "50"}}}
    document = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "annotations": annotations},
        "spec": {"containers": [container], "nodeName": node},
    }
    return msgspec.json.decode(json.dumps(document), type=PodDocument)


ALLOCATED = '{"gpu":[{"minor":1,"id":"GPU-1","resources":{"koordinator.sh/gpu-core":"50"}}]}'


def test_pod_says_which_devices_it_has_once_it_is_bound() -> None:
    bound = read_pod(a_document("n", **{DEVICE_ALLOCATED_KEY: ALLOCATED}), SpecCache()).devices
    assert bound is not None
    assert [(device.minor, bound.source) for device in bound.devices] == [(1, HolderSource.ALLOCATED)]
    assert read_pod(a_document("n"), SpecCache()).devices is None
    assert read_pod(a_document("n", **{DEVICE_ALLOCATED_KEY: ALLOCATED[:20]}), SpecCache()).devices is None


def test_share_that_hami_gave_is_read_where_the_pod_says_nothing_else() -> None:
    hami = "GPU-7,NVIDIA,1024,50:;"
    of_hami = read_pod(a_document("n", **{HAMI_ALLOCATED_KEY: hami}), SpecCache()).devices
    both = read_pod(a_document("n", **{HAMI_ALLOCATED_KEY: hami, DEVICE_ALLOCATED_KEY: ALLOCATED}), SpecCache()).devices
    assert of_hami is not None
    assert both is not None
    assert (of_hami.source, both.source) == (HolderSource.HAMI, HolderSource.ALLOCATED)


@pytest.mark.parametrize("held", [NO_ALLOCATION, Allocation(parts=((DEVICES, HeldDevices(unknown=(("gpu", 1),))),))])
def test_binding_overwrites_what_a_pod_says_before_it_is_bound(held: Allocation) -> None:
    forged = read_pod(a_document("", **{DEVICE_ALLOCATED_KEY: ALLOCATED}), SpecCache())
    assert forged.devices == NO_DEVICES
    body = json.loads(binding(Bind(forged, "n", "a", "a", "d-1", 1, allocation=held))[1])
    assert body["metadata"]["annotations"][DEVICE_ALLOCATED_KEY] == "{}"
    honest = read_pod(a_document(""), SpecCache())
    body = json.loads(binding(Bind(honest, "n", "a", "a", "d-1", 1, allocation=held))[1])
    said = body["metadata"]["annotations"].get(DEVICE_ALLOCATED_KEY)  # a pod that asks may say some until it is bound
    assert said == (None if held is NO_ALLOCATION else "{}")


def test_binding_names_the_devices_and_the_ids_of_gpus() -> None:
    pod = read_pod(a_document(""), SpecCache())
    device = HeldDevice("gpu", 1, (("gpu-core", 50), ("gpu-memory-ratio", 50)), "GPU-1")
    allocation = Allocation(parts=((DEVICES, HeldDevices((device,))),))
    said = json.loads(binding(Bind(pod, "n", "a", "a", "d-1", 1, allocation=allocation))[1])["metadata"]["annotations"]
    assert said[GPU_UUIDS_KEY] == "GPU-1"
    assert json.loads(said[DEVICE_ALLOCATED_KEY])["gpu"][0]["minor"] == 1
