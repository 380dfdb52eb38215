"""A limit on request bodies, counted while they are read: what `Content-Length` promises is nobody's proof.

A body that says it is too large is refused before its first byte is read; one that is silent about its size, or lies, is
refused at the byte that is one too many.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesh.resources import format_units
from serve_apps.errors import BodyTooLarge


class BodyLimit:
    """ASGI middleware: whoever reads a body of more than `limit_bytes` gets `BodyTooLarge`."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        promised = _promised_bytes(scope)
        read_bytes = 0

        async def counted() -> Message:
            nonlocal read_bytes
            if promised > self._limit_bytes:
                raise self._refusal()
            message = await receive()
            read_bytes += len(message.get("body", b""))
            if read_bytes > self._limit_bytes:
                raise self._refusal()
            return message

        await self._app(scope, counted, send)

    def _refusal(self) -> BodyTooLarge:
        limit = format_units("memory", self._limit_bytes)
        return BodyTooLarge(f"the body is larger than {limit}; give large arguments by their address, as {{'$uri': …}}")


def _promised_bytes(scope: Scope) -> int:
    """What `Content-Length` says; 0 when it says nothing that is a number."""
    written = dict(scope["headers"]).get(b"content-length", b"")
    return int(written) if written.isdigit() else 0
