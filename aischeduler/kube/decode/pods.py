"""Convert API objects to model types: pods, nodes, PodDisruptionBudgets and namespaces.

Invariants:
- A field that cannot be decoded never raises: `invalid` names it, and the other fields count.
- No API object is kept: a pod becomes a small record that shares its spec with equal pods.
- User text other than names is shortened and escaped.
- A budget whose selector cannot be decoded protects nothing, and `budget_problem` says why.

Source: core/v1, policy/v1.
"""

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Raw, Struct

from aischeduler.kube.decode.api_types import (
    BudgetDocument,
    BudgetStatus,
    NamespaceDocument,
    NodeDocument,
    PodAnnotations,
    PodDocument,
    PodStatus,
    Quantities,
    SelectorPart,
)
from aischeduler.kube.decode.device import read_hami_node, read_hami_scores
from aischeduler.kube.decode.elastic_terms import read_levels
from aischeduler.kube.decode.gang import gang_claim
from aischeduler.kube.decode.images import node_images
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.decode.pod_affinity import read_selector
from aischeduler.kube.decode.pod_devices import read_allocated, read_hami
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.tenant_terms import pod_terms
from aischeduler.kube.http.errors import INVALID_LENGTH_MAX
from aischeduler.kube.write.pod_writes import POD_SCHEDULED
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.device import NO_DEVICES, Device, DeviceRequest, HeldDevices
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Seen
from aischeduler.model.names import POOL_KEY, POOL_NAME_LENGTH_MAX
from aischeduler.model.node import NO_SCHEDULE, Node, Taint
from aischeduler.model.pod import PENDING, Pod
from aischeduler.model.pool import Namespace
from aischeduler.model.quantity import QuantityError
from aischeduler.model.resources import parse_resource_list
from aischeduler.model.selectors import LabelSelector, SelectorError
from aischeduler.model.user_text import quoted

AMOUNTS_MAX: Final = 20_000
"""How many resource lists of nodes are cached by their bytes; an evicted one is parsed again."""
SECONDS_MAX: Final = 20_000
"""How many times are cached by their text."""
HAMI_NODES_MAX: Final = 4096
"""How many nodes have the GPUs that HAMi registers on them cached by their text: agents write it again and again."""
TAILS_MAX: Final = 4096
"""How many ends of conditions are cached by their bytes."""
DEFAULT_SCHEDULER: Final = "default-scheduler"
NEVER: Final = "Never"
READY: Final = "Ready"
ALWAYS_ALLOW: Final = "AlwaysAllow"
"""The preemptionPolicy of a pod that does not preempt."""
SELECTOR = "spec.selector"
_POD_SCHEDULED: Final = b'"PodScheduled"'
_PLACED: Final = re.compile(
    rb'"PodScheduled",(?:"observedGeneration":[0-9]+,)?"status":"True",'
    rb'(?:"lastProbeTime":null,)?"lastTransitionTime":"([-0-9T:]+Z)"'
)
_NO_STATUS: Final = PodStatus()


class _Condition(Struct, rename="camel", gc=False):
    """A pod condition."""

    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


def read_pod(document: PodDocument, specs: SpecCache) -> Pod:
    """Return the pod; `Pod.spec.invalid` names a malformed part."""
    metadata, spec, status = document.metadata, document.spec, document.status or _NO_STATUS
    created, started, annotations = metadata.creation_timestamp, status.start_time, metadata.annotations
    labels, of_daemon_set, parts, controller, owner, spares = specs.labels_and_owner(
        metadata.labels, metadata.owner_references
    )
    conditions = bytes(status.conditions) if status.conditions and spec.node_name else b""
    pool = (annotations is not None and annotations.pool) or labels.get(POOL_KEY)
    scheduling = specs.read(spec, status, metadata)
    mirror, says_devices = None, False
    if annotations is not None:
        mirror = annotations.mirror
        says_devices = annotations.device_allocated is not None or annotations.hami_allocated is not None
    return Pod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        spec=scheduling,
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        node_name=spec.node_name or "",
        pool=_pool_name(pool) if pool else "",
        priority=spec.priority or 0,
        created_seconds=_seconds(created) if created else 0,
        phase=status.phase or PENDING,
        terminating=metadata.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
        labels=labels,
        preempts=spec.preemption_policy != NEVER,
        guarded=of_daemon_set or mirror is not None,
        started_seconds=_seconds(started) if started else 0,
        nominated_node=status.nominated_node_name or "",
        grace_seconds=metadata.deletion_grace_period_seconds or 0,
        said_to_wait=bool(status.conditions) and not spec.node_name and _has_waiting_condition(status.conditions),
        gang=gang_claim(document, labels, parts, specs.owners),
        controller=controller,
        unready=conditions.rfind(b'"False"') >= 0 and _is_unready(conditions),
        terms=pod_terms(annotations, spares),
        owner=owner,
        placed_seconds=_placed_seconds(conditions) if conditions else 0,
        devices=_said_devices(annotations, spec.node_name, scheduling.devices) if says_devices else None,
        kubelet_uid=mirror or "",
    )


def _said_devices(notes: PodAnnotations | None, node: str | None, asked: DeviceRequest | None) -> HeldDevices | None:
    """Return the devices that a pod says to have; None where it says none that can be read, or asks for none."""
    assert notes is not None, "it says some"
    if not node:
        return NO_DEVICES if notes.device_allocated is not None else None
    if asked is None:
        return None
    held = read_allocated(notes.device_allocated, asked) if notes.device_allocated is not None else None
    return held or (read_hami(notes.hami_allocated) if notes.hami_allocated is not None else None)


def read_node(document: NodeDocument) -> Node:
    """Return the node; amounts that cannot be decoded count as zero, and `invalid` names them."""
    metadata, spec, status = document.metadata, document.spec, document.status
    allocatable, problem = _amounts("status.allocatable", bytes(status.allocatable) if status is not None else b"")
    capacity, capacity_problem = _amounts("status.capacity", bytes(status.capacity) if status is not None else b"")
    taints = spec.taints if spec is not None and spec.taints else ()
    notes = metadata.annotations
    registered = notes.hami_gpus if notes is not None else None
    hami_gpus, hami_links = _hami_gpus(registered, notes.hami_scores or "") if notes and registered else ((), ())
    return Node(
        name=metadata.name,
        uid=metadata.uid,
        labels=metadata.labels or {},
        taints=tuple(Taint(taint.key, taint.value or "", taint.effect or NO_SCHEDULE) for taint in taints),
        unschedulable=bool(spec is not None and spec.unschedulable),
        allocatable=allocatable,
        capacity=capacity,
        invalid="; ".join(filter(None, (problem, capacity_problem)))[:INVALID_LENGTH_MAX],
        images=node_images(status.images) if status is not None else (),
        features=_features(status.declared_features) if status is not None and status.declared_features else (),
        hami_gpus=hami_gpus,
        hami_links=hami_links,
    )


def read_budget(document: BudgetDocument) -> DisruptionBudget:
    """Return the budget; without a status it allows no disruption.

    Source: the eviction subresource of kube-apiserver, for pods that are not ready.
    """
    metadata, spec, status = document.metadata, document.spec, document.status or BudgetStatus()
    try:
        selector = _selector(document)
    except (SelectorError, *UNREADABLE):
        selector = None
    return DisruptionBudget(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        selector=selector,
        disruptions_allowed=status.disruptions_allowed,
        disrupted=frozenset(status.disrupted_pods or ()),
        unhealthy_go=(spec is not None and spec.unhealthy_pod_eviction_policy == ALWAYS_ALLOW)
        or status.current_healthy >= status.desired_healthy > 0,
    )


def budget_problem(document: BudgetDocument) -> str:
    """Return why the budget protects nothing although it has a selector; empty if the selector can be decoded."""
    try:
        _selector(document)
    except SelectorError as error:
        return str(error)
    except UNREADABLE as error:
        return decode_problem(error, SELECTOR)
    return ""


def read_namespace(document: NamespaceDocument) -> Seen:
    """Return the namespace with its labels, and the levels that its elastic jobs may have."""
    metadata = document.metadata
    said = metadata.annotations.priority_levels if metadata.annotations is not None else None
    return Seen(Namespace(metadata.name, metadata.labels or {}, read_levels(said if isinstance(said, str) else "")))


def _has_waiting_condition(conditions: Raw) -> bool:
    """Say whether PodScheduled is False with a transition time; the API server's condition of a gated pod has none."""
    return any(
        condition.type == POD_SCHEDULED and condition.last_transition_time
        for condition in _false_conditions(conditions)
    )


def _is_unready(conditions: bytes) -> bool:
    """Say whether Ready is False."""
    return any(condition.type == READY for condition in _false_conditions(conditions))


def _false_conditions(conditions: Raw | bytes) -> list[_Condition]:
    return [condition for condition in _conditions(conditions) if condition.status == "False"]


def _conditions(conditions: Raw | bytes) -> Sequence[_Condition]:
    try:
        return msgspec.json.decode(conditions, type=list[_Condition] | None) or ()
    except UNREADABLE:
        return ()


def _placed_seconds(conditions: bytes) -> int:
    """Return since when PodScheduled is True, in unix seconds; 0 where it is not.

    Every bound pod is asked. Its condition is the last one, and the API server writes the fields of a condition in one
    order, so that pods that were bound in one second share these bytes; only others are decoded.
    """
    seconds = _seconds_of_tail(conditions[conditions.rfind(_POD_SCHEDULED) :])
    if seconds is not None:
        return seconds
    placed = (seen for seen in _conditions(conditions) if seen.type == POD_SCHEDULED and seen.status == "True")
    return next((_seconds(seen.last_transition_time or "") for seen in placed), 0)


@lru_cache(maxsize=TAILS_MAX)
def _seconds_of_tail(tail: bytes) -> int | None:
    """Return the time of the condition PodScheduled whose value of `type` begins these bytes; None for another form."""
    found = _PLACED.match(tail)
    return _seconds(found[1].decode()) if found is not None else None


@lru_cache(maxsize=SECONDS_MAX)
def _seconds(time: str) -> int:
    """Return a time in unix seconds; 0 for a text that is none. Pods of one Job have few different times."""
    try:
        return int(datetime.fromisoformat(time).timestamp())
    except (ValueError, OverflowError):
        return 0


def _selector(document: BudgetDocument) -> LabelSelector | None:
    raw = document.spec.selector if document.spec is not None else b""
    part = msgspec.json.decode(raw, type=SelectorPart | None) if raw else None
    return read_selector(SELECTOR, part) if part is not None else None


@lru_cache(maxsize=AMOUNTS_MAX)
def _amounts(path: str, raw: bytes) -> tuple[dict[str, int], str]:
    """Return the amounts and the problems of the others; cached, because nodes of one type have equal bytes."""
    try:
        quantities = (msgspec.json.decode(raw, type=Quantities | None) if raw else None) or {}
    except UNREADABLE as error:
        return {}, decode_problem(error, path)
    amounts: dict[str, int] = {}
    problems: list[str] = []
    for name, text in quantities.items():
        try:
            amounts.update(parse_resource_list(path, {name: str(text)}))
        except QuantityError as error:
            problems.append(str(error))
    return amounts, "; ".join(problems)


@lru_cache(maxsize=HAMI_NODES_MAX)
def _hami_gpus(text: str, scores: str) -> tuple[tuple[Device, ...], tuple[tuple[str, int], ...]]:
    return read_hami_scores(scores, read_hami_node(text))


def _features(raw: Raw) -> tuple[str, ...]:
    """Return the features that a node declares; what cannot be decoded counts as none."""
    try:
        return tuple(sorted(set(msgspec.json.decode(raw, type=list[str] | None) or ())))
    except UNREADABLE:
        return ()


def _pool_name(name: str) -> str:
    """Return the pool that the pod names; a text that cannot be a name is shortened and escaped: it matches no Pool."""
    return name if len(name) <= POOL_NAME_LENGTH_MAX and name.isprintable() else quoted(name)
