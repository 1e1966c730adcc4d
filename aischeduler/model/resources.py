"""Resource amounts, and the requests of a pod.

Invariants:
- Amounts are integers: CPU in thousandths of a core, everything else in whole units (bytes, devices, pods).
- Resource limits play no part in scheduling.

Source: k8s.io/component-helpers/resource (PodRequests) and kube-scheduler's defaults for scoring.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from aischeduler.model.names import CPU, MEMORY, PODS
from aischeduler.model.quantity import QuantityError, parse_milli, parse_units

ResourceList = Mapping[str, int]

SCORE_CPU_MILLI: Final = 100
"""The CPU that scores assume for a container without a CPU request."""
SCORE_MEMORY_BYTES: Final = 200 * 1024 * 1024
"""The memory that scores assume for a container without a memory request."""


@dataclass(frozen=True, slots=True)
class ContainerRequest:
    """The requests of one container; a sidecar is an init container that keeps running."""

    requests: ResourceList
    sidecar: bool = False


@dataclass(frozen=True, slots=True)
class PodRequest:
    """The resource requests of a pod.

    `amounts` decide whether it fits. Scores read `score_cpu_milli` and `score_memory_bytes`, where a container without
    requests counts as a small one.
    """

    amounts: ResourceList
    score_cpu_milli: int
    score_memory_bytes: int

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

    `init_containers` are in their order: a plain init container runs beside the sidecars declared before it. Amounts
    in `pod_level` replace the sum.
    """
    containers, init_containers = tuple(containers), tuple(init_containers)
    amounts = dict(_peak([c.requests for c in containers], init_containers))
    scored = _peak(
        [_scored(c.requests) for c in containers],
        [ContainerRequest(_scored(c.requests), sidecar=c.sidecar) for c in init_containers],
    )
    amounts.update(pod_level)
    scored.update(pod_level)
    for name, amount in overhead.items():
        amounts[name] = amounts.get(name, 0) + amount
        scored[name] = scored.get(name, 0) + amount
    kept = {name: amount for name, amount in sorted(amounts.items()) if amount > 0}
    return PodRequest(kept, scored.get(CPU, 0), scored.get(MEMORY, 0))


def _scored(requests: ResourceList) -> ResourceList:
    return {CPU: requests.get(CPU, SCORE_CPU_MILLI), MEMORY: requests.get(MEMORY, SCORE_MEMORY_BYTES)}


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
