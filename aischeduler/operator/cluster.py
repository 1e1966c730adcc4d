"""The requests of the operator to the API server, over the client of the `kubernetes` package.

Invariants:
- Documents are plain JSON: no model of the client refuses a field that a newer API server adds.
- Every request ends within its timeout. A read is never answered from an old state.
- What is already as wanted (a pod is gone, a name is taken) is an answer; everything else raises ClusterError.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, Protocol

import urllib3
from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.dynamic import DynamicClient
from msgspec import Struct

from aischeduler.kube.http.errors import is_answer
from aischeduler.kube.http.paths import object_path
from aischeduler.operator.batch_process import Json
from aischeduler.operator.naming import PLURAL

TIMEOUT_SECONDS: Final = 30.0
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_TYPE: Final = "application/json"
NO_OBJECT: Final = tuple(filter(is_answer, range(400, 500)))
"""Answers to a read of one object that say that there is none."""
REFUSALS: Final = (400, 403, 422)
"""Answers about the object itself: a wrong field, an exhausted quota, an admission that says no."""


class Key(Struct, frozen=True, order=True):
    """A BatchProcess: apiVersion, namespace and name."""

    api_version: str
    namespace: str
    name: str

    def path(self) -> str:
        """Return the path of the object."""
        return object_path(self.api_version, PLURAL, self.name, self.namespace)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.api_version})"


class ClusterError(Exception):
    """The API server gave no usable answer; `status` is 0 where it gave none at all."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Cluster(Protocol):
    """What the operator asks of an API server. Each call raises ClusterError."""

    def get(self, path: str) -> Json | None:
        """Return an object; None if it does not exist."""

    def items(self, path: str, selector: Mapping[str, str]) -> list[Json]:
        """Return the objects of a collection with these labels; none where the kind is not served."""

    def create(self, path: str, document: Json) -> bool:
        """Create an object; return False if its name is taken."""

    def delete(self, path: str, uid: str) -> None:
        """Delete this object, and no later one of its name."""

    def patch(self, path: str, document: Json) -> Json | None:
        """Merge into an object and return it; None if it does not exist."""


class KubernetesCluster:
    """A Cluster over a client; many threads may call it at once."""

    def __init__(self, client: ApiClient) -> None:
        self._client = DynamicClient(client, discoverer=_no_discovery)  # type: ignore[no-untyped-call]

    def get(self, path: str) -> Json | None:
        """As Cluster."""
        return self._ask("get", path, absent=NO_OBJECT)

    def items(self, path: str, selector: Mapping[str, str]) -> list[Json]:
        """As Cluster."""
        labels = ",".join(f"{key}={value}" for key, value in sorted(selector.items()))
        answer = self._ask("get", path, absent=(404,), query={"label_selector": labels} if labels else {})
        found: list[Json] = answer["items"] if answer else []
        return found

    def create(self, path: str, document: Json) -> bool:
        """As Cluster."""
        return self._ask("post", path, document, absent=(409,)) is not None

    def delete(self, path: str, uid: str) -> None:
        """As Cluster."""
        self._ask("delete", path, {"preconditions": {"uid": uid}}, absent=(404, 409))

    def patch(self, path: str, document: Json) -> Json | None:
        """As Cluster."""
        return self._ask("patch", path, document, absent=(404,))

    def _ask(
        self,
        method: str,
        path: str,
        document: Json | None = None,
        absent: tuple[int, ...] = (),
        query: Mapping[str, str] | None = None,
    ) -> Json | None:
        """Send a request and return the answer; None if its status is one of `absent`."""
        try:
            answer = self._client.request(
                method,
                path,
                body=document,
                serialize=False,
                content_type=MERGE_PATCH if method == "patch" else JSON_TYPE,
                _request_timeout=TIMEOUT_SECONDS,
                **(query or {}),
            )
            found: Json = json.loads(answer.data)
        except ApiException as error:
            if error.status in absent:
                return None
            raise ClusterError(error.status, _message(error)) from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ClusterError(0, f"no answer: {error}") from error
        return found


def _no_discovery(*_: Any) -> None:
    """Every path is known; the client need not ask what is served."""


def _message(error: ApiException) -> str:
    """Return what the API server says is wrong."""
    body = str(error.body)
    try:
        said: Any = json.loads(body)
    except ValueError:
        return f"{error.status} {error.reason}"
    return str(said["message"]) if isinstance(said, dict) and "message" in said else body
