"""Requeues a dead letter: submits its graph as a new run, because the values of the old run are gone.

Source: ADR 0022.
"""

from __future__ import annotations

import re

from dag.errors import NotRequeued, UnknownLetter
from dag.run.dead_letters import parted
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord, RunStore
from dag.run.states import RUN_ENDS
from dag.spec.checks import RUN_ID_CHARS_MAX
from dag.spec.spec import load
from federation.blobs import BlobStore
from mesh.core.ids import NodeId, RunId

_AGAIN = re.compile(r"(?P<stem>.+)\.again-(?P<count>\d{1,9})")


def next_id(run: RunId) -> RunId:
    """Return `r.again-1` for `r`, and `r.again-2` for that. The result depends on the run only, so requeueing twice makes one run."""
    match = _AGAIN.fullmatch(run)
    stem, count = (match["stem"], int(match["count"]) + 1) if match else (run, 1)
    ending = f".again-{count}"
    return RunId(stem[: RUN_ID_CHARS_MAX - len(ending)] + ending)


def requeue(runs: RunStore, blobs: BlobStore, letter: str, now_ms: int) -> RunId:
    """Submit the whole run of the dead letter again, with fresh attempts; drop the run's dead letters. Return the new run.

    Safe to repeat until it returns; then the dead letter is gone.

    Args:
        now_ms: Milliseconds since the epoch.

    Raises:
        UnknownLetter: There is no dead letter of this name.
        NotRequeued: Its run still goes on, or its pickled code is gone.
        RunConflict: The new run's id is in use for another graph.
        BacklogFull: The tenant has too many open runs.
        StoreUnavailable: The outcome is unknown; repeat the call.
    """
    run, _ = parted(letter)
    dead = runs.load(run)
    if dead is None or runs.dead_letter(letter) is None:
        raise UnknownLetter(f"there is no dead letter {letter}")
    if dead.state not in RUN_ENDS:
        raise NotRequeued(f"run {run} still goes on; wait for its end, or cancel it")
    spec = load(dead.spec)
    named = spec.calls.blobs()
    code = blobs.get(run, tuple(sorted(named)))
    if len(code) < len(named):
        raise NotRequeued(f"{len(named) - len(code)} pickled functions or arguments of run {run} are gone; submit the graph anew")
    again = RunRecord(
        run=next_id(run),
        tenant=dead.tenant,
        user=dead.user,
        labels=dead.labels,
        digest=dead.digest,
        spec=dead.spec,
        created_ms=now_ms,
        nodes=NodeTable(map(NodeId, spec.nodes)),
    )
    runs.create(again, code)
    runs.drop_dead(tuple(f"{run}:{node}" for node in dead.nodes))
    return again.run
