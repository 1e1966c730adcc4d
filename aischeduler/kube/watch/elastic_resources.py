"""The watched resources that elastic jobs need beside those of gangs and pod sets.

Those are Deployments, the kinds that the configuration adds, and autoscalers.

Invariants:
- None of them is needed: one that is not served, or that the scheduler may not list, has no objects.
- The engine hears of an object only if it asks to be elastic, or did so before.
- A HorizontalPodAutoscaler says nothing itself: its target, where that is elastic, is told again when it comes or goes.

Source: Deployment of apps/v1; HorizontalPodAutoscaler of autoscaling/v2; the scale subresource of custom resources.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.config.schema import ElasticKind
from aischeduler.kube.decode.elastic import ScaledDocument, not_elastic, read_object_elastic
from aischeduler.kube.decode.meta_types import Metadata, Page, WatchEvent
from aischeduler.kube.decode.workloads import DEPLOYMENT, STATEFUL_SET, read_workload
from aischeduler.kube.http.paths import collection_path
from aischeduler.kube.watch.elastic_workloads import ElasticWorkloads, WorkloadKey
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.elastic import ElasticJob
from aischeduler.model.events import Gone, Seen, gone
from aischeduler.model.user_text import quoted
from aischeduler.model.workload import Workload

AUTOSCALER: Final = "HorizontalPodAutoscaler"
TARGETS: Final = frozenset((DEPLOYMENT, STATEFUL_SET))
"""The kinds that an autoscaler scales, among those that may always be elastic."""


class TargetPart(Struct, gc=False):
    """The object that an autoscaler scales."""

    kind: str = ""
    name: str = ""


class AutoscalerSpecPart(Struct, rename="camel", gc=False):
    """The spec of an autoscaler."""

    scale_target_ref: TargetPart | None = None


class AutoscalerDocument(Struct, gc=False):
    """A HorizontalPodAutoscaler."""

    metadata: Metadata
    spec: AutoscalerSpecPart | None = None


class Autoscalers:
    """The autoscalers with their targets; `workloads` are the elastic workloads that may be such targets.

    `kinds` are those of the configuration.
    """

    def __init__(self, kinds: Sequence[ElasticKind] = ()) -> None:
        self.workloads = ElasticWorkloads(self._judged)
        self._kinds = TARGETS.union(kind.kind for kind in kinds)
        self._targets: dict[tuple[str, str], WorkloadKey] = {}
        self._of_target: dict[WorkloadKey, set[str]] = {}

    def seen(self, document: AutoscalerDocument) -> tuple[Seen, ...]:
        """Record an autoscaler as it is now; return what it scales, and what it scaled before, if that is new."""
        metadata, target = document.metadata, document.spec.scale_target_ref if document.spec is not None else None
        key, wanted = (metadata.namespace, metadata.name), None
        if target is not None and target.kind in self._kinds:
            wanted = target.kind, metadata.namespace, target.name
        if self._targets.get(key) == wanted:
            return ()
        before = self._remove(key)
        if wanted is not None:
            self._targets[key] = wanted
            self._of_target.setdefault(wanted, set()).add(metadata.name)
        return tuple(seen for one in (before, wanted) if one is not None and (seen := self.workloads.again(one)))

    def gone(self, namespace: str, name: str, _uid: str) -> Seen | None:
        """Forget an autoscaler; return what it scaled."""
        target = self._remove((namespace, name))
        return self.workloads.again(target) if target is not None else None

    def _remove(self, key: tuple[str, str]) -> WorkloadKey | None:
        target = self._targets.pop(key, None)
        if target is not None:
            self._of_target[target].discard(key[1])
            if not self._of_target[target]:
                del self._of_target[target]
        return target

    def _judged(self, found: Workload, elastic: ElasticJob) -> ElasticJob:
        names = self._of_target.get(found.key)
        if not names or elastic.problem is not None:
            return elastic
        return replace(elastic, problem=not_elastic(f"the {AUTOSCALER} {quoted(min(names))} scales it"))


def elastic_resources(autoscalers: Autoscalers, kinds: Sequence[ElasticKind] = ()) -> Sequence[WatchedResource[Any]]:
    """Return the resources, `kinds` among them; `autoscalers` learns of all, and of StatefulSets by their own one."""
    added = (
        _scaled(kind.kind, collection_path(kind.api_version, kind.resource), autoscalers, ordered=kind.ordered)
        for kind in kinds
    )
    deployments = _scaled(DEPLOYMENT, "/apis/apps/v1/deployments", autoscalers, default=1)
    return deployments, *added, _autoscalers(autoscalers)


def _scaled(
    kind: str, path: str, autoscalers: Autoscalers, *, ordered: bool = False, default: int | None = None
) -> WatchedResource[ScaledDocument]:
    """All objects of a kind; `default` is the size of one without `spec.replicas`, None where it has none."""
    told: set[tuple[str, str]] = set()

    def seen(document: ScaledDocument) -> Seen | None:
        elastic = read_object_elastic(document, ordered=ordered, default=default)
        key = document.metadata.namespace, document.metadata.name
        if elastic is None and key not in told:
            return None
        told.add(key)
        return Seen(autoscalers.workloads.now(read_workload(kind, document.metadata, elastic)))

    def end(namespace: str, name: str, _uid: str) -> Gone | None:
        if (namespace, name) not in told:
            return None
        told.remove((namespace, name))
        return gone(Workload, kind, namespace, name)

    return WatchedResource(
        kind=kind,
        path=path,
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[ScaledDocument]),
        page_decoder=msgspec.json.Decoder(Page[ScaledDocument]),
        object_decoder=msgspec.json.Decoder(ScaledDocument),
        seen_event=seen,
        gone_event=end,
        on_gone=autoscalers.workloads.forget(kind),
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )


def _autoscalers(autoscalers: Autoscalers) -> WatchedResource[AutoscalerDocument]:
    return WatchedResource(
        kind=AUTOSCALER,
        path="/apis/autoscaling/v2/horizontalpodautoscalers",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[AutoscalerDocument]),
        page_decoder=msgspec.json.Decoder(Page[AutoscalerDocument]),
        object_decoder=msgspec.json.Decoder(AutoscalerDocument),
        seen_event=lambda _document: None,
        gone_event=autoscalers.gone,
        others=autoscalers.seen,
        optional=True,
        needed=False,
        rarely_changes=True,
    )
