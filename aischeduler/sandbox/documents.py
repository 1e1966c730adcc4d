"""The paths that are about the server itself: discovery, OpenAPI, version and health."""

from aischeduler.sandbox import discovery, openapi
from aischeduler.sandbox.kinds import Kinds
from aischeduler.sandbox.objects import JsonObject, encode
from aischeduler.sandbox.presentation import media_types
from aischeduler.sandbox.protocol import JSON, Request, Response

HEALTH_PATHS = frozenset({"healthz", "livez", "readyz"})


def document(kinds: Kinds, request: Request) -> Response | None:
    """Return the answer to such a path, None for any other."""
    steps = request.path.strip("/").split("/")
    match steps:
        case [("api" | "apis") as root]:
            return _root(kinds, request, core=root == "api")
        case ["api", "v1"]:
            found = discovery.resource_list(kinds, "", "v1")
        case ["apis", group]:
            found = discovery.group(kinds, group)
        case ["apis", group, version]:
            found = discovery.resource_list(kinds, group, version)
        case ["version"]:
            found = discovery.version()
        case ["openapi", "v3"]:
            found = openapi.index(kinds)
        case ["openapi", "v3", "api", "v1"]:
            found = openapi.document(kinds, "", "v1")
        case ["openapi", "v3", "apis", group, version]:
            found = openapi.document(kinds, group, version)
        case [path, *_] if path in HEALTH_PATHS:
            return Response(200, b"ok", "text/plain; charset=utf-8")
        case _:
            return None
    return Response(200, encode(found)) if found is not None else None


def _root(kinds: Kinds, request: Request, *, core: bool) -> Response:
    for media in media_types(request.accept):
        if media.get("as") == "APIGroupDiscoveryList" and media.get("v") == "v2":
            return Response(200, encode(discovery.aggregated(kinds, core=core)), discovery.AGGREGATED)
        if media["type"] == JSON and "as" not in media:
            break
    found: JsonObject = discovery.api_versions() if core else discovery.group_list(kinds)
    return Response(200, encode(found))
