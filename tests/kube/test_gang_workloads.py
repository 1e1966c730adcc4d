"""Gangs of the Workloads of Kubernetes 1.35: Workloads and their pods in each order, and malformed specs."""

import json
from typing import Any

import msgspec
import pytest
from msgspec.structs import astuple

from aischeduler.kube import gang_workloads
from aischeduler.kube.api_types import PodDocument
from aischeduler.kube.client import Client
from aischeduler.kube.cluster_lister import list_cluster
from aischeduler.kube.decode import read_pod
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.gang_resources import gang_resources
from aischeduler.kube.gang_writes import object_paths
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.gang import Gang, GangClaim, GangKey, GangSource
from tests.kube.api_objects import pod
from tests.kube.scripted_server import serving
from tests.kube.test_cluster_lister import a_cluster, items

GROUPS = [{"name": "workers", "policy": {"gang": {"minCount": 4}}}, {"name": "driver", "policy": {"basic": {}}}]


def key(name: str) -> GangKey:
    return GangKey(GangSource.NATIVE, "default", name)


def workload(uid: str = "u", groups: Any = GROUPS) -> dict[str, Any]:
    return {"metadata": {"name": "w", "namespace": "default", "uid": uid}, "spec": {"podGroups": groups}}


class Shell:
    """The decoders of a shell."""

    def __init__(self) -> None:
        self.specs = SpecCache()
        self._kind = next(one for one in gang_resources(self.specs.owners) if one.kind.startswith("Workload"))

    def seen(self, document: dict[str, Any]) -> None:
        assert self._kind.read(json.dumps(document).encode()) == ()

    def gone(self, uid: str = "u") -> None:
        assert self._kind.gone_event("default", "w", uid) is None

    def pod(self, group: str, replica: str = "", workload: str = "w") -> GangClaim | None:
        ref = {"name": workload, "podGroup": group, **({"podGroupReplicaKey": replica} if replica else {})}
        document = json.dumps(pod(spec={"workloadRef": ref})).encode()
        return read_pod(msgspec.json.decode(document, type=PodDocument), self.specs).gang

    def told(self) -> list[Event]:
        return self.specs.owners.overdue(0.0)


def gang(name: str, minimum: int, **fields: Any) -> Seen:
    return Seen(Gang(key(name), minimum, uid="u", **fields))


def test_engine_hears_of_the_gangs_that_pods_name_whichever_is_seen_first() -> None:
    shell = Shell()
    assert shell.pod("workers", "0") == GangClaim(key("w/workers/0"))
    assert shell.told() == []
    shell.seen(workload())
    assert shell.told() == [gang("w/workers/0", 4)]
    shell.pod("workers", "0")
    shell.pod("workers", "1")
    shell.pod("driver")
    assert shell.told() == [gang("w/workers/1", 4), gang("w/driver", 1)]
    assert shell.told() == []


def test_deleted_workload_ends_its_gangs_and_a_new_one_begins_them_again() -> None:
    shell = Shell()
    shell.pod("workers")
    shell.seen(workload())
    shell.told()
    shell.gone("another")
    assert shell.told() == []
    shell.gone()
    assert shell.told() == [gone(Gang, *astuple(key("w/workers")))]
    shell.seen(workload())
    assert shell.told() == [gang("w/workers", 4)]


@pytest.mark.parametrize(
    ("groups", "problem"),
    [
        ([], "spec.podGroups[workers]: is missing, and pods name it"),
        ("x", "spec.podGroups: must be a list, not 'x'"),
        ([{"name": "workers", "policy": 1}], "spec.podGroups[workers].policy: must be a mapping, not 1"),
        (
            [{"name": "workers", "policy": {"gang": {"minCount": 0}}}],
            "spec.podGroups[workers].policy.gang.minCount: must be a whole number from 1 to 5000, not 0",
        ),
    ],
)
def test_malformed_workload_makes_the_gang_invalid(groups: Any, problem: str) -> None:
    shell = Shell()
    shell.pod("workers")
    shell.seen(workload(groups=groups))
    (event,) = shell.told()
    assert isinstance(event, Seen)
    assert isinstance(event.object, Gang)
    assert event.object.invalid == f"Workload default/w: {problem}"


def test_gangs_that_pods_named_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gang_workloads, "NAMED_MAX", 1)
    shell = Shell()
    shell.pod("workers", "0")
    shell.pod("workers", "1")
    assert shell.told() == [gone(Gang, *astuple(key("w/workers/0")))]


def test_workload_has_no_status_to_write() -> None:
    assert object_paths(Gang(key("w/workers"), 4, uid="u")) == ()


async def test_snapshot_has_the_gangs_that_its_pods_name() -> None:
    member = pod(spec={"workloadRef": {"name": "w", "podGroup": "workers"}})
    script = a_cluster(Workload=items(workload()), Pod=items(member))
    async with serving(script) as server, Client(server) as client:
        snapshot = await list_cluster(client, "https://here", 5.0)
    assert snapshot.events[-1] == gang("w/workers", 4)
