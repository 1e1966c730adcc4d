"""Resource amounts, and the requests of a pod.

Invariants:
- Amounts are integers: CPU in thousandths of a core, everything else in whole units (bytes, devices, pods).
- Resource limits play no part in scheduling.

Source: k8s.io/component-helpers/resource (PodRequests) and kube-scheduler's defaults for scoring.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from aischeduler.model.names import CPU, HUGE_PAGES, MEMORY, PODS
from aischeduler.model.quantity import QuantityError, parse_milli, parse_units

ResourceList = Mapping[str, int]

SCORE_CPU_MILLI: Final = 100
"""The CPU that scores assume for a container without a CPU request."""
SCORE_MEMORY_BYTES: Final = 200 * 1024 * 1024
"""The memory that scores assume for a container without a memory request."""
SMALL: Final[ResourceList] = {CPU: SCORE_CPU_MILLI, MEMORY: SCORE_MEMORY_BYTES}
"""A container without requests, as scores count it."""


class ContainerRequest(Struct, frozen=True):
    """The requests of one container; a sidecar is an init container that keeps running."""

    requests: ResourceList
    sidecar: bool = False


class PodRequest(Struct, frozen=True):
    """The resource requests of a pod.

    `amounts` decide whether it fits. Scores read `score_cpu_milli` and `score_memory_bytes`, where a container without
    requests counts as a small one. `scored_alone` is what NodeResourcesFit counts for the pod itself, in milli and
    bytes, where that is another amount than once the pod is on a node: it does not read pod-level requests then.
    """

    amounts: ResourceList
    score_cpu_milli: int
    score_memory_bytes: int
    scored_alone: tuple[int, int] | None = None

    @property
    def taken(self) -> ResourceList:
        """What the pod takes of a node: its amounts, and one of the node's `pods`, whatever its spec asks of those."""
        return {**self.amounts, PODS: 1}


def parse_resource_list(field: str, quantities: Mapping[str, str]) -> dict[str, int]:
    """Parse a resource list; raises QuantityError with field and resource, also for an amount below zero."""
    amounts: dict[str, int] = {}
    for name, text in quantities.items():
        try:
            amount = parse_milli(text) if name == CPU else parse_units(text)
        except QuantityError as error:
            raise QuantityError(f"{field}.{name}: {error}") from error
        if amount < 0:
            raise QuantityError(f"{field}.{name}: {text} is below zero")
        amounts[name] = amount
    return amounts


def pod_request(
    containers: Iterable[ContainerRequest],
    init_containers: Iterable[ContainerRequest],
    pod_level: ResourceList,
    overhead: ResourceList,
) -> PodRequest:
    """Compute the requests of a pod: the maximum of containers with sidecars and of each init step, plus overhead.

    `init_containers` are in their order: a plain init container runs beside the sidecars declared before it. CPU,
    memory and huge pages in `pod_level` replace the sum.
    """
    containers, init_containers = tuple(containers), tuple(init_containers)
    pod_level = {name: amount for name, amount in pod_level.items() if is_pod_level(name)}
    amounts = {**_peak([c.requests for c in containers], init_containers), **pod_level}
    _add(amounts, overhead)
    alone = scored = _scored_peak(containers, init_containers, SMALL)
    if pod_level:
        small = {name: amount for name, amount in SMALL.items() if name not in amounts}
        scored = {**_scored_peak(containers, init_containers, small), **pod_level}
        _add(scored, overhead)
    _add(alone, overhead)
    kept = {name: amount for name, amount in sorted(amounts.items()) if amount > 0}
    on_node, itself = ((amounts.get(CPU, 0), amounts.get(MEMORY, 0)) for amounts in (scored, alone))
    return PodRequest(kept, on_node[0], on_node[1], itself if itself != on_node else None)


def is_pod_level(resource: str) -> bool:
    """Return whether requests of a whole pod may name the resource."""
    return resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES)


def _scored_peak(
    containers: tuple[ContainerRequest, ...], init_containers: tuple[ContainerRequest, ...], small: ResourceList
) -> dict[str, int]:
    """Return the most CPU and memory at one time, where a container that does not request one has that of `small`."""
    inits = [ContainerRequest(_scored(c.requests, small), sidecar=c.sidecar) for c in init_containers]
    return _peak([_scored(c.requests, small) for c in containers], inits)


def _scored(requests: ResourceList, small: ResourceList) -> ResourceList:
    return {name: requests.get(name, small.get(name, 0)) for name in SMALL}


def _peak(containers: Iterable[ResourceList], init_containers: Iterable[ContainerRequest]) -> dict[str, int]:
    """Return per resource the most that the containers request at one time over the pod's life."""
    running: dict[str, int] = {}
    for requests in containers:
        _add(running, requests)
    started: dict[str, int] = {}
    peak: dict[str, int] = {}
    for init in init_containers:
        if init.sidecar:
            _add(running, init.requests)
            _add(started, init.requests)
            step = started
        else:
            step = dict(started)
            _add(step, init.requests)
        for name, amount in step.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in running.items():
        peak[name] = max(peak.get(name, 0), amount)
    return peak


def _add(total: dict[str, int], amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount
