"""A test oracle of the choice of devices, written from the rules: it looks at every subset of the devices of a node.

It uses no code of the product but the model. It is for a few devices.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from aischeduler.model.device import (
    GPU,
    Amounts,
    Device,
    DeviceHint,
    DeviceRequest,
    GpuRequest,
    HeldDevice,
    NodeDevices,
)
from aischeduler.model.pool import PlacementStrategy

Free = Mapping[tuple[str, int], Mapping[str, int]]
Taken = Mapping[tuple[str, int], frozenset[int]]
Chosen = tuple[Device, ...]
Expected = Sequence[tuple[GpuRequest, int]]
SIZES = range(16, 0, -1)
SCOPE_OF_HINT = {None: 3, "Node": 3, "NUMANode": 2, "PCIe": 1, "Device": 0}


class Oracle:
    """One request on one node."""

    def __init__(self, node: NodeDevices, free: Free, asked: DeviceRequest, taken: Taken) -> None:
        self.links = {(int(a), int(b)): n for name, n in node.links.items() for a, b in [name.split("-")]}
        self.node, self.free, self.asked, self.taken = node, free, asked, taken
        self.kinds = [GPU] * (asked.gpu is not None) + [kind for kind, _ in asked.others]

    def best(self, placement: PlacementStrategy, expected: Expected) -> dict[str, tuple[int, ...]] | None:
        """Return the minors of each type; None where the request does not fit."""
        joint = list(self.asked.joint)
        if not set(joint) <= set(self.kinds):
            return None
        found: dict[str, Chosen] = {}
        for kind in self.kinds:
            if kind not in joint:
                sets = self.sets(kind)
                if not sets:
                    return None
                found[kind] = min(sets, key=lambda one: self.key(one, (), (), placement, expected))
        if joint:
            beside = {
                minors(first): [first, *others]
                for first in self.sets(joint[0])
                if (others := self.beside(first, joint[1:], placement, expected)) is not None
            }
            if not beside:
                return None

            def first_key(key: tuple[int, ...]) -> tuple[object, ...]:
                first, *others = beside[key]
                return self.key(first, (), [distance(first, other) for other in others], placement, expected)

            found |= dict(zip(joint, beside[min(beside, key=first_key)], strict=True))
        return {kind: minors(one) for kind, one in found.items()}

    def beside(
        self, first: Chosen, kinds: Sequence[str], placement: PlacementStrategy, expected: Expected
    ) -> list[Chosen] | None:
        """Return the best set of each further joint type beside a set of the first."""
        found = []
        for kind in kinds:
            sets = [one for one in self.sets(kind) if not self.asked.same_pcie or same_switches(first, one)]
            if not sets:
                return None
            found.append(min(sets, key=lambda one: self.key(one, distance(first, one), (), placement, expected)))
        return found

    def sets(self, kind: str) -> list[Chosen]:
        """Return all sets of one type that the pod may get, whatever it gets of other types."""
        devices = self.node.of_type(kind)
        every = [one for n in range(1, len(devices) + 1) for one in combinations(devices, n)]
        return [one for one in every if self.may_be_given(kind, one)]

    def may_be_given(self, kind: str, one: Chosen) -> bool:
        hint = self.asked.hint(kind) or DeviceHint()
        amounts = self.amounts(kind, one)
        if amounts is None or scope(one) > SCOPE_OF_HINT[hint.scope]:
            return False
        for device, wanted in zip(one, amounts, strict=True):
            left = self.free.get((kind, device.minor), {})
            if not device.healthy or (hint.selector is not None and not hint.selector.matches(device.labels)):
                return False
            if not takes(device, wanted, left):
                return False
            if hint.function_selector is not None and self.function(device) is None:
                return False
            if hint.exclusive and not self.alone(device):
                return False
        return not self.table_counts(one) or not self.table_rules() or self.is_partition(one)

    def may_be(self, held: Sequence[HeldDevice]) -> bool:
        """Return whether the pod may get these devices, if each type is judged alone."""
        for kind in self.kinds:
            given = {one.minor for one in held if one.type == kind}
            if not self.may_be_given(kind, tuple(each for each in self.node.of_type(kind) if each.minor in given)):
                return False
        return True

    def amounts(self, kind: str, one: Chosen) -> list[Amounts] | None:
        """Return what it takes of each device of a set; None where the set has not the right number."""
        hint = self.asked.hint(kind) or DeviceHint()
        matching = tuple(
            device
            for device in self.node.of_type(kind)
            if device.healthy and (hint.selector is None or hint.selector.matches(device.labels))
        )
        if kind == GPU:
            gpu = self.asked.gpu
            assert gpu is not None
            if gpu.vendor not in ("", self.node.vendor) or (hint.count and not gpu.whole):
                return None
            right = one == matching if hint.every else len(one) == gpu.count
            return [gpu.of(device) for device in one] if right else None
        amount = dict(self.asked.others)[kind]
        if hint.every:
            return [((kind, amount),) for _ in one] if one == matching else None
        totals = {device.total(kind) for device in one}
        if len(totals) > 1:
            return None
        total = totals.pop()
        if not hint.count and amount <= total:
            return [((kind, amount),)] if len(one) == 1 else None
        return [((kind, total),) for _ in one] if total and amount == total * len(one) else None

    def function(self, device: Device) -> tuple[int, str] | None:
        """Return the virtual function that the pod would get of a device."""
        hint = self.asked.hint(device.type)
        assert hint is not None
        assert hint.function_selector is not None
        taken = self.taken.get((device.type, device.minor), frozenset())
        for function in sorted(device.functions, key=lambda each: (each.minor, each.bus_id)):
            if function.minor not in taken and hint.function_selector.matches(function.labels):
                return function.minor, function.bus_id
        return None

    def alone(self, device: Device) -> bool:
        """Return whether no pod has a device of the type below the same, known switch."""
        if not device.pcie:
            return False
        for other in self.node.of_type(device.type):
            key = (other.type, other.minor)
            if other.pcie == device.pcie and (other.healthy or key in self.free) and not self.unheld(other):
                return False
        return True

    def unheld(self, device: Device) -> bool:
        left = self.free.get((device.type, device.minor), {})
        return all(left.get(dimension, 0) >= total for dimension, total in device.totals)

    # Partitions

    def table_counts(self, one: Chosen) -> bool:
        gpu = self.asked.gpu
        return one[0].type == GPU and len(one) > 1 and gpu is not None and (gpu.whole or self.asked.restricted)

    def table_rules(self) -> bool:
        return self.asked.restricted or self.node.partitions_only

    def is_partition(self, one: Chosen) -> bool:
        least = self.asked.bandwidth_gbps if self.asked.restricted else 0
        return any(minors(one) == each.minors and each.bandwidth_gbps >= least for each in self.node.partitions)

    def table_key(self, one: Chosen) -> tuple[int, ...]:
        """Return 0, less the score, and less the free partitions that are left, by size; 1 for no partition."""
        if not self.table_counts(one) or not self.is_partition(one):
            return (1,)
        score = max(each.score for each in self.node.partitions if each.minors == minors(one))
        left = {each.minors for each in self.node.partitions if self.whole(each.minors) and not meet(each.minors, one)}
        return (0, -score, *(-len([each for each in left if len(each) == size]) for size in SIZES))

    def whole(self, gpus: Sequence[int]) -> bool:
        """Return whether all of these GPUs are there, healthy and free."""
        by_minor = {gpu.minor: gpu for gpu in self.node.of_type(GPU)}
        return all(each in by_minor and by_minor[each].healthy and self.unheld(by_minor[each]) for each in gpus)

    # The order of choice

    def key(
        self, one: Chosen, near: object, nearest: object, placement: PlacementStrategy, expected: Expected
    ) -> tuple[object, ...]:
        """Return what is compared, the least is the best; `near` and `nearest` are distances to joint types."""
        return (
            len(one),
            self.table_key(one),
            near,
            scope(one),
            nearest,
            -sum(self.pair(a, b) for a, b in combinations(one, 2)),
            self.broken(one),
            self.placement(one, placement, expected),
            minors(one),
        )

    def pair(self, a: Device, b: Device) -> int:
        links = self.links.get((a.minor, b.minor), 0) if a.type == GPU else 0
        if links > 0:
            return 100 * min(links, 18)
        if a.pcie != "" and a.pcie == b.pcie:
            return 50
        return 20 if a.numa != -1 and a.numa == b.numa else 10

    def broken(self, one: Chosen) -> int:
        """Return how many whole islands lose some of their GPUs; a pod that gets all of one whole breaks none."""
        if one[0].type != GPU:
            return 0
        assert self.asked.gpu is not None
        count = 0
        for island in set(self.islands()):
            if len(island) > 1 and self.whole(island) and meet(island, one):
                count += not (self.asked.gpu.whole and set(island) <= set(minors(one)))
        return count

    def islands(self) -> Iterator[tuple[int, ...]]:
        """Yield the minors of each island."""
        for pcie in {gpu.pcie for gpu in self.node.of_type(GPU)} - {""}:
            yield tuple(gpu.minor for gpu in self.node.of_type(GPU) if gpu.pcie == pcie)
        for start in {minor for pair in self.links for minor in pair}:
            island = {start}
            for _ in self.links:
                for pair, links in self.links.items():
                    if links > 0 and island & set(pair):
                        island |= set(pair)
            yield tuple(sorted(island))
        for each in self.node.partitions:
            yield each.minors

    def placement(self, one: Chosen, placement: PlacementStrategy, expected: Expected) -> int:
        if placement is PlacementStrategy.FRAGMENTATION and expected and one[0].type == GPU:
            return self.waste(self.less(one), expected) - self.waste(self.free, expected)
        free = sum(percent(device, self.free[device.type, device.minor]) for device in one)
        return -free if placement is PlacementStrategy.SPREAD else free

    def less(self, one: Chosen) -> Free:
        """Return what is free beside the pod."""
        left = {key: dict(amounts) for key, amounts in self.free.items()}
        for device, wanted in zip(one, self.amounts(one[0].type, one) or (), strict=True):
            for dimension, amount in wanted:
                left[device.type, device.minor][dimension] -= amount
        return left

    def waste(self, free: Free, expected: Expected) -> int:
        """Return the free percents of GPUs that each request cannot use, by its weight."""
        gpus = [gpu for gpu in self.node.of_type(GPU) if gpu.healthy]
        sum_of = 0
        for request, weight in expected:
            able = [
                request.vendor in ("", self.node.vendor) and takes(gpu, request.of(gpu), free.get((GPU, gpu.minor), {}))
                for gpu in gpus
            ]
            hosts = able.count(True) >= request.count
            for gpu, usable in zip(gpus, able, strict=True):
                if not (hosts and usable):
                    sum_of += weight * percent(gpu, free.get((GPU, gpu.minor), {}))
        return sum_of


def minors(one: Chosen) -> tuple[int, ...]:
    return tuple(device.minor for device in one)


def meet(gpus: Sequence[int], one: Chosen) -> bool:
    return not set(gpus).isdisjoint(minors(one))


def takes(device: Device, wanted: Amounts, left: Mapping[str, int]) -> bool:
    """Return whether the amounts are free, and no dimension of the device is used up."""
    enough = all(left.get(dimension, 0) >= amount for dimension, amount in wanted)
    return enough and all(left.get(dimension, 0) > 0 for dimension, total in device.totals if total)


def percent(device: Device, left: Mapping[str, int]) -> int:
    return max(0, min(100 * left.get(dimension, 0) // total for dimension, total in device.totals))


def scope(one: Chosen) -> int:
    if len(one) == 1:
        return 0
    if len({device.pcie for device in one}) == 1 and one[0].pcie:
        return 1
    return 2 if len({device.numa for device in one}) == 1 and one[0].numa != -1 else 3


def same_switches(a: Chosen, b: Chosen) -> bool:
    below_a, below_b = {device.pcie for device in a}, {device.pcie for device in b}
    return below_a == below_b and "" not in below_a


def distance(first: Chosen, one: Chosen) -> tuple[int, int]:
    """Return how far the devices are from the first type's, and how many switches of these have none of them."""
    far = 0
    for device in one:
        if any(device.pcie and device.pcie == each.pcie for each in first):
            continue
        far += 1 if any(device.numa != -1 and device.numa == each.numa for each in first) else 2
    uncovered = {each.pcie for each in first if each.pcie} - {device.pcie for device in one}
    return far, len(uncovered)
