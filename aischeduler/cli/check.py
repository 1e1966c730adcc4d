"""`ai-scheduler check`: finds what is wrong with configurations, Pools, nodes and pods before they are applied.

Invariants:
- A finding is one line on standard output: `FILE:DOCUMENT KIND/NAME: FIELD: sentence`, in the order of the files.
- A reason to wait that files do not show is a note on standard error, not a finding.
- Exit status 0: no finding. 1: findings. 2: the check itself failed.
- The scheduler's own readers and its engine decide: what they accept is not a finding. Whether a pod fits is the
  engine's answer for a cluster of empty nodes, and the reason is the engine's sentence.
- Without nodes, two selectors overlap only where every node of one Pool is a node of the other.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from http import HTTPStatus
from itertools import permutations
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from aischeduler.analysis.deciding import decide_all
from aischeduler.cli.cluster_source import ClusterSource, connected
from aischeduler.cli.documents import (
    OWN_KINDS,
    POOL,
    READERS,
    Document,
    Finding,
    Template,
    items_at,
    mapping_at,
    meant,
    read_files,
    read_objects,
    templates,
    text_at,
    usage_error,
)
from aischeduler.cli.workload_documents import SPEAKING
from aischeduler.config.errors import ConfigError
from aischeduler.config.load import load_config, parse_config, read_config
from aischeduler.config.schema import API_VERSION, KIND, Config, ConstraintRule
from aischeduler.daemon.configured_profile import profile_of
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.errors import ApiError, RefusedError
from aischeduler.kube.watch import watched_resources
from aischeduler.kube.watch.list_pager import pages, read_raw
from aischeduler.kube.watch.queue_resources import queue_resources
from aischeduler.model import gang, names
from aischeduler.model.actions import Bind, ReportPool
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.names import DEFAULT_POOL, POOL_KEY, SCHEDULER_NAME
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.selectors import LabelSelector
from aischeduler.model.tenant_queue import QUEUE_KEY, VOLCANO_QUEUE_KEY, QueueState, TenantQueue
from aischeduler.model.user_text import LIKENESS_MIN, nearest, quoted
from aischeduler.model.workload import CARD_NAME_KEY, PREEMPTABLE_KEY, SERVICE_TYPE_KEY, ServiceType, Tenancy

FOUND: Final = 1
"""Exit status with findings."""
FOREIGN: Final = frozenset(("volcano.sh", "scheduling.volcano.sh"))
"""Prefixes of keys of others, of which only some have a meaning here."""
FOREIGN_LIKENESS: Final = 0.9
"""How alike a misspelt key with such a prefix is: many keys of others differ in one word."""
SCHEDULER_LIKENESS: Final = 0.9
"""How alike a misspelt name of a scheduler is: all names of schedulers end in the same word."""
_TENANT_ANNOTATIONS: Final = (QUEUE_KEY, VOLCANO_QUEUE_KEY, SERVICE_TYPE_KEY, PREEMPTABLE_KEY)
"""What pods say of their tenant, or their workload for them."""
_CARD_ANNOTATIONS: Final = (names.GPU_TYPE_KEY, names.GPU_TYPE_POLICY_KEY, names.MACHINE_GROUP_KEY, CARD_NAME_KEY)
_GANG_ANNOTATIONS: Final = (gang.GANG_KEY, gang.GANG_TIMEOUT_KEY, gang.GANG_SPAN_KEY, gang.GANG_TOPOLOGY_KEY)
_GANG_LABELS: Final = (gang.GANG_KEY, gang.GANG_MIN_KEY, gang.GANG_ROLE_KEY, gang.GANG_ROLE_MIN_KEY)
KEYS: Final = {
    "annotations": (POOL_KEY, *_TENANT_ANNOTATIONS, *_CARD_ANNOTATIONS, *_GANG_ANNOTATIONS),
    "labels": (POOL_KEY, PREEMPTABLE_KEY, *_GANG_LABELS),
}
"""The keys that the scheduler reads in a pod, by where."""


async def check(files: Sequence[str], *, kubeconfig: Path | None, context: str | None, config: Path | None) -> int:
    """Print the findings and return the exit status; raises TyperException where the check fails.

    With a `kubeconfig` or a `context`, the checks use nodes and Pools of that cluster too.
    """
    if not files:
        raise usage_error("no file is given: use -f FILE, or -f - for standard input")
    documents, findings = read_files(files)
    configuration, wrong = _configuration(config, documents)
    findings += wrong
    notes: list[Finding] = []
    findings += _object_findings(documents, configuration, await _cluster(kubeconfig, context), notes)
    order = {document.where: number for number, document in enumerate(documents)}
    findings.sort(key=lambda found: (order.get(found.document.where, len(order)), found.field, found.sentence))
    for finding in findings:
        print(finding.line())
    for note in notes:
        print(note.line(), file=sys.stderr)
    print(_summary(documents, findings), file=sys.stderr)
    return FOUND if findings else 0


async def _cluster(kubeconfig: Path | None, context: str | None) -> list[Event]:
    """Return the namespaces, Pools, nodes and tenant queues of a cluster; nothing without one."""
    events: list[Event] = []
    if kubeconfig is None and context is None:
        return events
    try:
        async with connected(ClusterSource(kubeconfig, context)) as (client, _):
            pools = (watched_resources.namespaces(), watched_resources.pools(), watched_resources.nodes())
            resources: tuple[watched_resources.WatchedResource[Any], ...] = (*pools, *queue_resources())
            for resource in resources:
                try:
                    async with aclosing(pages(client, resource, read_raw, cached=True)) as found:
                        async for page in found:
                            for item in page.items or ():
                                with suppress(*UNREADABLE):
                                    events += resource.read(item)
                    events += resource.listed(served=True)
                except RefusedError as error:
                    absent = error.status == HTTPStatus.NOT_FOUND and resource.optional  # not installed yet
                    if not absent and not (error.status == HTTPStatus.FORBIDDEN and not resource.needed):
                        raise
    except ApiError as error:
        raise usage_error(f"the cluster cannot be read: {error}") from error
    return events


def _configuration(path: Path | None, documents: Iterable[Document]) -> tuple[Config, list[Finding]]:
    """Return the configuration of `--config`, else the first valid one of the documents, else the defaults."""
    valid: list[Config] = []
    findings: list[Finding] = []
    if path is not None:
        try:
            valid.append(load_config(path))
        except ConfigError as error:
            raise usage_error(str(error)) from error
    for document in documents:
        try:
            if document.kind == KIND:
                valid.append(read_config(dict(document.body)))
            elif document.type == ("v1", "ConfigMap"):
                valid += [parse_config(f"data[{key}]", text.encode()) for key, text in _mounted(document)]
        except ConfigError as error:
            findings.append(Finding(document, "", str(error)))
    return next(iter(valid), Config()), findings


def _mounted(document: Document) -> Iterator[tuple[str, str]]:
    """Yield the configurations in a ConfigMap, with their keys."""
    for key, text in sorted(mapping_at(document.body, "data").items()):
        if isinstance(text, str) and API_VERSION in text and KIND in text:
            yield key, text


def _object_findings(
    documents: Sequence[Document], config: Config, cluster: list[Event], notes: list[Finding]
) -> Iterator[Finding]:
    """Yield the findings about each object and about all objects together; append the notes to `notes`."""
    objects = read_objects(documents)
    yield from objects.findings
    empty = EmptyCluster(replace(profile_of(config), hold_unsupported=False), [*cluster, *objects.events])
    named = {document.name for document in documents if document.type == POOL}
    pools = tuple(sorted(named | empty.pools.keys()))
    conflicts = empty.conflicts() if empty.nodes else {}
    for name, (document, _) in sorted(objects.pools.items()):
        yield from _unknown_lenders(document, pools)
        if name in conflicts:
            yield Finding(document, "spec.nodeSelector", conflicts[name])
    if not conflicts:
        yield from _overlapping(objects.pools)
    for template in objects.templates:
        yield from _wrong_scheduler(template, config.scheduler_names)
        yield from _misplaced_names(template)
        if named or cluster:
            yield from _unknown_pool(template, pools)
    for document, queue in objects.queues.values():
        if problem := empty.problem(queue):
            yield Finding(document, "spec.parent", problem)
    for template, pod in objects.pods:
        if pod.scheduler_name not in config.scheduler_names:
            continue
        yield from _unsupported(template, pod, config.unsupported_constraints)
        notes += _unknown_claims(template, pod)
        yield from _unknown_tenant(template, empty.tenancy(pod), empty.queues)
        if why := empty.refuses(pod):
            yield template.finding("spec", f"cannot run even when all nodes are empty: {why}")


def _summary(documents: Sequence[Document], findings: Sequence[Finding]) -> str:
    """Return the last line: how many documents and findings there are, and which kinds are not checked."""
    unchecked = Counter(
        document.kind or "no kind"
        for document in documents
        if document.type not in READERS
        and not any(document.kind in kinds for kinds in OWN_KINDS.values())
        and not templates(document)
        and not (document.kind == "ConfigMap" and any(_mounted(document)))
    )
    kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(unchecked.items()))
    found = _counted(len(findings), "finding") if findings else "nothing found"
    return f"{SCHEDULER_NAME}: {_counted(len(documents), 'document')}: {found}{kinds and f'; not checked: {kinds}'}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


class EmptyCluster:
    """The engine with nodes that run no pod."""

    def __init__(self, profile: Profile, events: Iterable[Event]) -> None:
        self._scheduler = Scheduler(profile, run="check")
        self._namespaces: set[str] = set()
        self.nodes = 0
        self.pools: dict[str, Pool] = {DEFAULT_POOL: profile.default_pool}
        for event in events:
            match event:
                case Seen(Node()):
                    self.nodes += 1
                case Seen(Pool() as pool):
                    self.pools[pool.name] = pool
                case Seen(Namespace(name)):
                    self._namespaces.add(name)
                case _:
                    pass
            self._scheduler.observe(_opened(event), 0.0)
        self._tenants = self._scheduler.cluster.tenants
        self._first_actions = decide_all(self._scheduler, 0.0)

    def conflicts(self) -> dict[str, str]:
        """Return the message of the condition Conflict of each Pool that shares nodes with another."""
        return {
            report.name: condition.message
            for report in self._first_actions
            if isinstance(report, ReportPool)
            for condition in report.conditions
            if condition.type == "Conflict" and condition.status
        }

    @property
    def queues(self) -> tuple[str, ...]:
        """The names of all tenant queues, sorted."""
        return self._tenants.queues.names()

    def problem(self, queue: TenantQueue) -> str:
        """Return why a queue takes no pods because of its ancestors; nothing where it may."""
        counts = self._tenants.queues.get(queue.name)
        return self._tenants.queues.problem(counts) if counts is not None and counts.source is queue.source else ""

    def tenancy(self, pod: Pod) -> Tenancy:
        """Return what counts for a pod: nothing where no tenant queue is known."""
        return self._tenants.tenancy(pod)

    def refuses(self, pod: Pod) -> str:
        """Return why the pod fits no node; nothing where it fits, or where nodes or its namespace are unknown."""
        home = self.pools.get(pod.pool, self.pools[DEFAULT_POOL])
        by_namespace = home.allowed_namespaces is not None or bool(pod.spec.machine_group)
        if not self.nodes or pod.node_name or (by_namespace and pod.namespace not in self._namespaces):
            return ""
        queue = self._tenants.queues.get(self.tenancy(pod).queue)
        closed = queue is not None and queue.allowed_namespaces is not None and pod.namespace not in self._namespaces
        if queue is None or closed:
            pod = replace(pod, terms=None, owner="")
        spec = replace(pod.spec, volumes=None)  # the files do not show its volumes
        said = pod.gang.said if pod.gang is not None else None
        gang = pod.gang if said is not None and said.invalid else None  # the other pods of its gang are not here
        self._scheduler.observe(Seen(replace(pod, spec=spec, gates=(), gang=gang)), 0.0)
        bound = any(isinstance(action, Bind) for action in decide_all(self._scheduler, 0.0))
        why = "" if bound else self._scheduler.why(pod.uid)
        self._scheduler.observe(gone(Pod, pod.uid), 0.0)
        return why


def _opened(event: Event) -> Event:
    """Return the event of a queue as if it were open: that it is closed for some time is nobody's mistake."""
    match event:
        case Seen(TenantQueue() as queue):
            return Seen(replace(queue, state=QueueState.OPEN))
        case _:
            return event


def _unknown_tenant(template: Template, tenancy: Tenancy, queues: tuple[str, ...]) -> Iterator[Finding]:
    """Find the name of a tenant queue that does not exist, and a service type that is none; `queues` are sorted."""
    if tenancy.queue and tenancy.queue not in queues:
        hint = meant(tenancy.queue, queues) or ", so the pods are held"
        yield _said(template, (QUEUE_KEY, VOLCANO_QUEUE_KEY), f"there is no Queue {quoted(tenancy.queue)}{hint}")
    if tenancy.misspelt:
        hint = meant(tenancy.misspelt, tuple(ServiceType)) or f"; the types are {' and '.join(ServiceType)}"
        yield _said(template, (SERVICE_TYPE_KEY,), f"{quoted(tenancy.misspelt)} is no service type{hint}")


def _said(template: Template, keys: tuple[str, ...], sentence: str) -> Finding:
    """Return a finding about the first of these annotations, of the pods or else of their workload."""
    for metadata, lead in ((mapping_at(template.body, "metadata"), template.lead), (_workload(template), "")):
        for key in keys:
            if text_at(mapping_at(metadata, "annotations"), key):
                return Finding(template.document, f"{lead}metadata.annotations[{key}]", sentence)
    return template.finding("", sentence)


def _workload(template: Template) -> Mapping[str, object]:
    return mapping_at(template.document.body, "metadata")


def _unknown_lenders(document: Document, pools: Sequence[str]) -> Iterator[Finding]:
    """Find names in `borrowingPools` that no Pool has; `pools` are all names, sorted."""
    for index, name in enumerate(items_at(mapping_at(document.body, "spec"), "borrowingPools")):
        if isinstance(name, str) and name not in pools:
            sentence = f"there is no Pool {quoted(name)}{meant(name, pools)}"
            yield Finding(document, f"spec.borrowingPools[{index}]", sentence)


def _overlapping(pools: Mapping[str, tuple[Document, Pool]]) -> Iterator[Finding]:
    """Find Pools that can never own a node, because another Pool selects every node that they select."""
    selecting = [
        (document, pool.name, pool.selector)
        for _, (document, pool) in sorted(pools.items())
        if pool.selector is not None and pool.name != DEFAULT_POOL
    ]
    for (document, name, selector), (_, rival, rival_selector) in permutations(selecting, 2):
        equal = implies(rival_selector, selector) and rival < name  # of two that select the same, the first is told
        if implies(selector, rival_selector) and not equal:
            sentence = (
                f"every node that it selects is also selected by the Pool {rival}, and a node that two Pools "
                f"select belongs to the pool {DEFAULT_POOL}"
            )
            yield Finding(document, "spec.nodeSelector", sentence)


def implies(selector: LabelSelector, other: LabelSelector) -> bool:
    """Say whether some labels satisfy the first selector, and all labels that do also satisfy the other.

    Requirements on different keys are independent. For each key, every named value is tried, another value, and none.
    """
    requirements = (*selector.requirements, *other.requirements)
    for key in sorted({requirement.key for requirement in requirements}):
        values = sorted(
            {value for requirement in requirements if requirement.key == key for value in requirement.values}
        )
        candidates = [{}, *({key: value} for value in ("/", *values))]  # a slash is in no label value
        selected = [
            labels for labels in candidates if all(r.matches(labels) for r in selector.requirements if r.key == key)
        ]
        if not selected or not all(
            r.matches(labels) for labels in selected for r in other.requirements if r.key == key
        ):
            return False
    return True


def _wrong_scheduler(template: Template, schedulers: tuple[str, ...]) -> Iterator[Finding]:
    """Find a schedulerName that is misspelt, or absent where the pods name a pool; `schedulers` are the right ones."""
    name = text_at(template.spec, "schedulerName")
    if name in schedulers:
        return
    if near := nearest(name, schedulers, SCHEDULER_LIKENESS):
        sentence = f"{quoted(name)} is the name of another scheduler; did you mean {near}?"
        yield template.finding("spec.schedulerName", sentence)
    elif template.pool and not name:
        sentence = f"is missing, so the default scheduler of the cluster takes the pods; set it to {schedulers[0]}"
        yield template.finding("spec.schedulerName", sentence)


def _misplaced_names(template: Template) -> Iterator[Finding]:
    """Find names of a pool, of card types or of a group beside the template, and a misspelt or misplaced key."""
    metadata = mapping_at(template.document.body, "metadata")
    for part, read in KEYS.items():
        mine = mapping_at(template.body, "metadata", part)
        for key in read:
            said = part == "annotations" and key in _TENANT_ANNOTATIONS and template.document.kind in SPEAKING
            aside = template.lead and not said and key in mapping_at(metadata, part) and key not in mine
            elsewhere = key == POOL_KEY and bool(template.pool)
            if aside and not key.startswith(gang.GANG_KEY) and not elsewhere:
                sentence = f"does not reach the pods; move it to {template.lead}metadata.{part}"
                yield Finding(template.document, f"metadata.{part}[{key}]", sentence)
        for key in mine:
            if key in read:
                continue
            other = next((place for place, keys in KEYS.items() if key in keys), "")
            near = nearest(str(key), read, FOREIGN_LIKENESS if str(key).partition("/")[0] in FOREIGN else LIKENESS_MIN)
            if other or near:
                remedy = f"move it to metadata.{other}" if other else f"did you mean {near}?"
                yield template.finding(f"metadata.{part}[{key}]", f"has no effect; {remedy}")


def _unknown_pool(template: Template, pools: tuple[str, ...]) -> Iterator[Finding]:
    """Find the name of a pool that does not exist; `pools` are all names, sorted."""
    if template.pool and template.pool not in pools:
        part = "annotations" if POOL_KEY in mapping_at(template.body, "metadata", "annotations") else "labels"
        hint = meant(template.pool, pools) or f", so the pods belong to the pool {DEFAULT_POOL}"
        yield template.finding(f"metadata.{part}[{POOL_KEY}]", f"there is no Pool {quoted(template.pool)}{hint}")


def _unsupported(template: Template, pod: Pod, rule: ConstraintRule) -> Iterator[Finding]:
    """Find hard constraints that are not supported."""
    outcome = "wait" if rule is ConstraintRule.HOLD else "are placed as if it were absent"
    for constraint in pod.spec.unsupported_constraints:
        sentence = f"is not supported by {SCHEDULER_NAME}, so the pods {outcome} (unsupportedConstraints: {rule})"
        yield template.finding(constraint.field, sentence)


def _unknown_claims(template: Template, pod: Pod) -> Iterator[Finding]:
    """Name every volume claim that the pods wait for; the files do not show whether it will be bound."""
    rest = "bound, or its class binds it for its first pod; the files do not show that"
    for use in pod.volume_claims:
        claim = "the claim of each pod" if use.owned else f'persistentvolumeclaim "{use.name}"'
        yield template.finding(use.field, f"the pods wait until {claim} is {rest}")
    if items_at(mapping_at(template.document.body, "spec"), "volumeClaimTemplates"):
        sentence = f"the pods wait until each claim of this template is {rest}"
        yield Finding(template.document, "spec.volumeClaimTemplates", sentence)
