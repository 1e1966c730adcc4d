"""The gangs of Workloads of Kubernetes 1.35: the PodGroups in their specs, once for each replica key of their pods.

Invariants:
- The engine hears of a gang once a pod names it and its Workload is known.
- A gang has the name WORKLOAD/PODGROUP, and /KEY after it where its pods have a replica key.

Source: Workload of scheduling.k8s.io/v1alpha1, `spec.workloadRef` of a pod; Kubernetes 1.36 has other kinds instead.
"""

from collections import OrderedDict
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import astuple

from aischeduler.kube.gang_fields import FieldReader
from aischeduler.kube.meta_types import Metadata
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.gang import GANG_SIZE_MAX, Gang, GangKey

NAMED_MAX: Final = 10_000
"""How many gangs that pods name are remembered; the oldest are forgotten."""


class WorkloadDocument(Struct, gc=False):
    """A Workload; its spec is read field by field."""

    metadata: Metadata
    spec: Any = None


class Workloads:
    """The Workloads that are known, and the gangs of them that pods name."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], WorkloadDocument] = {}
        self._named: OrderedDict[GangKey, None] = OrderedDict()
        self._events: list[Event] = []

    def named(self, key: GangKey) -> None:
        """Record that a pod names this gang."""
        if key not in self._named:
            self._named[key] = None
            self._tell(key)
            if len(self._named) > NAMED_MAX:
                self._events.append(gone(Gang, *astuple(self._named.popitem(last=False)[0])))

    def seen(self, document: WorkloadDocument) -> None:
        """Record a Workload as it is now."""
        self._known[document.metadata.namespace, document.metadata.name] = document
        for key in self._of(document.metadata.namespace, document.metadata.name):
            self._tell(key)

    def gone(self, namespace: str, name: str, uid: str) -> None:
        """Forget a deleted Workload, unless another one of its name is known."""
        document = self._known.get((namespace, name))
        if document is not None and document.metadata.uid == uid:
            del self._known[namespace, name]
            self._events += [gone(Gang, *astuple(key)) for key in self._of(namespace, name)]

    def take(self) -> list[Event]:
        """Return what the engine needs to know since the last call."""
        events, self._events = self._events, []
        return events

    def _of(self, namespace: str, name: str) -> list[GangKey]:
        return [key for key in self._named if key.namespace == namespace and key.name.partition("/")[0] == name]

    def _tell(self, key: GangKey) -> None:
        workload, group, *_ = key.name.split("/")
        document = self._known.get((key.namespace, workload))
        if document is not None:
            self._events.append(Seen(_gang(key, document, group)))


def gang_name(workload: str, group: str, replica: str) -> str:
    """Return the name of the gang of a pod with this reference."""
    return "/".join((workload, group, *((replica,) if replica else ())))


def _gang(key: GangKey, document: WorkloadDocument, group: str) -> Gang:
    metadata, created = document.metadata, document.metadata.creation_timestamp
    reader = FieldReader(f"Workload {key.namespace}/{metadata.name}")
    groups = reader.items("spec.podGroups", reader.object("spec", document.spec).get("podGroups"))
    found = next((one for one in groups if isinstance(one, dict) and one.get("name") == group), None)
    member, path = 1, f"spec.podGroups[{group}]"
    if found is None:
        reader.record(f"{path}: is missing, and pods name it")
    else:
        policy = reader.object(f"{path}.policy", found.get("policy"))
        if policy.get("gang") is not None:
            gang = reader.object(f"{path}.policy.gang", policy["gang"])
            member = reader.number(f"{path}.policy.gang.minCount", gang.get("minCount"), 1, GANG_SIZE_MAX)
    return Gang(
        key,
        member,
        uid=metadata.uid,
        generation=metadata.generation,
        created_seconds=int(created.timestamp()) if created is not None else 0,
        invalid=reader.invalid,
    )
