"""`ai-scheduler check`: what is wrong with a configuration, Pools and pods, before anybody applies them.

Laws:
- One line a finding on standard output: `FILE:DOCUMENT KIND/NAME: FIELD: sentence`, in the order of the files.
- What may keep a pod waiting and cannot be known from files is a line on standard error, and no finding.
- Status 0 where nothing was found, 1 where something was, 2 where the check itself could not be made.
- Nothing is judged twice: the schema of the configuration, the API server in memory and the engine say what is wrong.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from typer import TyperException

from aischeduler.cli.check_admission import NAMESPACE, NODE, PATHS, POOL, Admission
from aischeduler.cli.check_documents import Document, Finding, mapping_at, read_documents
from aischeduler.cli.check_pools import overlapping, unknown_lenders
from aischeduler.cli.check_room import Room
from aischeduler.cli.check_templates import (
    Template,
    asks_for,
    misplaced_pool,
    templates,
    unknown_claims,
    unknown_pool,
    unsupported,
)
from aischeduler.config.load import ConfigError, load_config, parse_config, read_config
from aischeduler.config.schema import API_VERSION, KIND, Config, ConstraintRule
from aischeduler.config.spelling import nearest
from aischeduler.daemon.components import profile_of
from aischeduler.kube import watched_resources
from aischeduler.kube.api_types import UNREADABLE
from aischeduler.kube.client import Client
from aischeduler.kube.decode_pod_spec import SpecCache
from aischeduler.kube.errors import ApiError, RefusedError
from aischeduler.kube.list_pager import pages, read_raw
from aischeduler.kube.server_access import connect
from aischeduler.model.events import Event, PodSeen, PoolSeen
from aischeduler.model.names import GROUP, SCHEDULER_NAME
from aischeduler.model.pod import Pod
from aischeduler.model.pool import Pool
from aischeduler.model.quantity import shorten

STDIN: Final = "-"
FOUND: Final = 1
"""Exit status where something is wrong."""
OURS: Final = {POOL[0]: POOL[1], API_VERSION: KIND}
"""Our versions of the API, and the kind of each."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says. With a `kubeconfig` or a `context` the nodes and Pools of that cluster count too."""

    files: Sequence[str]
    kubeconfig: Path | None
    context: str | None
    config: Path | None


@dataclass(slots=True)
class _Seen:
    """What was made of the documents."""

    findings: list[Finding] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    pools: dict[str, tuple[Document, Pool]] = field(default_factory=dict)
    pods: list[tuple[Template, Pod]] = field(default_factory=list)
    templates: list[Template] = field(default_factory=list)


async def check(options: Options) -> int:
    """Print what is wrong; return the exit status. Raises TyperException where the check cannot be made."""
    if not options.files:
        raise _usage("name the files to check: -f FILE, or -f - for standard input")
    documents: list[Document] = []
    findings: list[Finding] = []
    for name in options.files:
        read, wrong = read_documents(name, _bytes_of(name))
        documents += read
        findings += wrong
    config, wrong = _configuration(options, documents)
    findings += wrong
    notes: list[Finding] = []
    findings += _judged(documents, config, await _cluster(options), notes)
    order = {document.where: number for number, document in enumerate(documents)}
    findings.sort(key=lambda one: (order.get(one.document.where, len(order)), one.field, one.sentence))
    for finding in findings:
        print(finding.line())
    for note in notes:
        print(note.line(), file=sys.stderr)
    print(_summary(documents, findings), file=sys.stderr)
    return FOUND if findings else 0


def _bytes_of(name: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise _usage(f"{name}: cannot be read: {error.strerror}") from error


async def _cluster(options: Options) -> list[Event]:
    """Return the Pools, nodes and namespaces of the cluster that was asked for; none without one."""
    if options.kubeconfig is None and options.context is None:
        return []
    events: list[Event] = []
    try:
        server = await connect(
            str(options.kubeconfig) if options.kubeconfig else None,
            options.context,
            time.monotonic,
            terminal=sys.stdin.isatty(),
        )
        async with Client(server) as client:
            for resource in (watched_resources.namespaces(), watched_resources.pools(), watched_resources.nodes()):
                try:
                    events += await _listed(client, resource)
                except RefusedError as error:
                    if not (error.status == HTTPStatus.NOT_FOUND and resource.optional):  # not installed yet
                        raise
    except ApiError as error:
        raise _usage(f"the cluster cannot be looked at: {error}") from error
    return events


async def _listed(client: Client, resource: watched_resources.Resource[Any]) -> list[Event]:
    """Return an event for each object that can be read."""
    events: list[Event] = []
    async with aclosing(pages(client, resource, read_raw)) as found:
        async for page in found:
            for item in page.items or ():
                with suppress(*UNREADABLE):
                    events.append(resource.seen(resource.document.decode(item)))
    return events


def _usage(sentence: str) -> TyperException:
    error = TyperException(sentence)
    error.exit_code = 2
    return error


def _configuration(options: Options, documents: Iterable[Document]) -> tuple[Config, list[Finding]]:
    """Return the configuration that pods are judged by: the given one, or the first document that can be used."""
    usable: list[Config] = []
    findings: list[Finding] = []
    if options.config is not None:
        try:
            usable.append(load_config(options.config))
        except ConfigError as error:
            raise _usage(str(error)) from error
    for document in documents:
        try:
            if document.kind == KIND:
                usable.append(read_config(dict(document.body)))
            elif (document.api_version, document.kind) == ("v1", "ConfigMap"):
                usable += [parse_config(f"data[{key}]", text.encode()) for key, text in _mounted(document)]
        except ConfigError as error:
            findings.append(Finding(document, "", str(error)))
    return next(iter(usable), Config()), findings


def _mounted(document: Document) -> Iterator[tuple[str, str]]:
    """Give the configurations that a ConfigMap holds, by their keys."""
    for key, text in sorted(mapping_at(document.body, "data").items()):
        if isinstance(text, str) and API_VERSION in text and KIND in text:
            yield key, text


def _judged(
    documents: Sequence[Document], config: Config, cluster: list[Event], notes: list[Finding]
) -> Iterator[Finding]:
    """Give everything that is wrong with the objects, each by itself and all together; add to `notes` what may be."""
    seen = _Seen()
    for document in documents:
        seen.findings += _kind(document)
        seen.templates += templates(document)
    _admit(documents, seen)
    yield from seen.findings
    room = Room(replace(profile_of(config), hold_unsupported=False), [*cluster, *seen.events])
    named = {document.name for document in documents if (document.api_version, document.kind) == POOL}
    names = tuple(sorted(named | room.pools.keys()))
    conflicts = room.conflicts() if room.nodes else {}
    for name, (document, _) in sorted(seen.pools.items()):
        yield from unknown_lenders(document, names)
        if name in conflicts:
            yield Finding(document, "spec.nodeSelector", conflicts[name])
    if not conflicts:
        yield from overlapping(seen.pools)
    for template in seen.templates:
        yield from asks_for(template, config.scheduler_name)
        yield from misplaced_pool(template)
        if named or cluster:
            yield from unknown_pool(template, names)
    for template, pod in seen.pods:
        if pod.scheduler_name != config.scheduler_name:
            continue
        yield from unsupported(template, pod, config.unsupported_constraints)
        if config.unsupported_constraints is ConstraintRule.HOLD:
            notes += unknown_claims(template, pod)
        if why := room.refuses(pod):
            yield template.found("spec", f"cannot run even when all nodes are empty: {why}")


def _kind(document: Document) -> Iterator[Finding]:
    """Say what is wrong with what a document says that it is."""
    version, kind = document.api_version, document.kind
    if not version or not kind:
        yield Finding(document, "", "has no apiVersion and kind, so nobody knows what it is")
    elif version in OURS:
        if kind != OURS[version]:
            yield Finding(document, "kind", f"{shorten(kind)} is no kind of {version}, which has {OURS[version]}")
    elif GROUP in version or nearest(version, OURS):
        near = nearest(version, OURS) or next(iter(OURS))
        yield Finding(document, "apiVersion", f"{shorten(version)} is not known; did you mean {near}?")


def _admit(documents: Sequence[Document], seen: _Seen) -> None:
    """Create everything, in an order that lets each find what it needs."""
    admission, specs = Admission(), SpecCache()
    readers: dict[tuple[str, str], watched_resources.Resource[Any]] = {
        POOL: watched_resources.pools(), NODE: watched_resources.nodes(), NAMESPACE: watched_resources.namespaces()
    }  # fmt: skip
    kinds = tuple(PATHS)
    known = [document for document in documents if (document.api_version, document.kind) in PATHS]
    for document in sorted(known, key=lambda one: kinds.index((one.api_version, one.kind))):
        created = admission.create(document)
        seen.findings += created.findings
        reader = readers.get((document.api_version, document.kind))
        if reader is not None and created.raw is not None:
            event = reader.seen(reader.document.decode(created.raw))
            seen.events.append(event)
            if isinstance(event, PoolSeen):
                seen.pools[event.pool.name] = document, event.pool
    pods = watched_resources.pods(specs)
    for template in seen.templates:
        created = admission.create_pod(template)
        if (template.document.api_version, template.document.kind) not in PATHS:  # a Job has told them itself
            seen.findings += created.findings
        if created.raw is not None:
            event = pods.seen(pods.document.decode(created.raw))
            if isinstance(event, PodSeen):
                seen.pods.append((template, event.pod))


def _summary(documents: Sequence[Document], findings: Sequence[Finding]) -> str:
    ours = {*OURS.items()}
    other = Counter(
        document.kind or "no kind"
        for document in documents
        if (document.api_version, document.kind) not in PATHS
        and (document.api_version, document.kind) not in ours
        and not templates(document)
        and not (document.kind == "ConfigMap" and any(_mounted(document)))
    )
    left = ", ".join(f"{kind} ({count})" for kind, count in sorted(other.items()))
    count = len(documents)
    found = f"{len(findings)} finding{'s' * (len(findings) != 1)}" if findings else "nothing found"
    return f"{SCHEDULER_NAME}: {count} document{'s' * (count != 1)}: {found}" + (
        f"; not looked at: {left}" if left else ""
    )
