"""What Ray Serve's proxy answers while no gateway stands behind it: 503 with `Retry-After`, in the words of the root.

The proxy listens before it knows the routes of the root, and after they are deleted. By itself it says then that there is no such path,
404 in plain text, and a client takes a run that exists for one that does not. A gateway never answers 404 or 503 in plain text, so these
are the proxy's own. The proxy loads this module by the name in `VARIABLES`; it imports nothing of the root, so that the proxy starts soon.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve_apps.requests.slow_clients import install

#: For the environment of the workers of a cluster on which Serve is started.
VARIABLES = {"RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "serve_apps.root.proxy_answers:middlewares"}
RETRY_AFTER_S = 1
CODE = "root_away"
BODY = json.dumps(
    {
        "error": {
            "code": CODE,
            "message": "no gateway of the root answers yet: it starts, or another one takes its place; ask again",
            "problems": [],
            "request_id": "",
            "facts": {},
        }
    }
).encode()
#: Where Serve tells about itself.
_OF_SERVE = "/-/"
_ABSENT = (404, 503)


class AbsentRoot:
    """Around the proxy, as ASGI."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the answer of a gateway on; say 503 where there is none."""
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
        if not is_begun:  # The replica died with the request.
            await _say_absent(send)


def middlewares() -> list[Middleware]:
    """For the proxy, the outermost last; its server closes slow connections from then on."""
    return [Middleware(AbsentRoot), *install()]


def _is_plain(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(name.lower() == b"content-type" and value.startswith(b"text/plain") for name, value in headers)


async def _say_absent(send: Send) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(BODY)).encode()),
        (b"retry-after", str(RETRY_AFTER_S).encode()),
    ]
    await send({"type": "http.response.start", "status": 503, "headers": headers})
    await send({"type": "http.response.body", "body": BODY})
