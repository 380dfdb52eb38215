"""The OpenAPI description: each operation's answers, including those of its dependencies."""

from http import HTTPStatus

import pytest
from fastapi.routing import APIRoute

from federation.link import VERBS
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld
from serve_apps.requests.access import asking, looking, operating
from serve_apps.requests.openapi import link_name, statuses_of
from serve_apps.root.gateway import ROUTERS

DESCRIBED = GatewayWorld().app.openapi()
OPERATIONS = [(method, path, operation) for path, methods in DESCRIBED["paths"].items() for method, operation in methods.items()]
ROUTES = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


def calls_of(dependant):
    return {dependant.call, *(call for part in dependant.dependencies for call in calls_of(part))}


def test_every_operation_is_one_of_a_route():
    assert {(method, route.path_format) for route in ROUTES for method in route.methods} == {
        (method.upper(), path) for method, path, _ in OPERATIONS
    }


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.name} {route.path_format}")
def test_operation_documents_refusals_of_its_dependencies(route):
    calls, (method,) = calls_of(route.dependant), route.methods
    documented = {int(status) for status in DESCRIBED["paths"][route.path_format][method.lower()]["responses"]}
    assert statuses_of(route) <= documented
    assert {401, 429, 503} <= documented or route.path_format == "/healthz"
    assert 403 in documented or operating not in calls
    assert 429 in documented or not calls & {asking, looking}
    assert {408, 413} <= documented or not (route.dependant.body_params or "requestBody" in (route.openapi_extra or {}))


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_every_refusal_has_the_body_of_errors(method, path, operation):
    for status, response in operation["responses"].items():
        if int(status) >= HTTPStatus.BAD_REQUEST:
            ((kind, content),) = response["content"].items()
            assert kind == "application/problem+json"
            assert content["schema"]["$ref"].rpartition("/")[2] in ("ProblemDetails", "NoResultView")


def test_every_name_that_is_referred_to_is_there():
    def refs(part):
        if isinstance(part, dict):
            yield from ([part["$ref"]] if isinstance(part.get("$ref"), str) else [])
            for each in part.values():
                yield from refs(each)
        elif isinstance(part, list):
            for each in part:
                yield from refs(each)

    known = {f"#/components/{kind}/{name}" for kind in ("schemas", "headers") for name in DESCRIBED["components"][kind]}
    assert set(refs(DESCRIBED)) <= known


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_a_verb_of_the_link_has_schemas_for_its_bodies(verb):
    operation = DESCRIBED["paths"][f"/v1/link/{verb.name}"]["post"]
    asked = operation["requestBody"]["content"]["application/json"]["schema"]["$ref"]
    answered = operation["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
    assert asked.endswith(link_name(verb.name, "asked"))
    assert answered.endswith(link_name(verb.name, "answered"))
    assert operation["security"] == [{"Mesh key": []}]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PATCH", "/v1/runs", "GET, POST"),
        ("HEAD", "/v1/runs", "GET, POST"),
        ("OPTIONS", "/v1/runs", "GET, POST"),
        ("POST", f"/v1/link/blobs/night/{'0' * 64}", "GET, PUT"),
        ("PUT", "/v1/runs/night", "DELETE, GET"),
        ("GET", "/v1/tenants/acme/suspend", "POST"),
        ("HEAD", "/healthz", "GET"),
    ],
)
def test_refused_method_lists_the_allowed_ones(method, path, allowed):
    answer = GatewayWorld().http(RESEARCH).request(method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("path", ["/v1/meshes/east/drain", "/v1/tenants/acme/suspend", "/v1/runs", "/v1/plan"])
def test_too_large_body_is_reported_as_such(path):
    answer = GatewayWorld(body_limit_bytes=100).http("*").post(path, json={"reason": "a" * 200})
    assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
