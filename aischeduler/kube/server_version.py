"""The release of an API server, and whether it serves a resource.

Source: `/version` of kube-apiserver, which every client may read, and its discovery API.
"""

import re
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct, field

from aischeduler.kube.client import Client
from aischeduler.kube.errors import MalformedAnswerError, RefusedError, decode_problem
from aischeduler.kube.meta_types import UNREADABLE

OLDEST_VERSION: Final = (1, 31)
"""The oldest tested release: the Pool schema needs validation rules with an optional old self."""
_NUMBER: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


class _NamedItem(Struct):
    """A named item of a discovery document."""

    name: str = ""


class _GroupList(Struct):
    """The answer of `/apis`."""

    kind: str = ""
    groups: list[_NamedItem] = field(default_factory=list)


class _ResourceList(Struct):
    """The answer of `/apis/GROUP/VERSION`."""

    resources: list[_NamedItem] = field(default_factory=list)


class _Version(Struct):
    major: str = ""
    minor: str = ""


async def read_version(client: Client) -> tuple[int, int]:
    """Return the release, such as (1, 36); suffixes of providers ("31+") are ignored. Raises ApiError."""
    body = await client.get("/version")
    try:
        found = msgspec.json.decode(body, type=_Version)
    except UNREADABLE as error:
        raise MalformedAnswerError(f"GET /version: {decode_problem(error)}") from error
    major, minor = _NUMBER.match(found.major), _NUMBER.match(found.minor)
    if major is None or minor is None:
        raise MalformedAnswerError("GET /version: the answer names no release")
    return int(major[0]), int(minor[0])


def too_old(url: str, version: tuple[int, int]) -> str:
    """Return why an API server of this release cannot be used; empty if it can."""
    if version >= OLDEST_VERSION:
        return ""
    (major, minor), (oldest_major, oldest_minor) = version, OLDEST_VERSION
    return f"{url} is Kubernetes {major}.{minor}; the scheduler needs {oldest_major}.{oldest_minor} or newer"


async def confirm_not_served(client: Client, path: str) -> None:
    """Return if an API server does not serve the resource; raises MalformedAnswerError for another sender's 404.

    A proxy, or a server that is still starting, may answer 404 too. `path` is the collection of the resource, in a
    group of its own.
    """
    try:
        found = msgspec.json.decode(await client.get("/apis"), type=_GroupList)
    except UNREADABLE:
        found = _GroupList()
    if found.kind != "APIGroupList":
        raise MalformedAnswerError("GET /apis: the answer is not the list of an API server's groups")
    parent, _, name = path.rpartition("/")
    if not any(parent.startswith(f"/apis/{group.name}/") for group in found.groups):
        return
    try:
        served = msgspec.json.decode(await client.get(parent), type=_ResourceList).resources
    except RefusedError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return
    except UNREADABLE as error:
        raise MalformedAnswerError(f"GET {parent}: the answer is not the list of a group's resources") from error
    if any(resource.name == name for resource in served):
        raise MalformedAnswerError(f"GET {path}: not found, though the API server lists this resource")
