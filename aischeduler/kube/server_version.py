"""Which release of Kubernetes an API server is of, and whether we can work with it.

Source: `/version` of kube-apiserver, which everybody may read.
"""

import re
from typing import Final

import msgspec
from msgspec import Struct

from aischeduler.kube.client import Client
from aischeduler.kube.documents import UNREADABLE
from aischeduler.kube.errors import GarbledError

OLDEST: Final = (1, 31)
"""The oldest release that we are tested with: validation rules with an optional old self, as the Pools have."""
_NUMBER: Final = re.compile(r"[0-9]{1,4}", re.ASCII)


class _Version(Struct):
    major: str = ""
    minor: str = ""


async def read_version(client: Client) -> tuple[int, int]:
    """Return the release, such as (1, 36); providers' additions ("31+") are left out. Raises ApiError."""
    body = await client.get("/version")
    try:
        found = msgspec.json.decode(body, type=_Version)
    except UNREADABLE as error:
        raise GarbledError(f"GET /version: {error}") from error
    major, minor = _NUMBER.match(found.major), _NUMBER.match(found.minor)
    if major is None or minor is None:
        raise GarbledError("GET /version: the answer names no release")
    return int(major[0]), int(minor[0])


def too_old(url: str, version: tuple[int, int]) -> str:
    """Return why an API server of this release cannot be used, or nothing."""
    if version >= OLDEST:
        return ""
    (major, minor), (oldest_major, oldest_minor) = version, OLDEST
    return f"{url} is Kubernetes {major}.{minor}; the scheduler needs {oldest_major}.{oldest_minor} or newer"
