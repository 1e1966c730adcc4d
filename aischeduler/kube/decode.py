"""From documents of the API server to values of the model.

Laws:
- What can be read counts; what cannot is named by its field in `invalid`, and never raised.
- No decoded document is kept: a pod becomes a small record that shares its spec with all that are alike.
- Every text of a user that is no name is shortened and escaped before it goes further.

Source: Kubernetes API of Pod, Node and the Pool resource.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec

from aischeduler.kube.documents import Metadata, NodeDocument, PodDocument, PodMetadata, PoolDocument, Quantities
from aischeduler.kube.podspec import INVALID_LENGTH_MAX, SpecCache
from aischeduler.model.names import POOL_NAME_LENGTH_MAX
from aischeduler.model.node import NO_SCHEDULE, Node, Taint
from aischeduler.model.pod import PENDING, Pod
from aischeduler.model.pool import Placement, Pool
from aischeduler.model.quantity import QuantityError, shorten
from aischeduler.model.resources import parse_amounts
from aischeduler.model.selectors import LabelSelector, Requirement, SelectorError, label_selector, requirement

SELECTOR: Final = "spec.nodeSelector"
AMOUNTS_MAX: Final = 20_000
"""Amounts of nodes kept by their bytes; losing some costs parsing them again."""
DEFAULT_SCHEDULER: Final = "default-scheduler"


def read_pod(document: PodDocument, specs: SpecCache) -> Pod:
    """Return the pod; a malformed part is named in `Pod.spec.invalid`."""
    metadata, spec, status = document.metadata, document.spec, document.status
    created = metadata.creation_timestamp
    return Pod(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        spec=specs.read(spec, status),
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        node_name=spec.node_name or "",
        pool=_pool_name(metadata),
        priority=spec.priority or 0,
        created_seconds=int(created.timestamp()) if created is not None else 0,
        phase=(status.phase if status is not None else None) or PENDING,
        terminating=metadata.deletion_timestamp is not None,
        gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
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


def read_pool(document: PoolDocument) -> Pool:
    """Return the Pool; a spec that cannot be understood is refused whole, with the field in `invalid`."""
    metadata = document.metadata
    try:
        return _pool(metadata, _as(dict, "spec", document.spec) or {})
    except (SelectorError, _FieldError) as error:
        return Pool(metadata.name, metadata.uid, metadata.generation, invalid=str(error)[:INVALID_LENGTH_MAX])


class _FieldError(ValueError):
    """A field of the wrong type or with an unknown value; the message names it."""


def _pool(metadata: Metadata, spec: Mapping[str, Any]) -> Pool:
    placement = _as(str, "spec.placement", spec.get("placement"))
    if placement is not None and placement not in tuple(Placement):
        raise _FieldError(f"spec.placement: {shorten(placement)} is not one of {', '.join(Placement)}")
    selector = _as(dict, SELECTOR, spec.get("nodeSelector"))
    return Pool(
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        selector=_selector(selector) if selector is not None else None,
        placement=Placement(placement) if placement is not None else None,
        disable_preemption=_as(bool, "spec.disablePreemption", spec.get("disablePreemption")) or False,
        disable_borrowing=_as(bool, "spec.disableBorrowing", spec.get("disableBorrowing")) or False,
        disable_sharing=_as(bool, "spec.disableSharing", spec.get("disableSharing")) or False,
    )


def _selector(selector: Mapping[str, Any]) -> LabelSelector:
    labels = _as(dict, f"{SELECTOR}.matchLabels", selector.get("matchLabels")) or {}
    expressions = _as(list, f"{SELECTOR}.matchExpressions", selector.get("matchExpressions")) or []
    equal = {key: _text(f"{SELECTOR}.matchLabels.{shorten(key)}", value) for key, value in labels.items()}
    return label_selector(
        SELECTOR,
        equal,
        tuple(_expression(f"{SELECTOR}.matchExpressions[{i}]", one) for i, one in enumerate(expressions)),
    )


def _expression(path: str, expression: Any) -> Requirement:
    fields = _as(dict, path, expression) or {}
    values = _as(list, f"{path}.values", fields.get("values")) or []
    return requirement(
        path,
        _text(f"{path}.key", fields.get("key")),
        _text(f"{path}.operator", fields.get("operator")),
        tuple(_text(f"{path}.values[{index}]", value) for index, value in enumerate(values)),
    )


def _as(kind: type, path: str, value: Any) -> Any:
    """Return the value where it has the type, or None where it is absent."""
    if value is not None and not isinstance(value, kind):
        raise _FieldError(f"{path}: {shorten(str(value))} is not {_WORDS[kind]}")
    return value


_WORDS: Final = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}


def _text(path: str, value: Any) -> str:
    text: str = _as(str, path, value) or ""
    return text


@lru_cache(maxsize=AMOUNTS_MAX)
def _amounts(path: str, raw: bytes) -> tuple[dict[str, int], str]:
    """Return what can be read and the problems with the rest; nodes of one make share their amounts."""
    try:
        quantities = (msgspec.json.decode(raw, type=Quantities | None) if raw else None) or {}
    except msgspec.MsgspecError as error:
        return {}, f"{path}: {error}"
    amounts: dict[str, int] = {}
    problems: list[str] = []
    for name, text in quantities.items():
        try:
            amounts.update(parse_amounts(path, {name: str(text)}))
        except QuantityError as error:
            problems.append(str(error))
    return amounts, "; ".join(problems)


def _pool_name(metadata: PodMetadata) -> str:
    """Return the home that the pod names; what cannot be a name is escaped and cut, and so matches no Pool."""
    annotations, labels = metadata.annotations, metadata.labels
    name = (annotations is not None and annotations.pool) or (labels is not None and labels.pool) or ""
    if name and (len(name) > POOL_NAME_LENGTH_MAX or not name.isprintable()):
        return shorten(name)
    return name
