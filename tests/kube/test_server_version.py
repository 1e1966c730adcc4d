"""The supported releases of Kubernetes."""

import pytest

from aischeduler.kube.access.server_version import read_version, too_old
from aischeduler.kube.http.client import Client
from aischeduler.kube.http.errors import MalformedAnswerError, RefusedError
from tests.kube.scripted_server import Script, reply, serving, status


async def answered(body: object) -> tuple[int, int]:
    script = Script()
    script.always["get", "/version"] = lambda _: reply(200, body)
    async with serving(script) as server, Client(server) as client:
        return await read_version(client)


@pytest.mark.parametrize(
    ("major", "minor", "version"), [("1", "36", (1, 36)), ("1", "31+", (1, 31)), ("2", "0-rc.1", (2, 0))]
)
async def test_release_is_read_without_the_suffix_of_a_provider(
    major: str, minor: str, version: tuple[int, int]
) -> None:
    assert await answered({"major": major, "minor": minor, "gitVersion": "x"}) == version


@pytest.mark.parametrize("body", [b"hello", {"major": "one", "minor": "2"}, {}, []])
async def test_answer_without_a_release_is_malformed(body: object) -> None:
    with pytest.raises(MalformedAnswerError):
        await answered(body)


async def test_refused_request_for_the_version_raises_the_refusal() -> None:
    script = Script()
    script.always["get", "/version"] = lambda _: status(403, "Forbidden", "no")
    async with serving(script) as server, Client(server) as client:
        with pytest.raises(RefusedError):
            await read_version(client)


def test_release_before_the_oldest_is_refused_in_one_sentence() -> None:
    assert too_old("https://x:1", (1, 31)) == ""
    assert too_old("https://x:1", (2, 0)) == ""
    assert too_old("https://x:1", (1, 30)) == "https://x:1 is Kubernetes 1.30; the scheduler needs 1.31 or newer"
    assert too_old("https://x:1", (0, 99)) != ""
