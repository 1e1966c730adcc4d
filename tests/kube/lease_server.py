"""A scripted server with one Lease."""

from dataclasses import dataclass, field
from typing import Any

from tests.kube.scripted_server import Answer, Request, Script, reply, slam, status

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{LEASES}/ai-scheduler"


@dataclass
class LeaseServer:
    """One Lease as an API server keeps it; `lost` answers take effect and are not sent."""

    script: Script = field(default_factory=Script)
    lease: dict[str, Any] | None = None
    version: int = 10
    lost: int = 0
    refusal: Answer | None = None

    def __post_init__(self) -> None:
        self.script.always["get", LEASE] = lambda _: self.refusal or self._read()
        self.script.always["post", LEASES] = lambda request: self.refusal or self._create(request)
        self.script.always["patch", LEASE] = lambda request: self.refusal or self._patch(request)

    def edit(self, **spec: Any) -> None:
        """Change the spec as another client does."""
        assert self.lease is not None
        self.lease["spec"].update(spec)
        self._wrote()

    def _read(self) -> Answer:
        return reply(200, self.lease) if self.lease is not None else status(404, "NotFound", "no lease")

    def _create(self, request: Request) -> Answer:
        if self.lease is not None:
            return status(409, "AlreadyExists", "there is one")
        self.lease = request.json
        return self._wrote()

    def _patch(self, request: Request) -> Answer:
        if self.lease is None:
            return status(404, "NotFound", "no lease")
        patch = request.json
        if patch["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "it was changed meanwhile")
        marks = {**self.lease["metadata"].get("annotations", {}), **patch["metadata"].get("annotations", {})}
        self.lease["metadata"]["annotations"] = {key: mark for key, mark in marks.items() if mark is not None}
        self.lease["spec"].update(patch["spec"])
        return self._wrote()

    def _wrote(self) -> Answer:
        assert self.lease is not None
        self.version += 1
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        if self.lost:
            self.lost -= 1
            return slam
        return reply(200, self.lease)
