"""An API server in the test's process: a request is one call, an answer is a decoded object."""

from typing import Any

import orjson

from aischeduler.sandbox.api_server import ApiServer, Options
from aischeduler.sandbox.request import JSON, Response, request
from aischeduler.sandbox.watches import WatchStream

T0 = 1_800_000_000.0
PODS = "/api/v1/namespaces/default/pods"


class Cluster:
    """An `ApiServer` with a clock that only the test moves."""

    def __init__(self, options: Options | None = None) -> None:
        self.server = ApiServer(options, T0)
        self.now = T0

    def call(self, method: str, url: str, body: Any = None, content_type: str = JSON) -> Response:
        raw = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
        answer = self.server.handle(request(method, url, raw, content_type), self.now)
        assert isinstance(answer, Response)
        return answer

    def ok(self, method: str, url: str, body: Any = None, content_type: str = JSON) -> Any:
        answer = self.call(method, url, body, content_type)
        assert answer.status < 300, answer.body
        return orjson.loads(answer.body)

    def refused(self, method: str, url: str, body: Any = None, content_type: str = JSON) -> Any:
        answer = self.call(method, url, body, content_type)
        assert answer.status >= 400, answer.body
        status = orjson.loads(answer.body)
        assert status["code"] == answer.status
        return status

    def watch(self, url: str) -> WatchStream:
        stream = self.server.handle(request("GET", url), self.now)
        assert isinstance(stream, WatchStream), stream
        return stream

    def events(self, stream: WatchStream) -> list[tuple[str, Any]]:
        lines = [orjson.loads(line) for line in stream.read(self.now)]
        return [(line["type"], line["object"]) for line in lines]

    def names(self, url: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.ok("GET", url)["items"]]

    def add_node(self, name: str, labels: dict[str, str] | None = None) -> Any:
        return self.ok("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels or {}}})

    def add_pod(self, name: str, labels: dict[str, str] | None = None, **spec: Any) -> Any:
        return self.ok("POST", PODS, a_pod(name, labels, **spec))

    def bind(self, pod: str, node: str, **metadata: Any) -> Response:
        body = {"metadata": {"name": pod, **metadata}, "target": {"kind": "Node", "name": node}}
        return self.call("POST", f"{PODS}/{pod}/binding", body)


def a_pod(name: str, labels: dict[str, str] | None = None, **spec: Any) -> Any:
    containers = [{"name": "main", "image": "busybox:1"}]
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": containers, **spec}}
