"""get, list and watch: pages, revisions that are too old or too new; every list shows the newest state."""

import base64

import orjson

from aischeduler.model.selectors import Operator, Requirement
from aischeduler.sandbox.api_resources import CollectionName
from aischeduler.sandbox.objects import JsonObject
from aischeduler.sandbox.request import Call, Response
from aischeduler.sandbox.selection import Selection, parse_field_selector, parse_label_selector
from aischeduler.sandbox.status_errors import Cause, bad_request, failure, invalid
from aischeduler.sandbox.store import PAGE_SECONDS, Entry, PageRest
from aischeduler.sandbox.views import choose_view
from aischeduler.sandbox.watches import WatchStream

DEFAULT_WATCH_SECONDS = 1800.0
DIGITS_MAX = 18
TRUE = frozenset({"1", "true", "True", "t", "T", "TRUE"})


def get(call: Call) -> Response:
    """Answer GET of one object."""
    return Response(200, choose_view(call).shown(call.existing()))


def selection_of(call: Call) -> Selection:
    """Return the selection of the query; 400 for a field that cannot be selected."""
    labels = parse_label_selector(call.query.get("labelSelector", ""))
    terms = tuple(_stored_term(call, term) for term in parse_field_selector(call.query.get("fieldSelector", "")))
    return Selection(call.namespace or None, labels, terms)


def _stored_term(call: Call, term: Requirement) -> Requirement:
    if term.key == "metadata.name" or (term.key == "metadata.namespace" and call.resource.namespaced):
        return term
    stored = call.resource.selectable.get(term.key)
    if stored is None:
        raise bad_request(f"field label not supported: {term.key}")
    return Requirement(stored, term.operator, term.values)


def _number(call: Call, name: str) -> int:
    """Return a number of the query, 0 if it is absent; 400 for text that is not a number."""
    text = call.query.get(name) or "0"
    if not (text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX):
        raise bad_request(f'{name}: Invalid value: "{text}" is not a number')
    return int(text)


def _candidates(call: Call, selection: Selection) -> list[Entry]:
    for term in selection.fields:
        if term.operator is not Operator.IN:
            continue
        if term.key == "metadata.name" and (call.namespace or not call.resource.namespaced):
            entry = call.collection.get(call.namespace, term.values[0])
            return [entry] if entry is not None and selection.matches(entry) else []
        if term.key == "spec.nodeName" and term.values[0] and call.resource.collection == CollectionName.PODS:
            return [entry for entry in call.collection.with_field(term.values[0]) if selection.matches(entry)]
    entries = call.collection.in_order(selection.namespace)
    return list(entries) if selection.everything else [entry for entry in entries if selection.matches(entry)]


def list_objects(call: Call) -> Response:
    """Answer GET of a collection: one page at the revision of the first page."""
    store, selection = call.cluster.store, selection_of(call)
    limit, revision = _number(call, "limit"), _number(call, "resourceVersion")
    page: PageRest | None
    if call.query.get("continue"):
        page = store.page_rests.get(call.query["continue"])
        if page is None or page.expires_at <= call.now:
            raise failure(410, "The provided continue parameter is too old: start a new list without it.")
    elif revision > store.revision:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        message = f"Timeout: Too large resource version: {revision}, current: {store.revision}"
        raise failure(504, message, {"causes": [cause], "retryAfterSeconds": 1})
    else:
        page = PageRest(store.revision, _candidates(call, selection), call.now + PAGE_SECONDS)
    metadata: JsonObject = {"resourceVersion": str(page.revision)}
    shown, rest = (page.entries[:limit], page.entries[limit:]) if limit else (page.entries, [])
    if rest:
        key = {"v": "meta.k8s.io/v1", "rv": page.revision, "start": f"{call.resource.collection}/{rest[0].key}"}
        token = base64.urlsafe_b64encode(orjson.dumps(key)).decode().rstrip("=")
        store.page_rests[token] = PageRest(page.revision, rest, call.now + PAGE_SECONDS)
        metadata["continue"] = token
        if selection.everything:
            metadata["remainingItemCount"] = len(rest)
    return Response(200, choose_view(call).listed(shown, metadata))


def watch(call: Call) -> WatchStream:
    """Answer GET of a collection with `watch=true`; a client that wants the objects first has to list them."""
    if "sendInitialEvents" in call.query:
        raise invalid("ListOptions", "meta.k8s.io", "", [Cause("sendInitialEvents", "is not served by the sandbox")])
    selection, revision, collection = selection_of(call), _number(call, "resourceVersion"), call.collection
    stream = WatchStream(call.cluster.store, collection, selection, choose_view(call))
    if revision and revision < collection.floor_revision:
        stream.fail(failure(410, f"too old resource version: {revision} ({collection.floor_revision})").status)
        return stream
    initial = () if revision else tuple(_candidates(call, selection))
    position = collection.position_after(revision) if revision else collection.history_end
    bookmarks = call.query.get("allowWatchBookmarks") in TRUE
    timeout = float(_number(call, "timeoutSeconds")) or DEFAULT_WATCH_SECONDS
    stream.start(position, initial, call.now, call.now + timeout, bookmarks=bookmarks)
    return stream
