"""Contract of logs of runs, on memory, a real Redis and HTTP."""

from dataclasses import replace

import pytest
from ledger_stores import SMALL_LOG

from federation.dispatch import Claim
from federation.errors import StaleFence
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord
from mesh.core.ids import MeshId, RunId, StageId, TenantPath
from mesh.core.resources import NOTHING
from mesh.core.wire import encode
from mesh.stages.messages import NodeOutput
from mesh.stages.spec import StageSpec

EAST, RUN, OTHER = MeshId("east"), RunId("run-1"), RunId("run-2")


def claim_on(store, run=RUN, stage="s1") -> Claim:
    """Claim a new stage of the run, which needs no quota."""
    mesh = ManualMesh(store.ledger, MeshRecord(mesh=EAST, labels={}, pools=(), cluster="c"))
    spec = StageSpec(stage=StageId(f"{run}.{stage}"), run=run, tenant=TenantPath("lab"), tasks=(), slot=NOTHING, width=1)
    store.queue.submit(EAST, spec)
    return store.queue.claim(mesh.session, spec.stage, None).claim


def output(claim, *lines, node="a", attempt=1, number=1) -> NodeOutput:
    return NodeOutput(stage=claim.stage, node=node, attempt=attempt, number=number, at_ms=5, stream="stderr", lines=lines)


def texts(entries):
    return [line for entry in entries for line in entry.output.lines]


@pytest.mark.every_form
def test_output_comes_back_in_order_as_it_was_appended(store):
    claim = claim_on(store)
    first, second = output(claim, "one", "t\x1bw\u202eo", ""), output(claim, "ü", node="b", attempt=3)
    store.run_log.append(claim, 1, (first, second))
    entries = store.run_log.read(RUN)
    assert [(entry.seq, entry.mesh, entry.output) for entry in entries] == [(1, EAST, first), (2, EAST, second)]


def test_a_log_is_read_in_pages(store):
    claim = claim_on(store)
    store.run_log.append(claim, 1, tuple(output(claim, str(number)) for number in range(5)))
    page = store.run_log.read(RUN, 1, 2)
    assert texts(page) == ["1", "2"]
    assert texts(store.run_log.read(RUN, page[-1].seq)) == ["3", "4"]
    assert store.run_log.read(OTHER) == ()


def test_a_batch_is_appended_once(store):
    claim = claim_on(store)
    for batch in (1, 2, 2, 1):
        store.run_log.append(claim, batch, (output(claim, f"of {batch}"),))
    assert texts(store.run_log.read(RUN)) == ["of 1", "of 2"]


def test_stages_of_one_run_share_its_log(store):
    for stage in ("s1", "s2"):
        claim = claim_on(store, stage=stage)
        store.run_log.append(claim, 1, (output(claim, stage),))
    assert texts(store.run_log.read(RUN)) == ["s1", "s2"]


@pytest.mark.every_form
def test_only_the_holder_of_the_claim_may_append(store):
    claim = claim_on(store)
    for other in (replace(claim, token=claim.token + 1), replace(claim, stage=StageId("run-1.s9"))):
        with pytest.raises(StaleFence):
            store.run_log.append(other, 1, (output(other, "foreign"),))
    with pytest.raises(StaleFence):
        store.run_log.append(claim, 1, (output(replace(claim, stage=StageId("run-2.s1")), "of another stage"),))
    assert store.run_log.read(RUN) == ()


def test_a_full_log_keeps_first_lines_of_nodes_and_last_lines(store):
    claim = claim_on(store)
    size = len(encode(output(claim, "a 000")))
    for number in range(40):
        store.run_log.append(claim, number + 1, (output(claim, f"a {number:03}"),))
    store.run_log.append(claim, 41, (output(claim, "b 000", node="b"),))
    kept = texts(store.run_log.read(RUN))
    first, last = SMALL_LOG.node_first_bytes // size, SMALL_LOG.last_bytes // size
    assert kept == [f"a {number:03}" for number in (*range(first), *range(40 - last, 40))] + ["b 000"]


def test_first_lines_of_all_nodes_together_are_bounded(store):
    claim = claim_on(store)
    for number in range(50):
        store.run_log.append(claim, number + 1, (output(claim, "x", node=f"n{number:02}"),))
    entries = store.run_log.read(RUN)
    assert sum(len(encode(entry.output)) for entry in entries) <= SMALL_LOG.first_bytes + SMALL_LOG.last_bytes
    assert (entries[0].output.node, entries[-1].output.node) == ("n00", "n49")
