"""The OpenAPI description: each operation tells every refusal that can come, and the link's bodies have schemas.

What a dependency may refuse is told once, in the table below, for all operations that depend on it; a route tells only what its own work
refuses (`refused`). The link has its own table of verbs, and its schemas are made from that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.routing import Match

from federation.link import VERBS
from serve_apps.requests.access import asking, looking, operating
from serve_apps.schemas.errors import ErrorBody

#: Of every operation of `/v1`: parameters are checked, and those that it does not know refused.
_OF_PARAMETERS = (422,)
#: Of an operation that reads a body: not JSON, too slow, too large, not what it takes.
_OF_BODY = (400, 408, 413, 422)
#: Of one that takes bytes as they are: nothing is read in them.
_OF_BYTES = (408, 413, 422)
#: By the dependency: no key, out of reach, too often; a record that cannot be read, a store that does not answer.
_OF_DEPENDENCY: dict[Callable[..., Any], tuple[int, ...]] = {asking: (401, 429, 502, 503), operating: (403,), looking: (429,)}
#: Of a route of the link that looks at the mesh's key: none, too often; a record that cannot be read, a store that does not answer.
OF_MESH_KEY = (401, 429, 502, 503)
#: Of every verb of the link; the same, and what the sessions and leases of a mesh do not allow.
LINK_STATUSES = (400, 401, 403, 408, 409, 413, 415, 422, 429, 502, 503)
MESH_KEY = "Mesh key"
BYTES_KIND = "application/octet-stream"
_REF = "#/components/schemas/{}"


def refused(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The responses of a route whose own work is refused so."""
    return {status: {"model": ErrorBody} for status in statuses}


def describe(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Have the application describe all that it answers."""
    make = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            described = make()
            for router in routers:
                for route in router.routes:
                    if isinstance(route, APIRoute):
                        _tell_refusals(route, described["paths"][route.path_format])
            components = described.setdefault("components", {})
            components.setdefault("schemas", {}).update(_link_schemas())
            components.setdefault("securitySchemes", {})[MESH_KEY] = {
                "type": "http",
                "scheme": "bearer",
                "description": "A mesh's key: `smm_<id>_<secret>`.",
            }
            app.openapi_schema = described
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # as FastAPI's own documentation has it


def statuses_of(route: APIRoute) -> set[int]:
    """What the dependencies of the route, its parameters and the reading of its body can answer."""
    found = {status for call in _calls_of(route.dependant) for status in _OF_DEPENDENCY.get(call, ())}
    if route.path_format.startswith("/v1/"):
        found |= set(_OF_PARAMETERS)
    told = (route.openapi_extra or {}).get("requestBody")
    if route.dependant.body_params or told is not None:
        found |= set(_OF_BYTES if told is not None and BYTES_KIND in told["content"] else _OF_BODY)
    return found


def allowed_methods(routers: Sequence[APIRouter], path: str) -> list[str]:
    """The methods of all routes with this path: each of them knows its own only."""
    scope = {"type": "http", "path": path, "root_path": "", "method": ""}
    found = (route for router in routers for route in router.routes if route.matches(scope)[0] is not Match.NONE)
    return sorted({method for route in found if isinstance(route, APIRoute) for method in route.methods or ()})


def link_name(verb: str, part: str) -> str:
    """The name of the schema of what a verb is asked (`asked`) or answers (`answered`)."""
    return f"link.{verb}.{part}"


def link_operation(verb: str) -> dict[str, Any]:
    """What a route of the link tells of itself beside its refusals."""
    return {
        "security": [{MESH_KEY: []}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {"$ref": _REF.format(link_name(verb, "asked"))}}}},
    }


def link_answer(verb: str) -> dict[int | str, dict[str, Any]]:
    """Its responses."""
    schema = {"$ref": _REF.format(link_name(verb, "answered"))}
    return {200: {"content": {"application/json": {"schema": schema}}}, **refused(*LINK_STATUSES)}


def _calls_of(dependant: Dependant) -> set[Any]:
    return {dependant.call, *(call for part in dependant.dependencies for call in _calls_of(part))}


def _tell_refusals(route: APIRoute, operations: dict[str, Any]) -> None:
    for method in route.methods or ():
        responses = operations[method.lower()]["responses"]
        for status, told in refused_json(statuses_of(route)):
            responses[status] = told if status not in responses or status == "422" else responses[status]


def refused_json(statuses: set[int]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Refusals as they stand in the description."""
    for status in sorted(statuses):
        schema = {"$ref": _REF.format(ErrorBody.__name__)}
        yield str(status), {"description": "See `error.code`.", "content": {"application/json": {"schema": schema}}}


def _link_schemas() -> dict[str, Any]:
    """The types of the link's table, by the names that its routes refer to."""
    kinds: list[tuple[str, Any, TypeAdapter[Any]]] = []
    for verb in VERBS:
        kinds.append((link_name(verb.name, "asked"), "validation", TypeAdapter(verb.asked)))
        kinds.append((link_name(verb.name, "answered"), "serialization", TypeAdapter(verb.answered)))
    top, rest = TypeAdapter.json_schemas(kinds, ref_template=_REF.format("link.{model}"))
    schemas = {name: schema for (name, _), schema in top.items()}
    schemas |= {f"link.{name}": schema for name, schema in rest.get("$defs", {}).items()}
    for schema in schemas.values():
        if "properties" in schema:
            schema["additionalProperties"] = False  # As `mesh.wire` reads them.
    return schemas
