from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from aischeduler.model.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    RDMA,
    Device,
    DeviceHint,
    DeviceRequest,
    GpuRequest,
    HeldDevice,
    NodeDevices,
    Partition,
    TopologyScope,
    VirtualFunction,
)
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.selectors import LabelSelector, label_selector
from aischeduler.plugins import device_choice
from aischeduler.plugins.device_choice import Preference, choose, choose_together, fits
from tests.build import replace
from tests.devices import GIB, a_device, a_gpu, asks
from tests.plugins.device_oracle import Oracle

Left = dict[tuple[str, int], dict[str, int]]
PACK, SPREAD = Preference(PlacementStrategy.PACK), Preference(PlacementStrategy.SPREAD)
NO_GPUS = "Insufficient gpu devices"
PAIRS, QUADS = [(0, 1), (2, 3), (4, 5), (6, 7)], [(0, 1, 2, 3), (4, 5, 6, 7)]
HOPPER = tuple(map(Partition, [*PAIRS, *QUADS, tuple(range(8))]))


def a_node(*devices: Device, links: Mapping[tuple[int, int], int] | None = None, **fields: Any) -> NodeDevices:
    by_name = {f"{first}-{second}": count for (first, second), count in (links or {}).items()}
    return NodeDevices("n", devices, links=by_name, **fields)


def gpus(*places: str) -> tuple[Device, ...]:
    """Return GPUs; a place is a NUMA node and a PCIe switch, such as "0a", or empty where both are unknown."""
    return tuple(
        a_gpu(minor, numa=int(place[0]) if place else -1, pcie=place[1:]) for minor, place in enumerate(places)
    )


def all_free(node: NodeDevices) -> Left:
    return {(device.type, device.minor): dict(device.totals) for device in node.devices}


def with_shares(node: NodeDevices, shares: Mapping[int, int]) -> Left:
    """Return what is free where pods hold these percents of GPUs, by minor."""
    free = all_free(node)
    for minor, percent in shares.items():
        free[GPU, minor] = {dimension: total * (100 - percent) // 100 for dimension, total in free[GPU, minor].items()}
    return free


def minors(found: Sequence[HeldDevice] | str, kind: str = GPU) -> list[int]:
    assert not isinstance(found, str), found
    return [one.minor for one in found if one.type == kind]


def chosen(node: NodeDevices, asked: DeviceRequest, free: Left | None = None, prefer: Preference = PACK) -> list[int]:
    return minors(choose(node, all_free(node) if free is None else free, asked, prefer))


def hinted(asked: DeviceRequest, kind: str = GPU, **fields: Any) -> DeviceRequest:
    return replace(asked, hints=((kind, DeviceHint(**fields)),))


def labelled(**labels: str) -> LabelSelector:
    return label_selector("selector", labels, ())


# What fits


def test_a_share_takes_core_memory_and_ratio_of_one_card() -> None:
    node = a_node(a_gpu(0, gib=80))
    assert choose(node, all_free(node), asks(50), PACK) == (
        HeldDevice(GPU, 0, ((GPU_CORE, 50), (GPU_MEMORY, 40 * GIB), (GPU_MEMORY_RATIO, 50)), "GPU-0"),
    )


def test_bytes_are_judged_by_the_memory_of_each_card() -> None:
    node = a_node(a_gpu(0, gib=40), a_gpu(1, gib=80))
    assert chosen(node, asks(gib=60)) == [1]
    assert choose(node, all_free(node), asks(gib=81), PACK) == NO_GPUS


def test_a_card_is_full_when_its_cores_are() -> None:
    node = a_node(*gpus("", ""))
    free = all_free(node)
    free[GPU, 0][GPU_CORE] = 0
    assert chosen(node, asks(gib=1), free) == [1]


@pytest.mark.parametrize("free", [{}, {(GPU, 0): {}}, {(GPU, 0): {GPU_CORE: -50, GPU_MEMORY: -1}}])
def test_what_is_not_named_as_free_is_held(free: Left) -> None:
    assert choose(a_node(a_gpu(0)), free, asks(1), PACK) == NO_GPUS


def test_an_unhealthy_device_is_never_given() -> None:
    node = a_node(a_gpu(0, healthy=False), a_gpu(1))
    assert chosen(node, asks(1)) == [1]
    assert fits(node, all_free(node), asks(100, count=2)) == NO_GPUS


def test_a_node_without_the_type_is_short_of_it() -> None:
    assert fits(a_node(a_gpu(0)), {}, DeviceRequest(others=(("xpu", 1),))) == "Insufficient xpu devices"


def test_the_vendor_is_that_of_the_node() -> None:
    node = a_node(a_gpu(0), vendor="amd")
    assert [fits(node, all_free(node), asks(100, vendor=vendor)) for vendor in ("amd", "nvidia", "")] == [
        "",
        NO_GPUS,
        "",
    ]


@pytest.mark.parametrize(("amount", "given"), [(3, [3]), (4, [4]), (5, []), (8, [4, 4]), (16, [])])
def test_more_than_one_device_of_a_further_type_is_whole_ones(amount: int, given: list[int]) -> None:
    node = a_node(*(a_device("xpu", minor, total=4) for minor in range(3)))
    found = choose(node, all_free(node), DeviceRequest(others=(("xpu", amount),)), PACK)
    assert ([] if isinstance(found, str) else [dict(one.amounts)["xpu"] for one in found]) == given


def test_a_request_for_nothing_gets_nothing() -> None:
    assert choose(a_node(), {}, DeviceRequest(), PACK) == ()


# The order of choice


def test_the_partition_with_the_higher_score_comes_first() -> None:
    node = a_node(*gpus("", "", "", ""), partitions=(Partition((0, 1), score=1), Partition((2, 3), score=2)))
    assert chosen(node, asks(100, count=2)) == [2, 3]


def test_large_partitions_are_left_whole() -> None:
    node = a_node(*gpus(*[""] * 8), partitions=HOPPER)
    assert chosen(node, asks(100, count=2), with_shares(node, {4: 100})) == [6, 7]
    assert chosen(node, asks(100), with_shares(node, {4: 100})) == [5]
    assert chosen(node, asks(20), with_shares(node, {4: 100})) == [5]


def test_a_partition_that_leaves_a_larger_one_whole_precedes_one_that_leaves_more_pairs() -> None:
    table = tuple(Partition(minors) for minors in [(0, 1), (0, 4), (1, 5), (2, 3), (4, 5), (2, 3, 6, 7)])
    assert chosen(a_node(*gpus(*[""] * 8), partitions=table), asks(100, count=2)) == [0, 1]


def test_a_partition_precedes_nearer_gpus() -> None:
    places = gpus("0a", "1b", "0a", "1b")
    assert chosen(a_node(*places, partitions=(Partition((0, 1)),)), asks(100, count=2)) == [0, 1]
    assert chosen(a_node(*places), asks(100, count=2)) == [0, 2]


def test_other_sets_than_partitions_are_given_unless_the_node_forbids_it() -> None:
    node = a_node(*gpus(*[""] * 8), partitions=HOPPER)
    held = with_shares(node, {0: 100, 2: 100, 4: 100, 6: 100})
    assert chosen(node, asks(100, count=2), held) == [1, 3]
    only = replace(node, partitions_only=True)
    assert fits(only, held, asks(100, count=2)) == device_choice.PARTITION
    assert chosen(only, asks(100), held) == [1]
    assert chosen(only, asks(50, count=2), held) == [1, 3]


def test_restricted_gpus_are_one_partition_with_the_bandwidth() -> None:
    node = a_node(*gpus("", "", "", ""), partitions=(Partition((0, 1), 200, 9), Partition((1, 2), 400)))
    asked = replace(asks(100, count=2), restricted=True)
    assert chosen(node, asked) == [0, 1]
    assert chosen(node, replace(asked, bandwidth_gbps=400)) == [1, 2]
    assert fits(node, all_free(node), replace(asked, bandwidth_gbps=401)) == device_choice.PARTITION
    assert chosen(node, replace(asks(100), restricted=True)) == [3]


def test_gpus_are_below_one_switch_before_one_numa_node_before_anywhere() -> None:
    node = a_node(*gpus("0a", "0b", "1c", "0b", "1d"))
    assert chosen(node, asks(100, count=2)) == [1, 3]
    assert chosen(node, asks(100, count=2), with_shares(node, {3: 100})) == [0, 1]
    assert chosen(node, asks(100, count=4)) == [0, 1, 2, 3]


def test_unknown_places_are_no_scope() -> None:
    assert chosen(a_node(*gpus("", "", "0", "0")), asks(100, count=2)) == [2, 3]


def test_of_one_scope_the_best_links_are_chosen() -> None:
    links = {(0, 1): 4, (0, 2): 18, (1, 3): 99, (2, 3): 12}
    node = a_node(*gpus("0", "0", "0", "0"), links=links)
    assert chosen(node, asks(100, count=2)) == [0, 2]  # 99 count as 18
    assert chosen(node, asks(100, count=3)) == [0, 2, 3]


def test_a_single_gpu_leaves_whole_islands_whole() -> None:
    node = a_node(*gpus("", "", "", "", ""), links={(0, 1): 4, (2, 3): 4})
    assert chosen(node, asks(100)) == [4]
    assert chosen(node, asks(100), with_shares(node, {3: 50, 4: 100})) == [2]
    assert chosen(a_node(*gpus("0a", "0a", "0b")), asks(30)) == [2]


def test_a_pod_that_gets_a_whole_island_breaks_none() -> None:
    node = a_node(*gpus("", "", "", "", ""), links={(0, 1): 1, (0, 2): 1, (1, 2): 1, (3, 4): 1})
    assert chosen(node, asks(100, count=2)) == [3, 4]


def test_packing_takes_the_fullest_card_that_fits_and_spreading_the_emptiest() -> None:
    node = a_node(*gpus("", "", "", ""))
    held = with_shares(node, {0: 20, 1: 60, 2: 90, 3: 10})
    assert chosen(node, asks(30), held) == [1]
    assert chosen(node, asks(30), held, SPREAD) == [3]
    assert chosen(node, asks(30), held, Preference(PlacementStrategy.FRAGMENTATION)) == [1]


def test_fragmentation_takes_the_card_whose_rest_the_expected_requests_use() -> None:
    node = a_node(*gpus("", ""))
    held = with_shares(node, {0: 40, 1: 50})
    half = Preference(PlacementStrategy.FRAGMENTATION, ((GpuRequest(1, 50, 50), 3),))
    assert chosen(node, asks(10), held) == [1]
    assert chosen(node, asks(10), held, half) == [0]


def test_fragmentation_keeps_a_node_able_to_host_the_expected_requests() -> None:
    node = a_node(*gpus("", "", ""))
    held = with_shares(node, {0: 40, 1: 40, 2: 50})
    mixed = ((GpuRequest(2, 60, 60), 1), (GpuRequest(1, 45, 45), 2))
    # On card 0 a request for two cards finds one: it wastes 50 + 60 + 50. On card 2 it wastes 40, and the other 2 x 40.
    assert chosen(node, asks(10), held, Preference(PlacementStrategy.FRAGMENTATION, mixed)) == [2]


# Hints


def test_a_selector_chooses_by_labels() -> None:
    node = a_node(a_gpu(0), replace(a_gpu(1), labels={"model": "b"}))
    assert chosen(node, hinted(asks(10), selector=labelled(model="b"))) == [1]
    assert fits(node, all_free(node), hinted(asks(10), selector=labelled(model="c"))) == NO_GPUS


def test_every_device_that_matches_is_given_or_none() -> None:
    node = a_node(*(replace(a_device(RDMA, minor), labels={"rail": str(minor % 2)}) for minor in range(4)))
    asked = hinted(DeviceRequest(others=((RDMA, 50),)), RDMA, every=True, selector=labelled(rail="1"))
    found = choose(node, all_free(node), asked, PACK)
    assert [(one.minor, one.amounts) for one in found if not isinstance(one, str)] == [
        (1, ((RDMA, 50),)),
        (3, ((RDMA, 50),)),
    ]
    assert fits(node, {**all_free(node), (RDMA, 3): {RDMA: 49}}, asked) == "Insufficient rdma devices"


def test_requests_as_count_are_whole_devices() -> None:
    node = a_node(*(a_device(RDMA, minor) for minor in range(3)), a_gpu(0))
    asked = [hinted(DeviceRequest(others=((RDMA, amount),)), RDMA, count=True) for amount in (100, 200, 50)]
    assert [fits(node, all_free(node), one) for one in asked] == ["", "", "Insufficient rdma devices"]
    assert fits(node, all_free(node), hinted(asks(50), count=True)) == NO_GPUS


@pytest.mark.parametrize(
    ("scope", "count", "reason"),
    [
        (TopologyScope.DEVICE, 1, ""),
        (TopologyScope.DEVICE, 2, device_choice.SCOPE),
        (TopologyScope.PCIE, 2, ""),
        (TopologyScope.PCIE, 3, device_choice.SCOPE),
        (TopologyScope.NUMA_NODE, 3, ""),
        (TopologyScope.NUMA_NODE, 4, device_choice.SCOPE),
        (TopologyScope.NODE, 4, ""),
    ],
)
def test_gpus_are_within_the_required_scope(scope: TopologyScope, count: int, reason: str) -> None:
    node = a_node(*gpus("0a", "0a", "0b", "1c"))
    assert fits(node, all_free(node), hinted(asks(100, count=count), scope=scope)) == reason


def test_an_exclusive_pod_shares_no_switch_with_others() -> None:
    node = a_node(*gpus("0a", "0a", "0b", ""))
    asked = hinted(asks(10), exclusive=True)
    assert chosen(node, asked, with_shares(node, {0: 10})) == [2]
    assert fits(node, with_shares(node, {0: 10, 2: 10}), asked) == device_choice.EXCLUSIVE
    broken = replace(node, devices=(a_gpu(0, healthy=False, pcie="a"), *node.devices[1:]))
    free = with_shares(node, {0: 10, 2: 10})
    assert fits(broken, free, asked) == device_choice.EXCLUSIVE
    del free[GPU, 0]
    assert chosen(broken, asked, free) == [1]


def test_a_virtual_function_is_given_that_matches_and_nobody_has() -> None:
    functions = (VirtualFunction(2, "bus2", {"net": "a"}), VirtualFunction(1, "bus1", {"net": "a"}), VirtualFunction(0))
    node = a_node(replace(a_device(RDMA, 0), functions=functions), a_device(RDMA, 1))
    asked = hinted(DeviceRequest(others=((RDMA, 10),)), RDMA, function_selector=labelled(net="a"))
    for taken, function in [({0}, (1, "bus1")), ({1}, (2, "bus2"))]:
        found = choose(node, all_free(node), asked, PACK, taken_functions={(RDMA, 0): frozenset(taken)})
        assert found == (HeldDevice(RDMA, 0, ((RDMA, 10),), "rdma-0", (function,)),)
    both = {(RDMA, 0): frozenset((1, 2))}
    assert fits(node, all_free(node), asked, taken_functions=both) == device_choice.FUNCTION


# Joint types


def nics(*places: str) -> tuple[Device, ...]:
    return tuple(
        replace(a_device(RDMA, minor), numa=int(place[0]), pcie=place[1:]) for minor, place in enumerate(places)
    )


def joint(count: int, amount: int, *, same_pcie: bool = False) -> DeviceRequest:
    return replace(asks(100, count=count, others={RDMA: amount}), joint=(GPU, RDMA), same_pcie=same_pcie)


def test_the_gpu_beside_a_free_nic_is_chosen_with_it() -> None:
    node = a_node(*gpus("0a", "0b"), *nics("1c", "0b"))
    found = choose(node, all_free(node), joint(1, 100), PACK)
    assert (minors(found), minors(found, RDMA)) == ([1], [1])


def test_a_nic_of_the_same_numa_node_is_the_second_best() -> None:
    node = a_node(*gpus("0a"), *nics("1c", "0b"))
    assert minors(choose(node, all_free(node), joint(1, 100), PACK), RDMA) == [1]


def test_two_gpus_get_a_nic_below_each_of_their_switches() -> None:
    node = a_node(*gpus("0a", "0b"), *nics("0a", "0a", "0b", "0c"))
    assert minors(choose(node, all_free(node), joint(2, 200), PACK), RDMA) == [0, 2]


def test_nics_that_are_equally_far_are_near_each_other() -> None:
    node = a_node(*gpus(""), *nics("0a", "1b", "1b"))
    assert minors(choose(node, all_free(node), joint(1, 200), PACK), RDMA) == [1, 2]


def test_partitions_within_a_smaller_scope_precede_those_with_nearer_nics() -> None:
    table = (Partition((0, 1)), Partition((2, 3)))
    node = a_node(*gpus("0a", "0a", "1b", "1c"), *nics("1b", "1c"), partitions=table)
    assert minors(choose(node, all_free(node), joint(2, 200), PACK)) == [0, 1]


def test_a_joint_type_is_within_its_own_scope_too() -> None:
    node = a_node(*gpus("0a"), *(replace(nic, numa=-1) for nic in nics("0a", "0b", "0b")))
    asked = hinted(joint(1, 200), RDMA, scope=TopologyScope.NUMA_NODE)
    assert minors(choose(node, all_free(node), asked, PACK), RDMA) == [1, 2]


def test_with_same_pcie_the_switches_are_the_same_or_the_pod_waits() -> None:
    node = a_node(*gpus("0a", "0b", "0c"), *nics("0c", "0b", "1d"))
    assert minors(choose(node, all_free(node), joint(2, 200, same_pcie=True), PACK)) == [1, 2]
    reasons = [fits(node, all_free(node), joint(n, 100 * m, same_pcie=True)) for n, m in [(1, 1), (2, 1), (3, 3)]]
    assert reasons == ["", device_choice.JOINT, device_choice.JOINT]
    unknown = a_node(*gpus("0a", "0"), *nics("0a", "0"))
    assert fits(unknown, all_free(unknown), joint(2, 100, same_pcie=True)) == device_choice.JOINT


def test_a_joint_type_that_is_not_asked_for_is_a_violation() -> None:
    node = a_node(*gpus("0a"), *nics("0a"))
    asked = replace(asks(100), joint=(GPU, RDMA))
    assert fits(node, all_free(node), asked) == device_choice.JOINT == "node(s) Device Joint-Allocate rules violation"


# Gangs


def together(node: NodeDevices, *asked: DeviceRequest, free: Left | None = None) -> list[list[int]] | str:
    found = choose_together(node, all_free(node) if free is None else free, asked, PACK)
    return found if isinstance(found, str) else [minors(one) for one in found]


def test_a_gang_gets_the_best_connected_set_and_divides_it() -> None:
    links = {(0, 4): 18, (1, 2): 4, (2, 3): 9, (3, 5): 4, (1, 5): 9, (1, 3): 4, (2, 5): 4}
    node = a_node(*gpus(*[""] * 6), links=links)
    assert chosen(node, asks(100, count=2)) == [0, 4]
    assert together(node, asks(100, count=2), asks(100, count=2)) == [[1, 5], [2, 3]]


def test_the_largest_pod_of_a_gang_chooses_first() -> None:
    node = a_node(*gpus("0a", "0a", "0a", "0b"))
    assert together(node, asks(100), asks(100, count=3)) == [[3], [0, 1, 2]]
    assert together(node, asks(50), asks(100, count=3)) == [[3], [0, 1, 2]]


def test_a_gang_fits_in_the_order_of_its_pods_where_it_does_not_by_size() -> None:
    node = a_node(*gpus("0a"))
    assert together(node, hinted(asks(10), exclusive=True), asks(50)) == [[0], [0]]


def test_pods_of_a_gang_get_different_halves_and_functions() -> None:
    functions = tuple(VirtualFunction(minor) for minor in range(2))
    node = a_node(a_gpu(0), replace(a_device(RDMA, 0), functions=functions))
    asked = hinted(asks(50, others={RDMA: 50}), RDMA, function_selector=labelled())
    found = choose_together(node, all_free(node), [asked, asked], PACK)
    assert [one.functions for pod in found if not isinstance(pod, str) for one in pod] == [
        (),
        ((0, ""),),
        (),
        ((1, ""),),
    ]
    assert choose_together(node, all_free(node), [asked] * 3, PACK) == NO_GPUS


def test_a_gang_is_divided_by_partitions_where_no_partition_holds_all_of_it() -> None:
    node = a_node(*gpus(*[""] * 8), partitions=HOPPER, partitions_only=True)
    assert together(node, *[asks(100, count=2)] * 3) == [[4, 5], [0, 1], [2, 3]]


# Against the oracle

PERCENTS = st.sampled_from([100] * 8 + [60, 60, 50, 30, 0, -10])
SOMETIMES = st.sampled_from([True, False, False, False, False])
PLACES = st.sampled_from(["", "0", "0a", "0a", "0b", "1c"])


@st.composite
def devices(draw: st.DrawFn, kind: str, count: int) -> tuple[tuple[Device, ...], Left]:
    """Return devices of one type and what is free of them."""
    made, free = [], Left()
    for minor in range(count):
        place = draw(PLACES)
        totals: tuple[tuple[str, int], ...] = ((kind, draw(st.sampled_from([100, 100, 50]))),)
        if kind == GPU:
            totals = ((GPU_CORE, 100), (GPU_MEMORY, draw(st.sampled_from([40, 80]))), (GPU_MEMORY_RATIO, 100))
        made.append(
            Device(
                kind,
                minor,
                f"{kind}-{minor}",
                totals,
                healthy=draw(st.integers(0, 14)) > 0,
                numa=int(place[0]) if place else -1,
                pcie=place[1:],
                labels=draw(st.sampled_from([{}, {"a": "1"}])),
                functions=tuple(VirtualFunction(each) for each in range(draw(st.integers(0, 2)))),
            )
        )
        percents = [draw(PERCENTS) for _ in totals] if draw(SOMETIMES) else [draw(PERCENTS)] * 3
        if draw(st.integers(0, 14)) > 0:
            free[kind, minor] = {name: total * p // 100 for (name, total), p in zip(totals, percents, strict=False)}
    return tuple(made), free


@st.composite
def worlds(draw: st.DrawFn) -> tuple[NodeDevices, Left]:
    count = draw(st.sampled_from([0, 1, 2, 3, 4, 4, 5, 5, 5]))
    cards, free = draw(devices(GPU, count))
    others, more = draw(devices(RDMA, draw(st.sampled_from([0, 2, 3, 4]))))
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    links = {pair: draw(st.sampled_from([0, 1, 2, 20])) for pair in pairs if draw(st.booleans())}
    sets = [
        tuple(sorted(one)) for one in draw(st.lists(st.sets(st.integers(0, 5), min_size=1, max_size=3), max_size=5))
    ]
    table = tuple(Partition(one, draw(st.sampled_from([0, 200])), draw(st.integers(0, 1))) for one in sets)
    only = draw(SOMETIMES)
    vendor = draw(st.sampled_from(["nvidia"] * 5 + ["amd"]))
    node = a_node(*cards, *others, links=links, partitions=table, partitions_only=only, vendor=vendor)
    return node, free | more


GPU_REQUESTS = st.builds(
    lambda count, share, vendor: GpuRequest(count, share[0], share[1], share[2], vendor),
    st.sampled_from([1, 1, 2, 2, 3]),
    st.sampled_from([(100, 100, 0), (100, 100, 0), (0, 100, 0), (50, 50, 0), (30, 20, 0), (0, 0, 20), (10, 0, 40)]),
    st.sampled_from(["", "", "nvidia"]),
)
SELECTORS = st.sampled_from([None, None, None, labelled(a="1")])
HINTS = st.builds(
    DeviceHint,
    selector=SELECTORS,
    function_selector=st.sampled_from([None, None, None, labelled()]),
    every=SOMETIMES,
    count=SOMETIMES,
    scope=st.sampled_from([None, None, None, *TopologyScope]),
    exclusive=SOMETIMES,
)


@st.composite
def requests(draw: st.DrawFn) -> DeviceRequest:
    amount = draw(st.sampled_from([0, 0, 40, 50, 100, 150, 200]))
    return DeviceRequest(
        gpu=draw(GPU_REQUESTS | st.none()) if amount else draw(GPU_REQUESTS),
        others=((RDMA, amount),) if amount else (),
        hints=tuple((kind, draw(HINTS)) for kind in (GPU, RDMA) if draw(SOMETIMES)),
        joint=(GPU, RDMA) if draw(SOMETIMES) else (),
        restricted=draw(SOMETIMES),
        bandwidth_gbps=draw(st.sampled_from([0, 200])),
    )


JOINT_REQUESTS = st.builds(
    DeviceRequest,
    gpu=GPU_REQUESTS,
    others=st.sampled_from([50, 100, 100, 200, 200]).map(lambda amount: ((RDMA, amount),)),
    hints=st.sampled_from([None, None, None, *TopologyScope]).map(
        lambda scope: ((RDMA, DeviceHint(scope=scope)),) if scope else ()
    ),
    joint=st.sampled_from([(GPU, RDMA), (GPU, RDMA), (RDMA, GPU)]),
    same_pcie=st.booleans(),
)
PREFERENCES = st.builds(
    Preference,
    st.sampled_from(PlacementStrategy),
    st.lists(st.tuples(GPU_REQUESTS, st.integers(1, 3)), max_size=3).map(tuple),
)
TAKEN = st.dictionaries(
    st.tuples(st.sampled_from([GPU, RDMA]), st.integers(0, 4)), st.frozensets(st.integers(0, 2)), max_size=2
)


def less(free: Left, held: Sequence[HeldDevice]) -> Left:
    """Return what is left; a device gives at most what is free."""
    left = {key: dict(amounts) for key, amounts in free.items()}
    for one in held:
        for dimension, amount in one.amounts:
            left[one.type, one.minor][dimension] -= amount
            assert left[one.type, one.minor][dimension] >= 0
    return left


@settings(max_examples=800)
@given(worlds(), requests() | JOINT_REQUESTS, PREFERENCES, TAKEN)
def test_the_choice_is_the_best_of_all_subsets(
    world: tuple[NodeDevices, Left],
    asked: DeviceRequest,
    prefer: Preference,
    taken: Mapping[tuple[str, int], frozenset[int]],
) -> None:
    node, free = world
    oracle = Oracle(node, free, asked, taken)
    best = oracle.best(prefer.placement, prefer.expected)
    found = choose(node, free, asked, prefer, taken_functions=taken)
    event("fits" if best else "does not fit")
    assert fits(node, free, asked, taken_functions=taken) == (found if isinstance(found, str) else "")
    if isinstance(found, str):
        assert best is None
        return
    assert best == {kind: tuple(minors(found, kind)) for kind in oracle.kinds}
    less(free, found)
    by_key = {(device.type, device.minor): device for device in node.devices}
    assert [(one.type, one.minor) for one in found] == sorted((one.type, one.minor) for one in found)
    for one in found:
        device, hint = by_key[one.type, one.minor], asked.hint(one.type)
        assert one.id == device.id
        named = hint is not None and hint.function_selector is not None
        assert one.functions == ((oracle.function(device),) if named else ())
    for kind in oracle.kinds:
        given_of = tuple(by_key[kind, minor] for minor in best[kind])
        assert oracle.amounts(kind, given_of) == [one.amounts for one in found if one.type == kind]


def one_after_another(node: NodeDevices, free: Left, asked: Sequence[DeviceRequest], prefer: Preference) -> bool:
    """Return whether each pod gets devices beside those before it."""
    held: list[HeldDevice] = []
    for each in asked:
        taken = {(one.type, one.minor): functions_of(held, one) for one in held}
        found = choose(node, less(free, held), each, prefer, taken_functions=taken)
        if isinstance(found, str):
            return False
        held += found
    return True


def functions_of(held: Sequence[HeldDevice], of: HeldDevice) -> frozenset[int]:
    same = (one for one in held if (one.type, one.minor) == (of.type, of.minor))
    return frozenset(minor for one in same for minor, _ in one.functions)


@settings(max_examples=300)
@given(worlds(), st.lists(requests(), min_size=1, max_size=3), PREFERENCES)
def test_a_gang_fits_together_where_it_fits_one_after_another(
    world: tuple[NodeDevices, Left], asked: list[DeviceRequest], prefer: Preference
) -> None:
    node, free = world
    found = choose_together(node, free, asked, prefer)
    event("does not fit" if isinstance(found, str) else "fits")
    if isinstance(found, str):
        assert not one_after_another(node, free, asked, prefer)
        return
    held = [one for each in found for one in each]
    less(free, held)
    functions = [(one.type, one.minor, each) for one in held for each in one.functions]
    assert len(functions) == len(set(functions))
    for each, theirs in zip(asked, found, strict=True):
        # Nobody gets a set that the pod might not get on its own.
        assert Oracle(node, free, each, {}).may_be(theirs)


@given(worlds(), st.lists(st.integers(1, 3), min_size=2, max_size=3), PREFERENCES)
def test_whole_gpus_of_a_gang_are_the_set_that_is_best_for_their_number(
    world: tuple[NodeDevices, Left], counts: list[int], prefer: Preference
) -> None:
    node, free = replace(world[0], partitions_only=False), world[1]
    found = choose_together(node, free, [asks(100, count=count) for count in counts], prefer)
    one = Oracle(node, free, asks(100, count=sum(counts)), {}).best(prefer.placement, prefer.expected)
    assert (one is None) == isinstance(found, str)
    if one is not None and not isinstance(found, str):
        assert sorted(minor for each in found for minor in minors(each)) == list(one[GPU])
