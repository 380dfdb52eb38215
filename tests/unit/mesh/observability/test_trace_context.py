"""Contexts of traces: headers, ids that follow from names, and trace ids in the log."""

import pytest

from mesh.core.ids import NodeId, RunId, StageId
from mesh.observability import trace_context
from mesh.observability.trace_context import (
    TracesOfRuns,
    context_of_node,
    context_of_run,
    context_of_stage,
    context_of_task,
    parse_traceparent,
)

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADER = f"00-{TRACE}-{SPAN}-01"
NIGHT = RunId("night")


@pytest.mark.parametrize("text", [HEADER, f" {HEADER} ", f"00-{TRACE}-{SPAN}-00"], ids=["sampled", "with spaces", "not sampled"])
def test_header_is_read_and_written_again(text):
    context = parse_traceparent(text)
    assert context is not None
    assert context.header == text.strip()


def test_header_of_a_later_version_is_read_as_far_as_known():
    context = parse_traceparent(f"cc-{TRACE}-{SPAN}-09-what-the-future-brings")
    assert context is not None
    assert context.header == HEADER


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "night",
        HEADER.upper(),
        f"ff-{TRACE}-{SPAN}-01",
        f"{HEADER}-more",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"cc-{TRACE}-{SPAN}-01-{'x' * 300}",
    ],
    ids=["none", "empty", "words", "capitals", "version ff", "too long for 00", "no trace", "no span", "endless"],
)
def test_wrong_header_is_no_context(text):
    assert parse_traceparent(text) is None


def test_run_of_a_caller_is_in_the_trace_of_the_caller():
    run = context_of_run(NIGHT, created_ms=1, began_ms=1, traceparent=HEADER)
    assert (run.trace_id, run.is_sampled) == (TRACE, True)
    assert run.span_id != SPAN


def test_resumed_run_keeps_its_trace_and_has_another_span():
    first, resumed = (context_of_run(NIGHT, created_ms=1, began_ms=began_ms) for began_ms in (1, 2))
    assert first.trace_id == resumed.trace_id
    assert first.span_id != resumed.span_id


def test_worker_and_root_derive_the_same_context_of_a_task():
    run = context_of_run(NIGHT, created_ms=1, began_ms=1)
    received = parse_traceparent(run.header)
    assert received is not None
    assert context_of_task(received, NodeId("a"), 2) == context_of_task(run, NodeId("a"), 2)


def test_no_two_spans_of_a_run_have_the_same_id():
    run = context_of_run(NIGHT, created_ms=1, began_ms=1)
    below = [
        context_of_stage(run, StageId("a")),
        *(kind(run, NodeId(node), attempt) for kind in (context_of_node, context_of_task) for node in "ab" for attempt in (1, 2)),
    ]
    assert len({context.span_id for context in (run, *below)}) == 1 + len(below)
    assert {context.trace_id for context in below} == {run.trace_id}


@pytest.mark.parametrize(
    ("event", "has_trace"),
    [({"run": "night"}, True), ({"stage": "night.12"}, True), ({"run": "day"}, False), ({"mesh": "east"}, False)],
    ids=["its run", "a stage of its run", "another run", "no run"],
)
def test_log_entry_of_a_traced_run_has_the_trace(event, has_trace):
    traces = TracesOfRuns()
    traces.note_header(NIGHT, HEADER)
    assert traces.add_trace_id(None, "info", dict(event)) == ({**event, "trace_id": TRACE} if has_trace else event)


def test_runs_noted_long_ago_are_forgotten(monkeypatch):
    monkeypatch.setattr(trace_context, "LOGGED_MAX", 2)
    traces = TracesOfRuns()
    for run in ("a", "b", "c"):
        traces.note(RunId(run), TRACE)
    assert [traces.add_trace_id(None, "info", {"run": run}).get("trace_id") for run in ("a", "b", "c")] == [None, TRACE, TRACE]
