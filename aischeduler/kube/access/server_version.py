"""The release of an API server, and whether it serves a resource.

Invariant: looks for resources that are not served share one request, however many resources there are.

Source: `/version` of kube-apiserver, which every client may read, and its discovery API.
"""

import asyncio
import re
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct, field

from aischeduler.kube.decode.meta_types import UNREADABLE
from aischeduler.kube.http.backoff import Timing
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError, UnreachableError
from aischeduler.model.decode_errors import decode_problem

OLDEST_VERSION: Final = (1, 31)
"""The oldest tested release: the Pool schema needs validation rules with an optional old self."""
_GROUPS: Final = "/apis"
_NUMBER: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


class _GroupVersion(Struct, rename="camel"):
    """A version of a group."""

    group_version: str = ""


class _Group(Struct):
    """A group with its served versions."""

    versions: list[_GroupVersion] = field(default_factory=list)


class _GroupList(Struct):
    """The answer of `/apis`."""

    kind: str = ""
    groups: list[_Group] = field(default_factory=list)


class _Resource(Struct):
    """A resource of a group version."""

    name: str = ""


class _ResourceList(Struct):
    """The answer of `/apis/GROUP/VERSION`."""

    resources: list[_Resource] = field(default_factory=list)


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


class Discovery:
    """What an API server serves; `path` is always the collection of a resource."""

    def __init__(self, client: Client, timing: Timing) -> None:
        self._client = client
        self._timing = timing
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._served: frozenset[str] = frozenset()

    async def confirm_not_served(self, path: str) -> None:
        """Return if an API server does not serve the resource; raises MalformedAnswerError for another sender's 404.

        A proxy, or a server that is still starting, may answer 404 too.
        """
        parent, _, name = path.rpartition("/")
        if not self._may_serve(parent, await self._group_versions(self._timing.clock())):
            return
        try:
            served = msgspec.json.decode(await self._client.get(parent), type=_ResourceList).resources
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return
        except UNREADABLE as error:
            raise MalformedAnswerError(f"GET {parent}: the answer is not the list of a group's resources") from error
        if any(resource.name == name for resource in served):
            raise MalformedAnswerError(f"GET {path}: not found, though the API server lists this resource")

    async def wait_until_served(self, path: str, period_seconds: float) -> None:
        """Return once the resource may be served, or the server refuses to say it; look each period.

        All who wait look at the same moments, so that they share each request.
        """
        parent = path.rpartition("/")[0]
        while True:
            now = self._timing.clock()
            tick = now - now % period_seconds + period_seconds
            await self._timing.sleep(tick - now)
            try:
                served = await self._group_versions(tick)
            except (UnreachableError, MalformedAnswerError):
                continue
            except RefusedError:
                return
            if self._may_serve(parent, served):
                return

    @staticmethod
    def _may_serve(parent: str, served: frozenset[str]) -> bool:
        prefix = f"{_GROUPS}/"
        return not parent.startswith(prefix) or parent.removeprefix(prefix) in served

    async def _group_versions(self, since: float) -> frozenset[str]:
        """Return the served versions of all groups, by a request that began at this time or later; raises ApiError."""
        async with self._asking:
            if self._asked_at < since:
                asked_at = max(since, self._timing.clock())
                self._served = await self._read_group_versions()
                self._asked_at = asked_at
            return self._served

    async def _read_group_versions(self) -> frozenset[str]:
        try:
            found = msgspec.json.decode(await self._client.get(_GROUPS), type=_GroupList)
        except UNREADABLE:
            found = _GroupList()
        if found.kind != "APIGroupList":
            raise MalformedAnswerError("GET /apis: the answer is not the list of an API server's groups")
        return frozenset(version.group_version for group in found.groups for version in group.versions)
