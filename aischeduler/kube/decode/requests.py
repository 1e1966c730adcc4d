"""Read what a pod requests, and what its kubelet granted it.

Invariants:
- A field that cannot be decoded makes the first problem; the other fields count.
- A pod on a node counts, per resource, the most of its spec, of what is allocated to it, and of what it has: a resize
  takes room before it is done and frees room after it. One that is infeasible changes nothing: its spec does not count.
- What the kubelet says of a container counts only where it says the resources that the container has.

Source: PodRequests in k8s.io/component-helpers/resource.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from aischeduler.kube.decode.api_types import (
    ContainerPart,
    ContainerStatus,
    PodSpecPart,
    PodStatus,
    Quantities,
    ResourceRequests,
)
from aischeduler.kube.decode.meta_types import ABSENT, UNREADABLE
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.quantity import QuantityError
from aischeduler.model.resources import ContainerRequest, PodRequest, is_pod_level, parse_resource_list, pod_request

ALWAYS: Final = "Always"
INFEASIBLE: Final = "Infeasible"
RESIZE_PENDING: Final = "PodResizePending"
_RESIZE_PENDING: Final = RESIZE_PENDING.encode()
_NULL: Final = b"null"
T = TypeVar("T")


class Granted(Struct, frozen=True, gc=False):
    """What the kubelet says of a pod on its node: of containers that have resources, and of the pod as a whole.

    With `infeasible` the kubelet refused the last resize.
    """

    containers: tuple[ContainerStatus, ...] = ()
    allocated: Raw = ABSENT
    resources: Raw = ABSENT
    infeasible: bool = False


NOTHING_GRANTED: Final = Granted()
ReadRequest = tuple[PodRequest, str]
"""What a pod requests, and the first problem with it, which is empty where there is none."""


class _Condition(Struct, gc=False):
    """A condition of a pod, as far as it says what became of a resize."""

    type: str = ""
    reason: str | None = None


def granted(status: PodStatus) -> Granted:
    """Return what counts of the status of a pod on its node."""
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return NOTHING_GRANTED
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    containers = tuple([status for status in statuses if status.resources and _given(status.resources)])
    whole = _given(status.resources)
    if not containers and not whole:
        return NOTHING_GRANTED
    of_pod = (status.allocated_resources, status.resources) if whole else (ABSENT, ABSENT)
    return Granted(containers, *of_pod, infeasible=_is_infeasible(status.conditions))


def granted_key(spec: PodSpecPart, found: Granted) -> list[Raw | bytes]:
    """Return the bytes of the grant, for the key of a spec."""
    parts: list[Raw | bytes] = [b"infeasible" if found.infeasible else b"granted", found.allocated, found.resources]
    for status in found.containers:
        parts += (b"granted " + status.name.encode(), status.allocated_resources, status.resources)
    return parts + [c.name.encode() for c in (*(spec.containers or ()), *(spec.init_containers or ()))]


def requests_key(spec: PodSpecPart) -> list[Raw | bytes]:
    """Return all bytes that decide what a pod without a grant requests."""
    parts: list[Raw | bytes] = [
        spec.resources,
        spec.overhead,
        *(container.resources for container in spec.containers or ()),
    ]
    for init_container in spec.init_containers or ():
        parts += (b"sidecar" if init_container.restart_policy == ALWAYS else b"init", init_container.resources)
    return parts


def read_request(spec: PodSpecPart, found: Granted) -> ReadRequest:
    """Return what a pod requests."""
    reader = PartReader()
    return reader.request(spec, found), reader.problem


def _given(raw: Raw) -> bool:
    return bool(raw) and bytes(raw) != _NULL


def _is_infeasible(conditions: Raw) -> bool:
    if not conditions or _RESIZE_PENDING not in bytes(conditions):
        return False
    try:
        found = msgspec.json.decode(conditions, type=list[_Condition] | None) or []
    except UNREADABLE:
        return False
    return next((condition.reason == INFEASIBLE for condition in found if condition.type == RESIZE_PENDING), False)


class PartReader:
    """Decodes parts of a pod and keeps the first problem."""

    def __init__(self, problem: str = "") -> None:
        self.problem = problem

    def record(self, problem: object) -> None:
        """Keep the problem if it is the first."""
        self.problem = self.problem or str(problem)[:INVALID_LENGTH_MAX]

    def json(self, path: str, raw: Raw, kind: type[T]) -> T | None:
        """Return the part; None where it is absent or cannot be decoded."""
        if not raw:
            return None
        try:
            return msgspec.json.decode(raw, type=kind | None)
        except UNREADABLE as error:
            self.record(decode_problem(error, path))
            return None

    def request(self, part: PodSpecPart, found: Granted) -> PodRequest:
        """Return the requests of the pod."""
        sidecars = {
            init_container.name
            for init_container in part.init_containers or ()
            if init_container.restart_policy == ALWAYS
        }
        main = {container.name for container in part.containers or ()}
        statuses = {
            status.name: status for status in found.containers if status.name in main or status.name in sidecars
        }
        containers = self._containers("spec.containers", part.containers or (), statuses, found)
        init_containers = self._containers("spec.initContainers", part.init_containers or (), statuses, found)
        overhead = self._amounts("spec.overhead", self.json("spec.overhead", part.overhead, Quantities) or {})
        return pod_request(containers, init_containers, self._pod_level(part, found), overhead)

    def _pod_level(self, part: PodSpecPart, found: Granted) -> dict[str, int]:
        """Return the requests of the whole pod: each resource that its spec names, as it counts now."""
        asked = self._requests("spec.resources", part.resources)
        if not found.resources or not any(is_pod_level(name) for name in asked):
            return asked
        counting = self._counting("status", asked, found.allocated, found.resources, infeasible=found.infeasible)
        return {name: counting.get(name, 0) for name in asked}

    def _containers(
        self, path: str, parts: Iterable[ContainerPart], statuses: Mapping[str, ContainerStatus], found: Granted
    ) -> list[ContainerRequest]:
        containers = []
        for index, part in enumerate(parts):
            requests = self._requests(f"{path}[{index}].resources", part.resources)
            status = statuses.get(part.name)
            if status is not None:
                where = f"status.containerStatuses[{part.name}]"
                of = (status.allocated_resources, status.resources)
                requests = self._counting(where, requests, *of, infeasible=found.infeasible)
            containers.append(ContainerRequest(requests, sidecar=part.restart_policy == ALWAYS))
        return containers

    def _counting(
        self, path: str, asked: dict[str, int], allocated: Raw, resources: Raw, *, infeasible: bool
    ) -> dict[str, int]:
        """Return the most of what is asked, allocated, and had; of an infeasible resize, what is asked is left out."""
        counting = {} if infeasible else dict(asked)
        where = f"{path}.allocatedResources"
        _raise_to(counting, self._amounts(where, self.json(where, allocated, Quantities) or {}))
        _raise_to(counting, self._requests(f"{path}.resources", resources))
        return counting

    def _requests(self, path: str, raw: Raw) -> dict[str, int]:
        resources = self.json(path, raw, ResourceRequests)
        return self._amounts(f"{path}.requests", (resources and resources.requests) or {})

    def _amounts(self, path: str, quantities: Quantities) -> dict[str, int]:
        amounts: dict[str, int] = {}
        for name, text in quantities.items():
            try:
                amounts.update(parse_resource_list(path, {name: str(text)}))
            except QuantityError as error:
                self.record(error)
        return amounts


def _raise_to(amounts: dict[str, int], others: Mapping[str, int]) -> None:
    for name, amount in others.items():
        amounts[name] = max(amounts.get(name, 0), amount)
