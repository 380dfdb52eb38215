"""The example of a sweep with an approval: its graph as users see it."""

from __future__ import annotations

from dag.client.compiling import compile_graph
from examples.approval import sweep


def test_the_best_rate_of_the_sweep_is_good():
    model = sweep.best([sweep.train(rate) for rate in sweep.RATES])
    assert (model["rate"], sweep.is_good(model, sweep.GOOD)) == (0.5, True)


def test_the_graph_asks_for_approval_only_of_a_good_model():
    nodes = compile_graph(sweep.graph())["nodes"]
    assert nodes["outcome"]["cond"] == {"if": {"$ref": "is_good-is-true"}, "then": {"$ref": "asked"}, "else": {"$ref": "weak"}}
    assert nodes["asked"]["cond"] == {"if": {"$ref": "approve"}, "then": {"$ref": "deploy"}, "else": {"$ref": "refused"}}
    assert nodes["approve"]["wait_signal"] == {"name": "approve", "timeout_s": 86_400}
    assert nodes["remove_scratch"]["options"] == {"when": "always"}
