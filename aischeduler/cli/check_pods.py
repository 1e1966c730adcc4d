"""Checks of pods and pod templates: the scheduler's name, the pool's name, unsupported constraints, and room.

Invariants:
- A template is found by its shape, so templates in objects of unknown kinds are found too.
- Whether a pod fits is the engine's answer for a cluster of empty nodes, and the reason is the engine's sentence.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aischeduler.analysis.deciding import decide_all
from aischeduler.cli.check_documents import Body, Document, Finding, items_at, mapping_at, text_at
from aischeduler.cli.check_pools import meant
from aischeduler.config.schema import ConstraintRule
from aischeduler.config.spelling import nearest
from aischeduler.engine.profile import Profile
from aischeduler.engine.scheduler import Scheduler
from aischeduler.model.actions import Bind, ReportPool
from aischeduler.model.events import Event, Seen, gone
from aischeduler.model.gang import (
    GANG_KEY,
    GANG_MIN_KEY,
    GANG_ROLE_KEY,
    GANG_ROLE_MIN_KEY,
    GANG_SPAN_KEY,
    GANG_TIMEOUT_KEY,
    GANG_TOPOLOGY_KEY,
)
from aischeduler.model.names import (
    DEFAULT_POOL,
    GPU_TYPE_KEY,
    GPU_TYPE_POLICY_KEY,
    MACHINE_GROUP_KEY,
    POOL_KEY,
    SCHEDULER_NAME,
)
from aischeduler.model.node import Node
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Namespace, Pool
from aischeduler.model.quantity import shorten

DEPTH_MAX: Final = 12
"""How deep in an object a template may be."""
SCHEDULER_LIKENESS: Final = 0.9
"""How alike a misspelt name of a scheduler is: all names of schedulers end in the same word."""
TEMPLATES_MAX: Final = 64
"""Templates of one object that are checked."""
KEYS: Final = {
    "annotations": (
        POOL_KEY,
        GPU_TYPE_KEY,
        GPU_TYPE_POLICY_KEY,
        MACHINE_GROUP_KEY,
        GANG_KEY,
        GANG_TIMEOUT_KEY,
        GANG_SPAN_KEY,
        GANG_TOPOLOGY_KEY,
    ),
    "labels": (POOL_KEY, GANG_KEY, GANG_MIN_KEY, GANG_ROLE_KEY, GANG_ROLE_MIN_KEY),
}
"""The keys that the scheduler reads in a pod, by where."""
CONFLICT: Final = "Conflict"
_OF_A_RUNNING_POD: Final = frozenset(("creationTimestamp", "deletionTimestamp"))


class Template(Struct, frozen=True):
    """A pod or a pod template; `lead` is its path with a dot at the end, and empty for a Pod.

    `steps` are the keys and indexes of the path.
    """

    document: Document
    lead: str
    body: Body
    steps: tuple[str | int, ...] = ()

    @property
    def pool(self) -> str:
        """The pool that its pods name, or nothing."""
        metadata = mapping_at(self.body, "metadata")
        annotation, label = (text_at(mapping_at(metadata, part), POOL_KEY) for part in ("annotations", "labels"))
        return annotation or label

    @property
    def spec(self) -> Body:
        """The spec of its pods."""
        return mapping_at(self.body, "spec")

    def pod(self) -> Body:
        """Return a new pod of it, with the requests that the API server derives from limits."""
        metadata, spec = self.body.get("metadata") or {}, self.body.get("spec")
        if isinstance(metadata, dict):
            metadata = {key: value for key, value in metadata.items() if key not in _OF_A_RUNNING_POD}
            metadata |= {"namespace": self.document.namespace, "uid": f"{self.document.where}:{self.lead}"}
        if isinstance(spec, dict):
            lists = {name: spec[name] for name in ("containers", "initContainers") if isinstance(spec.get(name), list)}
            spec = _with_requests(spec) | {name: [_with_requests(one) for one in lists[name]] for name in lists}
        return {"metadata": metadata, "spec": spec}

    def finding(self, field: str, sentence: str) -> Finding:
        """Return a finding about a field of the template."""
        return Finding(self.document, f"{self.lead}{field}", sentence)


class EmptyCluster:
    """The engine with nodes that run no pod."""

    def __init__(self, profile: Profile, events: Iterable[Event]) -> None:
        self._scheduler = Scheduler(profile, run="check")
        self._namespaces: set[str] = set()
        self.nodes = 0
        self.pools: dict[str, Pool] = {DEFAULT_POOL: profile.default_pool}
        for event in events:
            self._take(event)
        self._first_actions = decide_all(self._scheduler, 0.0)

    def conflicts(self) -> dict[str, str]:
        """Return the message of the condition Conflict of each Pool that shares nodes with another."""
        return {
            report.name: condition.message
            for report in self._first_actions
            if isinstance(report, ReportPool)
            for condition in report.conditions
            if condition.type == CONFLICT and condition.status
        }

    def refuses(self, pod: Pod) -> str:
        """Return why the pod fits no node; nothing where it fits, or where nodes or its namespace are unknown."""
        home = self.pools.get(pod.pool, self.pools[DEFAULT_POOL])
        by_namespace = home.allowed_namespaces is not None or bool(pod.spec.machine_group)
        if not self.nodes or pod.node_name or (by_namespace and pod.namespace not in self._namespaces):
            return ""
        spec = replace(pod.spec, volumes=None)  # the files do not show its volumes
        self._scheduler.observe(Seen(msgspec.structs.replace(pod, spec=spec, gates=())), 0.0)
        bound = any(isinstance(action, Bind) for action in decide_all(self._scheduler, 0.0))
        why = "" if bound else self._scheduler.why(pod.uid)
        self._scheduler.observe(gone(Pod, pod.uid), 0.0)
        return why

    def _take(self, event: Event) -> None:
        match event:
            case Seen(Node()):
                self.nodes += 1
            case Seen(Pool() as pool):
                self.pools[pool.name] = pool
            case Seen(Namespace(name)):
                self._namespaces.add(name)
            case _:
                pass
        self._scheduler.observe(event, 0.0)


def templates(document: Document) -> list[Template]:
    """Return the pod, or the pod templates, in a document."""
    if (document.api_version, document.kind) == ("v1", "Pod"):
        return [Template(document, "", document.body)]
    found = _search(document.body, "", ())
    return [Template(document, f"{path}.", body, steps) for path, steps, body in found][:TEMPLATES_MAX]


def wrong_scheduler(template: Template, names: tuple[str, ...]) -> Iterator[Finding]:
    """Find a schedulerName that is misspelt, or absent where the pods name a pool; `names` are the right ones."""
    name = text_at(template.spec, "schedulerName")
    if name in names:
        return
    if near := nearest(name, names, SCHEDULER_LIKENESS):
        sentence = f"{shorten(name)} is the name of another scheduler; did you mean {near}?"
        yield template.finding("spec.schedulerName", sentence)
    elif template.pool and not name:
        sentence = f"is missing, so the default scheduler of the cluster takes the pods; set it to {names[0]}"
        yield template.finding("spec.schedulerName", sentence)


def misplaced_names(template: Template) -> Iterator[Finding]:
    """Find names of a pool, of card types or of a group beside the template, and a misspelt or misplaced key."""
    metadata = mapping_at(template.document.body, "metadata")
    for part, read in KEYS.items():
        mine = mapping_at(template.body, "metadata", part)
        for key in read:
            aside = template.lead and key in mapping_at(metadata, part) and key not in mine
            if aside and not key.startswith(GANG_KEY) and not _names(template, key):
                sentence = f"does not reach the pods; move it to {template.lead}metadata.{part}"
                yield Finding(template.document, f"metadata.{part}[{key}]", sentence)
        for key in mine:
            if key in read:
                continue
            other = next((one for one, keys in KEYS.items() if key in keys), "")
            near = nearest(str(key), read)
            if other or near:
                remedy = f"move it to metadata.{other}" if other else f"did you mean {near}?"
                yield template.finding(f"metadata.{part}[{key}]", f"has no effect; {remedy}")


def _names(template: Template, key: str) -> bool:
    """Return whether the template names its pool elsewhere, where the key is that of the pool."""
    return key == POOL_KEY and bool(template.pool)


def unknown_pool(template: Template, pools: tuple[str, ...]) -> Iterator[Finding]:
    """Find the name of a pool that does not exist; `pools` are all names, sorted."""
    if template.pool and template.pool not in pools:
        part = "annotations" if POOL_KEY in mapping_at(template.body, "metadata", "annotations") else "labels"
        hint = meant(template.pool, pools) or f", so the pods belong to the pool {DEFAULT_POOL}"
        yield template.finding(f"metadata.{part}[{POOL_KEY}]", f"there is no Pool {shorten(template.pool)}{hint}")


def unsupported(template: Template, pod: Pod, rule: ConstraintRule) -> Iterator[Finding]:
    """Find hard constraints that are not supported."""
    outcome = "wait" if rule is ConstraintRule.HOLD else "are placed as if it were absent"
    for one in pod.spec.unsupported_constraints:
        sentence = f"is not supported by {SCHEDULER_NAME}, so the pods {outcome} (unsupportedConstraints: {rule})"
        yield template.finding(one.field, sentence)


def unknown_claims(template: Template, pod: Pod) -> Iterator[Finding]:
    """Name every volume claim that the pods wait for; the files do not show whether it will be bound."""
    rest = "bound, or its class binds it for its first pod; the files do not show that"
    for use in pod.volume_claims:
        claim = "the claim of each pod" if use.owned else f'persistentvolumeclaim "{use.name}"'
        yield template.finding(use.field, f"the pods wait until {claim} is {rest}")
    if items_at(mapping_at(template.document.body, "spec"), "volumeClaimTemplates"):
        sentence = f"the pods wait until each claim of this template is {rest}"
        yield Finding(template.document, "spec.volumeClaimTemplates", sentence)


def _search(value: Any, path: str, steps: tuple[str | int, ...]) -> Iterator[tuple[str, tuple[str | int, ...], Body]]:
    if len(steps) > DEPTH_MAX:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            where = f"{path}.{name}".removeprefix(".")
            if name == "template" and items_at(mapping_at(inner, "spec"), "containers"):
                yield where, (*steps, name), inner
            else:
                yield from _search(inner, where, (*steps, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _search(inner, f"{path}[{index}]", (*steps, index))


def _with_requests(holder: Any) -> Any:
    """Return a container, or the spec of a pod, whose limits count as requests where it states none."""
    resources = mapping_at(holder, "resources")
    limits, requests = mapping_at(resources, "limits"), resources.get("requests") or {}
    if not limits or not isinstance(requests, dict):
        return holder
    return {**holder, "resources": {**resources, "requests": {**limits, **requests}}}
