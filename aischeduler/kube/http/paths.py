"""The paths of API objects; no other module puts a name into a path.

Invariant: whatever text a name is, it is one segment of the path, so a request never reaches another object.

Source: paths of the Kubernetes API; path segments of RFC 3986.
"""

import re
from typing import Final
from urllib.parse import quote

_NEEDS_NO_QUOTING: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*", re.ASCII).fullmatch


def collection_path(version: str, plural: str, namespace: str = "") -> str:
    """Return the path of the objects of a kind, of one namespace or of all; `version` is v1, or GROUP/VERSION."""
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    return f"{root}/namespaces/{_segment(namespace)}/{plural}" if namespace else f"{root}/{plural}"


def object_path(version: str, plural: str, name: str, namespace: str = "", subresource: str = "") -> str:
    """Return the path of an object, or of its subresource; raises ValueError for an empty name."""
    if not name:
        raise ValueError(f"{plural} without a name have no path")
    path = f"{collection_path(version, plural, namespace)}/{_segment(name)}"
    return f"{path}/{subresource}" if subresource else path


def _segment(name: str) -> str:
    """Return a name as a path segment; real names need no quoting, and the check costs less than quoting."""
    if _NEEDS_NO_QUOTING(name):
        return name
    if name in (".", ".."):  # servers and proxies resolve these two
        return name.replace(".", "%2E")
    return quote(name, safe="", errors="replace")
