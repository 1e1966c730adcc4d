"""Which view an `Accept` header asks for."""

from aischeduler.sandbox.call import Call
from aischeduler.sandbox.tables import METADATA, TableView
from aischeduler.sandbox.views import MetadataView, View, WholeView


def media_types(accept: str) -> list[dict[str, str]]:
    """Return the media types of an Accept header in order, each with its parameters and itself as `type`."""
    found = []
    for part in accept.split(","):
        name, *parameters = [one.strip() for one in part.split(";")]
        pairs = dict(one.split("=", 1) for one in parameters if "=" in one)
        found.append({"type": name, **pairs})
    return found


def choose_view(call: Call) -> View:
    """Return the first view in the header that is spoken here; whole objects when none is."""
    for media in media_types(call.accept):
        if media["type"] != "application/json":
            continue
        if media.get("as") == "Table" and media.get("v") == "v1":
            return TableView(call.resource, call.now, call.query.get("includeObject") or METADATA)
        if media.get("as") in {"PartialObjectMetadata", "PartialObjectMetadataList"}:
            return MetadataView()
        if "as" not in media:
            break
    return WholeView(call.resource)
