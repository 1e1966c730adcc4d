"""A proxy between a daemon and its API server: it answers some requests itself and passes the others on."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from aischeduler.kube.access.server import Server
from tests.kube.scripted_server import Answer, Request, closed, read_request

Rule = Callable[[Request], Answer | None]


def pass_on(_: Request) -> Answer | None:
    """Return no answer, so that every request is passed on."""
    return None


@dataclass
class Between:
    """The proxy. `rule` may change at any time; a request for which it returns None is passed on.

    `open` is the number of open connections, `most` their highest number so far.
    """

    host: str
    port: int
    rule: Rule = pass_on
    answered: list[Request] = field(default_factory=list)
    open: int = 0
    most: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        self.open += 1
        self.most = max(self.most, self.open)
        onward, away = await asyncio.open_connection(self.host, self.port)
        back = asyncio.create_task(_copy(onward, writer))
        try:
            while (request := await read_request(reader)) is not None:
                answer = self.rule(request)
                if answer is not None:
                    self.answered.append(request)
                    await answer(writer)
                else:
                    away.write(_bytes_of(request))
                    await away.drain()
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            back.cancel()
            with suppress(asyncio.CancelledError):
                await back
            await closed(away)
            await closed(writer)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while piece := await reader.read(65536):
            writer.write(piece)
            await writer.drain()
        writer.close()


def _bytes_of(request: Request) -> bytes:
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"{request.method} {request.target} HTTP/1.1\r\n{head}\r\n".encode() + request.body


@asynccontextmanager
async def between(server: Server) -> AsyncIterator[tuple[Between, Server]]:
    """Yield a proxy before this server, and a Server with the address of the proxy."""
    it = Between(server.host, server.port)
    tasks: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(it.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listening = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield it, Server("127.0.0.1", listening.sockets[0].getsockname()[1], server.clock)
    finally:
        listening.close()
        for task in tuple(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
