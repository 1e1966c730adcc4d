"""The requests of kopf: to the address, through the proxy and with the identity of our own client.

Invariants:
- Every request has the present credentials. After a 401 they are read again, as for requests of our own.
- An outage is no error for kopf: a request is sent again until the API server answers it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from typing import Final

import structlog
from aiohttp import ClientError, ClientHandlerType, ClientRequest, ClientResponse, ClientSession, TCPConnector

from aischeduler.kube.access.server import Server
from aischeduler.kube.http.client import LIST_SECONDS, refusal
from aischeduler.kube.http.connection import describe_error
from aischeduler.kube.http.connection_pool import USER_AGENT
from aischeduler.kube.http.errors import ApiError, RefusedError, UnreachableError

PAUSES_SECONDS: Final = (1, 1, 2, 3, 5, 8, 10)
"""The pauses between the tries of a request; an outage has no end that is known, so the last one repeats."""
PASSING_STATUSES: Final = (401, 403, 429)
"""Answers, beside those of 500 and above, that another time can change."""


def session_of(
    server: Server,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    answer_seconds: float = LIST_SECONDS,
) -> ClientSession:
    """Return a session for kopf; `answer_seconds` is the timeout of a try, of a watch until it begins."""
    proxy = server.proxy
    impersonation = (line.partition(": ") for line in server.impersonation.decode().splitlines())

    async def ask(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
        """Send a request again and again until the API server answers it."""
        if proxy is not None and proxy.authorization is not None:
            request.update_proxy(request.proxy, None, {"Proxy-Authorization": proxy.authorization.decode()})
        for pause_seconds in chain(PAUSES_SECONDS, repeat(PAUSES_SECONDS[-1])):
            answer = await _answer(server, request, handler, answer_seconds)
            if isinstance(answer, ClientResponse):
                return answer
            asked_seconds = answer.retry_after_seconds if isinstance(answer, RefusedError) else None
            seconds = max(pause_seconds, asked_seconds or 0)
            structlog.get_logger().warning(
                "request failed", path=request.url.path, reason=str(answer), again_in_seconds=seconds
            )
            await sleep(seconds)
        raise AssertionError("the pauses have no end")

    return ClientSession(
        connector=TCPConnector(limit=0),
        headers=[("User-Agent", USER_AGENT), *((name, value) for name, _, value in impersonation)],
        proxy=proxy.url if proxy is not None else None,
        middlewares=(ask,),
    )


async def _answer(
    server: Server, request: ClientRequest, handler: ClientHandlerType, seconds: float
) -> ClientResponse | ApiError:
    """Send a request, after a 401 with other credentials once more; return the answer, or why there is none yet."""
    while True:
        authorization, certificate_number = await server.authorization(), server.certificate_number
        if authorization is not None:
            request.headers["Authorization"] = authorization.decode()
        if server.tls is not None:  # a session has one context, and a changed certificate makes a new one
            request._ssl, request.server_hostname = server.tls.context, server.tls.server_name  # noqa: SLF001
        try:
            async with asyncio.timeout(seconds):
                response = await handler(request)
                answers = response.status < 500 and response.status not in PASSING_STATUSES
                if answers and "watch" in request.url.query:
                    return response
                body = await response.read()
        except (ClientError, TimeoutError) as error:
            return UnreachableError(describe_error(error))
        if answers:
            return response
        if response.status != 401 or not await server.renew_credentials(authorization, certificate_number):
            return refusal(response.status, body, response.headers.get("Retry-After"), request.url.path)
