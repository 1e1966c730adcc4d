"""An API server in a dictionary for the passes of the operator, with crashes of the operator at any request."""

import copy
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any

from aischeduler.kube.http.errors import RefusedError
from aischeduler.operator.cluster import Cluster
from aischeduler.operator.owner import Json

PODS = "/api/v1/namespaces/team/pods"
SERVICES = "/api/v1/namespaces/team/services"
EVENTS = "/apis/events.k8s.io/v1/namespaces/team/events"


class CrashError(Exception):
    """The operator's process ends here."""


class FakeCluster(Cluster):
    """A Cluster without a client.

    `keeps_status` says whether the definition keeps the operator's status and has its subresource.
    """

    def __init__(self, *, keeps_status: bool = True) -> None:
        self.objects: dict[str, Json] = {}
        self.created: list[str] = []
        """The paths of all objects ever created by the operator, in order."""
        self.writes = 0
        self.refuses = ""
        """The message with which pods are refused; empty: they are taken."""
        self.conflicts = 0
        """How many of the next patches meet a newer version."""
        self._keeps_status = keeps_status
        self._numbers = count(1)
        self._requests_left: int | None = None
        self._after = False
        self._between: tuple[int, Callable[[], Awaitable[object]]] | None = None

    def interrupt_at(self, request: int, other: Callable[[], Awaitable[object]]) -> None:
        """Let something else happen just before this request from now."""
        self._between = request, other

    def crash_at(self, request: int, *, after: bool) -> None:
        """End the operator at this request from now, before or after the API server has carried it out."""
        self._requests_left, self._after = request, after

    def no_crash(self) -> None:
        self._requests_left = self._between = None

    def apply(self, path: str, document: Json) -> None:
        """Create or change a BatchProcess as a user does."""
        old = self.objects.get(path)
        metadata = {"generation": 0, "uid": f"u{next(self._numbers)}"} if old is None else old["metadata"]
        kept = {} if old is None else {"status": old.get("status", {})}
        found = copy.deepcopy(document) | kept
        found["metadata"] = {**metadata, **found["metadata"]}
        found["metadata"]["generation"] += 1
        self.objects[path] = self._stamped(found)

    def pods(self) -> dict[str, Json]:
        """Return the pods by name."""
        return {path.rpartition("/")[2]: one for path, one in self.objects.items() if path.startswith(f"{PODS}/")}

    def set_phase(self, name: str, phase: str, **status: Any) -> None:
        pod = self.objects[f"{PODS}/{name}"]
        pod["status"] = {"phase": phase, **status}
        if phase != "Pending":
            pod["spec"]["nodeName"] = "n1"

    def lose(self, name: str) -> None:
        """Remove a pod as if its node had gone."""
        del self.objects[f"{PODS}/{name}"]

    def stop(self) -> None:
        """Let the kubelets remove what terminates."""
        gone = [path for path, one in self.objects.items() if "deletionTimestamp" in one["metadata"]]
        for path in gone:
            del self.objects[path]

    def event_reasons(self) -> list[str]:
        return [one["reason"] for path, one in self.objects.items() if path.startswith(f"{EVENTS}/")]

    async def get(self, path: str) -> Json | None:
        await self._request()
        found = self.objects.get(path)
        self._answer()
        return copy.deepcopy(found)

    async def items(self, path: str, selector: Mapping[str, str]) -> list[Json]:
        await self._request()
        found = [
            copy.deepcopy(one)
            for name, one in sorted(self.objects.items())
            if name.startswith(f"{path}/") and selector.items() <= one["metadata"].get("labels", {}).items()
        ]
        self._answer()
        return found

    async def create(self, path: str, document: Json) -> bool:
        await self._request()
        if path == PODS and self.refuses:
            raise RefusedError(403, "Forbidden", self.refuses)
        name = f"{path}/{document['metadata']['name']}"
        free = name not in self.objects
        if free:
            made = copy.deepcopy(document)
            made["metadata"]["uid"] = f"u{next(self._numbers)}"
            self.objects[name] = self._stamped(made)
            self.created.append(name)
            self.writes += 1
        self._answer()
        return free

    async def delete(self, path: str, uid: str) -> None:
        await self._request()
        found = self.objects.get(path)
        if found is not None and found["metadata"]["uid"] == uid:
            self.writes += 1
            if found.get("status", {}).get("phase") == "Running":
                found["metadata"]["deletionTimestamp"] = "now"
            else:
                del self.objects[path]
        self._answer()

    async def patch(self, path: str, document: Json) -> Json | None:
        await self._request()
        if path.endswith("/status") and not self._keeps_status:
            return None
        found = self.objects.get(path.removesuffix("/status"))
        if found is None:
            return None
        version = document.get("metadata", {}).get("resourceVersion")
        if version is not None and (version != found["metadata"]["resourceVersion"] or self.conflicts):
            self.conflicts = max(self.conflicts - 1, 0)
            raise RefusedError(409, "Conflict", "the object has been modified")
        if self._keeps_status and "status" in document:
            found["status"] = _merged(found.get("status", {}), copy.deepcopy(document["status"]))
        notes = document.get("metadata", {}).get("annotations", {})
        found["metadata"]["annotations"] = _merged(found["metadata"].get("annotations", {}), notes)
        self.writes += 1
        self._stamped(found)
        self._answer()
        return copy.deepcopy(found)

    def _stamped(self, document: Json) -> Json:
        document["metadata"]["resourceVersion"] = str(next(self._numbers))
        return document

    async def _request(self) -> None:
        if self._between is not None:
            left, other = self._between
            self._between = (left - 1, other) if left else None
            if not left:
                await other()
        if self._requests_left is not None:
            self._requests_left -= 1
            if self._requests_left < 0 and not self._after:
                raise CrashError

    def _answer(self) -> None:
        if self._requests_left is not None and self._requests_left < 0:
            raise CrashError


def _merged(before: Json, changes: Json) -> Json:
    """Return an object after a merge patch of its outermost fields: None removes one."""
    return {name: value for name, value in {**before, **changes}.items() if value is not None}
