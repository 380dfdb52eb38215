"""Refusal of unknown query parameters: a silently ignored parameter looks as if it had worked."""

from __future__ import annotations

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from dag.spec.checks import similar_to


def known_parameters(request: Request) -> None:
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
            [{"loc": ("query", name), "msg": f"there is no such parameter{similar_to(name, known) or there_are}"} for name in strange]
        )
