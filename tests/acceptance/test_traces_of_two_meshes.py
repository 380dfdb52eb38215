"""Traces of runs over two meshes, as a collector receives them, with spans of the caller and of the tasks' own code."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation_bed import CONFIG, LIMIT_S, eventually, submit, wait_for
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from otlp_receiver import ReceivedSpan, Receiver, receiving

import dag
from dag.store.remote import Client, Run

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("nothing_left")]

EAST, WEST = {"zone": "east"}, {"zone": "west"}


def make_span(collector: str) -> str:
    """Make a span of its own, as code that uses OpenTelemetry does; return the context that a child process would inherit."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{collector}/v1/traces")))
    with provider.get_tracer("own").start_as_current_span("own work"):
        pass
    provider.shutdown()
    return os.environ.get("TRACEPARENT", "")


def both(*contexts: str) -> list[str]:
    return list(contexts)


def context_after() -> str:
    return os.environ.get("TRACEPARENT", "")


def fail_once(folder: str) -> int:
    if not Path(folder, "failed").exists():
        Path(folder, "failed").touch()
        raise ValueError("the first time")
    return 1


def wait_for_file(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return "done"


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def written(collector: Receiver) -> Iterator[str]:
    """A federation without a file of traces, whose collector the environment names."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
        yield f"{CONFIG}\ntelemetry: {{traces_file: false}}\n"


def trace_id_of(client: Client, run: Run) -> str:
    return str(client.ask(run.path)["trace_id"])


def trace_of(client: Client, run: Run, collector: Receiver) -> dict[str, ReceivedSpan]:
    """Return the spans of an ended run's trace, by id, once its own span has come."""
    trace_id = trace_id_of(client, run)

    def received() -> dict[str, ReceivedSpan]:
        spans = collector.of_trace(trace_id)
        assert any(span.name == "run" and span.attributes["schedulemesh.run"] == run.id for span in spans.values())
        return spans

    found: dict[str, ReceivedSpan] = eventually(received)
    return found


def way_up(span: ReceivedSpan, spans: dict[str, ReceivedSpan]) -> list[str]:
    """Return the names of the spans from this one up to the first."""
    names = [span.name]
    while span.parent:
        span = spans[span.parent]
        names.append(span.name)
    return names


def test_spans_of_caller_run_and_tasks_are_one_trace(client: Client, collector: Receiver) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.address}/v1/traces")))
    here = dag.task(make_span, labels=EAST, name="here").bind(collector.address)
    there = dag.task(make_span, labels=WEST, name="there").bind(collector.address)
    with provider.get_tracer("caller").start_as_current_span("caller") as caller:
        run = submit(client, dag.task(both, labels=EAST, name="both").bind(here, there))
        contexts = run.result(LIMIT_S)
    provider.shutdown()
    spans = trace_of(client, run, collector)
    assert f"{caller.get_span_context().trace_id:032x}" == trace_id_of(client, run)
    ways = [way_up(span, spans) for span in spans.values() if span.name == "own work"]
    assert sorted(ways) == [["own work", "ray task", node, "stage", "run", "caller"] for node in ("here", "there")]
    meshes = {span.attributes["schedulemesh.mesh"] for span in spans.values() if span.name == "stage"}
    assert meshes == {"east", "west"}
    parents = {spans[span.parent].attributes["schedulemesh.node"]: span for span in spans.values() if span.name == "ray task"}
    assert set(parents) == {"here", "there", "both"}
    assert contexts == [f"00-{parents[node].trace}-{parents[node].span}-01" for node in ("here", "there")]


def test_run_of_a_caller_without_a_trace_has_one_of_its_own(client: Client, collector: Receiver) -> None:
    run = submit(client, dag.task(context_after, name="only").bind())
    _, trace_id, span, flags = run.result(LIMIT_S).split("-")
    spans = trace_of(client, run, collector)
    assert {one.trace for one in spans.values()} == {trace_id}
    assert (spans[span].name, flags) == ("ray task", "01")
    assert way_up(spans[span], spans) == ["ray task", "only", "stage", "run"]


def test_caller_that_records_no_trace_gets_none(client: Client, collector: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    unrecorded = "4bf92f3577b34da6a3ce929d0e0e4736"
    with monkeypatch.context() as patch:
        patch.setenv("TRACEPARENT", f"00-{unrecorded}-00f067aa0ba902b7-00")
        run = submit(client, dag.bind(context_after))
    context = run.result(LIMIT_S)
    assert (context[:36], context[-2:]) == (f"00-{unrecorded}-", "00")
    later = submit(client, dag.bind(context_after))
    later.result(LIMIT_S)
    trace_of(client, later, collector)  # Traces are sent in the order in which runs end.
    assert collector.of_trace(unrecorded) == {}


def test_each_attempt_of_a_node_has_a_span(client: Client, collector: Receiver, tmp_path: Path) -> None:
    run = submit(client, dag.task(fail_once, name="unsteady", retries=1).bind(str(tmp_path)))
    assert run.result(LIMIT_S) == 1
    attempts = [span for span in trace_of(client, run, collector).values() if span.name == "unsteady"]
    assert {span.attributes["schedulemesh.attempt"]: span.has_failed for span in attempts} == {1: True, 2: False}


def test_log_of_a_mesh_names_the_trace(sharers: Client, folder: Path, tmp_path: Path) -> None:
    held = [submit(sharers, dag.task(wait_for_file, labels=zone).bind(str(tmp_path / "gate"))) for zone in (EAST, WEST, WEST)]
    for run in held:
        wait_for(run, lambda event: event.kind == "stage" and event.after == "RUNNING")
    claimed = submit(sharers, dag.task(context_after, labels=EAST).bind(), tenant="shared/owner")
    assert claimed.result(LIMIT_S)  # The gate is shut, so a mesh has stopped a stage of the guest.
    logged = "".join(log.read_text() for log in (folder / "logs").glob("mesh-*.log"))
    assert any(f"trace_id='{trace_id_of(sharers, run)}'" in logged for run in held)
    (tmp_path / "gate").touch()
    assert [run.result(LIMIT_S) for run in held] == ["done"] * len(held)
