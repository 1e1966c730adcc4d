"""From documents of the API server to values of the model.

Laws:
- What can be read counts; what cannot is named by its field in `invalid`, and never raised.
- No decoded document is kept: a pod becomes a small record that shares its spec with all that are alike.
- Every text of a user that is no name is shortened and escaped before it goes further.

Source: Kubernetes API of Pod and Node. Pools: `decode_pool`.
"""

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from aischeduler.kube.api_types import UNREADABLE, NodeDocument, PodDocument, PodStatus, Quantities
from aischeduler.kube.decode_pod_spec import INVALID_LENGTH_MAX, SpecCache
from aischeduler.kube.pod_writes import POD_SCHEDULED
from aischeduler.kube.unsupported_constraints import claims_used
from aischeduler.model.names import POOL_KEY, POOL_NAME_LENGTH_MAX
from aischeduler.model.node import NO_SCHEDULE, Node, Taint
from aischeduler.model.pod import PENDING, Pod
from aischeduler.model.quantity import QuantityError, shorten
from aischeduler.model.resources import parse_resource_list

AMOUNTS_MAX: Final = 20_000
"""Amounts of nodes kept by their bytes; losing some costs parsing them again."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
NEVER: Final = "Never"
"""The preemptionPolicy of a pod on whose behalf nothing is evicted."""
_NO_STATUS: Final = PodStatus()


class _Condition(Struct, rename="camel", gc=False):
    """One condition: how it stands and since when."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


def read_pod(document: PodDocument, specs: SpecCache) -> Pod:
    """Return the pod; a malformed part is named in `Pod.spec.invalid`."""
    metadata, spec, status = document.metadata, document.spec, document.status or _NO_STATUS
    created, started, annotations = metadata.creation_timestamp, status.start_time, metadata.annotations
    labels, of_daemon_set = specs.kin(metadata.labels, metadata.owner_references)
    pool = (annotations is not None and annotations.pool) or labels.get(POOL_KEY)
    scheduling = specs.read(spec, status)
    return Pod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        spec=scheduling,
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        node_name=spec.node_name or "",
        pool=_pool_name(pool) if pool else "",
        priority=spec.priority or 0,
        created_seconds=int(created.timestamp()) if created is not None else 0,
        phase=status.phase or PENDING,
        terminating=metadata.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
        labels=labels,
        preempts=spec.preemption_policy != NEVER,
        guarded=of_daemon_set or (annotations is not None and annotations.mirror is not None),
        started_seconds=int(started.timestamp()) if started is not None else 0,
        nominated_node=status.nominated_node_name or "",
        grace_seconds=metadata.deletion_grace_period_seconds or 0,
        volume_claims=claims_used(metadata.name, spec.volumes) if scheduling.unsupported_constraints else (),
        said_to_wait=bool(status.conditions) and not spec.node_name and _said_to_wait(status.conditions),
    )


def read_node(document: NodeDocument) -> Node:
    """Return the node; amounts that cannot be read count as zero and are named in `invalid`."""
    metadata, spec, status = document.metadata, document.spec, document.status
    allocatable, problem = _amounts("status.allocatable", bytes(status.allocatable) if status is not None else b"")
    capacity, capacity_problem = _amounts("status.capacity", bytes(status.capacity) if status is not None else b"")
    taints = spec.taints if spec is not None and spec.taints else ()
    return Node(
        name=metadata.name,
        uid=metadata.uid,
        labels=metadata.labels or {},
        taints=tuple(Taint(taint.key, taint.value or "", taint.effect or NO_SCHEDULE) for taint in taints),
        unschedulable=bool(spec is not None and spec.unschedulable),
        allocatable=allocatable,
        capacity=capacity,
        invalid="; ".join(filter(None, (problem, capacity_problem)))[:INVALID_LENGTH_MAX],
    )


def _said_to_wait(conditions: Raw) -> bool:
    """Say whether PodScheduled is False and says since when; the API server's own condition of a gate has no time."""
    try:
        found = msgspec.json.decode(conditions, type=list[_Condition] | None)
    except UNREADABLE:
        return False
    return any(one.type == POD_SCHEDULED and one.status == "False" and one.last_transition_time for one in found or ())


@lru_cache(maxsize=AMOUNTS_MAX)
def _amounts(path: str, raw: bytes) -> tuple[dict[str, int], str]:
    """Return what can be read and the problems with the rest; nodes of one make share their amounts."""
    try:
        quantities = (msgspec.json.decode(raw, type=Quantities | None) if raw else None) or {}
    except UNREADABLE as error:
        return {}, f"{path}: {error}"
    amounts: dict[str, int] = {}
    problems: list[str] = []
    for name, text in quantities.items():
        try:
            amounts.update(parse_resource_list(path, {name: str(text)}))
        except QuantityError as error:
            problems.append(str(error))
    return amounts, "; ".join(problems)


def _pool_name(name: str) -> str:
    """Return the home that the pod names; what cannot be a name is escaped and cut, and so matches no Pool."""
    return name if len(name) <= POOL_NAME_LENGTH_MAX and name.isprintable() else shorten(name)
