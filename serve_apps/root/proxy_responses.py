"""Responses of Ray Serve's proxy while no gateway runs: 503 with `Retry-After`, in the form of the root's errors.

The proxy listens before it knows the root's routes, and after they are deleted. By default it then answers 404 in plain text, and a
client would conclude that an existing run does not exist. A gateway never answers 404 or 503 in plain text, so such responses are the
proxy's own. The proxy loads this module by the name in `VARIABLES`. It imports nothing of the root, so that the proxy starts quickly.
"""

from __future__ import annotations

from collections.abc import Iterable

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_apps.requests.problem_json import MEDIA_TYPE, problem_bytes
from serve_apps.requests.request_timeouts import install

#: Environment of the workers of a cluster on which Serve is started.
VARIABLES = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_apps.root.proxy_responses:middlewares",
    # On a busy machine the proxy needs longer than Serve's 5 s; Serve would end it, and with it the start of the root.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
}
RETRY_AFTER_S = 1
CODE = "root_away"
BODY = problem_bytes(503, CODE, "no gateway of the root answers yet: it is starting or being replaced; try again")
#: Serve's own paths.
_OF_SERVE = "/-/"
_ABSENT = (404, 503)


class AbsentRoot:
    """ASGI middleware around the proxy."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a gateway's response; answer 503 if there is no gateway."""
        if scope["type"] != "http" or scope["path"].startswith(_OF_SERVE):
            await self._app(scope, receive, send)
            return
        is_begun = is_absent = False

        async def pass_on(message: Message) -> None:
            nonlocal is_begun, is_absent
            if message["type"] == "http.response.start":
                is_begun = True
                is_absent = message["status"] in _ABSENT and _is_plain(message.get("headers", ()))
                if is_absent:
                    await _say_absent(send)
            if not is_absent:
                await send(message)

        await self._app(scope, receive, pass_on)
        if not is_begun:  # The replica died before it responded.
            await _say_absent(send)


def middlewares() -> list[Middleware]:
    """Return the proxy's middleware, outermost last. From this call on, the proxy's server closes slow connections."""
    return [Middleware(AbsentRoot), *install()]


def _is_plain(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(b"text/plain") for name, value in headers)


async def _say_absent(send: Send) -> None:
    headers = [
        (b"content-type", MEDIA_TYPE.encode()),
        (b"content-length", str(len(BODY)).encode()),
        (b"retry-after", str(RETRY_AFTER_S).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})
