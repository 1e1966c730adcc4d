"""The same requests by chance to this world and to a fresh virtual one: the same verdicts, and the same objects.

What is compared of a refusal is its status, its reason and the fields it names; its sentence only where scenarios
quote it. What is compared of an object is all of it but identities, revisions and times.
"""

import re
from itertools import count
from typing import Any

import pytest

from tests.seeds import random
from tests.worlds.conftest import with_pools
from tests.worlds.requests import a_request
from tests.worlds.virtual import VirtualTransport
from tests.worlds.world import Answer, Call, Transport, encode

REQUESTS = 80
CASES = 10
OWN = ("managedFields", "resourceVersion")
IDENTITY = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")

_numbers = count(1)


def essence(value: Any) -> Any:
    """Return a document without what must differ."""
    match value:
        case dict():
            return {key: essence(one) for key, one in sorted(value.items()) if key not in OWN}
        case list():
            return [essence(one) for one in value]
        case str():
            return TIME.sub("TIME", IDENTITY.sub("IDENTITY", value))
        case _:
            return value


def verdict(answer: Answer) -> Any:
    """Return what must be alike of an answer."""
    if answer.status < 400:
        return {"status": answer.status, "body": essence(answer.body)}
    return {"status": answer.status, "reason": answer.reason, "fields": sorted({*answer.cause_fields})}


def differences(here: Any, there: Any, path: str = "") -> list[str]:
    """Return where two documents differ."""
    match here, there:
        case dict(), dict():
            keys = sorted({*here, *there})
            return [one for key in keys for one in differences(here.get(key), there.get(key), f"{path}.{key}")]
        case list(), list() if len(here) == len(there):
            pairs = enumerate(zip(here, there, strict=True))
            return [one for index, pair in pairs for one in differences(*pair, f"{path}[{index}]")]
        case _:
            return [] if here == there else [f"{path}: {here!r} here, {there!r} in the virtual world"]


@pytest.mark.newest
@pytest.mark.parametrize("case", range(CASES))
def test_requests_by_chance_are_answered_as_in_the_virtual_world(transport: Transport, case: int) -> None:
    virtual, chance = with_pools(VirtualTransport()), random(f"alike {case}")
    namespace = f"alike-{next(_numbers)}"
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    for one in (virtual, transport):
        assert one.request(Call("POST", "/api/v1/namespaces", encode(document))).status == 201
    for number in range(REQUESTS):
        call = a_request(chance, namespace)
        found = differences(verdict(transport.request(call)), verdict(virtual.request(call)))
        assert found == [], f"request {number}: {call.method} {call.url} {call.body.decode()}"
