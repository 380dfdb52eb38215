"""Time limits for sending a request: headers in uvicorn's protocol, bodies in an ASGI layer.

Neither uvicorn nor Ray Serve has such limits: `timeout_keep_alive` begins after a response, and `request_timeout_s` would also end
streams of events. A client that opens connections and sends a byte now and then would hold them forever. `install` affects each
server that this process starts afterwards. The module imports nothing of the root, so that Serve's proxy starts quickly.

Source: CWE-400 (slow header and slow body attacks); the limits are those of Apache's mod_reqtimeout.
"""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn.config
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from serve_apps.requests.problem_json import MEDIA_TYPE, problem_bytes

#: Seconds from the opening of a connection, or from the first byte of a further request, to the end of the headers.
HEADERS_S = 10.0
#: Seconds from the first read of a body to its end; a body that arrives at this rate may take longer.
BODY_S = 10.0
BODY_BYTES_PER_S = 16_384

CODE = "body_too_slow"
BODY = problem_bytes(
    408, CODE, f"the body did not arrive within {BODY_S:.0f} s plus one second per {BODY_BYTES_PER_S // 1024} KiB; send it faster"
)


def install() -> list[Middleware]:
    """Make the servers of this process close slow connections; return the ASGI layers for their applications."""
    uvicorn.config.HTTP_PROTOCOLS["auto"] = f"{__name__}:HeaderTimeout"
    return [Middleware(BodyTimeout)]


class HeaderTimeout(AutoHTTPProtocol):  # type: ignore[misc, valid-type]  # which of two classes it is, is known at run time
    """uvicorn's HTTP protocol, closing connections whose headers do not arrive in time."""

    headers_s = HEADERS_S

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._begin()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_answering():
            self._end()
        elif self._limit is None:
            self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        """Return whether a request's headers have arrived and its response has not ended."""
        return self.cycle is not None and not self.cycle.response_complete

    def _begin(self) -> None:
        self._limit = self.loop.call_later(self.headers_s, self._close)

    def _end(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _close(self) -> None:
        self._limit = None
        if not self._is_answering() and self.transport.get_protocol() is self:
            self.transport.close()


class BodyTimeout:
    """ASGI layer that answers a body that is too slow with 408 and closes the connection.

    Args:
        body_s: See `BODY_S`.
    """

    def __init__(self, app: ASGIApp, body_s: float = BODY_S) -> None:
        self._app = app
        self._body_s = body_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on the body while it is in time; the application sees a slow client as disconnected."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = _Request(receive, send, self._body_s)
        await self._app(scope, request.receive, request.send)


class _Request:
    """One request while it is read."""

    def __init__(self, receive: Receive, send: Send, body_s: float) -> None:
        self._receive, self._send = receive, send
        self._body_s = body_s
        self._begun_s: float | None = None
        self._read_bytes = 0
        self._is_whole = self._is_answered = self._is_refused = False

    async def receive(self) -> Message:
        """Return the next message if it is in time; after the body there is no limit."""
        if self._is_whole:
            return await self._receive()
        now_s = asyncio.get_running_loop().time()
        self._begun_s = now_s if self._begun_s is None else self._begun_s
        left_s = self._begun_s + self._body_s + self._read_bytes / BODY_BYTES_PER_S - now_s
        try:
            message = await asyncio.wait_for(self._receive(), max(left_s, 0.001))
        except asyncio.TimeoutError:
            await self._refuse()
            return {"type": "http.disconnect"}
        self._read_bytes += len(message.get("body", b""))
        self._is_whole = not message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Pass on the response, unless the request was refused."""
        if not self._is_refused:
            self._is_answered = True
            await self._send(message)

    async def _refuse(self) -> None:
        self._is_whole = True
        if self._is_answered:
            return
        self._is_refused = True
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(BODY)).encode()), (b"connection", b"close")]
        await self._send({"type": "http.response.start", "status": 408, "headers": headers})
        await self._send({"type": "http.response.body", "body": BODY})
