"""What HAMi's device plugin needs around the Binding of a pod that gets GPUs of its node: a lock, and annotations.

Invariants:
- The node is locked for one pod before the pod says which GPUs it gets, and both before its Binding. A lock of another
  pod that is younger than `LOCK_SECONDS` refuses the Binding for now.
- The device plugin ends the lock once the containers have their GPUs. Where the pod is not bound after all, the lock
  and the annotations are taken back: no lock but that of the Binding itself, and nothing of a pod that has the node.
- What cannot be taken back, because the API server cannot be reached, ends by itself: the lock after `LOCK_SECONDS`.

Source: `hami.io/mutex.lock`, `hami.io/bind-phase` and the annotations of HAMi's scheduler at Filter and Bind, which its
device plugin reads in Allocate.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct, field

from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.decode.pod_devices import write_hami
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import ApiError, MalformedAnswerError, RefusedError
from aischeduler.kube.http.paths import object_path
from aischeduler.kube.write.pod_writes import MERGE_PATCH, pod_path
from aischeduler.model.actions import Bind
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.device import DEVICES, HeldDevices
from aischeduler.model.device_request import HAMI_ALLOCATED_KEY
from aischeduler.model.times import time_text, unix_seconds
from aischeduler.model.user_text import quoted

LOCK_KEY: Final = "hami.io/mutex.lock"
LOCK_SECONDS: Final = 300.0
"""How long a lock holds at most: HAMi's default."""
TRIES_MAX: Final = 5
"""How often an object is written that others change meanwhile; agents write to a node every few seconds."""
NODE_KEY: Final = "hami.io/vgpu-node"
TIME_KEY: Final = "hami.io/vgpu-time"
TO_ALLOCATE_KEY: Final = "hami.io/vgpu-devices-to-allocate"
PHASE_KEY: Final = "hami.io/bind-phase"
BIND_TIME_KEY: Final = "hami.io/bind-time"
ALLOCATING: Final = "allocating"
_Notes = Mapping[str, str | None]
POD_KEYS: Final = (NODE_KEY, TIME_KEY, TO_ALLOCATE_KEY, HAMI_ALLOCATED_KEY, PHASE_KEY, BIND_TIME_KEY)


class NodeLock(Struct, frozen=True):
    """The lock of a node for one Binding; `version` is that of the pod with its annotations, empty without these."""

    value: str
    version: str = ""


class _Annotations(Struct, gc=False):
    """The annotation with the lock."""

    lock: str | None = field(name=LOCK_KEY, default=None)


class _Metadata(Struct, rename="camel", gc=False):
    uid: str = ""
    resource_version: str = ""
    annotations: _Annotations | None = None


class _Spec(Struct, rename="camel", gc=False):
    node_name: str | None = None


class _Object(Struct, gc=False):
    """A node or a pod."""

    metadata: _Metadata
    spec: _Spec | None = None


class HamiBinds:
    """Prepares the Bindings of pods with GPUs that HAMi's device plugin hands out; `wall` is the time of day."""

    def __init__(self, client: Client, wall: Callable[[], float]) -> None:
        self._client, self._wall = client, wall

    def concerns(self, action: Bind) -> bool:
        """Return whether the pod gets GPUs of HAMi."""
        held = action.allocation.part(DEVICES)
        return isinstance(held, HeldDevices) and held.by_hami

    async def prepare(self, action: Bind) -> NodeLock | str:
        """Lock the node and write the pod's annotations; return why the pod must not be bound now where that fails."""
        held, asked = action.allocation.part(DEVICES), action.pod.spec.devices
        given = write_hami(held.devices, asked.parts) if isinstance(held, HeldDevices) and asked is not None else ""
        if not given:
            return "HAMi cannot be told which GPUs it gets: an id or an amount of memory is missing"
        lock = NodeLock(f"{time_text(self._wall())},{action.pod.namespace},{action.pod.name}")
        try:
            if why := await self._lock(action, lock):
                return why
        except ApiError as error:
            await self.undo(action, lock)
            return f"the node could not be locked for HAMi: {error}"
        now = str(int(self._wall()))
        values = (action.node, now, given, given, ALLOCATING, now)
        notes: _Notes = dict(zip(POD_KEYS, values, strict=True))
        try:
            written = await self._patch(pod_path(action.pod), notes, uid=action.pod.uid)
        except ApiError as error:
            await self.undo(action, lock)
            return f"its GPUs could not be written for HAMi: {error}"
        return NodeLock(lock.value, written.metadata.resource_version)

    async def undo(self, action: Bind, lock: NodeLock) -> None:
        """Take back what `prepare` wrote, unless the pod has the node: then its containers need it."""
        free = not lock.version  # no Binding was sent
        with suppress(ApiError):
            free = await self._clear_pod(action, lock.version) or free
        with suppress(ApiError):  # it ends by itself
            if free:
                await self._unlock(action.node, lock)

    async def _lock(self, action: Bind, lock: NodeLock) -> str:
        """Lock a node; return who has it where that is another pod. Raises ApiError."""
        path = object_path("v1", "nodes", action.node)
        for left in reversed(range(TRIES_MAX)):
            node = await self._read(path)
            if why := self._why_locked(node, lock):
                return why
            try:
                await self._patch(path, {LOCK_KEY: lock.value}, version=node.metadata.resource_version)
            except RefusedError as error:
                if error.status != HTTPStatus.CONFLICT or not left:
                    raise
            else:
                break
        return ""

    def _why_locked(self, node: _Object, lock: NodeLock) -> str:
        """Return why a node cannot be locked; a lock for the same pod is of an earlier try."""
        value = _lock_of(node)
        since, _, pod = value.partition(",")
        if not value or pod == lock.value.partition(",")[2]:
            return ""
        try:
            if self._wall() - unix_seconds(since) >= LOCK_SECONDS:
                return ""
        except (ValueError, OverflowError):
            pass  # whoever wrote it takes it away
        return f"the node is locked by the annotation {LOCK_KEY}, {quoted(value)}, until another pod has its GPUs"

    async def _unlock(self, node_name: str, lock: NodeLock) -> None:
        path = object_path("v1", "nodes", node_name)
        for left in reversed(range(TRIES_MAX)):
            node = await self._read(path)
            if _lock_of(node) != lock.value:
                return
            try:
                await self._patch(path, {LOCK_KEY: None}, version=node.metadata.resource_version)
            except RefusedError as error:
                if error.status != HTTPStatus.CONFLICT or not left:
                    raise
            else:
                return

    async def _clear_pod(self, action: Bind, version: str) -> bool:
        """Remove the annotations of a pod that has no node; return whether its lock is of no use any more.

        `version` is the newest one of the pod that is known to have no node; empty where no Binding was sent.
        """
        path, absent = pod_path(action.pod), dict.fromkeys(POD_KEYS)
        for _ in range(TRIES_MAX):
            try:
                await self._patch(path, absent, uid=action.pod.uid, version=version)
            except RefusedError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return True
                if error.status != HTTPStatus.CONFLICT:
                    raise
            else:
                return True
            try:
                pod = await self._read(path)
            except RefusedError as error:
                if error.no_such_object:
                    return True
                raise
            node = pod.spec.node_name if pod.spec is not None else None
            if node or pod.metadata.uid != action.pod.uid:
                return node != action.node or pod.metadata.uid != action.pod.uid
            version = pod.metadata.resource_version
        return False

    async def _read(self, path: str) -> _Object:
        return _decoded(path, await self._client.get(path))

    async def _patch(self, path: str, annotations: _Notes, *, uid: str = "", version: str = "") -> _Object:
        """Write annotations, None to remove one, of the object of this uid and version, where they are not empty."""
        guards = {"uid": uid, "resourceVersion": version}
        metadata = {name: value for name, value in guards.items() if value}
        body = msgspec.json.encode({"metadata": {**metadata, "annotations": annotations}})
        return _decoded(path, await self._client.patch(path, body, MERGE_PATCH))


def _lock_of(node: _Object) -> str:
    annotations = node.metadata.annotations
    return (annotations.lock or "") if annotations is not None else ""


def _decoded(path: str, body: bytes) -> _Object:
    try:
        return msgspec.json.decode(body, type=_Object)
    except UNREADABLE as error:
        raise MalformedAnswerError(f"{path}: {decode_problem(error)}") from error
