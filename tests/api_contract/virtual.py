"""The API server in process, on virtual time: a timeout of thirty seconds takes no time."""

import json

from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.controllers.controller_manager import ControllerManager
from aischeduler.sandbox.request import Request, request
from aischeduler.sandbox.watches import WatchStream
from tests.api_contract.world import SETTLE_SECONDS, Answer, Call, Json

STARTED_AT = 1_767_225_600.0
"""1 January 2026, in Unix seconds."""


class VirtualTransport:
    """A server, its controllers and its clock."""

    def __init__(self) -> None:
        self.now = STARTED_AT
        self._server = ApiServer(now=self.now)
        self._controllers = ControllerManager(self._server)

    def request(self, call: Call) -> Answer:
        answer = self._server.handle(_request(call), self.now)
        assert not isinstance(answer, WatchStream), call.url
        return Answer(answer.status, json.loads(answer.body), answer.retry_after_seconds)

    def watch(self, url: str) -> "VirtualStream":
        answer = self._server.handle(_request(Call("GET", url)), self.now)
        assert isinstance(answer, WatchStream), answer
        return VirtualStream(self, answer)

    def restart(self) -> None:
        self._server.restart()

    def settle(self) -> None:
        self.now += SETTLE_SECONDS
        self._controllers.step(self.now)

    def close(self) -> None:
        """Do nothing: no connection is open."""


class VirtualStream:
    """A watch in process."""

    def __init__(self, transport: VirtualTransport, stream: WatchStream) -> None:
        self._transport = transport
        self._stream = stream
        self._lines: list[bytes] = []

    @property
    def ended(self) -> bool:
        return self._stream.closed and not self._lines

    def next(self, seconds: float) -> Json | None:
        deadline = self._transport.now + seconds
        while True:
            self._lines += self._stream.read(self._transport.now)
            if self._lines:
                event: Json = json.loads(self._lines.pop(0))
                return event
            if self._stream.closed or self._transport.now >= deadline:
                return None
            self._transport.settle()

    def close(self) -> None:
        self._stream.close()


def _request(call: Call) -> Request:
    asked = request(call.method, call.url, call.body, call.content_type)
    return Request(asked.method, asked.path, asked.query, call.accept, asked.content_type, asked.body)
