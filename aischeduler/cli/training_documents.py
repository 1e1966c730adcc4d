"""The objects that the operator would make for the TrainingJobs of files: master, parameter servers and a Job.

Invariants:
- The objects are those of the operator itself; nothing here decides what they are.
- A spec that the operator refuses is a finding at its field.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from aischeduler.cli.documents import Document, Finding, mapping_at
from aischeduler.model.names import GROUP
from aischeduler.operator.owner import Json, Settings, SpecError
from aischeduler.operator.paddle_spec import PADDLE_GROUP
from aischeduler.operator.training_job import KIND, TrainingJob, read_training_job
from aischeduler.operator.training_objects import TrainingMaker, roles_of


class Child(Struct, frozen=True):
    """An object that the operator would make for the TrainingJob in a file."""

    document: Document
    owner: Document


def made_by_operator(documents: Iterable[Document]) -> tuple[list[Child], list[Finding]]:
    """Return what the operator would make for the TrainingJobs among these documents, and what it refuses."""
    children: list[Child] = []
    findings: list[Finding] = []
    for document in documents:
        group = document.type[0].partition("/")[0]
        if document.kind != KIND or group not in (GROUP, PADDLE_GROUP) or not document.name:
            continue
        try:
            found = read_training_job(_as_stored(document), Settings())
        except SpecError as error:
            field, _, sentence = str(error).partition(" ")
            findings.append(Finding(document, field, sentence))
            continue
        for body in _objects(found):
            position = f"{document.position}.{body['metadata']['name']}"
            children.append(Child(Document(document.source, position, body), document))
    return children, findings


def _as_stored(document: Document) -> Json:
    metadata = {**mapping_at(document.body, "metadata")}
    names = {"name": document.name, "namespace": document.namespace, "uid": document.where}
    return {**document.body, "metadata": metadata | names}


def _objects(job: TrainingJob) -> Iterator[Json]:
    maker = TrainingMaker(job, Settings())
    for role in roles_of(job):
        for index in range(role.replicas):
            yield maker.pod(role, index, 0)
    yield maker.job()
