"""Read pods beside the watch: one pod, for the outcome of its Binding, or the current resource version of all pods.

Invariant: a pod that was read goes to the engine like a watch event.
"""

import asyncio
from typing import Final

import msgspec

from aischeduler.kube.decode.api_types import PodDocument
from aischeduler.kube.decode.meta_types import UNREADABLE, Metadata, Page
from aischeduler.kube.decode.pod_spec import SpecCache
from aischeduler.kube.decode.pods import read_pod
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError
from aischeduler.kube.watch.reflector import Reflector
from aischeduler.kube.write.pod_writes import pod_path
from aischeduler.model.decode_errors import decode_problem
from aischeduler.model.pod import Pod

READS_MAX: Final = 16
"""How many pods are read at a time; if reads hang, lists and statuses still get a connection."""
_DOCUMENT = msgspec.json.Decoder(PodDocument)
_PAGE = msgspec.json.Decoder(Page[msgspec.Raw])


class PodReader:
    """Reads pods beside the watch and passes them to the reflector."""

    def __init__(self, client: Client, pods: Reflector[PodDocument], specs: SpecCache) -> None:
        self._client = client
        self._pods = pods
        self._specs = specs
        self._slots = asyncio.Semaphore(READS_MAX)

    @property
    def watch_version(self) -> str:
        """The resource version up to which the watch has shown all pods; empty during a list."""
        return self._pods.version

    @property
    def newest_version(self) -> int:
        """The newest version of a pod that the watch has shown."""
        return self._pods.newest_version

    async def relist(self) -> None:
        """Return once all pods are listed by a list that starts after this call."""
        await self._pods.relist()

    async def version(self) -> str:
        """Return the resource version of the pods now, independent of the watch; raises ApiError."""
        resource = self._pods.resource
        query = {"limit": "1"}
        if resource.field_selector:
            query["fieldSelector"] = resource.field_selector
        body = await self._client.get(resource.path, query)
        try:
            return _PAGE.decode(body).metadata.resource_version
        except UNREADABLE as error:
            raise MalformedAnswerError(
                f"GET {resource.path}: the list cannot be read: {decode_problem(error)}"
            ) from error

    async def read(self, pod: Pod) -> Pod | None:
        """Return the pod of this name now; None if there is none. Raises ApiError."""
        path = pod_path(pod)
        try:
            async with self._slots:
                body = await self._client.get(path)
        except RefusedError as error:
            if error.no_such_object:
                self._pods.observe_gone(Metadata(name=pod.name, namespace=pod.namespace, uid=pod.uid))
                return None
            raise
        try:
            document = _DOCUMENT.decode(body)
        except UNREADABLE as error:
            raise MalformedAnswerError(f"GET {path}: the pod cannot be read: {decode_problem(error)}") from error
        self._pods.observe(body)
        return read_pod(document, self._specs)
