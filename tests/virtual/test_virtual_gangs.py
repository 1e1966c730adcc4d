"""Gangs in the virtual cluster: definitions that come and go, Jobs that are seen after their pods, written statuses."""

import json
from typing import Any

from msgspec.structs import astuple

from aischeduler.engine.profile import default_profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.model.actions import Action, ReportGang
from aischeduler.model.events import Event, Gone, Seen, gone
from aischeduler.model.gang import Gang, GangClaim, GangKey, GangPhase, GangSource, GangStatus
from aischeduler.model.pod import Pod
from tests.gang_objects import (
    coscheduling_crd,
    indexed_job_object,
    job_set_crd,
    job_set_object,
    pod_group_object,
    volcano_crd,
    volcano_pod_group_object,
)
from tests.objects import Json
from tests.virtual.in_process_reflector import InProcessReflector
from tests.virtual.test_virtual_cluster import Always
from tests.virtual.virtual_cluster import VirtualCluster
from tests.virtual.virtual_daemon import Network

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUPS = "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/default/podgroups"
VOLCANO_GROUPS = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"


def of_gang(event: Event) -> bool:
    return (
        isinstance(event.object, Gang) if isinstance(event, Seen) else isinstance(event, Gone) and event.kind == "Gang"
    )


class Recording(Scheduler):
    """A scheduler that keeps what it observes, and returns the `reports` with its next actions."""

    def __init__(self) -> None:
        super().__init__(default_profile(), "run")
        self.observed: list[Event] = []
        self.reports: list[ReportGang] = []

    def observe(self, event: Event, now: float) -> None:
        self.observed.append(event)
        super().observe(event, now)

    def ready(self, now: float) -> tuple[str, ...]:
        return ("default",) if self.reports else super().ready(now)

    def decide(self, pool: str, now: float, limit: int) -> list[Action]:
        reports, self.reports = self.reports, []
        return [*reports, *super().decide(pool, now, limit)]

    @property
    def gangs(self) -> list[Event]:
        return [event for event in self.observed if of_gang(event)]


def a_cluster() -> tuple[VirtualCluster, Recording]:
    cluster, scheduler = VirtualCluster(), Recording()
    cluster.start(scheduler, "ai-scheduler", Network(), Always(0.5))
    return cluster, scheduler


def post(cluster: VirtualCluster, path: str, document: Json) -> Json:
    response = cluster.request("POST", path, document)
    assert response.status == 201, response.body
    stored: Json = json.loads(response.body)
    return stored


def get(cluster: VirtualCluster, path: str) -> Any:
    return json.loads(cluster.request("GET", path).body)


def test_pod_groups_are_seen_from_the_definition_of_their_kind_on_and_end_with_it() -> None:
    cluster, scheduler = a_cluster()
    cluster.run(60.0)
    assert scheduler.gangs == []
    post(cluster, DEFINITIONS, coscheduling_crd())
    cluster.run(1.0)
    uid = post(cluster, GROUPS, pod_group_object(min_member=4))["metadata"]["uid"]
    cluster.run(1.0)
    (event,) = scheduler.gangs
    assert isinstance(event, Seen)
    assert isinstance(event.object, Gang)
    assert (event.object.min_member, event.object.uid) == (4, uid)
    cluster.request("DELETE", f"{DEFINITIONS}/podgroups.scheduling.x-k8s.io")
    cluster.run(1.0)
    assert scheduler.gangs[1:] == [gone(Gang, *astuple(event.object.key))]


def test_gang_of_a_job_is_seen_before_its_pods() -> None:
    cluster, scheduler = a_cluster()
    post(cluster, JOBS, indexed_job_object("gang", pods=3))
    post(cluster, JOBS, indexed_job_object("plain", pods=2, gang=""))
    cluster.run(5.0)
    key = GangKey(GangSource.JOB, "default", "gang")
    (event,) = scheduler.gangs
    assert isinstance(event, Seen)
    assert isinstance(event.object, Gang)
    assert (event.object.key, event.object.min_member) == (key, 3)
    pods = [one.object for one in scheduler.observed if isinstance(one, Seen) and isinstance(one.object, Pod)]
    assert {pod.gang for pod in pods if pod.name.startswith("gang")} == {
        GangClaim(key, index=index) for index in range(3)
    }
    assert {pod.gang for pod in pods if pod.name.startswith("plain")} == {None}
    first = next(one for one in scheduler.observed if isinstance(one, Seen) and isinstance(one.object, Pod))
    assert scheduler.observed.index(event) < scheduler.observed.index(first)


def test_pods_whose_job_is_seen_later_wait_for_it() -> None:
    cluster, specs = VirtualCluster(), SpecCache()
    jobs = next(one for one in gang_resources(specs.owners) if one.kind == "Job")
    specs.owners.listed[GangSource.JOB] = lambda: True
    late = InProcessReflector(cluster.server, jobs)
    pods = InProcessReflector(cluster.server, watched_resources.pods(specs))
    uid = post(cluster, JOBS, indexed_job_object("plain", pods=1, gang=""))["metadata"]["uid"]
    asking = post(cluster, JOBS, indexed_job_object("gang", pods=1))["metadata"]
    cluster.run(5.0)
    keys = {name: GangKey(GangSource.JOB, "default", name) for name in ("gang", "plain")}
    claims = {
        event.object.gang
        for event in pods.read(cluster.now)
        if isinstance(event, Seen) and isinstance(event.object, Pod)
    }
    assert claims == {GangClaim(key, index=0) for key in keys.values()}
    found = {
        event.object.key.name: event.object
        for event in late.read(cluster.now)
        if isinstance(event, Seen) and isinstance(event.object, Gang)
    }
    assert found["plain"] == Gang(keys["plain"], min_member=1, uid=uid)
    assert (found["gang"].key, found["gang"].uid) == (keys["gang"], asking["uid"])


def test_annotated_job_set_is_a_gang() -> None:
    cluster, scheduler = a_cluster()
    post(cluster, DEFINITIONS, job_set_crd())
    post(cluster, JOB_SETS, job_set_object(jobs={"driver": (1, 1), "workers": (2, 4)}))
    cluster.run(1.0)
    (event,) = scheduler.gangs
    assert isinstance(event, Seen)
    assert isinstance(event.object, Gang)
    assert (event.object.min_member, event.object.roles) == (9, (("driver", 1), ("workers", 8)))


def test_status_and_event_are_written_as_in_production() -> None:
    cluster, scheduler = a_cluster()
    post(cluster, DEFINITIONS, coscheduling_crd())
    post(cluster, DEFINITIONS, volcano_crd(subresource=False))
    uids = {
        GangSource.COSCHEDULING: post(cluster, GROUPS, pod_group_object())["metadata"]["uid"],
        GangSource.VOLCANO: post(cluster, VOLCANO_GROUPS, volcano_pod_group_object())["metadata"]["uid"],
    }
    for source, uid in uids.items():
        gang = Gang(GangKey(source, "default", "group"), 2, uid=uid)
        scheduler.reports.append(ReportGang(gang, GangStatus(GangPhase.SCHEDULED, 2, members=2, placed=2, running=0)))
    cluster.run(1.0)
    status = get(cluster, f"{GROUPS}/group")["status"]
    assert status == {"phase": "Scheduling"}
    assert get(cluster, f"{VOLCANO_GROUPS}/group")["status"]["phase"] == "Running"
    events = get(cluster, "/apis/events.k8s.io/v1/namespaces/default/events")["items"]
    assert {(one["reason"], one["regarding"]["uid"]) for one in events} == {("Scheduled", uid) for uid in uids.values()}
    seen = [event.object for event in scheduler.gangs if isinstance(event, Seen) and isinstance(event.object, Gang)]
    assert {gang.key.source for gang in seen if gang.started} == set(uids)
