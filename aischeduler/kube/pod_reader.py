"""Read pods past the watch: one, where nobody knows what became of a Binding, or how far all of them are.

Laws:
- What is read of a pod goes to the core as any word of the watch does, so that there is one truth.
"""

import asyncio
from typing import Final

import msgspec

from aischeduler.kube.api_types import PodDocument
from aischeduler.kube.client import Client
from aischeduler.kube.decode import read_pod
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.errors import MalformedAnswerError, RefusedError
from aischeduler.kube.meta_types import UNREADABLE, Metadata, Page
from aischeduler.kube.pod_writes import pod_path
from aischeduler.kube.reflector import Reflector
from aischeduler.model.pod import Pod

READS_MAX: Final = 16
"""Pods that are read at one time: where reads hang, lists and statuses still find a connection."""
_DOCUMENT = msgspec.json.Decoder(PodDocument)
_PAGE = msgspec.json.Decoder(Page[msgspec.Raw])


class PodReader:
    """Reads pods past the watch and tells the watch's store."""

    def __init__(self, client: Client, pods: Reflector[PodDocument], specs: SpecCache) -> None:
        self._client = client
        self._pods = pods
        self._specs = specs
        self._slots = asyncio.Semaphore(READS_MAX)

    @property
    def watch_version(self) -> str:
        """Up to which version the watch has shown all pods; empty while they are listed."""
        return self._pods.version

    @property
    def newest_version(self) -> int:
        """The newest version of a pod that the watch has shown."""
        return self._pods.newest_version

    async def relist(self) -> None:
        """Return once all pods were listed by a list that begins after this."""
        await self._pods.relist()

    async def version(self) -> str:
        """Return the version of the pods as they are now, whatever the watch has shown; raises ApiError."""
        resource = self._pods.resource
        query = {"limit": "1"}
        if resource.field_selector:
            query["fieldSelector"] = resource.field_selector
        body = await self._client.get(resource.path, query)
        try:
            return _PAGE.decode(body).metadata.resource_version
        except UNREADABLE as error:
            raise MalformedAnswerError(f"GET {resource.path}: the list cannot be read: {error}") from error

    async def read(self, pod: Pod) -> Pod | None:
        """Return the pod of this name as it now is, or None where there is none; raises ApiError."""
        path = pod_path(pod)
        try:
            async with self._slots:
                body = await self._client.get(path)
        except RefusedError as error:
            if error.status == 404 and error.reason == "NotFound":
                self._pods.observe_gone(Metadata(name=pod.name, namespace=pod.namespace, uid=pod.uid))
                return None
            raise
        try:
            document = _DOCUMENT.decode(body)
        except UNREADABLE as error:
            raise MalformedAnswerError(f"GET {path}: the pod cannot be read: {error}") from error
        self._pods.observe(body)
        return read_pod(document, self._specs)
