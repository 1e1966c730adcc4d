"""The watched resources that declare gangs: PodGroups of three groups, Jobs and JobSets.

Invariants:
- None of them is needed: one that is not served, or that the scheduler may not list, has no objects.
- The engine hears of the gang of an object only if it differs from before; of Jobs and JobSets only if they ask for a
  gang, or if pods wait for them. Of each object it hears what it says as a workload.
- PodGroups of the API server itself are read in each version that it serves.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import astuple

from aischeduler.kube.decode.gang_objects import (
    PodGroupDocument,
    read_job,
    read_job_set,
    read_native_group,
    read_pod_group,
)
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.decode.job_documents import JobDocument, JobSetDocument
from aischeduler.kube.decode.meta_types import Page, WatchEvent
from aischeduler.kube.decode.workloads import JOB_SET, read_group_workload, read_job_set_workload, read_job_workload
from aischeduler.kube.watch.elastic_workloads import JobSetParts
from aischeduler.kube.watch.watched_resources import WatchedResource
from aischeduler.model.events import Gone, Seen, gone
from aischeduler.model.gang import Gang, GangKey, GangSource

NATIVE_VERSIONS: Final = ("v1beta1", "v1alpha2")
"""The versions of scheduling.k8s.io that have PodGroups, newest first."""


def gang_resources(
    owners: GangOwners, volcano: Callable[[PodGroupDocument], None] | None = None
) -> Sequence[WatchedResource[Any]]:
    """Return all resources that declare gangs; `owners` learns of Jobs and JobSets, `volcano` of its PodGroups."""
    parts = JobSetParts()
    return (
        _pod_groups(GangSource.COSCHEDULING, "scheduling.x-k8s.io", "v1alpha1"),
        _pod_groups(GangSource.VOLCANO, "scheduling.volcano.sh", "v1beta1", volcano),
        *(_pod_groups(GangSource.NATIVE, "scheduling.k8s.io", version) for version in NATIVE_VERSIONS),
        _job_sets(owners, parts),
        _jobs(owners, parts),
    )


def _pod_groups(
    source: GangSource, group: str, version: str, on_seen: Callable[[PodGroupDocument], None] | None = None
) -> WatchedResource[PodGroupDocument]:
    def gang(document: PodGroupDocument) -> Gang:
        return read_native_group(document) if source is GangSource.NATIVE else read_pod_group(document, source)

    named = f"{version}.{group}" if source is GangSource.NATIVE else group
    return WatchedResource(
        kind=f"PodGroup.{named}",
        path=f"/apis/{group}/{version}/podgroups",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[PodGroupDocument]),
        page_decoder=msgspec.json.Decoder(Page[PodGroupDocument]),
        object_decoder=msgspec.json.Decoder(PodGroupDocument),
        seen_event=lambda document: Seen(gang(document)),
        gone_event=lambda namespace, name, _uid: gone(Gang, *astuple(GangKey(source, namespace, name))),
        workload=read_group_workload,
        on_seen=on_seen,
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )


def _jobs(owners: GangOwners, parts: JobSetParts) -> WatchedResource[JobDocument]:
    return WatchedResource(
        kind="Job",
        path="/apis/batch/v1/jobs",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[JobDocument]),
        page_decoder=msgspec.json.Decoder(Page[JobDocument]),
        object_decoder=msgspec.json.Decoder(JobDocument),
        seen_event=lambda document: _owner_seen(owners, read_job(document)),
        gone_event=_owner_gone(owners, GangSource.JOB),
        workload=read_job_workload,
        others=parts.job_seen,
        on_gone=parts.job_gone,
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )


def _job_sets(owners: GangOwners, parts: JobSetParts) -> WatchedResource[JobSetDocument]:
    return WatchedResource(
        kind="JobSet",
        path="/apis/jobset.x-k8s.io/v1alpha2/jobsets",
        watch_event_decoder=msgspec.json.Decoder(WatchEvent[JobSetDocument]),
        page_decoder=msgspec.json.Decoder(Page[JobSetDocument]),
        object_decoder=msgspec.json.Decoder(JobSetDocument),
        seen_event=lambda document: _owner_seen(owners, read_job_set(document)),
        gone_event=_owner_gone(owners, GangSource.JOB_SET),
        workload=lambda document: parts.workloads.now(read_job_set_workload(document)),
        on_gone=parts.workloads.forget(JOB_SET),
        optional=True,
        needed=False,
        rarely_changes=True,
        often_unchanged=True,
    )


def _owner_seen(owners: GangOwners, read: tuple[Gang, bool]) -> Seen | None:
    gang, asks = read
    return owners.seen(gang, asks=asks)


def _owner_gone(owners: GangOwners, source: GangSource) -> Callable[[str, str, str], Gone | None]:
    return lambda namespace, name, uid: owners.gone(GangKey(source, namespace, name), uid)
