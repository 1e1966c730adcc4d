"""What the operator makes of the answers of an API server."""

import pytest

from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError
from aischeduler.operator.cluster import Cluster
from tests.kube.scripted_server import Answer, Script, reply, serving, status

PODS = "/api/v1/namespaces/team/pods"
POD = f"{PODS}/train-a-0"


async def test_absent_object_is_none_and_a_refused_read_is_an_error() -> None:
    script = Script()
    script.on("get", POD, reply(200, {"kind": "Pod"}), status(404, "NotFound"), status(403, "Forbidden"))
    async with serving(script) as server, Client(server) as client:
        cluster = Cluster(client)
        assert [await cluster.get(POD), await cluster.get(POD)] == [{"kind": "Pod"}, None]
        with pytest.raises(RefusedError, match="403"):
            await cluster.get(POD)


@pytest.mark.parametrize(
    ("answer", "found"), [(reply(200, {"items": [{"a": 1}]}), [{"a": 1}]), (reply(404, b"404 page not found\n"), [])]
)
async def test_kind_that_is_not_served_has_no_objects(answer: Answer, found: list[object]) -> None:
    script = Script()
    script.on("get", PODS, answer)
    async with serving(script) as server, Client(server) as client:
        assert await Cluster(client).items(PODS, {"b": "2", "a": "1"}) == found
    assert script.requests[0].query == {"labelSelector": "a=1,b=2"}


async def test_name_that_is_taken_and_a_pod_that_is_gone_are_no_errors() -> None:
    script = Script()
    script.on("post", PODS, reply(201, {}), status(409, "AlreadyExists"))
    script.on("delete", POD, status(409, "Conflict"))
    script.on("patch", POD, status(404, "NotFound"))
    async with serving(script) as server, Client(server) as client:
        cluster = Cluster(client)
        assert [await cluster.create(PODS, {}), await cluster.create(PODS, {})] == [True, False]
        await cluster.delete(POD, "u1")
        assert await cluster.patch(POD, {"status": {}}) is None
    (deletion,), (patch,) = script.asked("delete"), script.asked("patch")
    assert deletion.json == {"preconditions": {"uid": "u1"}}
    assert (patch.json, patch.headers["content-type"]) == ({"status": {}}, "application/merge-patch+json")


async def test_answer_that_is_no_object_is_malformed() -> None:
    script = Script()
    script.on("get", POD, reply(200, b"[]"))
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(MalformedAnswerError, match="no JSON object"):
            await Cluster(client).get(POD)
