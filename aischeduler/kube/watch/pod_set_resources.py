"""The watched resources that select pods: Services and controllers of pods, which spread them by default.

ReplicaSets, StatefulSets and DaemonSets also say what their pods do not say of their tenant, and StatefulSets, like
Deployments, whether they are elastic.

Invariants:
- None of them is needed: one that is not served, or that the scheduler may not list, has no objects.
- The engine hears of an object only if its selector changed, or what it says as a workload. A selector that cannot be
  read selects no pod.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from aischeduler.config.schema import ElasticKind
from aischeduler.kube.decode.api_types import SelectorPart
from aischeduler.kube.decode.elastic import ScaledMetadata, read_scaled_elastic
from aischeduler.kube.decode.meta_types import ABSENT, UNREADABLE, Page, WatchEvent
from aischeduler.kube.decode.pod_affinity import read_selector
from aischeduler.kube.decode.workloads import (
    DAEMON_SET,
    REPLICA_SET,
    STATEFUL_SET,
    WorkloadDocument,
    read_workload,
)
from aischeduler.kube.watch.elastic_resources import Autoscalers, elastic_resources
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.events import Seen, gone
from aischeduler.model.pod_set import CONTROLLERS, REPLICATION_CONTROLLER, SERVICE, PodSet
from aischeduler.model.selectors import LabelSelector, SelectorError, label_selector
from aischeduler.model.workload import Workload

PATH: Final = "spec.selector"


class PodSetSpecPart(Struct, gc=False):
    """The spec of an object that selects pods: the labels of the pods, or a label selector, and how many there are."""

    selector: Raw = ABSENT
    replicas: int | None = None


class PodSetDocument(Struct, gc=False):
    """An object that selects pods."""

    metadata: ScaledMetadata
    spec: PodSetSpecPart | None = None


def pod_set_resources(kinds: Sequence[ElasticKind] = ()) -> Sequence[WatchedResource[Any]]:
    """Return the resources, of which Services and ReplicationControllers select by labels alone.

    `kinds` are those that the configuration lets be elastic.
    """
    autoscalers = Autoscalers(kinds)
    selecting = (_resource(kind, version, autoscalers) for kind, version in ({SERVICE: "v1"} | CONTROLLERS).items())
    return (*selecting, daemon_sets(), *elastic_resources(autoscalers, kinds))


def daemon_sets() -> WatchedResource[WorkloadDocument]:
    """All DaemonSets, whose pods are never spread."""
    return WatchedResource(
        kind=DAEMON_SET,
        path="/apis/apps/v1/daemonsets",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[WorkloadDocument]),
        page_decoder=msgspec.json.Decoder(Page[WorkloadDocument]),
        object_decoder=msgspec.json.Decoder(WorkloadDocument),
        seen_event=lambda document: Seen(read_workload(DAEMON_SET, document.metadata)),
        gone_event=lambda namespace, name, _uid: gone(Workload, DAEMON_SET, namespace, name),
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )


def _resource(kind: str, version: str, autoscalers: Autoscalers) -> WatchedResource[PodSetDocument]:
    def workload(document: PodSetDocument) -> Workload:
        if kind != STATEFUL_SET:
            return read_workload(kind, document.metadata)
        replicas = document.spec.replicas if document.spec is not None else None
        elastic = read_scaled_elastic(document.metadata, replicas, ordered=True)
        return autoscalers.workloads.now(read_workload(kind, document.metadata, elastic))

    read = _by_labels if kind in (SERVICE, REPLICATION_CONTROLLER) else _by_selector
    return WatchedResource(
        kind=kind,
        path=f"/{'apis' if '/' in version else 'api'}/{version}/{kind.lower()}s",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[PodSetDocument]),
        page_decoder=msgspec.json.Decoder(Page[PodSetDocument]),
        object_decoder=msgspec.json.Decoder(PodSetDocument),
        seen_event=lambda document: Seen(_pod_set(kind, document, read)),
        gone_event=lambda namespace, name, _uid: gone(PodSet, kind, namespace, name),
        workload=workload if kind in (REPLICA_SET, STATEFUL_SET) else None,
        on_gone=autoscalers.workloads.forget(kind) if kind == STATEFUL_SET else None,
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )


def _pod_set(kind: str, document: PodSetDocument, read: Callable[[Raw], LabelSelector | None]) -> PodSet:
    raw = document.spec.selector if document.spec is not None else ABSENT
    try:
        selector = read(raw) if raw else None
    except (SelectorError, *UNREADABLE):
        selector = None
    return PodSet(kind, document.metadata.namespace, document.metadata.name, selector)


def _by_labels(raw: Raw) -> LabelSelector | None:
    labels = msgspec.json.decode(raw, type=dict[str, str] | None)
    return label_selector(PATH, labels, ()) if labels else None


def _by_selector(raw: Raw) -> LabelSelector | None:
    part = msgspec.json.decode(raw, type=SelectorPart | None)
    return read_selector(PATH, part) if part is not None else None
