"""Error codes, each with its documented status."""

import copy
import json
import re
from collections import Counter
from http import HTTPStatus
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dag.errors import ApiError
from serve_apps.cli import session
from serve_apps.cli.app import run_command
from serve_apps.codes.errors import ERRORS
from serve_apps.gateway_fixtures import RESEARCH, GatewayWorld, spec_of
from serve_apps.requests.errors import INTERNAL, MEANINGS, OF_ROUTING
from serve_apps.root import proxy_responses
from serve_apps.schemas.errors import ProblemDetails

#: Of runs that ended without a result: the route itself answers them.
OF_RESULTS = {"run_failed": HTTPStatus.CONFLICT, "run_cancelled": HTTPStatus.CONFLICT}
#: Answers of Serve's proxy without a gateway.
OF_THE_PROXY = {proxy_responses.CODE: HTTPStatus.SERVICE_UNAVAILABLE}
OPEN = {"/healthz"}
WORLD = GatewayWorld()
ROUTES = [
    (path, method.upper(), {int(status) for status in operation["responses"] if int(status) >= HTTPStatus.BAD_REQUEST})
    for path, methods in WORLD.app.openapi()["paths"].items()
    for method, operation in methods.items()
]


def possible_codes() -> dict[str, HTTPStatus]:
    """Return every code that an answer may have."""
    table = {meaning.code: meaning.status for _, meaning in MEANINGS} | {INTERNAL.code: INTERNAL.status}
    return table | {code: status for status, code in OF_ROUTING.items()} | OF_RESULTS | OF_THE_PROXY


def documented_codes() -> dict[str, set[int]]:
    """Return the codes of the table that docs/codes.md is made of."""
    return {code: {known.status} for code, known in ERRORS.items()}


def test_documentation_lists_exactly_the_error_codes():
    assert documented_codes() == {code: {int(status)} for code, status in possible_codes().items()}


def test_no_code_stands_for_two_kinds_of_error():
    counts = Counter([meaning.code for _, meaning in MEANINGS] + list(OF_ROUTING.values()) + [INTERNAL.code, *OF_RESULTS])
    assert {code for code, count in counts.items() if count > 1} == set()


def test_every_route_is_looked_at():
    assert {path for path, *_ in ROUTES} >= {"/v1/runs", "/v1/link/join", "/v1/queues/{tenant}", "/v1/dead/{letter}/drop", "/metrics"}


@pytest.mark.parametrize(("path", "method", "statuses"), ROUTES, ids=lambda value: value if isinstance(value, str) else "")
def test_every_error_of_a_route_has_a_documented_code(path, method, statuses):
    codes = documented_codes()
    assert statuses <= {status for documented in codes.values() for status in documented}
    world, address = GatewayWorld(), re.sub(r"\{\w+\}", "x", path)
    denied = world.http(None).request(method, address, json={})
    if path not in OPEN:
        assert denied.json()["code"] in ("unauthorized", "invalid_parameters")
    wrong = world.http(RESEARCH).request("PATCH", address)
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    for answer in (denied, wrong, *(world.http(tenant).request(method, address, json={}) for tenant in (RESEARCH, "*"))):
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            assert codes[answer.json()["code"]] == {answer.status_code}
            assert_problem(answer)


def assert_problem(answer):
    problem = ProblemDetails.model_validate(answer.json())
    assert (answer.headers["content-type"], problem.status) == ("application/problem+json", answer.status_code)
    assert problem.type == f"urn:schedulemesh:problem:{problem.code}"
    assert answer.headers["link"] == f'</codes/{problem.code}>; rel="help"'
    assert problem.title
    assert problem.detail
    assert ("retry-after" in answer.headers) or answer.status_code not in (429, 503)


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]),
    path=st.sampled_from([path for path, *_ in ROUTES]) | st.text(max_size=20).map(lambda text: f"/v1/{quote(text)}"),
    part=st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=10),
    body=st.binary(max_size=50) | st.sampled_from([b"{}", b'{"spec": "dag/1"}', b"[1]", b"x" * 2_000_000]),
    kind=st.sampled_from(["application/json", "text/plain", "application/vnd.schedulemesh.dag+msgpack"]),
    tenant=st.sampled_from([None, RESEARCH, "*"]),
)
def test_whatever_is_sent_an_error_is_problem_details(method, path, part, body, kind, tenant):
    address = re.sub(r"\{[\w:]+\}", quote(part, safe=""), path)
    answer = GatewayWorld().http(tenant).request(method, address, content=body, headers={"Content-Type": kind})
    if answer.status_code >= HTTPStatus.BAD_REQUEST:
        assert_problem(answer)


def test_unknown_route_and_unknown_stage_have_different_codes():
    world = GatewayWorld()
    world.client().submit_spec(spec_of("a", id="night"))
    http = world.http(RESEARCH)
    codes = [http.get(path).json()["code"] for path in ("/v1/no", "/v1/runs/no", "/v1/runs/night/stages/7/explain")]
    assert codes == ["unknown_route", "unknown_run", "unknown_stage"]


@pytest.fixture
def asked(monkeypatch, tmp_path) -> GatewayWorld:
    """The federation of a command that is given its address."""
    built = GatewayWorld()
    monkeypatch.chdir(tmp_path)
    for variable in ("SCHEDULEMESH_ADDRESS", "SCHEDULEMESH_STATE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "in the headers")
    monkeypatch.setattr(session, "Client", lambda access: session_client(built, access))
    return built


def session_client(world, access):
    return type(world.client())(access, http=world.http(RESEARCH), patience_s=0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["runs", "--tenant", "rival"], "forbidden"),
        (["explain", "night"], "unknown_run"),
        (["drain", "mesh", "east"], "forbidden"),
        (["queue", "--address", "root:1"], "invalid_address"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_command_prints_the_roots_error_code_as_json(asked, capsys, arguments, code):
    here = [] if "--address" in arguments else ["--address", "http://root.test"]
    assert run_command([*arguments, *here, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


@pytest.mark.parametrize(
    ("environment", "code"),
    [({}, "no_federation"), ({"SCHEDULEMESH_STATE": "nowhere"}, "not_running"), ({"SCHEDULEMESH_ADDRESS": "http://root.test"}, "no_key")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_local_command_error_has_a_code_too(asked, monkeypatch, capsys, environment, code):
    monkeypatch.delenv("SCHEDULEMESH_API_KEY")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run_command(["runs", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_the_code_travels_with_the_error():
    error = copy.copy(ApiError(403, "no", (("/a", "b"),), code="forbidden"))
    assert (error.status, str(error), error.problems, error.code) == (403, "no", (("/a", "b"),), "forbidden")
