"""Runs that are created and end in a run store, as the coordinator ends them."""

from __future__ import annotations

from dag.run.node_table import NodeTable
from dag.run.run_events import RunEvent
from dag.run.runs import RunChange, RunRecord, RunStore
from dag.run.states import RunState
from mesh.core.ids import NodeId, RunId, TenantPath


def end_run(
    runs: RunStore, name: str, *, state: RunState = RunState.SUCCEEDED, tenant: str = "acme/lab", at_ms: int = 1_700_000_000_000
) -> None:
    """Create a run of one node and end it."""
    begin_run(runs, name, tenant=tenant, at_ms=at_ms - 1)
    record = runs.load(RunId(name))
    assert record is not None
    record.state, record.ended_ms = state, at_ms
    record.seq += 1
    event = RunEvent(seq=record.seq, at_ms=at_ms, run=record.run, kind="run", after=state.value)
    assert runs.commit(record, RunChange(events=(event,)))


def begin_run(runs: RunStore, name: str, *, tenant: str = "acme/lab", at_ms: int = 1_700_000_000_000) -> None:
    """Create a run of one node."""
    record = RunRecord(
        run=RunId(name), tenant=TenantPath(tenant), digest="d" * 64, spec=b"{}", created_ms=at_ms, nodes=NodeTable([NodeId("only")])
    )
    assert runs.create(record, {})
