"""The API server behind a socket: plain HTTP on loopback, real time, and the controllers that run the cluster.

Invariant: this module reads and writes HTTP; `api_server` makes the answers; no task outlives `stop`.
"""

import asyncio
import contextlib
import time
from typing import Self

import yaml
from aiohttp import web

from aischeduler.sandbox.api_server import ApiServer
from aischeduler.sandbox.controllers.controller_manager import ControllerManager
from aischeduler.sandbox.controllers.kubelet import KubeletOptions
from aischeduler.sandbox.request import JSON, Request
from aischeduler.sandbox.watches import WatchStream

HOST = "127.0.0.1"
SHUTDOWN_SECONDS = 1.0
# Idle connections stay open for a long time: a client on a busy machine may pause between two requests.
IDLE_CONNECTION_SECONDS = 3600.0
FOREVER_SECONDS = 3600.0
# The pause between two passes of the controllers, so that many requests cause few passes.
CONTROLLERS_PAUSE_SECONDS = 0.005
CONTROLLERS_PAUSE_FACTOR = 2.0
CONTEXT = "sandbox"


def kubeconfig(url: str) -> str:
    """Return the text of a kubeconfig whose only context is the sandbox at `url`."""
    context = {"cluster": CONTEXT, "user": CONTEXT, "namespace": "default"}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": CONTEXT,
            "clusters": [{"name": CONTEXT, "cluster": {"server": url}}],
            "users": [{"name": CONTEXT, "user": {}}],
            "contexts": [{"name": CONTEXT, "context": context}],
        },
        sort_keys=False,
    )


class HttpSandbox:
    """A running sandbox. `url` is known after `start`; also an async context.

    The controllers of a cluster always run; kubelets only when `kubelet` says how fast they are: without them a bound
    pod stays Pending, as on a control plane without nodes.
    """

    def __init__(self, server: ApiServer | None = None, port: int = 0, kubelet: KubeletOptions | None = None) -> None:
        self.server = server if server is not None else ApiServer(now=time.time())
        self._controllers = ControllerManager(self.server, kubelet)
        self._written = asyncio.Event()
        self._controllers_task: asyncio.Task[None] | None = None
        self._port = port
        self._runner: web.ServerRunner | None = None
        self._streams: dict[int, WatchStream] = {}
        self.url = ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def kubeconfig(self) -> str:
        """The kubeconfig of this sandbox."""
        return kubeconfig(self.url)

    async def start(self) -> None:
        """Listen; a port of 0 takes a free one. Raises OSError where the port cannot be used."""
        server = web.Server(self._answer, handler_cancellation=True, keepalive_timeout=IDLE_CONNECTION_SECONDS)
        self._runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
        await self._runner.setup()
        site = web.TCPSite(self._runner, HOST, self._port)
        try:
            await site.start()
        except OSError:
            await self._runner.cleanup()
            raise
        self._port = self._runner.addresses[0][1]
        self.url = f"http://{HOST}:{self._port}"
        self.server.cluster.store.on_write = self._written.set
        self._controllers_task = asyncio.create_task(self._run_controllers(), name="controllers")

    async def stop(self) -> None:
        """End all watches, close the socket and end the controllers; raises the exception that ended a controller."""
        self.server.cluster.store.on_write = None
        for stream in list(self._streams.values()):
            stream.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        task, self._controllers_task = self._controllers_task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run_controllers(self) -> None:
        while True:
            self._written.clear()
            begun = time.monotonic()
            wake = self._controllers.pass_once(time.time())
            spent = time.monotonic() - begun
            await asyncio.sleep(max(CONTROLLERS_PAUSE_SECONDS, spent * CONTROLLERS_PAUSE_FACTOR))
            await _wait(self._written, FOREVER_SECONDS if wake is None else wake - time.time())

    def restart(self) -> None:
        """Behave as a restarted API server: watches end, history is forgotten, objects stay."""
        self.server.restart()

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.content.read() if request.body_exists else b""
        accept, content_type = request.headers.get("Accept", JSON), request.headers.get("Content-Type", JSON)
        asked = Request(request.method, request.path, dict(request.query), accept, content_type, body)
        answer = self.server.handle(asked, time.time())
        if isinstance(answer, WatchStream):
            return await self._stream(request, answer)
        headers = {"Content-Type": answer.content_type}
        if answer.retry_after_seconds:
            headers["Retry-After"] = str(answer.retry_after_seconds)
        return web.Response(status=answer.status, body=answer.body, headers=headers)

    async def _stream(self, request: web.BaseRequest, stream: WatchStream) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        ready = asyncio.Event()
        stream.on_ready = ready.set
        self._streams[id(stream)] = stream
        try:
            await response.prepare(request)
            while True:
                ready.clear()
                lines = stream.read(time.time())
                if lines:
                    await response.write(b"".join(lines))
                if stream.closed:
                    break
                await _wait(ready, stream.next_time - time.time())
            await response.write_eof()
        except ConnectionResetError:
            pass
        finally:
            del self._streams[id(stream)]
            stream.close()
        return response


async def _wait(ready: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, seconds)):
            await ready.wait()
