"""Builders of model values for tests: every argument that matters is written in the test.

Quantities are texts as users write them. The same objects as API documents are in `tests/objects.py`.
"""

import dataclasses
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from aischeduler.model.allocation import allocation_of
from aischeduler.model.device import DeviceRequest, HeldDevices
from aischeduler.model.names import CPU, EPHEMERAL_STORAGE, GPU_DEFAULT, MEMORY, PODS, SCHEDULER_NAME
from aischeduler.model.node import NO_SCHEDULE, Node, Taint
from aischeduler.model.pod import PENDING, HostPort, Pod, PodSpec, Toleration
from aischeduler.model.pod_affinity import NO_POD_AFFINITY, PodAffinity
from aischeduler.model.pool import GroupRule, MakeRoomOrder, PlacementStrategy, Pool, ReclaimPolicy
from aischeduler.model.resources import ContainerRequest, PodRequest, ResourceList, parse_resource_list, pod_request
from aischeduler.model.selectors import (
    LabelSelector,
    NodeSelectorTerm,
    Operator,
    PreferredSchedulingTerm,
    Requirement,
    label_selector,
    node_requirement,
)
from aischeduler.model.topology_spread import PodSelector, TopologySpreadConstraint
from aischeduler.model.unsupported_constraints import Constraint
from aischeduler.model.volumes import PodVolumes, VolumeClaimUse
from aischeduler.state.pod_records import AssignedPod

NOTHING: Mapping[str, str] = {}
T = TypeVar("T")


def replace(value: T, **fields: Any) -> T:
    """Return a value of the model with other fields; most are structs, volumes and claims are dataclasses."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **fields)
    changed: T = dataclasses.replace(value, **fields)  # type: ignore[type-var]
    return changed


def amounts(*, cpu: str = "", memory: str = "", gpu: int = 0, extended: Mapping[str, str] = NOTHING) -> dict[str, int]:
    """Return integer amounts; an empty text leaves the resource out, `extended` names more resources."""
    quantities = {CPU: cpu, MEMORY: memory, GPU_DEFAULT: str(gpu) if gpu else "", **extended}
    return parse_resource_list("requests", {name: text for name, text in quantities.items() if text})


def a_request(*, cpu: str = "", memory: str = "", gpu: int = 0, extended: Mapping[str, str] = NOTHING) -> PodRequest:
    """Return the requests of a pod of one container."""
    return pod_request([ContainerRequest(amounts(cpu=cpu, memory=memory, gpu=gpu, extended=extended))], (), {}, {})


def a_spec(
    request: PodRequest | None = None,
    *,
    node_selector: Mapping[str, str] = NOTHING,
    required: tuple[NodeSelectorTerm, ...] | None = None,
    preferred: tuple[PreferredSchedulingTerm, ...] = (),
    tolerations: tuple[Toleration, ...] = (),
    host_ports: tuple[HostPort, ...] = (),
    invalid: str = "",
    unsupported_constraints: tuple[Constraint, ...] = (),
    pod_affinity: PodAffinity = NO_POD_AFFINITY,
    topology_spread: tuple[TopologySpreadConstraint, ...] = (),
    spread_preferences: tuple[TopologySpreadConstraint, ...] = (),
    gpu_types: tuple[str, ...] = (),
    gpu_type_required: bool = True,
    machine_group: str = "",
    volumes: PodVolumes | None = None,
    devices: DeviceRequest | None = None,
) -> PodSpec:
    """Return the scheduling part of a pod; specs that are equal have equal keys and no others do."""
    spec = PodSpec(
        key=b"",
        request=request or a_request(cpu="1", memory="1Gi"),
        node_selector=tuple(sorted(node_selector.items())),
        required=required,
        preferred=preferred,
        tolerations=tolerations,
        host_ports=tuple(sorted(host_ports)),
        invalid=invalid,
        unsupported_constraints=unsupported_constraints,
        pod_affinity=pod_affinity,
        topology_spread=topology_spread,
        spread_preferences=spread_preferences,
        gpu_types=gpu_types,
        gpu_type_required=gpu_type_required,
        machine_group=machine_group,
        volumes=volumes,
        devices=devices,
    )
    return replace(spec, key=blake2b(repr(spec).encode(), digest_size=16).digest())


class SpecFields(TypedDict, total=False):
    """The fields of a pod's spec that a test may set beside its requests; see `a_spec`."""

    node_selector: Mapping[str, str]
    required: tuple[NodeSelectorTerm, ...] | None
    preferred: tuple[PreferredSchedulingTerm, ...]
    tolerations: tuple[Toleration, ...]
    host_ports: tuple[HostPort, ...]
    invalid: str
    unsupported_constraints: tuple[Constraint, ...]
    pod_affinity: PodAffinity
    topology_spread: tuple[TopologySpreadConstraint, ...]
    spread_preferences: tuple[TopologySpreadConstraint, ...]
    gpu_types: tuple[str, ...]
    gpu_type_required: bool
    machine_group: str
    volumes: PodVolumes
    devices: DeviceRequest | None


def a_pod(
    name: str = "p",
    *,
    namespace: str = "default",
    uid: str = "",
    cpu: str = "1",
    memory: str = "1Gi",
    gpu: int = 0,
    extended: Mapping[str, str] = NOTHING,
    pool: str = "",
    priority: int = 0,
    created: int = 0,
    node: str = "",
    scheduler_name: str = SCHEDULER_NAME,
    phase: str = PENDING,
    terminating: bool = False,
    gates: tuple[str, ...] = (),
    labels: Mapping[str, str] = NOTHING,
    preempts: bool = True,
    guarded: bool = False,
    started: int = 0,
    grace: int = 0,
    claims: tuple[VolumeClaimUse, ...] = (),
    controller: str = "",
    has: HeldDevices | None = None,
    **spec: Unpack[SpecFields],
) -> Pod:
    """Return a pod; `node` is where it is bound, and `has` are the devices that it says to have there."""
    if claims:
        spec["volumes"] = PodVolumes(namespace, claims)
    return Pod(
        uid=uid or f"uid-{name}",
        namespace=namespace,
        name=name,
        spec=a_spec(a_request(cpu=cpu, memory=memory, gpu=gpu, extended=extended), **spec),
        scheduler_name=scheduler_name,
        node_name=node,
        pool=pool,
        priority=priority,
        created_seconds=created,
        phase=phase,
        terminating=terminating,
        gates=gates,
        labels=dict(labels),
        preempts=preempts,
        guarded=guarded,
        started_seconds=started,
        grace_seconds=grace,
        controller=controller,
        devices=has,
    )


class SpreadRules(TypedDict, total=False):
    """The rarer fields of a spread constraint."""

    min_domains: int
    honors_affinity: bool
    honors_taints: bool


def spread(
    key: str, *, app: str, skew: int = 1, itself: bool = True, namespace: str = "default", **rules: Unpack[SpreadRules]
) -> TopologySpreadConstraint:
    """Return a constraint that counts the pods with the label `app`."""
    labels = label_selector("labelSelector", {"app": app}, ())
    return TopologySpreadConstraint(key, skew, PodSelector(namespace, labels), itself, **rules)


def on_row(pod: Pod | PodSpec, row: int) -> AssignedPod:
    """Return a pod on a row of a node table; of a spec, a pod of its own kind."""
    one = pod if isinstance(pod, Pod) else Pod("uid-on-row", "default", "on-row", pod, SCHEDULER_NAME)
    return AssignedPod(one, one.spec, row, allocation_of(one.spec))


def a_node(
    name: str = "n",
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    gpu: int = 0,
    pods: int = 110,
    storage: str = "",
    extended: Mapping[str, str] = NOTHING,
    labels: Mapping[str, str] = NOTHING,
    taints: tuple[Taint, ...] = (),
    unschedulable: bool = False,
    capacity: ResourceList | None = None,
    invalid: str = "",
) -> Node:
    """Return a node; its capacity equals its allocatable unless `capacity` is given."""
    allocatable = amounts(
        cpu=cpu, memory=memory, gpu=gpu, extended={PODS: str(pods), EPHEMERAL_STORAGE: storage, **extended}
    )
    return Node(
        name=name,
        uid=f"uid-{name}",
        labels=dict(labels),
        taints=taints,
        unschedulable=unschedulable,
        allocatable=allocatable,
        capacity=allocatable if capacity is None else capacity,
        invalid=invalid,
    )


def a_pool(
    name: str = "pool",
    *,
    labels: Mapping[str, str] | None = None,
    selector: LabelSelector | None = None,
    placement: PlacementStrategy | None = None,
    generation: int = 1,
    disable_preemption: bool = False,
    disable_borrowing: bool = False,
    disable_sharing: bool = False,
    borrowing_pools: tuple[str, ...] | None = None,
    lending_limit: ResourceList | None = None,
    borrowing_limit: ResourceList | None = None,
    make_room: MakeRoomOrder | None = None,
    reclaim_policy: ReclaimPolicy = ReclaimPolicy.ON_DEMAND,
    allowed_namespaces: Mapping[str, str] | None = None,
    rare_types: tuple[str, ...] = (),
    lend_rare_types: bool = False,
    machine_groups: tuple[GroupRule, ...] = (),
    invalid: str = "",
) -> Pool:
    """Return a pool of the nodes with these `labels`, or of a `selector`; neither owns no nodes."""
    if labels is not None:
        selector = label_selector("spec.nodeSelector", labels, ())
    return Pool(
        name=name,
        uid=f"uid-{name}",
        generation=generation,
        selector=selector,
        placement=placement,
        disable_preemption=disable_preemption,
        disable_borrowing=disable_borrowing,
        disable_sharing=disable_sharing,
        borrowing_pools=borrowing_pools,
        lending_limit=lending_limit or {},
        borrowing_limit=borrowing_limit or {},
        make_room=make_room,
        reclaim_policy=reclaim_policy,
        allowed_namespaces=None
        if allowed_namespaces is None
        else label_selector("spec.allowedNamespaces", allowed_namespaces, ()),
        rare_types=rare_types,
        lend_rare_types=lend_rare_types,
        machine_groups=machine_groups,
        invalid=invalid,
    )


def group_rule(name: str, **labels: str) -> GroupRule:
    """Return who may name a machine group: the namespaces with these labels."""
    return GroupRule(name, label_selector("namespaceSelector", labels, ()))


def a_taint(key: str = "dedicated", value: str = "", effect: str = NO_SCHEDULE) -> Taint:
    """Return a taint."""
    return Taint(key, value, effect)


def tolerates(key: str = "", value: str = "", effect: str = "", operator: str = "") -> Toleration:
    """Return a toleration; without a value it tolerates every value of the key."""
    return Toleration(key, operator or ("Equal" if value else "Exists"), value, effect)


def expression(key: str, operator: Operator, *values: str) -> Requirement:
    """Return one expression of a node selector."""
    return node_requirement("expression", key, operator, values)


def a_term(*expressions: Requirement, fields: tuple[Requirement, ...] = ()) -> NodeSelectorTerm:
    """Return a node selector term of these expressions on labels and fields."""
    return NodeSelectorTerm(expressions, fields)
