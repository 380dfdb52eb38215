"""HTTP application of the root: routes, their errors, and middleware.

Responses come from the ports, so any replica can answer any request and may die at any time. A replica keeps only the runs that
it accepted recently, in case the store loses them. It never unpickles a byte of a tenant.
"""

from __future__ import annotations

import asyncio
import math
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute

from dag.errors import BacklogFull
from dag.spec.options import words_of
from federation.link import LINK_PATH
from mesh.core.near_names import nearest
from mesh.errors import MeshError
from serve_apps.browser.page_files import page_routes
from serve_apps.codes.routes import code_routes
from serve_apps.link import routes as link_routes
from serve_apps.requests.accepted_runs import look_after
from serve_apps.requests.access import Operating, note_unread
from serve_apps.requests.dependencies import Dependencies
from serve_apps.requests.errors import (
    INTERNAL,
    OF_ROUTING,
    HttpMeaning,
    NotAuthenticated,
    TooManyCalls,
    body_of,
    meaning_of,
    problem_body,
    problem_response,
)
from serve_apps.requests.limits import BodyLimit
from serve_apps.requests.middleware import ObservedRequests, log, request_id_of
from serve_apps.requests.openapi import allowed_methods, described, refused
from serve_apps.requests.recorded_changes import RecordedChanges
from serve_apps.routes import (
    api_keys,
    cached,
    changes,
    dead_letters,
    explanations,
    federation,
    graphs,
    listing,
    logs,
    runs,
    schedules,
    signals,
    usage,
)
from serve_apps.schemas.health import HealthView
from serve_apps.snapshot_cache.single_flight import SingleFlight
from serve_apps.telemetry.metrics import CONTENT_TYPE, GatewayMetrics, read_truth

__all__ = ["Dependencies", "create_app"]

#: Greatest age of scraped metrics: there may be many scrapers, and a scrape reads everything.
TRUTH_KEPT_MS = 5_000
#: Shortest interval of health checks of the store: anyone may call the health route.
HEALTH_KEPT_MS = 1_000
#: Key that a health check looks up: a missing field costs the store next to nothing.
NO_KEY = "healthz"
#: Wait that a client is asked for after a 503 that names no other.
RETRY_AFTER_S = 1
WRONG_PARAMETERS = HttpMeaning(HTTPStatus.UNPROCESSABLE_ENTITY, OF_ROUTING[HTTPStatus.UNPROCESSABLE_ENTITY])

_TITLES: dict[str, Any] = {
    "title": "ScheduleMesh",
    "version": "1",
    "description": "One federation over many Ray clusters: submit graphs, follow runs, see the use of quota and why work waits.",
}


async def _known_parameters(request: Request) -> None:
    """Refuse query parameters that the application's OpenAPI description does not list for the route. A dependency of routes.

    Raises:
        RequestValidationError: A parameter is unknown; the message suggests the nearest known one.
    """
    route = request.scope.get("route")
    if not isinstance(route, APIRoute) or not request.query_params:
        return
    described = request.app.openapi()["paths"][route.path_format][request.method.lower()]
    known = [each["name"] for each in described.get("parameters", ()) if each["in"] == "query"]
    there_are = f"; known parameters: {', '.join(known) or 'none'}"
    strange = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if strange:
        raise RequestValidationError(
            [{"loc": ("query", name), "msg": f"there is no such parameter{nearest(name, known) or there_are}"} for name in strange]
        )


def create_app(dependencies: Dependencies, *, is_proxied: bool = True) -> FastAPI:
    """Build the application on these ports. Nothing is opened or called before the first request.

    Args:
        is_proxied: See `ObservedRequests`.
    """
    app = FastAPI(**_TITLES, lifespan=_life, routes=list(_routes()), docs_url=None, redoc_url=None)  # `/docs` is a page of the browser's.
    app.openapi = _described  # type: ignore[method-assign]  # as FastAPI's own documentation has it
    truth = partial(read_truth, dependencies.runs, dependencies.ledger, dependencies.queue, dependencies.registry, dependencies.webhooks)
    shared = SingleFlight(truth, clock=dependencies.clock, kept_ms=TRUTH_KEPT_MS)
    metrics = GatewayMetrics(shared, replica=uuid.uuid4().hex[:8])
    app.state.dependencies = dependencies
    app.state.metrics = metrics
    app.state.is_there = SingleFlight(lambda: dependencies.keys.find(NO_KEY), clock=dependencies.clock, kept_ms=HEALTH_KEPT_MS)
    app.state.link_handler = link_routes.LinkHandler(dependencies.heartbeat_ms)
    app.add_exception_handler(MeshError, _error_response)
    app.add_exception_handler(RequestValidationError, _parameters_response)
    app.add_exception_handler(HTTPException, _http_response)
    app.add_middleware(RecordedChanges, changes=dependencies.changes, clock=dependencies.clock)
    app.add_middleware(BodyLimit, limit_bytes=dependencies.body_limit_bytes, but_not=LINK_PATH)
    # Added last, so it is the outermost.
    app.add_middleware(ObservedRequests, metrics=metrics, clock=dependencies.clock, is_proxied=is_proxied)
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Return the routes of all applications of this process: they take their ports from the request, and are long in the making."""
    whole = APIRouter()
    for router in ROUTERS:
        whole.include_router(router, dependencies=[Depends(_known_parameters)] if router in _OF_TENANTS else [])
    return (*whole.routes, *page_routes(), *code_routes())


@cache
def _described() -> dict[str, Any]:
    """Return the OpenAPI description, which is the same for all applications."""
    return described(FastAPI(**_TITLES, routes=list(_routes())).openapi(), ROUTERS)


@asynccontextmanager
async def _life(app: FastAPI) -> AsyncIterator[None]:
    """Watch over accepted runs while the application runs; close connections and instruments when it stops."""
    looking = asyncio.create_task(look_after(app.state.dependencies.accepted))
    yield
    looking.cancel()
    close = app.state.dependencies.close
    if close is not None:
        await close()
    app.state.metrics.close()


_operating = APIRouter(tags=["operating"])

_SCRAPED: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/plain": {}}},
}


@_operating.get("/healthz", responses=refused(503))
def health(request: Request) -> HealthView:
    """Return whether the store answers (503 if not)."""
    request.app.state.is_there()
    return HealthView(status="ok")


@_operating.get("/metrics", response_class=Response, responses=_SCRAPED)
def scrape(request: Request, principal: Operating) -> Response:  # noqa: ARG001  whoever asks has to be an operator: they tell of all tenants
    """Return the metrics in Prometheus form."""
    metrics: GatewayMetrics = request.app.state.metrics
    return Response(metrics.scrape(), media_type=CONTENT_TYPE)


#: Routers whose unknown parameters are refused.
_OF_TENANTS = (
    *(explanations.router, runs.router, graphs.router, logs.router, signals.router, federation.router, dead_letters.router),
    *(cached.router, listing.router, schedules.router, api_keys.router, usage.router, changes.router),
)
#: The link first: it has the most calls, and routes are matched in order.
ROUTERS = (link_routes.router, *_OF_TENANTS, _operating)


async def _error_response(request: Request, error: Exception) -> Response:
    meaning, request_id = meaning_of(error), request_id_of(request.scope)
    if meaning.status >= INTERNAL.status:
        log.error("request failed", request_id=request_id, path=request.url.path, code=meaning.code, error=repr(error))
    headers: dict[str, str] = {}
    if isinstance(error, NotAuthenticated):
        headers["WWW-Authenticate"] = 'Bearer realm="schedulemesh"'
    if isinstance(error, TooManyCalls):
        headers["Retry-After"] = str(math.ceil(error.wait_ms / 1000))
    if isinstance(error, BacklogFull):
        headers["Retry-After"] = str(math.ceil(error.retry_after_ms / 1000))
    if meaning.status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.setdefault("Retry-After", str(RETRY_AFTER_S))
    return problem_response(body_of(error, request_id), headers)


async def _denied(request: Request) -> Response | None:
    """Return the refusal of a caller without a valid key, and note any other caller for the log of changes."""
    try:
        await note_unread(request)
    except MeshError as denied:
        return await _error_response(request, denied)
    return None


async def _parameters_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  what it is registered for; the type of a handler is wider
    denied = await _denied(request)
    if denied is not None:
        return denied
    problems = tuple(("/".join(str(part) for part in wrong["loc"]), words_of(wrong)) for wrong in error.errors())
    words = "parameters of the request are wrong"
    return problem_response(problem_body(WRONG_PARAMETERS, words, request_id_of(request.scope), problems))


async def _http_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  the same
    if isinstance(error.__cause__, MeshError):  # FastAPI wraps errors that occur while it reads a body.
        return await _error_response(request, error.__cause__)
    denied = await _denied(request)
    if denied is not None:
        return denied
    headers = error.headers
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = allowed_methods(ROUTERS, request.url.path)
        headers = {"Allow": ", ".join(allowed)} if allowed else headers
    status = HTTPStatus(error.status_code)
    meaning = HttpMeaning(status, OF_ROUTING.get(status, "malformed_request"))
    return problem_response(problem_body(meaning, f"{error.detail}; /docs lists the routes", request_id_of(request.scope)), headers)
