"""The files of `ai-scheduler plan`: the pods that their objects would bring, named as their controllers name them.

Invariants:
- A template is found by its shape, so objects of unknown kinds have pods too.
- The readers and checks are those of `check`; what they refuse is one line each, and then there is no plan.
- The pods of a Job or a JobSet that asks for a gang start together, as many as the plan has.
- An elastic Job or JobSet brings its minimum: the scheduler gives it that when it adopts it. A TrainingJob brings what
  the operator makes for it.
- A pod gets what the API server writes into it and scheduling reads: the priority of its class, requests from limits.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.analysis.cluster_snapshot import ClusterSnapshot, PriorityClass
from aischeduler.analysis.plan import PlannedChange, PlannedUnit
from aischeduler.cli.documents import (
    Body,
    Document,
    Finding,
    Objects,
    Template,
    items_at,
    mapping_at,
    read_objects,
    text_at,
)
from aischeduler.cli.training_documents import Child, made_by_operator
from aischeduler.kube.decode.pods import NEVER
from aischeduler.model.disruption_budget import DisruptionBudget
from aischeduler.model.events import Event, Seen, objects_of
from aischeduler.model.gang import Gang, GangClaim, GangSource
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace
from aischeduler.model.user_text import quoted, shown
from aischeduler.model.workload import Workload

PODS_MAX: Final = 20_000
DAEMON_SET: Final = "DaemonSet"
"""A kind that is not planned: it has one pod on each node, and none of them waits for another one's room."""
_NOT_IN_NAMES: Final = ("spec", "template")


class FindingsError(ValueError):
    """Files that cannot be planned; `findings` say why."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("\n".join(finding.line() for finding in findings))
        self.findings = tuple(findings)


class Variant(Struct, frozen=True):
    """A variant of the files: the number of pods of each template, and the pool of each pod; None as in the files."""

    replicas: int | None = None
    pool: str | None = None

    def label(self) -> str:
        """Return the variant in words; empty where it is the files as they are."""
        replicas = f"{self.replicas} replica{'s' * (self.replicas != 1)}" if self.replicas is not None else ""
        return ", ".join(part for part in (replicas, f"pool {self.pool}" if self.pool is not None else "") if part)


class PlanInput(Struct, frozen=True):
    """The documents of the files as the scheduler reads them, and what does not take part, by kind.

    `owners` has the document of a TrainingJob for each that the operator makes for it, by place.
    """

    objects: Objects
    documents: tuple[Document, ...]
    owners: Mapping[str, Document] = {}

    def ignored(self) -> str:
        """Return the kinds that a plan does not read, with their numbers; empty where there is none."""
        pods = (template.document for template in self.objects.templates)
        read = {self.owner(document).where for document in pods if document.kind != DAEMON_SET}
        read |= {document.where for document, _ in self.objects.pools.values()}
        read |= {document.where for document, _ in self.objects.queues.values()}
        kinds = Counter(
            document.kind
            for document in self.documents
            if document.where not in read and document.kind not in ("Namespace", "Node", "Device", "PriorityClass")
        )
        return ", ".join(f"{kind} ({count})" for kind, count in sorted(kinds.items()))

    def owner(self, document: Document) -> Document:
        """Return the document in the files for which this one is made, else itself."""
        return self.owners.get(document.where, document)


def plan_input(documents: Sequence[Document]) -> PlanInput:
    """Read the documents; raises FindingsError."""
    children, refused = made_by_operator(documents)
    objects = read_objects((*documents, *(child.document for child in children)))
    findings = [*refused, *objects.findings, *_unplannable(objects.templates)]
    if findings:
        raise FindingsError(findings)
    return PlanInput(objects, tuple(documents), _owners(children))


def _owners(children: Iterable[Child]) -> dict[str, Document]:
    return {child.document.where: child.owner for child in children}


def change_of(given: PlanInput, snapshot: ClusterSnapshot, variant: Variant, without: Sequence[str]) -> PlannedChange:
    """Return the change that the files bring to a cluster; raises FindingsError."""
    objects = given.objects.events
    events = [
        event for event in objects if not (isinstance(event, Seen) and isinstance(event.object, DisruptionBudget))
    ]
    all_events, known = (*snapshot.events, *events), snapshot.priority_classes is not None
    classes = _priority_classes(given.documents, snapshot)
    there = {(pod.namespace, pod.name) for pod in objects_of(snapshot.events, Pod)}
    by_document: dict[str, list[tuple[Template, Pod]]] = {}
    for template, pod in given.objects.pods:
        if template.document.kind != DAEMON_SET:
            by_document.setdefault(given.owner(template.document).where, []).append((template, pod))
    units = [
        _Unit(found, given.owner(found[0][0].document), classes, variant, all_events, known).unit(there)
        for found in by_document.values()
    ]
    total = sum(len(unit.pods) for unit in units)
    if total > PODS_MAX:
        document = given.objects.pods[0][0].document
        raise FindingsError([Finding(document, "", f"the files have {total} pods, and a plan has at most {PODS_MAX}")])
    return PlannedChange(tuple(units), tuple(events), tuple(dict.fromkeys(without)))


class _Unit(Struct, frozen=True):
    """Makes the unit of one document of the files from its templates and what they decode to."""

    templates: Sequence[tuple[Template, Pod]]
    document: Document
    classes: Mapping[str, PriorityClass]
    variant: Variant
    events: Sequence[Event]
    """The objects of the cluster and of the files."""
    classes_known: bool

    def unit(self, there: set[tuple[str, str]]) -> PlannedUnit:
        document = self.document
        pods: list[Pod] = []
        roles: list[str] = []
        notes: list[str] = []
        for template, decoded in self.templates:
            pod = self._stored(template, decoded, notes)
            names = self._names(template)
            pods += (msgspec.structs.replace(pod, name=name) for name in names)
            roles += [_role(template)] * len(names)
            if not template.lead and (pod.namespace, names[0]) in there:
                notes.append("a pod of this name is in the cluster already; the plan has both")
        namespaces = {namespace.name for namespace in objects_of(self.events, Namespace)}
        if namespaces and document.namespace not in namespaces:
            notes.append(f"there is no namespace {quoted(document.namespace)}, so the API server refuses the pods")
        if not pods:
            notes.append("it is suspended or has 0 replicas, so it brings no pods")
        if items_at(mapping_at(document.body, "spec"), "volumeClaimTemplates"):
            notes.append("the claims of spec.volumeClaimTemplates are not planned")
        gang = next((gang for gang in self._gangs() if gang.uid == document.where), None)
        if gang is not None:
            pods = _together(pods, roles, gang)
        name = document.name.rstrip("-") or document.kind.lower()
        elastic = self._elastic()
        if elastic is not None and (why := self._not_elastic(elastic)):
            notes.append(why)
        job = elastic.key if elastic is not None else None
        return PlannedUnit(document.kind, document.namespace, name, tuple(pods), tuple(dict.fromkeys(notes)), (), job)

    def _elastic(self) -> Workload | None:
        """Return the elastic job of the document; None where it asks for none. In a file the uid is the place."""
        places = {template.document.where for template, _ in self.templates}
        workloads = objects_of(self.events, Workload)
        return next((found for found in workloads if found.elastic is not None and found.uid in places), None)

    def _not_elastic(self, workload: Workload) -> str:
        """Return why a job is not elastic, or what of the variant does not count for one that is; empty for neither."""
        job = workload.elastic
        if job is not None and job.problem is not None:
            return f"it is not elastic: {job.problem.message}"
        return "it is elastic, so --replicas does not change how it starts" if self.variant.replicas is not None else ""

    def _gangs(self) -> Iterator[Gang]:
        """Yield the gangs of the Jobs and JobSets, whose pods do not name them; in a file the uid is the place."""
        for gang in objects_of(self.events, Gang):
            if gang.key.source in (GangSource.JOB, GangSource.JOB_SET):
                yield gang

    def _stored(self, template: Template, pod: Pod, notes: list[str]) -> Pod:
        """Return the pod as the API server stores it."""
        if self.variant.pool is not None:
            pod = msgspec.structs.replace(pod, pool=self.variant.pool)
        if "priority" in template.spec:
            return pod
        wanted = text_at(template.spec, "priorityClassName")
        found = self.classes.get(wanted) if wanted else _default_class(self.classes.values())
        if wanted and found is None and self.classes_known:
            notes.append(f"there is no PriorityClass {quoted(wanted)}, so the API server refuses the pods")
        if found is None:
            return pod
        preempts = pod.preempts and ("preemptionPolicy" in template.spec or found.preemption_policy != NEVER)
        return msgspec.structs.replace(pod, priority=found.value, preempts=preempts)

    def _names(self, template: Template) -> list[str]:
        document = template.document
        name = document.name.rstrip("-") or document.kind.lower()
        beside = sum(other.document.where == document.where for other, _ in self.templates)
        if not template.lead:
            return [name if text_at(mapping_at(document.body, "metadata"), "name") else f"{name}-0"]
        if beside > 1:
            name = f"{name}-{_part(template)}"
        count, least = _pod_count(template), self._minimum(template)
        if least is not None and count:
            count = least
        elif self.variant.replicas is not None and count:
            count = self.variant.replicas
        return [f"{name}-{number}" for number in range(min(count, PODS_MAX + 1))]

    def _minimum(self, template: Template) -> int | None:
        """Return with how many instances the template of an elastic job starts; None for another one."""
        workload = self._elastic()
        job = workload.elastic if workload is not None else None
        if job is None or job.problem is not None or workload is None or workload.uid != template.document.where:
            return None
        return job.terms.min_instances if not job.part or _role(template) == job.part else None


def _together(pods: Sequence[Pod], roles: Sequence[str], gang: Gang) -> list[Pod]:
    """Return the pods of a Job or a JobSet as one gang; a pod that names another one stays in that."""
    counts = tuple(sorted((role, count) for role, count in Counter(roles).items() if role))
    claims = {role: GangClaim(gang.key, role, said=replace(gang, min_member=len(pods), roles=counts)) for role in roles}
    return [
        pod if pod.gang is not None else msgspec.structs.replace(pod, gang=claims[role])
        for pod, role in zip(pods, roles, strict=True)
    ]


def _role(template: Template) -> str:
    """Return the name of the ReplicatedJob around a template; empty where there is none."""
    jobs = items_at(mapping_at(template.document.body, "spec"), "replicatedJobs")
    index = template.steps[2] if template.steps[:2] == ("spec", "replicatedJobs") else None
    return text_at(jobs[index], "name") if isinstance(index, int) and isinstance(jobs[index], dict) else ""


def _unplannable(templates: Iterable[Template]) -> Iterator[Finding]:
    """Find objects whose number of pods cannot be read."""
    for template in templates:
        document = template.document
        for path, holder in _holders(template):
            for name in ("replicas", "parallelism", "completions"):
                value = holder.get(name)
                if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                    yield Finding(document, f"{path}{name}", f"must be a whole number from 0, not {shown(value)}")


def _pod_count(template: Template) -> int:
    """Return how many pods run at once: the replicas of all objects around a template, of a Job its parallelism."""
    count = 1
    for _, holder in _holders(template):
        if holder.get("suspend") is True:
            return 0
        replicas, parallelism = holder.get("replicas"), holder.get("parallelism")
        count *= replicas if replicas is not None else 1
        if parallelism is not None or holder.get("completions") is not None:
            completions = holder.get("completions")
            at_once = 1 if parallelism is None else parallelism
            count *= at_once if completions is None else min(at_once, completions)
    return count


def _holders(template: Template) -> Iterator[tuple[str, Body]]:
    """Yield each mapping around a template with its path, which ends in a dot or is empty, the outermost first."""
    value: Any = template.document.body
    path = ""
    for step in template.steps:
        if isinstance(value, dict):
            yield f"{path}." if path else "", value
        value = value[step]
        path = f"{path}[{step}]" if isinstance(step, int) else f"{path}.{step}".removeprefix(".")


def _part(template: Template) -> str:
    """Return the part of the pods' names that tells the templates of one object apart."""
    steps = [step for step in template.steps if step not in _NOT_IN_NAMES]
    named = [str(step).lower() for step in steps]
    return "-".join(named[-2:] if steps and isinstance(steps[-1], int) else named[-1:]) or "pod"


def _default_class(classes: Iterable[PriorityClass]) -> PriorityClass | None:
    """Return the class of pods that name none: of several defaults the API server takes the lowest."""
    defaults = [priority_class for priority_class in classes if priority_class.global_default]
    return min(defaults, key=lambda priority_class: (priority_class.value, priority_class.name), default=None)


def _priority_classes(documents: Iterable[Document], snapshot: ClusterSnapshot) -> dict[str, PriorityClass]:
    """Return the classes by name: those of the cluster, and over them those of the files."""
    classes = {priority_class.name: priority_class for priority_class in snapshot.priority_classes or ()}
    for document in documents:
        value = document.body.get("value")
        if document.kind == "PriorityClass" and document.name and isinstance(value, int):
            policy, default = text_at(document.body, "preemptionPolicy"), document.body.get("globalDefault") is True
            classes[document.name] = PriorityClass(document.name, value, default, policy)
    return classes
