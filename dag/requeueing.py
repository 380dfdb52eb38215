"""A dead letter is run again: as a new run of the same graph, for what the old one had computed is gone.

Source: ADR 0022.
"""

from __future__ import annotations

import re

from dag.compiling import blobs_named_in, tasks_of
from dag.dead_letters import parted
from dag.errors import NotRequeued, UnknownLetter
from dag.runs import NodeRecord, RunRecord, RunStore
from dag.spec import load
from dag.spec_checks import RUN_ID_CHARS_MAX
from dag.states import RUN_ENDS
from federation.blobs import BlobStore
from mesh.ids import NodeId, RunId

_AGAIN = re.compile(r"(?P<stem>.+)\.again-(?P<count>\d{1,9})")


def next_id(run: RunId) -> RunId:
    """`r` to `r.again-1` to `r.again-2`: always the same for the same run, so that requeueing twice makes one run."""
    match = _AGAIN.fullmatch(run)
    stem, count = (match["stem"], int(match["count"]) + 1) if match else (run, 1)
    ending = f".again-{count}"
    return RunId(stem[: RUN_ID_CHARS_MAX - len(ending)] + ending)


def requeue(runs: RunStore, blobs: BlobStore, letter: str, now_ms: int) -> RunId:
    """Submit the letter's run again, whole and with all attempts before it; its letters are dropped. The new run.

    Safe to repeat until it answers; then the letter is gone.

    Args:
        now_ms: Since the epoch.

    Raises:
        UnknownLetter: There is none of this name.
        NotRequeued: Its run still goes on, or the code that was sent along is gone.
        RunConflict: Somebody has taken the new run's id for another graph.
        BacklogFull: Too much is open.
        StoreUnavailable: Nothing is known; ask again.
    """
    run, _ = parted(letter)
    dead = runs.load(run)
    if dead is None or runs.dead_letter(letter) is None:
        raise UnknownLetter(f"there is no dead letter {letter}")
    if dead.state not in RUN_ENDS:
        raise NotRequeued(f"run {run} still goes on; wait for its end, or cancel it")
    spec = load(dead.spec)
    named = blobs_named_in(tasks_of(spec).values())
    code = blobs.get(run, tuple(sorted(named)))
    if len(code) < len(named):
        raise NotRequeued(f"{len(named) - len(code)} pickled functions or arguments of run {run} are gone; submit the graph anew")
    again = RunRecord(
        run=next_id(run),
        tenant=dead.tenant,
        user=dead.user,
        digest=dead.digest,
        spec=dead.spec,
        created_ms=now_ms,
        nodes={NodeId(node): NodeRecord(node=NodeId(node)) for node in spec.nodes},
    )
    runs.create(again, code)
    runs.drop_dead(tuple(f"{run}:{node}" for node in dead.nodes))
    return again.run
