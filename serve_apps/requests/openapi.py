"""The OpenAPI description: every operation lists its possible refusals, and the link's bodies have schemas.

The table below lists the refusals of each dependency once, for all operations that use it; a route adds only its own refusals
(`refused`). The schemas of the link come from the link's table of verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import Match

from federation.link import VERBS
from serve_apps.requests.access import asking, looking, operating
from serve_apps.requests.problem_json import MEDIA_TYPE
from serve_apps.schemas.errors import ProblemDetails

#: Refusals of every operation of `/v1`: wrong and unknown parameters.
_OF_PARAMETERS = (422,)
#: Refusals of an operation that reads a JSON body: not JSON, too slow, too large, invalid.
_OF_BODY = (400, 408, 413, 422)
#: Refusals of an operation that takes raw bytes.
_OF_BYTES = (408, 413, 422)
#: Refusals by dependency: no key, a low role, out of reach, too many calls; an unreadable record, a store that does not answer.
_OF_DEPENDENCY: dict[Callable[..., Any], tuple[int, ...]] = {asking: (401, 403, 429, 502, 503), operating: (403,), looking: (429,)}
#: Refusals of a link route that checks the mesh's key: no key, too many calls; an unreadable record, a store that does not answer.
OF_MESH_KEY = (401, 429, 502, 503)
#: Refusals of every verb of the link: the same, and what the state of the mesh's sessions and leases forbids.
LINK_STATUSES = (400, 401, 403, 408, 409, 413, 415, 422, 429, 502, 503)
#: Headers of every response to a call that was counted for its key.
RATE_HEADERS = {
    "RateLimit-Limit": "Calls of this kind that the key may make at once after a pause.",
    "RateLimit-Remaining": "Calls of this kind that the key may make at once now.",
    "RateLimit-Reset": "Seconds until the whole limit is there again.",
}
MESH_KEY = "Mesh key"
BYTES_KIND, _JSON = "application/octet-stream", "application/json"
_REF = "#/components/schemas/{}"


def refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the OpenAPI responses for these refusals of a route's own work."""
    return {status: {"model": ProblemDetails} for status in statuses}


def described(description: dict[str, Any], routers: Sequence[APIRouter]) -> dict[str, Any]:
    """Return FastAPI's own description with all possible responses and the link's schemas; changes its argument."""
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute):
                _describe_refusals(route, description["paths"][route.path_format])
                if asking in _calls_of(route.dependant):
                    _describe_rates(description["paths"][route.path_format])
    _mark_problems(description)
    components = description.setdefault("components", {})
    components.setdefault("schemas", {}).update(_link_schemas())
    components["headers"] = {name: {"description": words, "schema": {"type": "integer"}} for name, words in RATE_HEADERS.items()}
    components.setdefault("securitySchemes", {})[MESH_KEY] = {
        "type": "http",
        "scheme": "bearer",
        "description": "A mesh's key: `smm_<id>_<secret>`.",
    }
    return description


def statuses_of(route: APIRoute) -> set[int]:
    """Return the statuses that the route's dependencies, parameters and body may cause."""
    found = {status for call in _calls_of(route.dependant) for status in _OF_DEPENDENCY.get(call, ())}
    if route.path_format.startswith("/v1/"):
        found |= set(_OF_PARAMETERS)
    body = (route.openapi_extra or {}).get("requestBody")
    if route.dependant.body_params or body is not None:
        found |= set(_OF_BYTES if body is not None and BYTES_KIND in body["content"] else _OF_BODY)
    return found


def allowed_methods(routers: Sequence[APIRouter], path: str) -> list[str]:
    """Return the methods of all routes with this path, because each route knows only its own."""
    scope = {"type": "http", "path": path, "root_path": "", "method": ""}
    found = (route for router in routers for route in router.routes if route.matches(scope)[0] is not Match.NONE)
    return sorted({method for route in found if isinstance(route, APIRoute) for method in route.methods or ()})


def link_name(verb: str, part: str) -> str:
    """Return the schema name of a verb's request (`asked`) or response (`answered`)."""
    return f"link.{verb}.{part}"


def link_operation(verb: str) -> dict[str, Any]:
    """Return the description of a link route without its refusals."""
    return {
        "security": [{MESH_KEY: []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": _REF.format(link_name(verb, "asked"))}}}},
    }


def link_answer(verb: str) -> dict[int | str, dict[str, Any]]:
    """Return the responses of a link route."""
    schema = {"$ref": _REF.format(link_name(verb, "answered"))}
    return {200: {"content": {"application/json": {"schema": schema}}}, **refused(*LINK_STATUSES)}


def _calls_of(dependant: Dependant) -> set[Any]:
    return {dependant.call, *(call for part in dependant.dependencies for call in _calls_of(part))}


def _describe_refusals(route: APIRoute, operations: dict[str, Any]) -> None:
    for method in route.methods or ():
        responses = operations[method.lower()]["responses"]
        for status, refusal in refused_json(statuses_of(route)):
            responses[status] = refusal if status not in responses or status == "422" else responses[status]


def _describe_rates(operations: dict[str, Any]) -> None:
    headers = {name: {"$ref": f"#/components/headers/{name}"} for name in RATE_HEADERS}
    for operation in operations.values():
        for response in operation["responses"].values():
            response["headers"] = {**response.get("headers", {}), **headers}


def refused_json(statuses: set[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return the refusals in OpenAPI form."""
    for status in sorted(statuses):
        schema = {"$ref": _REF.format(ProblemDetails.__name__)}
        yield str(status), {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}


def _mark_problems(description: dict[str, Any]) -> None:
    """Give every error response the media type of problem details; FastAPI describes all models as plain JSON."""
    for operation in (operation for operations in description["paths"].values() for operation in operations.values()):
        for status, response in operation["responses"].items():
            content = response.get("content", {})
            if int(status) >= HTTPStatus.BAD_REQUEST and _JSON in content:
                content[MEDIA_TYPE] = content.pop(_JSON)


def _link_schemas() -> dict[str, Any]:
    """Return the schemas of the link's types, by the names that its routes refer to."""
    kinds: list[tuple[str, Any, TypeAdapter[Any]]] = []
    for verb in VERBS:
        kinds.append((link_name(verb.name, "asked"), "validation", TypeAdapter(verb.asked)))
        kinds.append((link_name(verb.name, "answered"), "serialization", TypeAdapter(verb.answered)))
    top, rest = TypeAdapter.json_schemas(kinds, ref_template=_REF.format("link.{model}"))
    schemas = {name: schema for (name, _), schema in top.items()}
    schemas |= {f"link.{name}": schema for name, schema in rest.get("$defs", {}).items()}
    for schema in schemas.values():
        if "properties" in schema:
            schema["additionalProperties"] = False  # `mesh.core.wire` refuses unknown keys.
    return schemas
