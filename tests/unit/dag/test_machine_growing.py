"""The run machine when functions return nodes: they are added, and their value becomes that of the node that returned them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from graphs_of_calls import growth, spec_of
from machine_bed import Driven, value

from dag.run.events import NodeGrown, ResumeRequested
from dag.run.machine import RunMachine
from dag.run.retrying import RetryRules
from dag.run.runs import DropValue, graph_of
from dag.run.states import RunState
from dag.spec.growth import GROWTH_LIMITS
from dag.spec.plans import plans_of
from dag.spec.spec import kept_form
from mesh.core.reasons import Reason
from mesh.stages.messages import InputLost, StageEnded


class Growing(Driven):
    """A run whose functions may return nodes; nodes as for `spec_of`."""

    def __init__(self, *nodes, on_error="fail_fast", outputs=(), **options):
        super().__init__()
        self.on_error = on_error
        self.record.spec = kept_form(spec_of(*nodes, outputs=outputs or (nodes[-1].partition(":")[0],), **options))
        self.load()

    def load(self):
        """Go on with a machine for the record as it is, as any coordinator does."""
        self.machine = RunMachine(
            self.record,
            plans_of(graph_of(self.record)),
            runtime_env={},
            on_error=self.on_error,
            retrying=RetryRules(resume_window_ms=1_000),
        )

    def take(self, *events, after_ms=0):
        change = super().take(*events, after_ms=after_ms)
        if change.growths:
            self.load()
        return change

    def grown(self, node, *children, attempt=None, **options):
        fields = self.attempt(node) | ({"attempt": attempt} if attempt is not None else {})
        added = growth(node, *children, before=self.record.growths, **options)
        return NodeGrown(**fields, started_ms=1, finished_ms=2, growth=added, graph=value(f"graph of {node}"))

    def grow(self, node, *children, **options):
        """Start the node, with its stage if need be, and let it return these nodes."""
        if self.stage(node).state.value == "QUEUED":
            self.start(node)
        return self.take(self.begun(node), self.grown(node, *children, **options))

    def place_all(self, mesh="east"):
        return self.place(**dict.fromkeys(self.machine.unplaced(1_000), mesh))


def test_a_node_has_the_value_of_what_it_returned():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    run.grow("a", "c", "d: c")
    assert run.states("a", "b", "a~c", "a~d") == ["WAITING"] * 4
    assert (run.node("a").attempt, run.node("a").reason) == (2, Reason.GRAPH_GREW)
    assert run.node("a").detail == "returned 2 nodes; its value becomes that of a~d"
    assert run.machine.unplaced(1_000) == ("a~c", "a~d")
    run.place_all("west")
    run.finish("a~c", "a~d")
    assert run.states("a") == ["SUCCEEDED"]
    assert run.node("a").stored == run.node("a~d").stored == value("a~d")
    run.place(b="east")
    assert (run.sent(), run.delivered()) == ([("east", ["b"])], [("r.3", "a", True)])
    run.finish("b")
    assert run.states() == ["SUCCEEDED"] * 4


def test_what_was_sent_behind_the_node_is_recalled():
    run = Growing("a", "b: a", "c: b")
    run.place(a_b="east", c="west")
    run.grow("a", "d")
    assert run.states("b", "c") == ["WAITING", "WAITING"]
    assert run.node("b").attempt == 2  # The mesh may have begun it, as far as the root knows.
    assert run.node("b").stage is None


def test_an_attempt_grows_once():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    run.start("a")
    first = run.grown("a", "c")
    run.take(run.begun("a"), first)
    run.take(first)
    run.take(run.grown("a", "c", attempt=2))
    assert list(run.record.nodes) == ["a", "b", "a~c"]
    assert len(run.record.growths) == 1


def test_a_late_growth_of_a_lost_attempt_is_dropped():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    run.start("a")
    late = run.grown("a", "c")
    run.take(run.begun("a"), run.lost("a"))
    run.take(late)
    assert list(run.record.nodes) == ["a", "b"]
    run.place(a_b="west")
    run.grow("a", "c")
    assert list(run.record.nodes) == ["a", "b", "a~c"]


def test_nodes_that_were_returned_return_nodes():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    run.grow("a", "c", "d: c")
    run.place_all()
    run.grow("a~c", "e")
    run.place_all()
    run.finish("a~c~e")
    assert (run.states("a~c"), run.node("a~c").stored) == (["SUCCEEDED"], value("a~c~e"))
    run.place_all()
    run.finish("a~d")
    assert run.node("a").stored == value("a~d")
    assert [each.depth for each in run.record.growths] == [1, 2]


def test_a_failure_of_what_was_returned_skips_the_node():
    run = Growing("a", "b: a", on_error="continue")
    run.place(a_b="east")
    run.grow("a", "c")
    run.place_all()
    run.start("a~c")
    run.take(run.failed("a~c"), run.ended("a~c"))
    assert run.states("a", "b", "a~c") == ["SKIPPED", "SKIPPED", "FAILED"]
    assert run.node("b").roots == ("a~c",)


def test_a_resumed_run_keeps_the_nodes():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    stage = run.node("a").stage
    run.grow("a", "c", "d: c")
    ended = run.record.stages[stage]
    run.place_all("west")
    run.finish("a~c")
    run.take(run.failed("a~d"), run.ended("a~d"))
    run.take(StageEnded(stage=ended.stage))
    assert run.record.state is RunState.FAILED
    run.take(ResumeRequested())
    assert run.states("a", "b", "a~c", "a~d") == ["WAITING", "WAITING", "SUCCEEDED", "WAITING"]
    run.load()
    run.place_all("west")
    run.finish("a~d")
    run.place_all("west")
    run.finish("b")
    assert run.states() == ["SUCCEEDED"] * 4


def test_a_cancelled_run_drops_what_comes_late():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    run.start("a")
    run.take(run.begun("a"))
    run.cancel()
    late = run.grown("a", "c")
    run.take(late, run.ended("a"))
    assert list(run.record.nodes) == ["a", "b"]
    assert run.states() == ["CANCELLED", "CANCELLED"]
    assert DropValue(value=late.graph) in run.decisions


def test_a_cancellation_covers_what_was_returned():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    run.grow("a", "c", "d: c")
    run.place_all()
    run.start("a~c")
    run.take(run.begun("a~c"))
    run.cancel()
    assert run.states("a", "b") == ["CANCELLED", "CANCELLED"]
    assert run.cancelled() != []


def test_cleanup_may_return_nodes_although_the_run_stops():
    run = Growing("a", "b: ~a", "c: b", b={"when": "always"}, outputs=("a", "c"))
    run.place(a="east")
    run.start("a")
    run.take(run.failed("a"), run.ended("a"))
    run.place(b_c="east")
    run.grow("b", "d", "e: d")
    assert run.machine.unplaced(1_000) == ("b~d", "b~e")
    run.place_all()
    run.finish("b~d", "b~e")
    assert run.states("b", "c") == ["SUCCEEDED", "WAITING"]
    run.place_all()
    run.finish("c")
    assert run.states() == ["FAILED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "SUCCEEDED"]


def test_what_follows_from_cleanup_may_return_nodes_too():
    run = Growing("a", "b: ~a", "c: b", b={"when": "always"}, outputs=("a", "c"))
    run.place(a="east")
    run.start("a")
    run.take(run.failed("a"), run.ended("a"))
    run.place(b_c="east")
    run.finish("b")
    run.grow("c", "d", "e: d")
    run.place_all()
    run.finish("c~d", "c~e")
    assert run.states("c") == ["SUCCEEDED"]


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"nodes_max": 1}, "a returned 2 nodes; a node may return 1 at most: return fewer, or map a function over a list (dag.map)"),
        ({"total_max": 1}, "a returned nodes with which the graph has grown by 2; a run may grow by 1"),
        ({"depth_max": 0}, "a returned nodes at depth 1; graphs may grow to depth 0: end the recursion earlier"),
        ({"total_bytes_max": 0}, "a returned nodes with which the graph has grown by"),
    ],
    ids=["nodes of one node", "nodes of all nodes", "depth", "bytes"],
)
def test_a_graph_grows_within_limits(monkeypatch, limits, words):
    monkeypatch.setattr("dag.run.attempts.GROWTH_LIMITS", replace(GROWTH_LIMITS, **limits))
    run = Growing("a", "b: a", a={"retries": 3})
    run.place(a_b="east")
    run.grow("a", "c", "d: c")
    assert run.states("a", "b") == ["FAILED", "SKIPPED"]
    assert (run.node("a").failure.reason, run.node("a").failure.message[: len(words)]) == (Reason.GROWTH_REFUSED, words)


def test_a_lost_file_of_the_value_is_computed_again():
    run = Growing("a", "b: a")
    run.place(a_b="east")
    run.grow("a", "c")
    run.place_all()
    run.finish("a~c")
    run.place(b="west")
    run.start("b")
    run.take(InputLost(stage=run.node("b").stage, node="a"))
    assert run.states("a", "a~c") == ["WAITING", "WAITING"]
    run.place_all()
    run.finish("a~c")
    assert run.node("a").stored == value("a~c")


def test_a_cached_node_returns_no_nodes():
    run = Growing("a", a={"cache": True})
    assert run.machine.plans["a"].cache is not None
    run.record.nodes["a"].cache = None
    run.place(a="east")
    run.grow("a", "c")
    assert run.node("a").failure.message.startswith("a is a cached node and returned nodes: leave `cache` out")
