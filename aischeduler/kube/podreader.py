"""Read one pod, where the watch has been silent or nobody knows what became of a Binding.

Laws:
- What is read goes to the core as any word of the watch does, so that there is one truth.
"""

import msgspec

from aischeduler.kube.client import Client
from aischeduler.kube.decode import read_pod
from aischeduler.kube.documents import UNREADABLE, Metadata, PodDocument
from aischeduler.kube.errors import GarbledError, RefusedError
from aischeduler.kube.podspec import SpecCache
from aischeduler.kube.reflector import Reflector
from aischeduler.kube.requests import pod_path
from aischeduler.model.pod import Pod

_DOCUMENT = msgspec.json.Decoder(PodDocument)


class PodReader:
    """Reads pods past the watch and tells the watch's store."""

    def __init__(self, client: Client, pods: Reflector[PodDocument], specs: SpecCache) -> None:
        self._client = client
        self._pods = pods
        self._specs = specs

    async def read(self, pod: Pod) -> Pod | None:
        """Return the pod of this name as it now is, or None where there is none; raises ApiError."""
        path = pod_path(pod)
        try:
            body = await self._client.get(path)
        except RefusedError as error:
            if error.status == 404 and error.reason == "NotFound":
                self._pods.missing(Metadata(name=pod.name, namespace=pod.namespace, uid=pod.uid))
                return None
            raise
        try:
            document = _DOCUMENT.decode(body)
        except UNREADABLE as error:
            raise GarbledError(f"GET {path}: the pod cannot be read: {error}") from error
        self._pods.read(body)
        return read_pod(document, self._specs)
