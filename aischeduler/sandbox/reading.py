"""get, list and watch: pages, revisions and the ways a list may be too old or too new.

Source: the server's list semantics by `resourceVersion` and `resourceVersionMatch`; watch cache messages.
"""

import base64
import binascii
from dataclasses import dataclass

import orjson

from aischeduler.sandbox.call import Call
from aischeduler.sandbox.kinds import Place
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.presentation import choose_view
from aischeduler.sandbox.protocol import Response
from aischeduler.sandbox.selectors import FieldTerm, parse_field_selector, parse_label_selector
from aischeduler.sandbox.status import (
    Cause,
    bad_request,
    expired,
    forbidden_field,
    invalid,
    invalid_value,
    too_large_resource_version,
    unsupported_value,
)
from aischeduler.sandbox.store import SNAPSHOT_SECONDS, Entry, Snapshot
from aischeduler.sandbox.watches import Selection, WatchPlan, WatchStream

CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
NOT_OLDER_THAN = "NotOlderThan"
DEFAULT_WATCH_SECONDS = 1800.0
TRUE = {"1", "true", "True", "t", "T", "TRUE"}


def get(call: Call) -> Response:
    """Answer GET of one object."""
    revision_asked(call)
    entry = call.existing()
    view = choose_view(call)
    return Response(200, view.shown(entry), view.content_type, warnings=tuple(call.warnings))


def list_or_watch(call: Call) -> Response | WatchStream:
    """Answer GET of a collection."""
    if call.query.get("watch") in TRUE:
        return _watch(call)
    return _list(call)


def selection_of(call: Call) -> Selection:
    """Return what the query selects; a field that this kind cannot be selected by is refused with 400."""
    labels = parse_label_selector(call.query.get("labelSelector", ""))
    terms = tuple(_stored_term(call, term) for term in parse_field_selector(call.query.get("fieldSelector", "")))
    return Selection(call.namespace or None, labels, terms)


def _stored_term(call: Call, term: FieldTerm) -> FieldTerm:
    if term.field == "metadata.name" or (term.field == "metadata.namespace" and call.resource.namespaced):
        return term
    stored = call.resource.selectable.get(term.field)
    if stored is not None:
        return FieldTerm(stored, term.value, term.equal)
    if call.resource.collection == Place.JOBS:
        raise bad_request(f'field label "{term.field}" not supported for Job')
    if call.resource.selectable or call.resource.custom is not None:
        raise bad_request(f"field label not supported: {term.field}")
    known = 'only "metadata.name", "metadata.namespace"'
    raise bad_request(f'"{term.field}" is not a known field selector: {known}')


def revision_asked(call: Call) -> int:
    """Return the revision in the query, 0 for none; text that is none is refused, a future one answers 504."""
    text = call.query.get("resourceVersion", "")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit():
        cause = invalid_value("resourceVersion", text, f'strconv.ParseUint: parsing "{text}": invalid syntax')
        raise bad_request(f"invalid resource version: {cause.field}: {cause.message}")
    return int(text)


def _refuse_too_new(call: Call, revision: int) -> None:
    current = call.cluster.store.revision
    if revision > current:
        raise too_large_resource_version(revision, current)


def _candidates(call: Call, selection: Selection) -> list[Entry]:
    for term in selection.fields:
        if not term.equal:
            continue
        if term.field == "metadata.name" and (call.namespace or not call.resource.namespaced):
            entry = call.collection.get(call.namespace, term.value)
            return [entry] if entry is not None and selection.matches(entry) else []
        if term.field == "spec.nodeName" and term.value and call.resource.collection == Place.PODS:
            return [entry for entry in call.collection.with_field(term.value) if selection.matches(entry)]
    entries = call.collection.in_order(selection.namespace)
    return list(entries) if selection.everything else [entry for entry in entries if selection.matches(entry)]


@dataclass(frozen=True, slots=True)
class _Page:
    entries: list[Entry]
    revision: int
    next_token: str = ""
    remaining: int | None = None


def _list(call: Call) -> Response:
    _refuse_bad_options(_list_errors(call))
    page = _page(call)
    metadata: JsonObject = {"resourceVersion": str(page.revision)}
    if page.next_token or call.resource.custom is not None:
        metadata["continue"] = page.next_token
    if page.remaining is not None:
        metadata["remainingItemCount"] = page.remaining
    view = choose_view(call)
    return Response(200, view.listed(page.entries, metadata), view.content_type)


def _page(call: Call) -> _Page:
    store = call.cluster.store
    selection = selection_of(call)
    limit = _limit(call)
    token = call.query.get("continue", "")
    if token:
        return _next_page(call, token, limit, selection.everything)
    revision = revision_asked(call)
    _refuse_too_new(call, revision)
    if call.query.get("resourceVersionMatch") == "Exact" and revision != store.revision:
        raise expired("The resourceVersion for the provided list is too old.")
    entries = _candidates(call, selection)
    return _cut(call, _Page(entries, store.revision), limit, selection.everything)


def _limit(call: Call) -> int:
    text = call.query.get("limit", "0")
    if not text.lstrip("-").isdigit():
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return max(0, int(text))


def _next_page(call: Call, token: str, limit: int, everything: bool) -> _Page:
    if call.query.get("resourceVersion", "") not in {"", "0"}:
        raise bad_request("specifying resource version is not allowed when using continue")
    try:
        orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from error
    snapshot = call.cluster.store.snapshot(token, call.now)
    if snapshot is None:
        raise expired(CONTINUE_TOO_OLD)
    return _cut(call, _Page(snapshot.entries, snapshot.revision), limit, everything)


def _cut(call: Call, page: _Page, limit: int, everything: bool) -> _Page:
    if not limit or len(page.entries) <= limit:
        return page
    shown, rest = page.entries[:limit], page.entries[limit:]
    key = {"v": "meta.k8s.io/v1", "rv": page.revision, "start": f"{call.resource.collection}/{rest[0].key}"}
    token = base64.urlsafe_b64encode(orjson.dumps(key)).decode().rstrip("=")
    call.cluster.store.keep_snapshot(token, Snapshot(page.revision, rest, call.now + SNAPSHOT_SECONDS))
    return _Page(shown, page.revision, token, len(rest) if everything else None)


def _watch(call: Call) -> WatchStream:
    _refuse_bad_options(_watch_errors(call))
    selection = selection_of(call)
    stream = WatchStream(call.cluster.store, call.collection, selection, choose_view(call))
    revision = revision_asked(call)
    initial = call.query.get("sendInitialEvents")
    collection = call.collection
    if initial in TRUE:
        _refuse_too_new(call, revision)
    elif revision and revision < collection.floor_revision:
        refusal = expired(f"too old resource version: {revision} ({collection.floor_revision})")
        stream.fail(refusal.status)
        return stream
    stream.start(_plan(call, selection, initial, revision), call.now)
    return stream


def _plan(call: Call, selection: Selection, initial: str | None, revision: int) -> WatchPlan:
    collection = call.collection
    position = collection.history_start + len(collection.history)
    entries: tuple[Entry, ...] = ()
    if initial in TRUE or (initial is None and not revision):
        entries = tuple(_candidates(call, selection))
    elif revision:
        position = collection.position_after(revision)
    bookmarks = call.query.get("allowWatchBookmarks") in TRUE
    timeout = float(call.query.get("timeoutSeconds") or 0) or DEFAULT_WATCH_SECONDS
    return WatchPlan(position, entries, bookmarks and initial in TRUE, bookmarks, timeout)


def _refuse_bad_options(causes: list[Cause]) -> None:
    if causes:
        raise invalid("ListOptions", "meta.k8s.io", "", causes)


def _list_errors(call: Call) -> list[Cause]:
    query, match = call.query, call.query.get("resourceVersionMatch", "")
    causes = []
    field = "resourceVersionMatch"
    if match:
        if not query.get("resourceVersion"):
            causes.append(forbidden_field(field, f"{field} is forbidden unless resourceVersion is provided"))
        if query.get("continue"):
            causes.append(forbidden_field(field, f"{field} is forbidden when continue is provided"))
        if match not in {"Exact", NOT_OLDER_THAN}:
            causes.append(unsupported_value(field, match, ("Exact", NOT_OLDER_THAN, "")))
        if match == "Exact" and query.get("resourceVersion") == "0":
            causes.append(forbidden_field(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    return causes


def _watch_errors(call: Call) -> list[Cause]:
    query, match = call.query, call.query.get("resourceVersionMatch", "")
    causes = []
    field = "resourceVersionMatch"
    if "sendInitialEvents" in query:
        if match != NOT_OLDER_THAN:
            detail = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
            causes.append(forbidden_field(field, detail))
    elif match:
        causes.append(forbidden_field(field, f"{field} is forbidden for watch unless sendInitialEvents is provided"))
    if match and match != NOT_OLDER_THAN:
        causes.append(unsupported_value(field, match, (NOT_OLDER_THAN,)))
    if match and query.get("continue"):
        causes.append(forbidden_field(field, f"{field} is forbidden when continue is provided"))
    return causes
