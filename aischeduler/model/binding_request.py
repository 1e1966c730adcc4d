"""The request that binds a pod, for a plugin that binds pods itself."""

from msgspec import Struct


class BindingRequest(Struct, frozen=True):
    """The request by which DefaultBinder would bind the pod: POST the JSON `body` to `path` of the API server.

    The body is a Binding with the uid of the pod and the scheduler's annotations; a plugin may send it with more.
    """

    path: str
    body: bytes
