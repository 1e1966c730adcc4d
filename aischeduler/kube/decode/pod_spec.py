"""Convert the scheduling part of a pod spec, once per distinct bytes instead of once per pod.

Invariants:
- Equal bytes are parsed once; equal specs have equal keys, whatever their bytes are.
- A field that cannot be decoded makes the spec invalid, and `invalid` names it; the other fields count.
- Requests are read by `decode_requests`.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from json import dumps
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct, field
from msgspec.structs import replace

from aischeduler.kube.decode.api_types import (
    ExpressionPart,
    NodeAffinityPart,
    NodeTermPart,
    PodAffinityPart,
    PodAnnotations,
    PodMetadata,
    PodSpecPart,
    PodStatus,
    PortPart,
    PreferredTermPart,
    SelectorPart,
    SpreadPart,
    TolerationPart,
)
from aischeduler.kube.decode.gang import GangParts, gang_parts
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.images import image_volumes, pod_images
from aischeduler.kube.decode.meta_types import ABSENT, UNREADABLE, OwnerReference, owner_name
from aischeduler.kube.decode.placement import PlacementWishes, read_wishes, wishes_key
from aischeduler.kube.decode.pod_affinity import AFFINITY, ANTI_AFFINITY, read_pod_affinity
from aischeduler.kube.decode.pod_devices import has_device_wishes, read_devices, read_hints, shows_gpus
from aischeduler.kube.decode.requests import (
    ALWAYS,
    NOTHING_GRANTED,
    Granted,
    PartReader,
    ReadRequest,
    granted,
    granted_key,
    read_request,
    requests_key,
)
from aischeduler.kube.decode.storage import decides, pod_volumes
from aischeduler.kube.decode.topology_spread import is_hard, spread_constraint
from aischeduler.model.device import DeviceRequest
from aischeduler.model.pod import HostPort, PodSpec, Toleration
from aischeduler.model.pod_affinity import NO_POD_AFFINITY, PodAffinity
from aischeduler.model.pod_set import controller_of
from aischeduler.model.selectors import (
    NAME_FIELD,
    Labels,
    NodeSelectorTerm,
    Operator,
    PreferredSchedulingTerm,
    Requirement,
    SelectorError,
    is_bound,
    node_requirement,
)
from aischeduler.model.topology_spread import TopologySpreadConstraint
from aischeduler.model.unsupported_constraints import Constraint, ConstraintKind
from aischeduler.model.user_text import quoted
from aischeduler.model.workload import PREEMPTABLE_KEY

QUOTED_MAX: Final = 40
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK_USERS: Final = "UserNamespacesHostNetworkSupport"
RESTART_ALL_ACTION: Final = "RestartAllContainers"
SPECS_MAX: Final = 20_000
"""How many specs are cached by their bytes; an evicted one is parsed again."""
LABELS_AND_OWNERS_MAX: Final = 20_000

T = TypeVar("T")
LabelsAndOwner = tuple[Labels, bool, GangParts | None, str, str, str]
"""The labels of a pod, whether a DaemonSet controls it, what both say of its gang, its controller and owner (`Pod`).

The last one is what its labels say of being preemptable; empty where they say nothing.
"""
_SEPARATOR = b"\0"
_RESOURCE_CLAIMS: Final = (Constraint(ConstraintKind.RESOURCE_CLAIM, "spec.resourceClaims"),)
"""The constraint of kube-scheduler's DynamicResources, which no plugin checks."""
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class SpecCache(Struct):
    """Specs, labels and owners by their bytes, which the pods of one Job share.

    A full cache is cleared: every pod is looked up, and keeping the order of use would cost more than parsing again.
    `owners` are the Jobs and JobSets by whether they ask for a gang.
    """

    owners: GangOwners = field(default_factory=GangOwners)
    _specs: dict[bytes, PodSpec] = field(default_factory=dict)
    _requests: dict[bytes, ReadRequest] = field(default_factory=dict)
    """What pods without a grant request, by the bytes that say it: pods that differ elsewhere share it."""
    _labels_and_owners: dict[bytes, LabelsAndOwner] = field(default_factory=dict)

    def read(self, spec: PodSpecPart, status: PodStatus | None, metadata: PodMetadata) -> PodSpec:
        """Return the spec; `status` counts if the kubelet has granted resources.

        `metadata` counts for spread constraints, and for annotations that say where the pod may run.
        """
        grant = granted(status) if spec.node_name and status is not None else NOTHING_GRANTED
        volumes_count = decides(spec.volumes)
        key = _bytes_key(spec, grant, image_volumes(spec.volumes) if volumes_count else ())
        if spec.topology_spread_constraints:
            parts = (key, b"spread", spec.topology_spread_constraints, metadata.namespace.encode(), metadata.labels)
            key = _SEPARATOR.join(parts)
        affinity = spec.affinity
        if affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity):
            of = metadata.namespace.encode()
            key = _SEPARATOR.join((key, b"pods", affinity.pod_affinity, affinity.pod_anti_affinity, of))
        wishes = wishes_key(metadata.annotations)
        if wishes:
            key = _SEPARATOR.join((key, b"wishes", wishes.encode()))
        found = self._specs.get(key)
        if found is None:
            reader = _Reader(read_wishes(metadata.annotations))
            read = reader.spec(spec, metadata, self._request(spec, grant))
            found = _keep(self._specs, SPECS_MAX, key, read)
        if found.devices is not None and has_device_wishes(spec, metadata.annotations):
            found = self._with_device_wishes(found, found.devices, spec, metadata.annotations)
        return _with_volumes(found, spec, metadata) if volumes_count else found

    def _with_device_wishes(
        self, found: PodSpec, asked: DeviceRequest, spec: PodSpecPart, annotations: PodAnnotations | None
    ) -> PodSpec:
        """Return the spec with what annotations and variables say of the devices that the pod asks for."""
        notes = annotations or PodAnnotations()
        said, visible = (notes.device_hint, notes.device_joint, notes.gpu_partition), shows_gpus(spec)
        key = found.key + ascii((said, visible)).encode()
        wished = self._specs.get(key)
        if wished is None:
            devices, problem = read_hints(asked, *said)
            made = replace(found, devices=replace(devices, visible=visible), invalid=found.invalid or problem)
            wished = replace(made, key=blake2b(key, digest_size=16).digest())
            _keep(self._specs, SPECS_MAX, key, wished)
        return wished

    def _request(self, spec: PodSpecPart, grant: Granted) -> ReadRequest:
        if grant is not NOTHING_GRANTED:
            return read_request(spec, grant)
        key = _SEPARATOR.join(requests_key(spec))
        return self._requests.get(key) or _keep(self._requests, SPECS_MAX, key, read_request(spec, grant))

    def labels_and_owner(self, labels: Raw, owners: Raw) -> LabelsAndOwner:
        """Return what labels and owners say; see `LabelsAndOwner`."""
        key = _SEPARATOR.join((labels, owners))
        found = self._labels_and_owners.get(key)
        if found is None:
            read, references = _labels(labels), _owners(owners)
            of_daemon_set = any(owner.controller and owner.kind == "DaemonSet" for owner in references)
            controllers = (
                controller_of(reference.kind, reference.api_version, reference.name)
                for reference in references
                if reference.controller
            )
            said = read.get(PREEMPTABLE_KEY, "")
            parts = gang_parts(read, references)
            value = read, of_daemon_set, parts, next(controllers, ""), owner_name(references), said
            found = _keep(self._labels_and_owners, LABELS_AND_OWNERS_MAX, key, value)
        return found


def _with_volumes(found: PodSpec, spec: PodSpecPart, metadata: PodMetadata) -> PodSpec:
    """Return the spec with the pod's volumes, if some decide; it is not cached: other pods have other claims."""
    volumes = pod_volumes(metadata.namespace, metadata.name, spec.volumes)
    if volumes is None:
        return found
    key = blake2b(found.key + repr(volumes).encode(), digest_size=16).digest()
    return replace(found, volumes=volumes, key=key)


def _keep(cache: dict[bytes, T], limit: int, key: bytes, value: T) -> T:
    if len(cache) >= limit:
        cache.clear()
    cache[key] = value
    return value


def _labels(raw: Raw) -> Labels:
    """Decode labels; the API server stores nothing but a map of strings, and anything else counts as none."""
    try:
        return (msgspec.json.decode(raw, type=dict[str, str] | None) if raw else None) or {}
    except UNREADABLE:
        return {}


def _owners(raw: Raw) -> list[OwnerReference]:
    try:
        return (msgspec.json.decode(raw, type=list[OwnerReference] | None) if raw else None) or []
    except UNREADABLE:
        return []


def _bytes_key(spec: PodSpecPart, found: Granted, images: Iterable[str]) -> bytes:
    """Join all bytes that matter, with the images of volumes; JSON has no zero byte, so no two specs share a key."""
    affinity = spec.affinity.node_affinity if spec.affinity is not None else ABSENT
    parts: list[Raw | bytes] = [spec.resources, spec.overhead, spec.node_selector, affinity, spec.tolerations]
    for container in spec.containers or ():
        parts += (container.resources, container.ports, container.image, container.restart_policy_rules)
    for init_container in spec.init_containers or ():
        kind = b"sidecar" if init_container.restart_policy == ALWAYS else b"init"
        parts += (
            kind,
            init_container.resources,
            init_container.ports,
            init_container.image,
            init_container.restart_policy_rules,
        )
    if found is not NOTHING_GRANTED:
        parts += granted_key(spec, found)
    for name in images:
        parts.append(b"image " + name.encode())
    if spec.host_network and spec.host_users is False:
        parts.append(b"users of the host network")
    if spec.resource_claims:
        parts.append(b"unsupported")
    return _SEPARATOR.join(parts)


def _unreadable(preferred: Sequence[PreferredTermPart]) -> str:
    """Return kube-scheduler's message about the first bound of Gt or Lt that is none; empty where there is no such."""
    for index, preference in enumerate(preferred):
        for number, part in enumerate(
            preference.preference.match_expressions or () if preference.preference is not None else ()
        ):
            for value in part.values or () if part.operator in (Operator.GT, Operator.LT) else ():
                if not is_bound(value):
                    field, said = f"[{index}].matchExpressions[{number}].values[0]", dumps(value[:QUOTED_MAX])
                    why = "for 'Gt', 'Lt' operators, the value must be an integer"
                    return f'running PreScore plugin "NodeAffinity": {field}: Invalid value: {said}: {why}'
    return ""


class _Reader(PartReader):
    """Decodes one spec and keeps the first problem."""

    def __init__(self, wishes: PlacementWishes) -> None:
        super().__init__(wishes.problem)
        self._wishes = wishes

    def spec(
        self,
        part: PodSpecPart,
        metadata: PodMetadata,
        asked: ReadRequest,
    ) -> PodSpec:
        spread, evenness = self.topology_spread(part, metadata) if part.topology_spread_constraints else ((), ())
        request, problem = asked
        self.record(problem)
        devices, problem = read_devices(part, request)
        self.record(problem)
        required, preferred, unscored = self._affinity(part)
        pods = self._pod_affinity(part, metadata.namespace)
        fields = dict[str, Any](
            request=request,
            node_selector=self._node_selector(part.node_selector),
            required=required,
            preferred=preferred,
            tolerations=self._tolerations(part.tolerations),
            host_ports=self._host_ports(part),
            invalid=self.problem,
            unscored=unscored,
            unsupported_constraints=_RESOURCE_CLAIMS if part.resource_claims else (),
            pod_affinity=pods,
            topology_spread=spread,
            spread_preferences=evenness,
            gpu_types=self._wishes.gpu_types,
            gpu_type_required=self._wishes.gpu_type_required,
            machine_group=self._wishes.machine_group,
            images=pod_images(part),
            containers=len(part.containers or ()) + len(part.init_containers or ()),
            features=needed_features(part),
            devices=devices,
        )
        return PodSpec(key=blake2b(repr(fields).encode(), digest_size=16).digest(), **fields)

    def topology_spread(
        self, part: PodSpecPart, metadata: PodMetadata
    ) -> tuple[tuple[TopologySpreadConstraint, ...], tuple[TopologySpreadConstraint, ...]]:
        """Return the constraints that a pod with this metadata requires, and those that it prefers."""
        path, labels = "spec.topologySpreadConstraints", _labels(metadata.labels)
        required: list[TopologySpreadConstraint] = []
        preferred: list[TopologySpreadConstraint] = []
        for index, spread in enumerate(self.json(path, part.topology_spread_constraints, list[SpreadPart]) or ()):
            field = f"{path}[{index}]"
            selector = self.json(f"{field}.labelSelector", spread.label_selector, SelectorPart)
            try:
                found = spread_constraint(field, spread, selector, metadata.namespace, labels)
            except SelectorError as error:
                self.record(error)
            else:
                (required if is_hard(spread) else preferred).append(found)
        return tuple(required), tuple(preferred)

    def _node_selector(self, raw: Raw) -> tuple[tuple[str, str], ...]:
        labels = self.json("spec.nodeSelector", raw, dict[str, str]) or {}
        return tuple(sorted(labels.items()))

    def _tolerations(self, raw: Raw) -> tuple[Toleration, ...]:
        parts = self.json("spec.tolerations", raw, list[TolerationPart]) or ()
        return tuple(
            Toleration(part.key or "", part.operator or "Equal", part.value or "", part.effect or "") for part in parts
        )

    def _host_ports(self, spec: PodSpecPart) -> tuple[HostPort, ...]:
        sidecars = [part for part in spec.init_containers or () if part.restart_policy == ALWAYS]
        ports = set()
        for part in (*(spec.containers or ()), *sidecars):
            for port in self.json(f"spec.containers[{part.name}].ports", part.ports, list[PortPart]) or ():
                if port.host_port:
                    ports.add(HostPort(port.protocol or "TCP", port.host_port, port.host_ip or "0.0.0.0"))  # noqa: S104 - the default of hostIP
        return tuple(sorted(ports))

    def _affinity(
        self, part: PodSpecPart
    ) -> tuple[tuple[NodeSelectorTerm, ...] | None, tuple[PreferredSchedulingTerm, ...], str]:
        """Return the required and the preferred terms, and why the preferred ones cannot be read."""
        path = "spec.affinity.nodeAffinity"
        raw = part.affinity.node_affinity if part.affinity is not None else ABSENT
        affinity = self.json(path, raw, NodeAffinityPart)
        if affinity is None:
            return None, (), ""
        required: tuple[NodeSelectorTerm, ...] | None = None
        if affinity.required is not None:
            terms = affinity.required.node_selector_terms or ()
            required = tuple(
                self._term(f"{path}.{_REQUIRED}.nodeSelectorTerms[{index}]", term) for index, term in enumerate(terms)
            )
        preferred = tuple(
            PreferredSchedulingTerm(
                preference.weight, self._term(f"{path}.{_PREFERRED}[{index}].preference", preference.preference)
            )
            for index, preference in enumerate(affinity.preferred or ())
            if preference.preference is not None
        )
        return required, preferred, _unreadable(affinity.preferred or ())

    def _pod_affinity(self, part: PodSpecPart, namespace: str) -> PodAffinity:
        if part.affinity is None or not (part.affinity.pod_affinity or part.affinity.pod_anti_affinity):
            return NO_POD_AFFINITY
        near = self.json(AFFINITY, part.affinity.pod_affinity, PodAffinityPart)
        apart = self.json(ANTI_AFFINITY, part.affinity.pod_anti_affinity, PodAffinityPart)
        try:
            return read_pod_affinity(near, apart, namespace)
        except SelectorError as error:
            self.record(error)
            return NO_POD_AFFINITY

    def _term(self, path: str, part: NodeTermPart) -> NodeSelectorTerm:
        return NodeSelectorTerm(
            self._requirements(f"{path}.matchExpressions", part.match_expressions or ()),
            self._requirements(f"{path}.matchFields", part.match_fields or (), fields=True),
        )

    def _requirements(
        self, path: str, parts: Iterable[ExpressionPart], *, fields: bool = False
    ) -> tuple[Requirement, ...]:
        found = []
        for index, part in enumerate(parts):
            where, key, operator = f"{path}[{index}]", part.key or "", part.operator or ""
            if fields and (key != NAME_FIELD or operator not in (Operator.IN, Operator.NOT_IN)):
                self.record(f"{where}: {quoted(f'{key} {operator}')} is not {NAME_FIELD} In or NotIn")
                continue
            try:
                found.append(node_requirement(where, key, operator, tuple(part.values or ())))
            except SelectorError as error:
                self.record(error)
        return tuple(found)


class _Rule(Struct, gc=False):
    """What a container that ends leads to."""

    action: str = ""


def needed_features(spec: PodSpecPart) -> tuple[str, ...]:
    """Return the features of kubelets that a node must declare, sorted; almost no pod needs one.

    Source: nodedeclaredfeatures of k8s.io/component-helpers, of Kubernetes 1.36.
    """
    host_users = (HOST_NETWORK_USERS,) if spec.host_network and spec.host_users is False else ()
    for parts in (spec.containers or (), spec.init_containers or ()):
        for part in parts:
            if part.restart_policy_rules and _restarts_all(part.restart_policy_rules):
                return (RESTART_ALL, *host_users)
    return host_users


def _restarts_all(raw: Raw) -> bool:
    try:
        rules = msgspec.json.decode(raw, type=list[_Rule] | None) or []
    except UNREADABLE:
        return False
    return any(rule.action == RESTART_ALL_ACTION for rule in rules)
