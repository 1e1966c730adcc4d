"""What an API server would refuse, asked of the one in memory: there is one implementation of what it takes.

Laws:
- Objects are created in an order that lets each find what it needs: namespaces and priority classes first.
- What belongs to the cluster and is not in the files is taken as there: namespaces, priority classes.
- An unknown field is refused, as `kubectl` asks for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from aischeduler.cli.check_documents import Body, Document, Finding, mapping_at, text_at
from aischeduler.cli.check_templates import Template, malformed_quantities, no_quantities, templates
from aischeduler.config.spelling import nearest
from aischeduler.kube.crds import pool_crd
from aischeduler.kube.pool_schema import pool_schema
from aischeduler.model.names import GROUP, VERSION
from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.objects import encode
from aischeduler.sandbox.patch import MERGE_PATCH
from aischeduler.sandbox.request import JSON, Response, request
from aischeduler.sandbox.watches import WatchStream

POOL: Final = (f"{GROUP}/{VERSION}", "Pool")
NODE: Final = ("v1", "Node")
NAMESPACE: Final = ("v1", "Namespace")
JOB: Final = ("batch/v1", "Job")
PATHS: Final = {
    NAMESPACE: "/api/v1/namespaces",
    ("scheduling.k8s.io/v1", "PriorityClass"): "/apis/scheduling.k8s.io/v1/priorityclasses",
    NODE: "/api/v1/nodes",
    POOL: f"/apis/{GROUP}/{VERSION}/pools",
    JOB: "/apis/batch/v1/namespaces/{}/jobs",
    ("policy/v1", "PodDisruptionBudget"): "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
}
"""What is created as it stands, in this order; pods and templates follow."""
OF_THE_SERVER: Final = frozenset(
    ("uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "managedFields", "selfLink")
)
"""Metadata that only the server writes; objects that were read from a cluster have it."""
_UNKNOWN: Final = re.compile(r'unknown field "([^"]*)"')
_LEAD: Final = re.compile(r'.*? in version "[^"]*" cannot be handled as a \w+: (?:strict decoding error: )?')


@dataclass(frozen=True, slots=True)
class Created:
    """What an object became: its bytes as the server stored them, or nothing, and what was wrong with it."""

    raw: bytes | None
    findings: tuple[Finding, ...]


class Admission:
    """An API server in memory that knows Pools, filled from documents."""

    def __init__(self) -> None:
        self._server = ApiServer()
        self._places: dict[tuple[str, str, str, str], str] = {}
        """Kind, namespace and name -> where it was defined first."""
        self._pods = 0
        self._send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", pool_crd())

    def create(self, document: Document) -> Created:
        """Create an object of one of the kinds of `PATHS`."""
        kind = (document.api_version, document.kind)
        twice = self._again(document)
        if twice:
            return Created(None, (Finding(document, "", f"is defined twice; the first time at {twice}"),))
        wrong = tuple(_malformed(document))
        if wrong:
            return Created(None, wrong)
        body = _as_written(document.body, status=kind == NODE)
        self._namespace(document.namespace)
        answer = self._send("POST", PATHS[kind].format(document.namespace), body)
        if answer.status == 409 and kind == NAMESPACE:  # those that are always there
            labels = {"metadata": {"labels": mapping_at(document.body, "metadata", "labels")}}
            answer = self._send("PATCH", f"{PATHS[kind]}/{document.name}", labels, MERGE_PATCH)
        return _created(answer, document, "")

    def create_pod(self, template: Template) -> Created:
        """Create a pod from a template."""
        document = template.document
        wrong = tuple(malformed_quantities(template))
        if not template.lead and (twice := self._again(document)):
            wrong = (Finding(document, "", f"is defined twice; the first time at {twice}"), *wrong)
        if wrong:
            return Created(None, wrong)
        body = _as_written(template.body, status=False)
        if template.lead:
            self._pods += 1
            body["metadata"] = {**body["metadata"], "name": f"pod-{self._pods}"}
        body["metadata"]["namespace"] = document.namespace
        self._namespace(document.namespace)
        self._priority_class(text_at(template.spec, "priorityClassName"))
        answer = self._send("POST", f"/api/v1/namespaces/{document.namespace}/pods", body | {"kind": "Pod"})
        return _created(answer, document, template.lead)

    def _again(self, document: Document) -> str:
        """Return where the object was defined before; empty the first time."""
        kind, name = document.kind, text_at(mapping_at(document.body, "metadata"), "name")
        namespaced = kind in ("Job", "Pod", "PodDisruptionBudget")
        key = (document.api_version, kind, document.namespace if namespaced else "", name)
        before = self._places.get(key, "")
        if name:
            self._places.setdefault(key, document.where)
        return before

    def _namespace(self, name: str) -> None:
        self._send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def _priority_class(self, name: str) -> None:
        if name:
            self._send("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": 0})

    def _send(self, method: str, path: str, body: Body, content_type: str = JSON) -> Response:
        try:
            written = encode(body)
        except TypeError as error:
            return Response(400, encode({"message": f"cannot be written as JSON: {error}"}))
        answer = self._server.handle(request(method, f"{path}?fieldValidation=Strict", written, content_type), 0.0)
        assert not isinstance(answer, WatchStream), "nothing is watched"
        return answer


def _malformed(document: Document) -> Iterator[Finding]:
    """Say which amounts are none, of a node, or of the pods of a Job."""
    for part in ("capacity", "allocatable"):
        for name, sentence in no_quantities(mapping_at(document.body, "status", part)):
            yield Finding(document, f"status.{part}[{name}]", sentence)
    for template in templates(document):
        yield from malformed_quantities(template)


def _as_written(body: Body, *, status: bool) -> dict[str, Any]:
    """Return an object without what only the server writes; the status of a node stays, it says what the node has."""
    metadata = {key: one for key, one in mapping_at(body, "metadata").items() if key not in OF_THE_SERVER}
    rest = {key: one for key, one in body.items() if status or key != "status"}
    return {**rest, "metadata": metadata}


def _created(answer: Response, document: Document, lead: str) -> Created:
    if answer.status < 300:
        return Created(answer.body, ())
    status = orjson.loads(answer.body)
    causes = mapping_at(status, "details").get("causes") or ()
    found = [(text_at(cause, "field"), text_at(cause, "message")) for cause in causes]
    found = [(field, said) for field, said in found if field]
    message = _LEAD.sub("", text_at(status, "message"), count=1)
    unknown = _UNKNOWN.findall(message)
    found += [(field, f"is no field{_meant(document, field)}") for field in unknown]
    return Created(None, tuple(Finding(document, f"{lead}{field}", said) for field, said in found or [("", message)]))


def _meant(document: Document, field: str) -> str:
    """Return the field of a Pool that somebody who misspelt it probably meant."""
    if (document.api_version, document.kind) != POOL:
        return ""
    *path, name = field.split(".")
    near = nearest(
        name, mapping_at(pool_schema(), *(step for part in path for step in ("properties", part)), "properties")
    )
    return f"; did you mean {near}?" if near else ""
