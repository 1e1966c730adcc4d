"""The choice of the devices of one node that a pod, or a gang, gets.

Invariants:
- A choice takes of a device at most what is free, and nothing of a device that is unhealthy or full in a dimension.
- `fits` answers with an empty text exactly where `choose` finds devices.
- Of the sets that may be given, those of fewer devices are preferred, then as `device_sets` says. For a joint type
  after the first, to be near the first precedes its own scope.

Source: Koordinator's DeviceShare (hints, joint allocation, partition policies).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from math import comb
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from aischeduler.model.device import (
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    WHOLE,
    Amounts,
    Device,
    DeviceHint,
    DeviceRequest,
    GpuRequest,
    HeldDevice,
    Islands,
    NodeDevices,
    TopologyScope,
    free_hundredths,
    islands_of,
)
from aischeduler.model.pool import PlacementStrategy
from aischeduler.model.selectors import LabelSelector
from aischeduler.plugins.device_sets import (
    SETS_MAX,
    Candidate,
    DeviceSet,
    Distances,
    Free,
    Option,
    Preference,
    Ranking,
    SetsOf,
    below,
    by_table,
    distance_to,
    groups_of,
    numa_nodes_of,
    scope_of,
    serves,
    sets_of,
    switches_of,
    unheld,
)

__all__ = ["Free", "Preference", "TakenFunctions", "choose", "choose_together", "fits"]

TakenFunctions = Mapping[tuple[str, int], frozenset[int]]
"""Type and minor -> the minors of the virtual functions that pods have."""

INSUFFICIENT: Final = "Insufficient {} devices"
JOINT: Final = "node(s) Device Joint-Allocate rules violation"
PARTITION: Final = "node(s) had no free GPU partition of the requested size and bandwidth"
SCOPE: Final = "node(s) had no free devices within the required topology scope"
EXCLUSIVE: Final = "node(s) had devices of other pods below the same PCIe switch"
FUNCTION: Final = "node(s) had no free virtual function that matches"

_SCOPES: Final = tuple(TopologyScope)
_NO_HINT: Final = DeviceHint()
_NOTHING: Final[Mapping[str, int]] = {}
_NO_FUNCTIONS: Final[TakenFunctions] = {}


def choose(
    node: NodeDevices,
    free: Free,
    asked: DeviceRequest,
    prefer: Preference,
    *,
    taken_functions: TakenFunctions = _NO_FUNCTIONS,
    islands: Islands | None = None,
) -> tuple[HeldDevice, ...] | str:
    """Return the devices that a pod gets, by type and minor, or the reason why it gets none on the node.

    `islands` are those of the node, where the caller keeps them.
    """
    if asks_for_one_gpu(asked, prefer):
        left = [(device, free.get((device.type, device.minor), _NOTHING)) for device in node.devices]
        percents = [_free_hundredths(*one) for one in left]
        known = islands_of(node) if islands is None else islands
        return choose_one_gpu(node, percents, asked, prefer, free=lambda: free, islands=known)
    search = _Search(node, free, asked, taken_functions)
    return search.reason() or search.best(prefer)


def asks_for_one_gpu(asked: DeviceRequest, prefer: Preference) -> bool:
    """Return whether one GPU is all that is asked for: nothing but islands and what is free tells GPUs apart."""
    if asked.gpu is None or asked.gpu.count != 1 or asked.others or asked.hints or asked.joint or asked.restricted:
        return False
    return prefer.placement is not PlacementStrategy.FRAGMENTATION or not prefer.expected


def choose_one_gpu(
    node: NodeDevices,
    percents: Sequence[int],
    asked: DeviceRequest,
    prefer: Preference,
    *,
    free: Callable[[], Free],
    islands: Islands,
) -> tuple[HeldDevice, ...] | str:
    """Do what a search does for one GPU, without sets: this is what most pods ask for.

    `percents` are the `free_hundredths` of each device of the node. `free` is asked where these do not say whether a
    GPU has what the pod asks for.
    """
    gpu = asked.gpu
    assert gpu is not None, "the pod asks for a GPU"
    one_number = gpu.core == gpu.ratio and not gpu.memory_bytes
    fitting: list[tuple[Device, int]] = []
    untouched = set[int]()
    left: Free | None = None
    for device, percent in zip(node.devices, percents, strict=False) if gpu.vendor in ("", node.vendor) else ():
        if device.type != GPU or not device.healthy:
            continue
        if percent == WHOLE:
            untouched.add(device.minor)
        if one_number and percent != gpu.ratio - 1:  # else memory in bytes may be enough, because it is rounded
            holds = percent >= gpu.ratio
        else:
            left = free() if left is None else left
            holds = serves(device, left.get((GPU, device.minor), _NOTHING), gpu.of(device))
        if holds and gpu.whole and not islands:  # the others that fit are as good, and have higher minors
            return (HeldDevice(GPU, device.minor, gpu.of(device), device.id),)
        if holds:
            fitting.append((device, percent))
    if not fitting:
        return INSUFFICIENT.format(GPU)
    whole = [island for island in islands if island <= untouched]
    sign = -1 if prefer.placement is PlacementStrategy.SPREAD else 1

    def key(one: tuple[Device, int]) -> tuple[int, int, int]:
        device, percent = one
        return sum(device.minor in island for island in whole), sign * percent, device.minor

    device, _ = min(fitting, key=key) if len(fitting) > 1 else fitting[0]
    return (HeldDevice(GPU, device.minor, gpu.of(device), device.id),)


def _free_hundredths(device: Device, left: Mapping[str, int]) -> int:
    of = (left.get(GPU_CORE, 0), left.get(GPU_MEMORY, 0), left.get(GPU_MEMORY_RATIO, 0))
    return free_hundredths(*of, device.total(GPU_MEMORY))


def fits(
    node: NodeDevices, free: Free, asked: DeviceRequest, *, taken_functions: TakenFunctions = _NO_FUNCTIONS
) -> str:
    """Return the reason why a pod gets no devices on the node; empty where it gets them."""
    return _Search(node, free, asked, taken_functions).reason()


def choose_together(
    node: NodeDevices,
    free: Free,
    asked: Sequence[DeviceRequest],
    prefer: Preference,
    *,
    taken_functions: TakenFunctions = _NO_FUNCTIONS,
) -> tuple[tuple[HeldDevice, ...], ...] | str:
    """Return the devices of each pod of a gang, in the order of the requests, or the reason of one that gets none.

    Pods that ask for whole GPUs, without hints, divide the set that is best for all of their GPUs, and choose before
    the others. If a pod gets none in this way, they choose one after another, the largest first; at last, as given.
    """
    by_size = sorted(range(len(asked)), key=lambda index: (*_negative_sizes(node, asked[index]), index))
    dividing = [index for index in by_size if _divides(asked[index])]
    orders: list[tuple[list[int], frozenset[int] | None]] = [(by_size, None)]
    if len(dividing) > 1:
        whole = GpuRequest(sum(_gpus(asked[index]) for index in dividing), WHOLE, WHOLE)
        together = choose(replace(node, partitions_only=False), free, DeviceRequest(gpu=whole), prefer)
        if not isinstance(together, str):
            order = dividing + [index for index in by_size if index not in dividing]
            orders.insert(0, (order, frozenset(one.minor for one in together)))
    if by_size != sorted(by_size):
        orders.append((sorted(by_size), None))
    found: tuple[tuple[HeldDevice, ...], ...] | str = ()
    for order, minors in orders:
        found = _in_turn(node, free, asked, prefer, taken=taken_functions, order=order, minors=minors)
        if not isinstance(found, str):
            break
    return found


def _in_turn(
    node: NodeDevices,
    free: Free,
    asked: Sequence[DeviceRequest],
    prefer: Preference,
    *,
    taken: TakenFunctions,
    order: Sequence[int],
    minors: frozenset[int] | None,
) -> tuple[tuple[HeldDevice, ...], ...] | str:
    """Let pods choose one after another; where `minors` is given, those that divide GPUs have these only."""
    chosen: dict[int, tuple[HeldDevice, ...]] = {}
    left, functions = dict(free), dict(taken)
    for index in order:
        seen: Free = left
        if minors is not None and _divides(asked[index]):
            seen = {key: amounts for key, amounts in left.items() if key[0] != GPU or key[1] in minors}
        found = choose(node, seen, asked[index], prefer, taken_functions=functions)
        if isinstance(found, str):
            return found
        chosen[index] = found
        for one in found:
            key = (one.type, one.minor)
            left[key] = {**left[key], **{dimension: left[key][dimension] - amount for dimension, amount in one.amounts}}
            functions[key] = functions.get(key, frozenset()).union(minor for minor, _ in one.functions)
    return tuple(chosen[index] for index in range(len(asked)))


def _divides(asked: DeviceRequest) -> bool:
    """Return whether a pod may choose in a set of GPUs that was chosen for several pods."""
    return asked.gpu is not None and asked.gpu.whole and not asked.hints and not asked.joint


def _gpus(asked: DeviceRequest) -> int:
    return asked.gpu.count if asked.gpu is not None else 0


def _negative_sizes(node: NodeDevices, asked: DeviceRequest) -> tuple[int, int]:
    """Return the hundredths of GPUs asked for, of the first GPU where bytes are, and the sum of the others."""
    gpu, first = asked.gpu, next(iter(node.of_type(GPU)), None)
    amounts = dict(gpu.of(first)) if gpu is not None and first is not None else {}
    share = max(amounts.get(GPU_CORE, 0), amounts.get(GPU_MEMORY_RATIO, 0))
    return -share * _gpus(asked), -sum(amount for _, amount in asked.others)


class _Beside(Struct, frozen=True):
    """The devices of the joint types after the first, beside one set of the first, and how near they are."""

    distances: Distances
    sets: tuple[DeviceSet, ...]


class _Search:
    """One request on one node. `reason` is asked first; `best` only where there is none."""

    def __init__(self, node: NodeDevices, free: Free, asked: DeviceRequest, taken: TakenFunctions) -> None:
        self._node = node
        self._free = free
        self._asked = asked
        self._taken = taken
        self._kinds = ((GPU,) if asked.gpu is not None else ()) + tuple(kind for kind, _ in asked.others)
        self._joint = tuple(dict.fromkeys(asked.joint))
        self._options: dict[str, tuple[Option, ...]] = {}

    def _sets(self, group: Sequence[Candidate], count: int) -> Iterable[DeviceSet]:
        return sets_of(self._node, group, count)

    def reason(self) -> str:
        """Return why the node has no devices for the request; empty where it has."""
        for kind in self._kinds:
            options = self._options_of(kind)
            if isinstance(options, str):
                return options
            self._options[kind] = options
        for kind in self._kinds:
            if reason := self._reason_alone(kind):
                return reason
        if any(kind not in self._kinds for kind in self._joint):
            return JOINT
        if self._asked.same_pcie and len(self._joint) > 1:
            self._keep_common_switches()
            if not self._has_joint_set():
                return JOINT
        return ""

    def best(self, prefer: Preference) -> tuple[HeldDevice, ...]:
        """Return the devices of a request that has no reason against it."""
        ranking = Ranking(self._node, self._free, self._asked, prefer)
        groups: list[tuple[str, ...]] = [(kind,) for kind in self._kinds if kind not in self._joint]
        if self._joint:
            groups.append(self._joint)
        sets = chain.from_iterable(self._best_of(kinds, ranking) for kinds in groups)
        chosen = sorted(chain.from_iterable(sets), key=lambda one: (one.device.type, one.device.minor))
        return tuple(
            HeldDevice(one.device.type, one.device.minor, one.amounts, one.device.id, one.functions) for one in chosen
        )

    # Which devices there are

    def _hint(self, kind: str) -> DeviceHint:
        return self._asked.hint(kind) or _NO_HINT

    def _left(self, device: Device) -> Mapping[str, int]:
        return self._free.get((device.type, device.minor), _NOTHING)

    def _options_of(self, kind: str) -> tuple[Option, ...] | str:
        """Return the ways to serve the request of one type, with the fewest devices first, or a reason."""
        hint = self._hint(kind)
        devices = [
            device
            for device in self._node.devices
            if device.type == kind
            and device.healthy
            and (hint.selector is None or hint.selector.matches(device.labels))
        ]
        options, reasons = [], [INSUFFICIENT.format(kind), "", ""]
        for count, wanted in self._wanted(kind, hint, devices):
            able = tuple(
                Candidate(device, amounts) for device, amounts in wanted if serves(device, self._left(device), amounts)
            )
            with_function = (
                able if hint.function_selector is None else self._with_function(able, hint.function_selector)
            )
            alone = self._alone_below_switch(kind, with_function) if hint.exclusive else with_function
            if len(alone) >= count:
                options.append(Option(kind, count, alone))
            elif len(with_function) >= count:
                reasons[2] = EXCLUSIVE
            elif len(able) >= count:
                reasons[1] = FUNCTION
        return tuple(options) or next(reason for reason in reversed(reasons) if reason)

    def _wanted(
        self, kind: str, hint: DeviceHint, devices: Sequence[Device]
    ) -> list[tuple[int, list[tuple[Device, Amounts]]]]:
        """Return each number of devices that may serve the request, ascending, and what it takes of which devices."""
        wanted: dict[int, list[tuple[Device, Amounts]]] = {}
        if kind == GPU:
            gpu = self._asked.gpu
            if gpu is None or gpu.vendor not in ("", self._node.vendor) or (hint.count and not gpu.whole):
                return []
            takes: dict[Amounts, Amounts] = {}
            for device in devices:
                if device.totals not in takes:
                    takes[device.totals] = gpu.of(device)
                wanted.setdefault(gpu.count, []).append((device, takes[device.totals]))
        else:
            amount = dict(self._asked.others)[kind]
            for device in devices:
                total = device.total(kind)
                if hint.every or (amount <= total and not hint.count):
                    wanted.setdefault(1, []).append((device, ((kind, amount),)))
                elif total > 0 and amount % total == 0:
                    wanted.setdefault(amount // total, []).append((device, ((kind, total),)))
        return sorted((len(those) if hint.every else count, those) for count, those in wanted.items())

    def _with_function(self, able: Sequence[Candidate], selector: LabelSelector) -> tuple[Candidate, ...]:
        """Return the devices with a virtual function that matches and that nobody has, each with the first of them."""
        found = []
        for one in able:
            taken = self._taken.get((one.device.type, one.device.minor), frozenset())
            functions = [
                (function.minor, function.bus_id)
                for function in one.device.functions
                if function.minor not in taken and selector.matches(function.labels)
            ]
            if functions:
                found.append(replace(one, functions=(min(functions),)))
        return tuple(found)

    def _alone_below_switch(self, kind: str, able: Sequence[Candidate]) -> tuple[Candidate, ...]:
        """Return the devices below known PCIe switches below which nobody has a device of the type."""
        held = {
            device.pcie
            for device in self._node.of_type(kind)
            if not unheld(device, self._left(device)) and (device.healthy or (kind, device.minor) in self._free)
        }
        return tuple(one for one in able if one.device.pcie and one.device.pcie not in held)

    # Which sets there are

    def _only_by_table(self, option: Option) -> bool:
        return by_table(option, self._asked) and (self._asked.restricted or self._node.partitions_only)

    def _partition_sets(self, option: Option, scope: TopologyScope) -> list[DeviceSet]:
        """Return the partitions that may be given within a scope."""
        able = {one.device.minor: one for one in option.candidates}
        bandwidth = self._asked.bandwidth_gbps if self._asked.restricted else 0
        minors = {
            partition.minors
            for partition in self._node.partitions
            if len(partition.minors) == option.count
            and partition.bandwidth_gbps >= bandwidth
            and able.keys() >= set(partition.minors)
        }
        sets = (tuple(able[minor] for minor in one) for one in sorted(minors))
        return [one for one in sets if scope_of(one) <= _SCOPES.index(scope)]

    def _tiers(self, option: Option, sets: SetsOf, *, by_scope: bool = True) -> Iterator[Iterable[DeviceSet]]:
        """Yield the sets that may be given, those of a better tier first: partitions, and with `by_scope` each scope.

        A set may be in several tiers.
        """
        scope = self._hint(option.kind).scope or TopologyScope.NODE
        if by_table(option, self._asked):
            yield self._partition_sets(option, scope)
        if self._only_by_table(option):
            return
        if option.count == 1:
            yield ((one,) for one in option.candidates)
            return
        allowed = _SCOPES[1 : _SCOPES.index(scope) + 1]
        scopes = [[one] for one in allowed] if by_scope else [allowed[-1:] if scope is TopologyScope.NODE else allowed]
        for tier in scopes:
            groups = chain.from_iterable(groups_of(option.candidates, one) for one in tier)
            yield chain.from_iterable(sets(group, option.count) for group in groups if len(group) >= option.count)

    def _reason_alone(self, kind: str) -> str:
        """Return why the devices of one type cannot be given, whatever the other types are; empty where they can."""
        options, scope = self._options[kind], self._hint(kind).scope
        for option in options:
            if scope in (None, TopologyScope.NODE) and not self._only_by_table(option):
                return ""
            if any(True for _ in chain.from_iterable(self._tiers(option, _first_set))):
                return ""
        only = self._only_by_table(options[0])
        return PARTITION if only and not self._partition_sets(options[0], TopologyScope.NODE) else SCOPE

    # Joint types

    def _keep_common_switches(self) -> None:
        """Leave out the devices of joint types below switches that do not have candidates of each of them."""
        of_kinds = [
            {c.device.pcie for option in self._options[kind] for c in option.candidates} for kind in self._joint
        ]
        common = set.intersection(*of_kinds) - {""}
        for kind in self._joint:
            options = (below(option, common) for option in self._options[kind])
            self._options[kind] = tuple(option for option in options if len(option.candidates) >= option.count)

    def _has_joint_set(self) -> bool:
        """Return whether there are devices of all joint types below the same switches."""
        first, *others = self._joint
        seen: dict[frozenset[str], bool] = {}
        for option in self._options[first]:
            for one in chain.from_iterable(self._tiers(option, self._sets)):
                switches = switches_of(one)
                if switches not in seen:
                    seen[switches] = all(next(self._beside(kind, one, sets_max=0), None) for kind in others)
                if seen[switches]:
                    return True
        return False

    def _beside(self, kind: str, first: DeviceSet, sets_max: int) -> Iterator[tuple[Option, list[DeviceSet]]]:
        """Yield the tiers of sets of a joint type that may be given beside a set of the first type.

        Where a scope has more than `sets_max` sets, the one that covers the most switches of the first stands for them.
        """
        switches, distance = switches_of(first), distance_to(first)

        def sets_beside(group: Sequence[Candidate], count: int) -> Iterable[DeviceSet]:
            return combinations(group, count) if comb(len(group), count) <= sets_max else [covering(group, count)]

        def covering(group: Sequence[Candidate], count: int) -> DeviceSet:
            by_distance = sorted(group, key=lambda one: (distance((one,))[0], one.device.minor))
            covers = {one.device.pcie: one for one in reversed(by_distance) if one.device.pcie in switches}.values()
            minors = {one.device.minor for one in covers}
            picked = [*covers, *(one for one in by_distance if one.device.minor not in minors)][:count]
            return tuple(sorted(picked, key=lambda one: one.device.minor))

        for option in self._options[kind]:
            able = below(option, switches) if self._asked.same_pcie else option
            if len(able.candidates) >= able.count:
                for tier in self._tiers(able, sets_beside, by_scope=False):
                    sets = [one for one in tier if not self._asked.same_pcie or switches_of(one) == switches]
                    if sets:
                        yield able, sets

    def _best_beside(self, first: DeviceSet, ranking: Ranking, sets_max: int) -> _Beside | None:
        """Return the best devices of the joint types after the first; None where there are none."""
        distance = distance_to(first)
        sets = []
        for kind in self._joint[1:]:
            found = next(self._beside(kind, first, sets_max), None)
            if found is None:
                return None
            sets.append(ranking.best(*found, before=[distance, scope_of]))
        return _Beside(tuple(distance(one) for one in sets), tuple(sets))

    # Which set is best

    def _best_of(self, kinds: Sequence[str], ranking: Ranking) -> tuple[DeviceSet, ...]:
        """Return the best sets of a type and of those that are to be near it."""
        for option in self._options[kinds[0]]:
            for tier in self._tiers(option, self._sets):
                sets = list(tier)
                if len(kinds) == 1 and sets:
                    return (ranking.best(option, sets, before=[scope_of]),)
                found = self._best_joint(option, sets, ranking) if sets else ()
                if found:
                    return found
        raise AssertionError("the node has devices for the request")

    def _best_joint(self, option: Option, sets: list[DeviceSet], ranking: Ranking) -> tuple[DeviceSet, ...]:
        """Return the best of the sets of the first joint type, and those beside it; empty where none has the others."""
        known: dict[tuple[frozenset[str], frozenset[int]], _Beside | None] = {}
        sets_max = SETS_MAX // len(sets)

        def beside(one: DeviceSet) -> _Beside | None:
            where = (switches_of(one), numa_nodes_of(one))
            if where not in known:
                known[where] = self._best_beside(one, ranking, sets_max)
            return known[where]

        def distances(one: DeviceSet) -> Distances:
            found = beside(one)
            return found.distances if found is not None else ()

        able = [one for one in sets if beside(one) is not None] if self._asked.same_pcie else sets
        if not able:
            return ()
        best = ranking.best(option, able, before=[scope_of, distances])
        found = beside(best)
        return (best, *found.sets) if found is not None else ()


def _first_set(group: Sequence[Candidate], count: int) -> Iterable[DeviceSet]:
    """Return one of the sets of a number of devices."""
    return [tuple(group[:count])]
