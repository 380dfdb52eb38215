"""Trace context of a task, as its own code sees it."""

import asyncio
import os

import pytest
from opentelemetry import trace

from mesh.core.ids import NodeId, RunId
from mesh.observability.trace_context import context_of_run, context_of_task
from mesh.ray.user_code.trace_scope import inherited_trace, trace_scope
from mesh.ray.worker.execution import TaskCall, call_function

RUN = context_of_run(RunId("r"), created_ms=1, began_ms=1)
TASK = context_of_task(RUN, NodeId("n"), 3)


@pytest.fixture(autouse=True)
def _untraced(monkeypatch):
    monkeypatch.delenv("TRACEPARENT", raising=False)


def seen() -> tuple[str, str]:
    """Return the present context by environment and by OpenTelemetry."""
    span = trace.get_current_span().get_span_context()
    return os.environ.get("TRACEPARENT", ""), f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


def test_scope_is_the_task_for_environment_and_opentelemetry():
    with trace_scope(RUN.header, NodeId("n"), 3):
        assert seen() == (TASK.header, TASK.header)
        assert inherited_trace() == {"TRACEPARENT": TASK.header}
    assert os.environ.get("TRACEPARENT") is None
    assert not trace.get_current_span().get_span_context().is_valid
    assert inherited_trace() == {}


def test_scope_ends_with_an_error_and_restores_what_was_there(monkeypatch):
    monkeypatch.setenv("TRACEPARENT", "outer")
    with pytest.raises(ValueError, match="own"), trace_scope(RUN.header, NodeId("n"), 3):
        raise ValueError("own")
    assert os.environ["TRACEPARENT"] == "outer"


def test_async_code_is_within_the_scope():
    async def code() -> tuple[str, str]:
        return seen()

    with trace_scope(RUN.header, NodeId("n"), 3):
        assert asyncio.run(code()) == (TASK.header, TASK.header)


@pytest.mark.parametrize(("header", "expected"), [(RUN.header, TASK.header), ("", "")], ids=["traced", "not traced"])
def test_call_of_a_function_is_within_the_scope_of_a_traced_run(header, expected):
    call = TaskCall("r", "r.1", "n", 3, (), {}, (), {}, False, "file:///nowhere", 0, traceparent=header)
    assert call_function(lambda: os.environ.get("TRACEPARENT", ""), call, (), {}) == expected
