"""Stands between a client and the API server and makes the server look ill: slow, throttling, or silent.

Run as `python -m tests.bench.proxy URL AUTHORITY CERTIFICATE KEY`; it speaks plain HTTP, prints its port, and takes one
mode a line on standard input: `healthy`, `slow`, `throttle`, `stall`. It ends with its standard input.
"""

import asyncio
import ssl
import sys
from itertools import count

from aiohttp import ClientSession, ClientTimeout, TCPConnector, web

SLOW_SECONDS = 0.2
RETRY_AFTER_SECONDS = 1
LINE_BYTES_MAX = 2**22
MODES = ("healthy", "slow", "throttle", "stall")
KEPT_HEADERS = ("Content-Type", "Accept", "User-Agent")
BUSY = {"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests", "message": "try again later"}


class Proxy:
    """Passes requests on; `mode` is the illness."""

    def __init__(self, session: ClientSession) -> None:
        self.mode = "healthy"
        self._session = session
        self._awake = asyncio.Event()
        self._awake.set()
        self._writes = count()

    def fall(self, mode: str) -> None:
        """Take on an illness, or none."""
        self.mode = mode
        if mode == "stall":
            self._awake.clear()
        else:
            self._awake.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer one request; while stalled nothing moves, the bytes of open watches included."""
        body = await request.read()
        await self._awake.wait()
        if self.mode == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        if self.mode == "throttle" and request.method != "GET" and next(self._writes) % 2:
            return web.json_response(BUSY, status=429, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
        headers = {name: request.headers[name] for name in KEPT_HEADERS if name in request.headers}
        async with self._session.request(request.method, request.raw_path, data=body, headers=headers) as given:
            answer = web.StreamResponse(status=given.status, headers={"Content-Type": given.content_type})
            if given.content_length is not None:
                answer.content_length = given.content_length
            await answer.prepare(request)
            while piece := await given.content.readany():
                await self._awake.wait()
                await answer.write(piece)
            return answer


async def serve(url: str, authority: str, certificate: str, key: str) -> None:
    """Serve until standard input ends."""
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    connector, timeout = TCPConnector(ssl=context, limit=0), ClientTimeout(total=None)
    async with ClientSession(url, connector=connector, timeout=timeout, read_bufsize=LINE_BYTES_MAX) as session:
        proxy = Proxy(session)
        application = web.Application(client_max_size=LINE_BYTES_MAX)
        application.router.add_route("*", "/{path:.*}", proxy.answer)
        runner = web.AppRunner(application, access_log=None, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        print(runner.addresses[0][1], flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            proxy.fall(line.strip())
            print(line.strip(), flush=True)


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:5]))
