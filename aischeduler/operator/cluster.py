"""The requests of the operator to the API server.

Invariants:
- Documents are plain JSON: no field that a newer API server adds is refused.
- Every request ends within its timeout. A read is never answered from an old state.
- What is already as wanted (a pod is gone, a name is taken) is an answer; everything else raises ApiError.
"""

from collections.abc import Awaitable, Container, Mapping
from typing import Final

import msgspec

from aischeduler.kube.http.client import LIST_SECONDS, Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError, is_answer
from aischeduler.kube.http.paths import object_path
from aischeduler.operator.owner import PLURALS, Json

MERGE_PATCH: Final = "application/merge-patch+json"
NO_OBJECT: Final = tuple(filter(is_answer, range(400, 500)))
"""Answers to a read of one object that say that there is none."""


def owner_path(api_version: str, kind: str, namespace: str, name: str) -> str:
    """Return the path of an owner of pods, by which the operator knows it."""
    return object_path(api_version, PLURALS[kind], name, namespace)


def path_of(document: Json) -> str:
    """Return the path of this owner."""
    metadata = document["metadata"]
    return owner_path(document["apiVersion"], document["kind"], metadata["namespace"], metadata["name"])


class Cluster:
    """What the operator asks of an API server. Each call raises ApiError."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, path: str) -> Json | None:
        """Return an object; None if it does not exist."""
        return await _document(self._client.get(path), NO_OBJECT)

    async def items(self, path: str, selector: Mapping[str, str]) -> list[Json]:
        """Return the objects of a collection with these labels; none where the kind is not served."""
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        query = {"labelSelector": labels} if labels else {}
        answer = await _document(self._client.get(path, query, LIST_SECONDS), (404,))
        found: list[Json] = answer["items"] if answer else []
        return found

    async def create(self, path: str, document: Json) -> bool:
        """Create an object; return False if its name is taken."""
        return await _document(self._client.post(path, msgspec.json.encode(document)), (409,)) is not None

    async def delete(self, path: str, uid: str) -> None:
        """Delete this object, and no later one of its name."""
        options = msgspec.json.encode({"preconditions": {"uid": uid}})
        await _document(self._client.delete(path, options), (404, 409))

    async def patch(self, path: str, document: Json) -> Json | None:
        """Merge into an object and return it; None if it does not exist."""
        return await _document(self._client.patch(path, msgspec.json.encode(document), MERGE_PATCH), (404,))


async def _document(answer: Awaitable[bytes], absent: Container[int]) -> Json | None:
    """Return the document of an answer; None where the API server refuses with one of these statuses."""
    try:
        return msgspec.json.decode(await answer, type=Json)
    except RefusedError as error:
        if error.status in absent:
            return None
        raise
    except msgspec.DecodeError as error:
        raise MalformedAnswerError(f"the answer is no JSON object: {error}") from error
