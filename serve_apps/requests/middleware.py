"""Outermost layer of the gateway: every request gets an id, is counted, and is answered whatever fails inside."""

from __future__ import annotations

import re
import traceback
import uuid
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mesh.core.clock import Clock
from serve_apps.requests.errors import body_of, problem_response
from serve_apps.requests.limits import Rate
from serve_apps.telemetry.metrics import GatewayMetrics

log = structlog.get_logger(__name__)

#: Request ids of callers are used if they cannot break a log line.
_SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: Route label if no route matched, so that scanners create no new series.
_NO_ROUTE = "(none)"


class ObservedRequests:
    """ASGI middleware: request ids, counts, durations, and a response for unexpected errors.

    Args:
        is_proxied: Serve's proxy passes the requests on. It sets the id of a request, and adds the header to the response itself.
    """

    def __init__(self, app: ASGIApp, *, metrics: GatewayMetrics, clock: Clock, is_proxied: bool = True) -> None:
        self._app = app
        self._metrics = metrics
        self._clock = clock
        self._is_proxied = is_proxied

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
                rate: Rate | None = scope["state"].get("rate")
                if rate is not None:
                    message = {**message, "headers": [*message.get("headers", ()), *rate.headers()]}
                if not (is_offered and self._is_proxied):
                    message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id.encode())]}
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except Exception as broken:  # last resort: the caller gets a response without a stack trace, the log gets the stack trace
            # The stack trace as text: a logger's own rendering may print local variables, and keys are among them.
            context = "".join(traceback.format_exception(broken))
            log.error("request failed", request_id=request_id, path=scope["path"], context=context)  # noqa: TRY400  see above
            if status:
                raise  # The response has begun; only a broken connection shows that it is incomplete.
            await problem_response(body_of(broken, request_id))(scope, receive, noted)
        finally:
            duration_s = (self._clock.monotonic_ms() - begun_ms) / 1000
            self._metrics.observe_request(method=_method(scope), route=_route(scope), status=status, duration_s=duration_s)


def request_id_of(scope: Any) -> str:
    """Return the request id of a scope."""
    return str(scope.get("state", {}).get("request_id", ""))


def _offered_id(scope: Scope) -> str | None:
    offered = dict(scope["headers"]).get(b"x-request-id", b"").decode("latin-1")
    return offered if _SAFE_ID.fullmatch(offered) else None


def _method(scope: Scope) -> str:
    return scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS") else "other"


def _route(scope: Scope) -> str:
    """Return the path template of the route that answered."""
    return str(getattr(scope.get("route"), "path", _NO_ROUTE))
