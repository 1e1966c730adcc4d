"""A minimal TLS server for Bindings: it answers every request with the same 201.

Run as `python -m tests.bench.bind_server CERTIFICATE KEY`; it prints its port and stops when standard input ends.
"""

import asyncio
import re
import ssl
import sys

STATUS = b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}\n'
ANSWER = b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
    len(STATUS),
    STATUS,
)
_LENGTH = re.compile(rb"[Cc]ontent-[Ll]ength: (\d+)")


class Connection(asyncio.Protocol):
    """One connection; a request is complete if its head and `Content-Length` bytes of body have arrived."""

    def __init__(self) -> None:
        self._begun = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._begun += data
        while (end := self._begun.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._begun, 0, end)
            whole = end + 4 + (int(length.group(1)) if length else 0)
            if len(self._begun) < whole:
                return
            self._begun = self._begun[whole:]
            assert self._transport is not None
            self._transport.write(ANSWER)


async def serve(context: ssl.SSLContext) -> None:
    """Serve until standard input ends."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


def main(files: list[str]) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*files)
    asyncio.run(serve(context))


if __name__ == "__main__":
    main(sys.argv[1:])
