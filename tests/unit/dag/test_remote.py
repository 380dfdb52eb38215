"""Python client against a gateway in this process, and against failing roots."""

import asyncio
import json
import pickle

import cloudpickle
import httpx
import pytest
from opentelemetry import trace

import dag
from dag.errors import ApiError, ResultTimeout, RunCancelled, RunConflict, RunFailed, UnknownRun
from dag.run.states import NodeState, RunState
from dag.spec.spec import load as load_spec
from dag.store.client_access import IN_TERMINAL, Access, find_access
from dag.store.remote import Client, Run
from dag.store.result_decoding import failure_of
from dag.store.schedules import ScheduleHandle
from mesh.core.clock import ManualClock
from mesh.core.values import Encoding
from mesh.errors import RuntimeAdapterError
from serve_apps.gateway_fixtures import ACME, ADDRESS, NOW_MS, RESEARCH, RIVAL, GatewayWorld
from serve_apps.root import proxy_responses

TRACEPARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class BadRate(ValueError):
    """Exception of the user's own."""


@dag.task
def load(count):
    return list(range(count))


@dag.task(name="add-up")
def add(values):
    return sum(values)


@pytest.fixture
def world() -> GatewayWorld:
    return GatewayWorld()


@pytest.fixture
def client(world) -> Client:
    return world.client()


def answering(*answers: httpx.Response | Exception, patience_s: float = 5) -> tuple[Client, list[httpx.Request]]:
    """Return a client of a root with these answers in turn, the last one for ever; and the requests."""
    asked: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        answer = answers[min(len(asked), len(answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        return answer

    http = httpx.Client(transport=httpx.MockTransport(handle), base_url=ADDRESS)
    return Client(Access(address=ADDRESS, api_key="k"), http=http, clock=ManualClock(), patience_s=patience_s), asked


def line(state: str, **fields: object) -> httpx.Response:
    return httpx.Response(200, json={"id": "night", "tenant": "acme", "state": state, "created_ms": 1, "counts": {}, **fields})


def test_a_trigger_is_repeated_under_one_key():
    client, asked = answering(httpx.ReadTimeout("lost"), httpx.Response(202, json={"id": "night-1"}))
    handle = ScheduleHandle("night", "acme", client)
    assert handle.trigger().id == "night-1"
    assert handle.trigger().id == "night-1"
    first, repeated, another = (request.headers["Idempotency-Key"] for request in asked)
    assert first == repeated != another


# -- submitting --------------------------------------------------------------------------------------------------------


def test_submission_has_the_trace_of_the_environment(monkeypatch):
    client, asked = answering(httpx.Response(202, json={"id": "night"}))
    for header in (TRACEPARENT, "wrong"):
        monkeypatch.setenv("TRACEPARENT", header)
        client.submit(add.bind(1))
    assert [request.headers.get("traceparent") for request in asked] == [TRACEPARENT, None]


def test_submission_has_the_current_span_of_opentelemetry_first(monkeypatch):
    monkeypatch.setenv("TRACEPARENT", TRACEPARENT)
    client, asked = answering(httpx.Response(202, json={"id": "night"}))
    with trace.use_span(trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))):
        client.submit(add.bind(1))
    assert asked[0].headers["traceparent"] == f"00-{1:032x}-{2:016x}-00"


def test_a_graph_is_submitted_with_its_functions_and_a_new_id(world, client):
    run = client.submit(add.bind(load.bind(3)))
    assert run.id.startswith("add-up-")
    record = world.record(run.id)
    assert (record.tenant, set(record.nodes)) == (RESEARCH, {"load", "add-up"})
    function = load_spec(record.spec).nodes["load"].function.sha256
    assert cloudpickle.loads(world.store.get(run.id, (function,))[function])(2) == [0, 1]


def test_the_same_id_and_graph_again_is_the_same_run(client):
    assert client.submit(load.bind(1), id="night") == client.submit(load.bind(1), id="night")


def test_the_same_id_with_another_graph_is_a_conflict(client):
    client.submit(load.bind(1), id="night")
    with pytest.raises(RunConflict):
        client.submit(load.bind(2), id="night")


def test_a_tenant_can_be_named_and_is_else_the_default(world):
    client = world.client(ACME)
    assert world.record(client.submit(load.bind(1), tenant=RESEARCH).id).tenant == RESEARCH
    assert world.record(client.submit(load.bind(1)).id).tenant == ACME


@pytest.mark.parametrize("ask", ["submit_spec", "plan"])
def test_an_unknown_default_tenant_is_reported_with_its_source(world, ask):
    client = world.client("acme/lap")
    with pytest.raises(
        ApiError, match=r"there is no tenant 'acme/lap'.* is the default tenant in client\.json of the running stack: name another one"
    ) as raised:
        getattr(client, ask)(client.spec_of(load.bind(1)))
    assert raised.value.code == "unknown_tenant"
    with pytest.raises(ApiError, match="there is no tenant") as raised:
        getattr(client, ask)({**client.spec_of(load.bind(1)), "tenant": "acme/lap/x"})
    assert "client.json" not in str(raised.value), "it was named"


def test_a_refused_graph_tells_every_problem(client):
    spec = {"spec": "dag/1", "nodes": {"a": {"call": "os:system", "args": [{"$ref": "b"}]}}, "outputs": {"a": {"$ref": "a"}}}
    with pytest.raises(ApiError) as refused:
        client.submit_spec(spec)
    assert refused.value.status == 422
    assert all(place in str(refused.value) for place, _ in refused.value.problems)
    assert refused.value.problems


def test_a_lost_request_is_sent_again_with_the_same_id():
    accepted = httpx.Response(201, json={"id": "x", "tenant": "acme", "state": "PENDING", "created": True})
    away = httpx.Response(503, text="Service Unavailable")
    client, asked = answering(httpx.ConnectError("refused"), httpx.RemoteProtocolError("cut"), away, accepted)
    client.submit_spec({"spec": "dag/1", "nodes": {}, "outputs": {}})
    sent = [json.loads(request.content)["id"] for request in asked]
    assert len(sent) == 4
    assert len(set(sent)) == 1


def test_a_run_is_waited_for_while_the_proxy_has_no_root():
    no_route = httpx.Response(404, text="Path '/v1/runs/night/result' not found. Ping http://.../-/routes for available routes.")
    no_gateway = httpx.Response(503, content=proxy_responses.BODY, headers={"Retry-After": "1", "Content-Type": "application/json"})
    ended = httpx.Response(409, json={"state": "CANCELLED", "run_detail": "enough"})
    client, asked = answering(no_route, no_gateway, no_route, no_gateway, ended)
    with pytest.raises(RunCancelled, match="enough"):
        Run("night", client).result()
    assert len(asked) == 5


def test_a_root_that_is_away_is_waited_for_until_the_deadline():
    gone = [httpx.ConnectError("refused")] * 4
    client, asked = answering(line("RUNNING"), *gone, httpx.Response(409, json={"state": "CANCELLED"}), patience_s=0)
    run = client.run("night")
    with pytest.raises(RunCancelled):
        run.result(timeout=60)
    assert len(asked) == 6


@pytest.mark.parametrize("ask", [Run.wait, Run.result])
@pytest.mark.parametrize("answer", ["nobody", "proxy", "busy"])
def test_a_timeout_bounds_the_wait_for_a_root_that_is_away(ask, answer):
    proxy = httpx.Response(503, content=proxy_responses.BODY, headers={"Content-Type": "application/json"})
    away = {"nobody": httpx.ConnectError("refused"), "proxy": proxy, "busy": too_many()}[answer]
    client, _ = answering(line("RUNNING"), away, patience_s=3_600)
    run = client.run("night")
    with pytest.raises(ResultTimeout, match="no answer about run night") as raised:
        ask(run, timeout=0.1)
    assert ("does not answer" in str(raised.value)) == (answer == "nobody")


def test_a_root_that_never_answers_is_reported_in_one_line():
    client, _ = answering(httpx.ConnectError("refused"), patience_s=0)
    with pytest.raises(ApiError, match=r"does not answer \(refused\)") as raised:
        client.run("night")
    assert raised.value.status == 0


def too_many() -> httpx.Response:
    body = {"code": "too_many_calls", "detail": "used up", "problems": [], "request_id": "r"}
    return httpx.Response(429, json=body, headers={"Retry-After": "1"})


def test_a_client_that_has_used_up_its_calls_waits_for_more():
    client, asked = answering(too_many(), line("RUNNING"))
    assert client.run("night").id == "night"
    assert len(asked) == 2


def test_a_rate_limited_client_is_reported():
    client, _ = answering(too_many(), patience_s=0)
    with pytest.raises(ApiError, match=r"^used up$") as raised:
        client.run("night")
    assert raised.value.status == 429


def test_something_that_is_no_root_is_not_taken_for_one():
    client, _ = answering(httpx.Response(404, text="Path '/v1' not found."), patience_s=0)
    with pytest.raises(ApiError, match="not a root"):
        client.run("night")


# -- looking -----------------------------------------------------------------------------------------------------------


def test_an_unknown_run_and_one_out_of_reach_are_not_there(world, client):
    theirs = world.client(RIVAL).submit(load.bind(1))
    for run in ("nobody", theirs.id):
        with pytest.raises(UnknownRun):
            client.run(run)


def test_status_and_progress_follow_the_run(world, client):
    run = client.submit(add.bind(load.bind(3)))
    assert run.status is RunState.PENDING
    world.start(run.id, "load")
    progress = run.progress()
    assert (progress.state, progress.nodes, progress.ended) == (RunState.RUNNING, 2, 0)
    assert progress.counts == {NodeState.RUNNING: 1, NodeState.WAITING: 1}
    assert [(group.name, group.total, dict(group.counts)) for group in progress.groups] == [
        ("load", 1, {NodeState.RUNNING: 1}),
        ("add-up", 1, {NodeState.WAITING: 1}),
    ]
    assert progress.estimated_end_ms is None


def test_progress_has_the_estimated_end(world, client):
    run = client.submit([load.bind(1), load.bind(2)])
    world.start(run.id, "load", "load-2")
    world.move(run.id, RunState.RUNNING, nodes={"load": {"state": NodeState.SUCCEEDED, "finished_ms": NOW_MS + 8_000}})
    assert run.progress().estimated_end_ms == NOW_MS + 8_000


def test_a_result_prints_bars_until_the_run_ends(world, client, capsys):
    run = client.submit(add.bind(load.bind(3)))
    world.start(run.id, "load", "add-up")
    with pytest.raises(ResultTimeout):
        run.result(timeout=0, progress=True)
    assert capsys.readouterr().err == "load    0/1  running\nadd-up  0/1  running\n"
    world.succeed(run.id, {"load": [0, 1, 2], "add-up": 3})
    assert run.result(progress=True) == 3
    assert capsys.readouterr().err == "load    1/1\nadd-up  1/1\n"
    assert run.result() == 3
    assert capsys.readouterr().err == ""


def test_events_come_in_order_and_end_with_the_run(world, client):
    run = client.submit(load.bind(3))
    world.start(run.id, "load")
    world.succeed(run.id, {"load": [0]})
    assert [event.seq for event in run.events()] == [1, 2, 3, 4]
    assert [event.after for event in run.events(after=2)] == ["SUCCEEDED", "SUCCEEDED"]
    assert list(run.events(after=4)) == []


def test_events_resume_after_the_last_one_of_a_broken_stream():
    def event_of(seq: int, kind: str, after: str) -> str:
        return (
            f"id: {seq}\nevent: {kind}\ndata: "
            + json.dumps({"seq": seq, "at": "1970-01-01T00:00:00.001Z", "run": "night", "kind": kind, "after": after})
            + "\n\n"
        )

    def stream(*events: str) -> httpx.Response:
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, text="".join(events))

    first = stream("retry: 1000\n\n", event_of(1, "node", "RUNNING"), ": nothing new\n\n")
    client, asked = answering(first, httpx.ConnectError("refused"), stream(event_of(2, "run", "FAILED")))
    assert [event.seq for event in Run("night", client).events()] == [1, 2]
    assert [request.url.params["after"] for request in asked] == ["0", "1", "1"]


def test_a_path_keeps_its_own_parameters():
    client, asked = answering(httpx.Response(200, json={}))
    client.ask("/v1/dead?limit=7")
    assert asked[0].url.params["limit"] == "7"


def test_cancel_asks_the_root(world, client):
    run = client.submit(load.bind(1))
    run.cancel("enough")
    run.cancel("all", also_cleanup=True)
    assert [(entry.kind, entry.body) for entry in world.store.inbox(0)][1:] == [("cancel", b"enough"), ("cancel_all", b"all")]


# -- results -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1.5, "é"]}, {1, 2}, (1, 2), b"\x00"], ids=repr)
def test_the_result_of_one_output_is_its_value(world, client, value):
    run = client.submit(load.bind(1))
    encoded = world.keep(run.id, value) if not isinstance(value, tuple) else world.keep(run.id, value, encoding=Encoding.PICKLE)
    world.move(run.id, RunState.SUCCEEDED, nodes={"load": {"state": NodeState.SUCCEEDED, "stored": encoded}}, ended_ms=1)
    result = run.result(timeout=5)
    assert result == value
    assert type(result) is type(value)


def test_the_result_of_several_outputs_is_a_dict(world, client):
    loaded = load.bind(3)
    run = client.submit({"sum": add.bind(loaded), "all": loaded})
    world.succeed(run.id, {"add-up": 3, "load": [0, 1, 2]})
    assert run.result() == {"sum": 3, "all": [0, 1, 2]}


def test_an_exception_that_was_returned_is_a_value(world, client):
    run = client.submit(load.bind(1))
    world.succeed(run.id, {"load": BadRate("returned")})
    assert isinstance(run.result(), BadRate)


def test_a_result_can_be_awaited(world, client):
    run = client.submit(load.bind(1))
    world.succeed(run.id, {"load": [1]})

    async def get():
        return await run

    assert asyncio.run(get()) == [1]


def test_a_failed_run_raises_with_the_users_exception_as_cause(world, client):
    run = client.submit(add.bind(load.bind(1)))
    world.fail(run.id, "load", BadRate("too large"), skipped=("add-up",))
    with pytest.raises(RunFailed) as failed:
        run.result()
    error = failed.value
    assert isinstance(error.__cause__, BadRate)
    assert [(failure.node, failure.mesh, failure.reason) for failure in error.failures] == [("load", "east", "USER_ERROR")]
    assert error.skipped == ("add-up",)
    assert "Traceback: in load" in str(error)
    assert "not run because of this: add-up" in str(error)


def test_a_failed_runs_error_can_be_pickled(world, client):
    run = client.submit(load.bind(1))
    world.fail(run.id, "load", BadRate("too large"))
    with pytest.raises(RunFailed) as failed:
        run.result()
    again = pickle.loads(pickle.dumps(failed.value))  # noqa: S301  written in this line
    assert (str(again), again.failures) == (str(failed.value), failed.value.failures)


def test_a_cancelled_run_raises_with_the_reason(world, client):
    run = client.submit(load.bind(1))
    world.move(run.id, RunState.CANCELLED, ended_ms=1, detail="enough")
    with pytest.raises(RunCancelled, match="enough"):
        run.result()


def test_a_run_that_goes_on_is_a_timeout_and_keeps_going(client):
    run = client.submit(load.bind(1))
    with pytest.raises(ResultTimeout, match="goes on"):
        run.result(timeout=0)
    assert run.status is RunState.PENDING


def test_waiting_asks_again_until_the_run_has_ended():
    client, asked = answering(line("PENDING"), line("RUNNING"), line("SUCCEEDED"))
    assert Run("night", client).wait() is RunState.SUCCEEDED
    assert len(asked) == 3
    assert all(float(request.url.params["wait_s"]) > 0 for request in asked)


def test_a_corrupted_value_is_refused():
    output = {"encoding": "pickle", "sha256": "0" * 64, "size_bytes": 1, "href": "/x", "inline": True, "data": "AAAA", "path": []}
    result = httpx.Response(200, json={"id": "night", "state": "SUCCEEDED", "outputs": {"a": output}})
    client, _ = answering(result)
    with pytest.raises(RuntimeAdapterError, match="as it was written"):
        Run("night", client).result()


# -- finding the root --------------------------------------------------------------------------------------------------


def published(folder, **facts: str):
    (folder / ".schedulemesh").mkdir()
    (folder / ".schedulemesh" / "client.json").write_text(json.dumps(facts))


def test_the_client_file_is_found_from_any_folder_below(tmp_path):
    published(tmp_path, address="http://h:1/", api_key="k", tenant="acme")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert find_access(None, None, environment={}, folder=below) == Access(address="http://h:1", api_key="k", tenant="acme")


def test_arguments_come_before_environment_before_file(tmp_path):
    published(tmp_path, address="http://file:1", api_key="f")
    environment = {"SCHEDULEMESH_ADDRESS": "http://env:1", "SCHEDULEMESH_API_KEY": "e"}
    assert find_access("http://given:1", "g", environment=environment, folder=tmp_path) == Access(address="http://given:1", api_key="g")
    assert find_access(None, None, environment=environment, folder=tmp_path) == Access(address="http://env:1", api_key="e")


def test_the_state_folder_of_the_environment_comes_first(tmp_path):
    published(tmp_path, address="http://above:1", api_key="a")
    elsewhere = tmp_path / "elsewhere"
    environment = {"SCHEDULEMESH_STATE": str(elsewhere)}
    with pytest.raises(ApiError, match="nothing runs with the state folder"):
        find_access(None, None, environment=environment, folder=tmp_path)
    elsewhere.mkdir()
    (elsewhere / "client.json").write_text(json.dumps({"address": "http://named:1", "api_key": "n", "tenant": "acme"}))
    assert find_access(None, None, environment=environment, folder=tmp_path) == Access(address="http://named:1", api_key="n", tenant="acme")
    with_address = environment | {"SCHEDULEMESH_ADDRESS": "http://env:1", "SCHEDULEMESH_API_KEY": "e"}
    assert find_access(None, None, environment=with_address, folder=tmp_path).address == "http://env:1"


def test_a_given_state_folder_comes_before_the_environment(tmp_path):
    (tmp_path / "client.json").write_text(json.dumps({"address": "http://named:1", "api_key": "n"}))
    environment = {"SCHEDULEMESH_STATE": "/nowhere", "SCHEDULEMESH_ADDRESS": "http://env:1", "SCHEDULEMESH_API_KEY": "e"}
    found = find_access(None, None, environment=environment, folder=tmp_path, state_dir=tmp_path)
    assert (found.address, found.api_key, found.key_from) == ("http://named:1", "n", "client.json")


def test_the_key_in_the_file_is_never_sent_to_another_address(tmp_path):
    published(tmp_path, address="http://file:1", api_key="f")
    with pytest.raises(ApiError, match="no API key for http://other:1"):
        find_access("http://other:1", None, environment={}, folder=tmp_path)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("root:8000", "does not begin with http"),
        ("http//root:8000", "does not begin with http"),
        ("", "does not begin with http"),
        ("http://", "names no host"),
        ("http://ro,ot:8000", "names no host"),
        ("http://ro ot:8000", "a space"),
        (" http://root:8000", "a space"),
        ("http://root:8000 ", "a space"),
        ("http://root:8000\n", "a non-printable character"),
        ("http://ro\tot:8000", "a non-printable character"),
        ("\x00http://root:8000", "a non-printable character"),
        ("http://root:8000\xa0", "a non-printable character"),
        ("http://[::zz]:8000", "not an address"),
        ("http://[::1", "brackets"),
        ("http://root:http", "not a number from 1 to 65535"),
        ("http://root:99999", "not a number from 1 to 65535"),
        ("http://root:0", "not a number from 1 to 65535"),
        ("http://root:8000/?run=1", "query or a fragment after the path"),
    ],
)
def test_an_invalid_address_is_reported_with_source_and_form(tmp_path, given, why):
    with pytest.raises(ApiError) as refused:
        find_access(given, "k", environment={}, folder=tmp_path, asked=IN_TERMINAL)
    assert str(refused.value).startswith(f"--address {given!r} is not an address")
    assert why in str(refused.value)
    assert str(refused.value).endswith("write it like http://127.0.0.1:8000")


def test_an_invalid_address_in_the_environment_is_named(tmp_path):
    with pytest.raises(ApiError, match=r"^SCHEDULEMESH_ADDRESS 'root' is not an address"):
        find_access(None, "k", environment={"SCHEDULEMESH_ADDRESS": "root"}, folder=tmp_path)


@pytest.mark.parametrize("given", ["http://root", "https://root.example:443/mesh/", "http://[::1]:8000", "http://127.0.0.1:8000"])
def test_an_address_is_taken_as_it_was_given(tmp_path, given):
    assert find_access(given, "k", environment={}, folder=tmp_path).address == given.rstrip("/")


def test_without_an_address_every_way_to_set_one_is_listed(tmp_path):
    with pytest.raises(ApiError) as raised:
        find_access(None, None, environment={}, folder=tmp_path)
    for way in ("schedulemesh up", "SCHEDULEMESH_ADDRESS", "address="):
        assert way in str(raised.value)


def test_a_broken_file_is_as_good_as_none(tmp_path):
    (tmp_path / ".schedulemesh").mkdir()
    (tmp_path / ".schedulemesh" / "client.json").write_text("{")
    with pytest.raises(ApiError, match="no federation was found"):
        find_access(None, None, environment={}, folder=tmp_path)


def test_a_key_is_not_in_the_picture_of_what_holds_it():
    assert "secret" not in repr(Access(address="http://h", api_key="secret"))


def test_a_run_pickles_as_its_id_and_the_address(monkeypatch, client):
    run = Run("night", client)
    monkeypatch.setenv("SCHEDULEMESH_API_KEY", "another process has its own")
    data = pickle.dumps(run)
    assert b"in the headers" not in data
    assert pickle.loads(data) == run  # noqa: S301  written two lines above


def test_a_run_with_many_failures_describes_ten():
    failed = {
        "attempt": 1,
        "mesh": "east",
        "reason": "CODE_UNAVAILABLE",
        "type": "builtins.ImportError",
        "message": "no shop",
        "traceback": "",
    }
    error = failure_of("r", {"failures": [{"node": f"n{number}", **failed} for number in range(1000)], "skipped": []})
    assert len(error.failures) == 1000
    assert str(error).splitlines()[-2:] == [
        "n9 (attempt 1 on mesh east): builtins.ImportError: no shop",
        "and 990 more nodes failed; `failures` of the error lists all",
    ]
