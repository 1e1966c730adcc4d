"""`ai-scheduler check`: finds what is wrong with configurations, Pools, nodes and pods before they are applied.

Invariants:
- A finding is one line on standard output: `FILE:DOCUMENT KIND/NAME: FIELD: sentence`, in the order of the files.
- A reason to wait that files do not show is a note on standard error, not a finding.
- Exit status 0: no finding. 1: findings. 2: the check itself failed.
- The scheduler's own readers and its engine decide: what they accept is not a finding.
"""

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from typer import TyperException

from aischeduler.cli.check_documents import Document, Finding, mapping_at, read_documents
from aischeduler.cli.check_objects import OWN_KINDS, POOL, READERS, read_objects
from aischeduler.cli.check_pods import (
    EmptyCluster,
    misplaced_names,
    templates,
    unknown_claims,
    unknown_pool,
    unsupported,
    wrong_scheduler,
)
from aischeduler.cli.check_pools import overlapping, unknown_lenders
from aischeduler.config.load import ConfigError, load_config, parse_config, read_config
from aischeduler.config.schema import API_VERSION, KIND, Config
from aischeduler.daemon.components import profile_of
from aischeduler.kube import watched_resources
from aischeduler.kube.client import Client
from aischeduler.kube.errors import ApiError, RefusedError
from aischeduler.kube.list_pager import pages, read_raw
from aischeduler.kube.meta_types import UNREADABLE
from aischeduler.kube.server_access import connect
from aischeduler.model.events import Event
from aischeduler.model.names import SCHEDULER_NAME

STDIN: Final = "-"
FOUND: Final = 1
"""Exit status with findings."""


class CheckOptions(Struct, frozen=True):
    """The command line; with a `kubeconfig` or a `context`, the checks use nodes and Pools of that cluster too."""

    files: Sequence[str]
    kubeconfig: Path | None
    context: str | None
    config: Path | None


async def check(options: CheckOptions) -> int:
    """Print the findings and return the exit status; raises TyperException where the check fails."""
    if not options.files:
        raise usage_error("no file is given: use -f FILE, or -f - for standard input")
    documents: list[Document] = []
    findings: list[Finding] = []
    for name in options.files:
        read, wrong = read_documents(name, bytes_of(name))
        documents += read
        findings += wrong
    config, wrong = _configuration(options, documents)
    findings += wrong
    notes: list[Finding] = []
    findings += _object_findings(documents, config, await _cluster(options), notes)
    order = {document.where: number for number, document in enumerate(documents)}
    findings.sort(key=lambda one: (order.get(one.document.where, len(order)), one.field, one.sentence))
    for finding in findings:
        print(finding.line())
    for note in notes:
        print(note.line(), file=sys.stderr)
    print(_summary(documents, findings), file=sys.stderr)
    return FOUND if findings else 0


def bytes_of(name: str) -> bytes:
    """Return the content of a file, or of standard input; raises TyperException."""
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except OSError as error:
        raise usage_error(f"{name}: cannot be read: {error.strerror}") from error


def usage_error(sentence: str) -> TyperException:
    """Return the error of a wrong command line."""
    error = TyperException(sentence)
    error.exit_code = 2
    return error


async def _cluster(options: CheckOptions) -> list[Event]:
    """Return the namespaces, Pools and nodes of the cluster that the options name; nothing without one."""
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
        raise usage_error(f"the cluster cannot be read: {error}") from error
    return events


async def _listed(client: Client, resource: watched_resources.WatchedResource[Any]) -> list[Event]:
    """Return an event for each object that can be read."""
    events: list[Event] = []
    async with aclosing(pages(client, resource, read_raw, cached=True)) as found:
        async for page in found:
            for item in page.items or ():
                with suppress(*UNREADABLE):
                    events += resource.read(item)
    return events


def _configuration(options: CheckOptions, documents: Iterable[Document]) -> tuple[Config, list[Finding]]:
    """Return the configuration of `--config`, else the first valid one of the documents, else the defaults."""
    valid: list[Config] = []
    findings: list[Finding] = []
    if options.config is not None:
        try:
            valid.append(load_config(options.config))
        except ConfigError as error:
            raise usage_error(str(error)) from error
    for document in documents:
        try:
            if document.kind == KIND:
                valid.append(read_config(dict(document.body)))
            elif (document.api_version, document.kind) == ("v1", "ConfigMap"):
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
    named = {document.name for document in documents if (document.api_version, document.kind) == POOL}
    names = tuple(sorted(named | empty.pools.keys()))
    conflicts = empty.conflicts() if empty.nodes else {}
    for name, (document, _) in sorted(objects.pools.items()):
        yield from unknown_lenders(document, names)
        if name in conflicts:
            yield Finding(document, "spec.nodeSelector", conflicts[name])
    if not conflicts:
        yield from overlapping(objects.pools)
    for template in objects.templates:
        yield from wrong_scheduler(template, config.scheduler_names)
        yield from misplaced_names(template)
        if named or cluster:
            yield from unknown_pool(template, names)
    for template, pod in objects.pods:
        if pod.scheduler_name not in config.scheduler_names:
            continue
        yield from unsupported(template, pod, config.unsupported_constraints)
        notes += unknown_claims(template, pod)
        if why := empty.refuses(pod):
            yield template.finding("spec", f"cannot run even when all nodes are empty: {why}")


def _summary(documents: Sequence[Document], findings: Sequence[Finding]) -> str:
    """Return the last line: how many documents and findings there are, and which kinds are not checked."""
    unchecked = Counter(
        document.kind or "no kind"
        for document in documents
        if (document.api_version, document.kind) not in READERS
        and document.kind not in OWN_KINDS.values()
        and not templates(document)
        and not (document.kind == "ConfigMap" and any(_mounted(document)))
    )
    kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(unchecked.items()))
    found = f"{_counted(len(findings), 'finding')}" if findings else "nothing found"
    return f"{SCHEDULER_NAME}: {_counted(len(documents), 'document')}: {found}{kinds and f'; not checked: {kinds}'}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"
