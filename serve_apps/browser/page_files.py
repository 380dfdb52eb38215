"""The files of the browser page, served from memory. They hold nothing of a tenant: everything shown comes through `/v1` with a key.

The page may load, run and call nothing but this root, and no other page may frame it. A file of `assets` has a hash in its name and is
kept by the browser for good; `/` is asked for each time and answered by 304 while it is the same.

Source: ADR 0068.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

#: Where `ui/build_backend.py` builds the page.
BUILT = Path(__file__).parent / "built"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; worker-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
FOR_GOOD = "public, max-age=31536000, immutable"
ASK_EACH_TIME = "no-cache"
MISSING = (
    "The browser page is not built. Run `make page` in the checkout, or install the wheel, which holds it; then restart the root.\n"
    "The terminal (`schedulemesh runs`) and HTTP (`/openapi.json`) work without it.\n"
)

_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class PageFile:
    """A built file, plain and compressed by gzip."""

    plain: bytes
    gzipped: bytes
    media_type: str
    etag: str


@cache
def page_files(folder: Path = BUILT) -> Mapping[str, PageFile]:
    """Return the built files by their path below `folder`; empty if the page is not built."""
    found: dict[str, PageFile] = {}
    for path in sorted(folder.rglob("*")):
        packed = path.with_name(f"{path.name}.gz")
        if path.suffix in _TYPES and packed.is_file():
            plain = path.read_bytes()
            etag = f'"{hashlib.sha256(plain).hexdigest()[:16]}"'
            found[path.relative_to(folder).as_posix()] = PageFile(plain, packed.read_bytes(), _TYPES[path.suffix], etag)
    return found


def show_page(request: Request) -> Response:
    """Return the page, or in words how to build it."""
    return _page(request, "index.html")


def show_docs(request: Request) -> Response:
    """Return the page about the HTTP routes."""
    return _page(request, "docs.html")


def show_asset(request: Request) -> Response:
    """Return a file of the page, or 404."""
    file = page_files().get(f"assets/{request.path_params['name']}")
    if file is None:
        return PlainTextResponse("The page has no such file; load it again.\n", status_code=HTTPStatus.NOT_FOUND, headers=HEADERS)
    return _answer(request, file, FOR_GOOD)


def page_routes() -> list[BaseRoute]:
    """Return the routes of the page. They need no key and stand in no OpenAPI."""
    return [
        Route("/", show_page, methods=["GET"]),
        Route("/docs", show_docs, methods=["GET"]),
        Route("/assets/{name}", show_asset, methods=["GET"]),
    ]


def _page(request: Request, name: str) -> Response:
    file = page_files().get(name)
    if file is None:
        return PlainTextResponse(MISSING, status_code=HTTPStatus.SERVICE_UNAVAILABLE, headers=HEADERS)
    return _answer(request, file, ASK_EACH_TIME)


def _answer(request: Request, file: PageFile, kept: str) -> Response:
    headers = {**HEADERS, "Cache-Control": kept, "ETag": file.etag}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.gzipped, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.plain, media_type=file.media_type, headers=headers)
