"""Sets of devices of one type on a node, and which of them is the best for a pod.

Invariants:
- The order of preference of sets of GPUs: a partition of the node's table, by score and then by the larger partitions
  left whole; the smaller scope (PCIe switch, NUMA node, node); the nearer devices of joint types; the larger sum of
  link scores of its pairs; fewer whole islands broken; placement; lower minors.
- An island is a set of GPUs that are connected by links, are below one PCIe switch or are one partition; it is whole
  while all of them are free.
- Work is bounded: where a number of devices can be chosen in more than `SETS_MAX` ways, which takes over 16 devices,
  only sets that are grown from one device each are compared.

Source: Koordinator's DeviceShare (partition table, topology scopes), HAMi's scores of links, and fragmentation gradient
descent (Weng et al., USENIX ATC 2023) for the GPUs of one node.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import comb
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.model.device import (
    GPU,
    UNKNOWN_NODE,
    WHOLE,
    Amounts,
    Device,
    DeviceRequest,
    GpuRequest,
    NodeDevices,
    TopologyScope,
    islands_of,
    pair_of,
)
from aischeduler.model.pool import PlacementStrategy

Free = Mapping[tuple[str, int], Mapping[str, int]]
"""Type and minor -> dimension -> what is free; below zero where more is held than there is."""

SETS_MAX: Final = 12_870
"""The most sets that are compared: the ways to choose 8 of 16."""
GROWN_MAX: Final = 16
"""The most sets that are grown where there are more than `SETS_MAX`."""
LINKS_MAX: Final = 18
LINK_SCORE, SAME_PCIE_SCORE, SAME_NUMA_SCORE, OTHER_SCORE = 100, 50, 20, 10
SCOPES: Final = tuple(TopologyScope)
SCOPE_RANK: Final = {scope: rank for rank, scope in enumerate(SCOPES)}
NOTHING: Final[Mapping[str, int]] = {}


class Preference(Struct, frozen=True):
    """Which of equally near devices a pod gets; `expected` are recent requests and their weights, for Fragmentation."""

    placement: PlacementStrategy
    expected: tuple[tuple[GpuRequest, int], ...] = ()


class Candidate(Struct, frozen=True):
    """A device that a pod may get, and what it takes of it."""

    device: Device
    amounts: Amounts
    functions: tuple[tuple[int, str], ...] = ()


class Option(Struct, frozen=True):
    """One way to serve a request of one type: a number of devices, and by minor those that may be among them."""

    kind: str
    count: int
    candidates: tuple[Candidate, ...]


DeviceSet = tuple[Candidate, ...]
"""Devices of one type, by minor."""
Distances = tuple[tuple[int, int], ...]
"""How far sets are from one other, as `distance_to` says."""
Key = Callable[[DeviceSet], int] | Callable[[DeviceSet], tuple[int, ...]] | Callable[[DeviceSet], Distances]
SetsOf = Callable[[Sequence[Candidate], int], Iterable[DeviceSet]]
"""Returns sets of a number of devices of a group."""


class Ranking:
    """How good sets of devices are for one request on one node."""

    def __init__(self, node: NodeDevices, free: Free, asked: DeviceRequest, prefer: Preference) -> None:
        self._node = node
        self._free = free
        self._asked = asked
        self._prefer = prefer

    def _left(self, device: Device) -> Mapping[str, int]:
        return self._free.get((device.type, device.minor), NOTHING)

    def best(self, option: Option, sets: list[DeviceSet], *, before: Sequence[Key]) -> DeviceSet:
        """Return the best of the sets of one tier; the keys `before` are compared before their links."""
        for key in self._keys(option, before):
            if len(sets) == 1:
                break
            sets = _least(sets, key)
        return min(sets, key=minors_of)

    def _keys(self, option: Option, before: Sequence[Key]) -> Iterator[Key]:
        """Yield the keys by which sets are compared, each made when it is needed; the least is the best."""
        if by_table(option, self._asked):
            yield self._table_key()
        yield from before
        if option.count > 1:
            yield self._link_key(option)
        if option.kind == GPU:
            yield self._island_key()
        if option.kind == GPU and self._prefer.placement is PlacementStrategy.FRAGMENTATION and self._prefer.expected:
            yield self._waste_key(option, self._prefer.expected)
        else:
            sign = -1 if self._prefer.placement is PlacementStrategy.SPREAD else 1
            free = {
                one.device.minor: sign * free_percent(one.device, self._left(one.device)) for one in option.candidates
            }
            yield lambda one: sum(free[each.device.minor] for each in one)

    def _free_gpus(self) -> frozenset[int]:
        return frozenset(gpu.minor for gpu in self._node.of_type(GPU) if gpu.healthy and unheld(gpu, self._left(gpu)))

    def _table_key(self) -> Key:
        """Return the key of partitions: the highest score, then the most partitions left free, the largest first."""
        free = self._free_gpus()
        scores: dict[tuple[int, ...], int] = {}
        for partition in self._node.partitions:
            scores[partition.minors] = max(partition.score, scores.get(partition.minors, partition.score))
        whole = [set(minors) for minors in scores if free.issuperset(minors)]
        sizes = sorted({len(partition) for partition in whole}, reverse=True)

        def key(one: DeviceSet) -> tuple[int, ...]:
            minors = minors_of(one)
            if minors not in scores:
                return ()
            kept = [len(partition) for partition in whole if partition.isdisjoint(minors)]
            return (-scores[minors], *(-kept.count(size) for size in sizes))

        return key

    def _link_key(self, option: Option) -> Key:
        """Return the key of the sum of link scores of all pairs."""
        scores = {
            (a.device.minor, b.device.minor): _pair_score(self._node, a.device, b.device)
            for a, b in combinations(option.candidates, 2)
        }
        return lambda one: -sum(scores[pair] for pair in combinations(minors_of(one), 2))

    def _island_key(self) -> Key:
        """Return the key of the whole islands of which a set takes a part."""
        free = self._free_gpus()
        islands = [minors for minors in islands_of(self._node) if minors <= free]
        whole = self._asked.gpu is not None and self._asked.gpu.whole

        def key(one: DeviceSet) -> int:
            minors = set(minors_of(one))
            return sum(1 for island in islands if not island.isdisjoint(minors) and not (whole and island <= minors))

        return key

    def _waste_key(self, option: Option, expected: Sequence[tuple[GpuRequest, int]]) -> Key:
        """Return the key of the expected waste: the percents of GPUs that requests cannot use, by weight.

        A request that finds too few GPUs can use none of what is free; another cannot use the GPUs that it does not
        fit. The node is a vector: what is free; then of each request the GPUs that it fits, and what is free of others.
        """
        kinds = {gpu.totals: gpu for gpu in self._node.of_type(GPU)}
        wanted = {totals: [request.of(gpu) for request, _ in expected] for totals, gpu in kinds.items()}
        ours = [request.vendor in ("", self._node.vendor) for request, _ in expected]
        known: dict[tuple[Amounts, tuple[int, ...]], list[int]] = {}

        def vector(gpu: Device, left: Mapping[str, int]) -> list[int]:
            state = gpu.totals, tuple(left.get(dimension, 0) for dimension, _ in gpu.totals)
            if state not in known:  # mostly all are alike
                free = free_percent(gpu, left)
                known[state] = found = [free]
                for may, amounts in zip(ours, wanted[gpu.totals], strict=True):
                    found += (1, 0) if may and serves(gpu, left, amounts) else (0, free)
            return known[state]

        before = {gpu.minor: vector(gpu, self._left(gpu)) for gpu in self._node.of_type(GPU) if gpu.healthy}
        now = [sum(column) for column in zip(*before.values(), strict=True)]
        changes: dict[int, tuple[int, ...]] = {}
        for one in option.candidates:
            left = self._left(one.device)
            rest = {dimension: left[dimension] - amount for dimension, amount in one.amounts}
            after = vector(one.device, {**left, **rest})
            changes[one.device.minor] = tuple(b - a for a, b in zip(before[one.device.minor], after, strict=True))
        if len(set(changes.values())) == 1:
            return lambda _: 0

        def key(one: DeviceSet) -> int:
            free, *of = (sum(column) for column in zip(now, *(changes[minor] for minor in minors_of(one)), strict=True))
            by_request = zip(expected, of[::2], of[1::2], strict=True)
            return sum(
                weight * (free if fitting < request.count else lost) for (request, weight), fitting, lost in by_request
            )

        return key


def _pair_score(node: NodeDevices, a: Device, b: Device) -> int:
    if a.type == GPU and (links := node.links.get(pair_of(a.minor, b.minor), 0)) > 0:
        return LINK_SCORE * min(links, LINKS_MAX)
    if a.pcie and a.pcie == b.pcie:
        return SAME_PCIE_SCORE
    return SAME_NUMA_SCORE if a.numa == b.numa != UNKNOWN_NODE else OTHER_SCORE


def sets_of(node: NodeDevices, group: Sequence[Candidate], count: int) -> Iterable[DeviceSet]:
    """Return the sets of a number of devices: all, or where they are too many those grown from one device each."""
    if comb(len(group), count) <= SETS_MAX:
        return combinations(group, count)
    return [_grown(node, start, group, count) for start in group[:GROWN_MAX]]


def _grown(node: NodeDevices, start: Candidate, group: Sequence[Candidate], count: int) -> DeviceSet:
    """Return a set that has grown from one device by the device with the best links to it, again and again."""
    found = [start]
    by_minor = {one.device.minor: one for one in group if one is not start}
    gains = dict.fromkeys(by_minor, 0)
    while len(found) < count:
        for minor in gains:
            gains[minor] += _pair_score(node, found[-1].device, by_minor[minor].device)
        best = min(gains, key=lambda minor: (-gains[minor], minor))
        found.append(by_minor[best])
        del gains[best]
    return tuple(sorted(found, key=lambda one: one.device.minor))


def by_table(option: Option, asked: DeviceRequest) -> bool:
    """Return whether the node's partitions precede other sets."""
    return option.kind == GPU and option.count > 1 and asked.gpu is not None and (asked.gpu.whole or asked.restricted)


def unheld(device: Device, left: Mapping[str, int]) -> bool:
    """Return whether nobody holds anything of a device."""
    return all(left.get(dimension, 0) >= total for dimension, total in device.totals)


def serves(device: Device, left: Mapping[str, int], amounts: Amounts) -> bool:
    """Return whether the amounts are left of a device, which is full when one of its dimensions is."""
    for dimension, amount in amounts:
        if left.get(dimension, 0) < amount:
            return False
    return all(left.get(dimension, 0) > 0 for dimension, total in device.totals if total > 0)


def free_percent(device: Device, left: Mapping[str, int]) -> int:
    """Return what is free of the dimension of a device that is the scarcest."""
    shares = (left.get(dimension, 0) * WHOLE // total for dimension, total in device.totals if total > 0)
    return max(min(shares, default=0), 0)


def minors_of(one: DeviceSet) -> tuple[int, ...]:
    """Return the minors of a set."""
    return tuple(each.device.minor for each in one)


def switches_of(one: DeviceSet) -> frozenset[str]:
    """Return the known PCIe switches of a set."""
    return frozenset(each.device.pcie for each in one if each.device.pcie)


def numa_nodes_of(one: DeviceSet) -> frozenset[int]:
    """Return the known NUMA nodes of a set."""
    return frozenset(each.device.numa for each in one if each.device.numa != UNKNOWN_NODE)


def scope_of(one: DeviceSet) -> int:
    """Return the rank of the smallest scope that holds a set."""
    if len(one) == 1:
        return SCOPE_RANK[TopologyScope.DEVICE]
    pcie, numa = one[0].device.pcie, one[0].device.numa
    if pcie and all(each.device.pcie == pcie for each in one):
        return SCOPE_RANK[TopologyScope.PCIE]
    if numa != UNKNOWN_NODE and all(each.device.numa == numa for each in one):
        return SCOPE_RANK[TopologyScope.NUMA_NODE]
    return SCOPE_RANK[TopologyScope.NODE]


def groups_of(candidates: Sequence[Candidate], scope: TopologyScope) -> Iterable[Sequence[Candidate]]:
    """Return the candidates by the known parts of a node of one scope."""
    if scope is TopologyScope.NODE:
        return [candidates]
    groups: dict[str | int, list[Candidate]] = {}
    for one in candidates:
        part = one.device.pcie if scope is TopologyScope.PCIE else one.device.numa
        if part not in ("", UNKNOWN_NODE):
            groups.setdefault(part, []).append(one)
    return groups.values()


def below(option: Option, switches: Collection[str]) -> Option:
    """Return the option with the candidates below these switches."""
    return replace(option, candidates=tuple(one for one in option.candidates if one.device.pcie in switches))


def distance_to(first: DeviceSet) -> Callable[[DeviceSet], tuple[int, int]]:
    """Return how far a set is from another: by device 0 below one of its switches, 1 on one of its NUMA nodes, else 2.

    The second number counts the switches of the other set below which there is none.
    """
    switches, numa_nodes = switches_of(first), numa_nodes_of(first)

    def distance(one: DeviceSet) -> tuple[int, int]:
        far = (0 if each.device.pcie in switches else 1 if each.device.numa in numa_nodes else 2 for each in one)
        return sum(far), len(switches - switches_of(one))

    return distance


def _least(sets: Sequence[DeviceSet], key: Key) -> list[DeviceSet]:
    """Return the sets whose key is the least."""
    found = [key(one) for one in sets]
    least = min(found)
    return [one for one, value in zip(sets, found, strict=True) if value == least]
