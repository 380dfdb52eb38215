"""`/codes`: the root's pages about codes. They need no key, and stand in no OpenAPI, as the browser page."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from serve_apps.codes.catalogue import find
from serve_apps.codes.pages import CODES_PATH, html_of, html_of_all, html_of_none, style

_STYLE_HASH = b64encode(hashlib.sha256(style().encode()).digest()).decode()
HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "public, max-age=3600",
}


def show_codes(_: Request) -> Response:
    """Return the list of all codes."""
    return HTMLResponse(html_of_all(), headers=HEADERS)


def show_code(request: Request) -> Response:
    """Return the page of a code, or 404."""
    name = request.path_params["name"]
    code = find(name)
    if code is None:
        return HTMLResponse(html_of_none(name), status_code=HTTPStatus.NOT_FOUND, headers=HEADERS)
    return HTMLResponse(html_of(code), headers=HEADERS)


def code_routes() -> list[BaseRoute]:
    """Return the routes of the pages."""
    return [Route(CODES_PATH, show_codes, methods=["GET"]), Route(f"{CODES_PATH}/{{name}}", show_code, methods=["GET"])]
