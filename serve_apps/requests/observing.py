"""The outermost layer of the gateway: every request has an id, is counted, and is answered, whatever breaks inside."""

from __future__ import annotations

import re
import traceback
import uuid
from typing import Any

import structlog
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesh.clock import Clock
from serve_apps.requests.errors import INTERNAL, body_of
from serve_apps.telemetry.metrics import GatewayMetrics

log = structlog.get_logger(__name__)

#: Ids of callers are taken over when they cannot break a log line.
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: What is counted where no route matched, so that a scanner makes no series.
_NO_ROUTE = "(none)"


class Observed:
    """ASGI middleware: request ids, counts and durations, and a body for what nobody expected."""

    def __init__(self, app: ASGIApp, *, metrics: GatewayMetrics, clock: Clock) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        offered = _offered_id(scope)
        is_offered, request_id = offered is not None, offered or uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        begun_ms = self._clock.monotonic_ms()
        status = 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if not is_offered:  # Whoever gave the request its id (Serve's proxy) tells it as well.
                    message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id.encode())]}
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as broken:  # the last resort: a stranger gets an answer and no stack, the log gets the stack
            # The stack as text: a logger's own rendering may print local variables, and keys are among them.
            story = "".join(traceback.format_exception(broken))
            log.error("a request broke", request_id=request_id, path=scope["path"], story=story)  # noqa: TRY400  see above
            if status:
                raise  # The answer has begun; only breaking the connection can say that it is not whole.
            await _internal(broken, request_id)(scope, receive, noted)
        finally:
            duration_s = (self._clock.monotonic_ms() - begun_ms) / 1000
            self._metrics.observe_request(method=_method(scope), route=_route(scope), status=status, duration_s=duration_s)


def request_id_of(scope: Any) -> str:
    """The id of the request that a scope belongs to."""
    return str(scope.get("state", {}).get("request_id", ""))


def _internal(broken: Exception, request_id: str) -> JSONResponse:
    return JSONResponse(body_of(broken, request_id).model_dump(), status_code=INTERNAL.status)


def _offered_id(scope: Scope) -> str | None:
    offered = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return offered if _SAFE_ID.fullmatch(offered) else None


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


def _route(scope: Scope) -> str:
    """The template of the route that answered."""
    return str(getattr(scope.get("route"), "path", _NO_ROUTE))
