"""A daemon without the permission to list a kind that it needs."""

import asyncio

from structlog.testing import capture_logs

from aischeduler.config.schema import NO_ELECTION, Config
from aischeduler.daemon.process import Daemon
from aischeduler.kube.decode.gang_owners import GangOwners
from aischeduler.kube.watch.gang_resources import gang_resources
from aischeduler.kube.watch.pod_set_resources import pod_set_resources
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.kube.watch.storage_resources import storage_resources
from tests.daemon.cluster import BUDGETS, CLAIMS, NAMESPACES, NODES, POOLS
from tests.kube.api_objects import listing
from tests.kube.scripted_server import Script, hang, reply, serving, status, until

OTHERS = ("/api/v1/pods", NODES, NAMESPACES, BUDGETS)
OPTIONAL = (*gang_resources(GangOwners()), *queue_resources(), *storage_resources(), *pod_set_resources())
REFUSED = 'persistentvolumeclaims is forbidden: User "me" cannot list resource "persistentvolumeclaims"'


def a_server() -> Script:
    """Return a server that lets the daemon list and watch everything except claims."""
    script = Script()
    script.always["get", "/version"] = lambda _: reply(200, {"major": "1", "minor": "36"})
    for path in (*OTHERS, POOLS, *(resource.path for resource in OPTIONAL)):
        script.always["get", path] = lambda _: reply(200, listing(version=10))
        script.always["watch", path] = lambda _: hang
    script.always["get", CLAIMS] = lambda _: status(403, "Forbidden", REFUSED)
    return script


async def test_daemon_that_may_not_list_gangs_services_or_objects_of_storage_logs_each_kind_once_and_decides() -> None:
    stop, script = asyncio.Event(), a_server()
    script.always["get", CLAIMS] = lambda _: reply(200, listing(version=10))
    script.always["watch", CLAIMS] = lambda _: hang
    not_needed = [resource for resource in OPTIONAL if not resource.needed]
    for resource in not_needed:
        script.always["get", resource.path] = lambda _: status(403, "Forbidden", REFUSED)
    with capture_logs() as lines:
        async with serving(script) as server, asyncio.timeout(120):
            daemon = Daemon(server, Config(leader_election=NO_ELECTION), stop)
            task = asyncio.create_task(daemon.run())
            await daemon.deciding.wait()
            stop.set()
            await task
    told = [line["kind"] for line in lines if line["event"] == "permission missing"]
    assert sorted(told) == sorted(resource.kind for resource in not_needed)


async def test_daemon_that_may_not_list_claims_logs_it_and_decides_nothing() -> None:
    stop = asyncio.Event()
    with capture_logs() as lines:
        async with serving(a_server()) as server, asyncio.timeout(120):
            daemon = Daemon(server, Config(leader_election=NO_ELECTION), stop)
            task = asyncio.create_task(daemon.run())
            await until(lambda: any(line["event"] == "permission missing" for line in lines))
            assert not daemon.standing_by.is_set()
            stop.set()
            await task
    told = next(line for line in lines if line["event"] == "permission missing")
    assert (told["kind"], told["log_level"]) == ("PersistentVolumeClaim", "warning")
    assert REFUSED in told["reason"]
