"""Feasibility of a request on nodes, with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from mesh.core.ids import NodeName
from mesh.core.nodes import NodeTable
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING, ResourceSet
from mesh.errors import SelectorError
from mesh.placement.feasibility import NodeFit, available_rows, explain, feasible_rows, label_rows, summarise


def some(**amounts: object) -> ResourceSet:
    return ResourceSet.of(amounts)


@pytest.fixture
def table() -> NodeTable:
    """Table of nodes: `free` fits, `full` is busy, `small` is infeasible, `gone` has left."""
    table = NodeTable()
    table.join(NodeName("gone"), some(cpu=64, gpu=8), {})
    table.join(NodeName("free"), some(cpu=8, gpu=2), {"gpu": "a100", "zone": "east"})
    table.join(NodeName("full"), some(cpu=8, gpu=2), {"gpu": "h100", "zone": "west"})
    table.join(NodeName("small"), some(cpu=4), {"zone": "east"})
    use(table, "full", gpu=1.5)
    table.leave(NodeName("gone"))
    return table


def use(table: NodeTable, node: str, **amounts: object) -> None:
    row, vector = table.row(NodeName(node)), table.vector(some(**amounts))
    table.promise(row, vector)
    table.start(row, vector)


def named(table: NodeTable, rows: np.ndarray) -> set[str]:
    return {table.name(int(row)) for row in np.flatnonzero(rows)}


def fits(table: NodeTable, wanted: ResourceSet, selector: dict[str, str] | None = None, node: str | None = None) -> dict[str, NodeFit]:
    verdicts = explain(table, wanted, selector or {}, node=None if node is None else NodeName(node))
    return {verdict.node: verdict.fit for verdict in verdicts}


def test_s31_each_node_is_available_unavailable_or_infeasible(table):
    verdicts = fits(table, some(gpu=1))
    assert verdicts == {"free": NodeFit.AVAILABLE, "full": NodeFit.UNAVAILABLE, "small": NodeFit.INFEASIBLE}
    assert {node for node, fit in verdicts.items() if fit is not NodeFit.INFEASIBLE} == {"free", "full"}


def test_s31_the_reason_is_reported(table):
    explanation = {verdict.node: (verdict.reason, verdict.words) for verdict in explain(table, some(gpu=1))}
    assert explanation == {
        "free": (None, ""),
        "full": (Reason.NODE_BUSY, "node full has 0.5 gpu free of 2, 1 requested"),
        "small": (Reason.NODE_TOO_SMALL, "node small has 0 gpu in total, 1 requested"),
    }


def test_s31_labels_that_do_not_match_are_reported(table):
    explanation = {verdict.node: verdict for verdict in explain(table, some(gpu=1), {"gpu": "in(a100, b200)"})}
    assert (explanation[NodeName("full")].fit, explanation[NodeName("full")].reason) == (NodeFit.INFEASIBLE, Reason.LABEL_MISMATCH)
    assert explanation[NodeName("full")].words == "gpu in(a100, b200) is required, node full has gpu=h100"
    assert explanation[NodeName("small")].words == "gpu in(a100, b200) is required, node small has no gpu"


def test_s31_a_named_node_leaves_out_all_others(table):
    assert fits(table, some(gpu=1), node="full") == {
        "free": NodeFit.INFEASIBLE,
        "full": NodeFit.UNAVAILABLE,
        "small": NodeFit.INFEASIBLE,
    }
    explanation = {verdict.node: verdict for verdict in explain(table, some(gpu=1), node=NodeName("full"))}
    assert (explanation[NodeName("free")].reason, explanation[NodeName("free")].words) == (
        Reason.NODE_NOT_NAMED,
        "node free is not the named node full",
    )


def test_s31_a_named_node_that_is_gone_is_reported(table):
    verdicts = explain(table, NOTHING, node=NodeName("gone"))
    assert summarise(verdicts, is_named=True) == (Reason.NAMED_NODE_GONE, "there is no node gone, which is named")


@pytest.mark.parametrize(
    ("wanted", "selector", "feasible", "available"),
    [
        pytest.param(some(gpu=1), {}, {"free", "full"}, {"free"}, id="a gpu"),
        pytest.param(some(cpu=4), {}, {"free", "full", "small"}, {"free", "full", "small"}, id="cpus"),
        pytest.param(some(cpu=4, gpu=1), {"zone": "west"}, {"full"}, set(), id="labels of a full node"),
        pytest.param(some(cpu=1), {"gpu": "!"}, {"small"}, {"small"}, id="nodes without a label"),
        pytest.param(some(accelerator=1), {}, set(), set(), id="a resource that no node has"),
        pytest.param(some(memory="50TB"), {}, set(), set(), id="more memory than there is"),
        pytest.param(NOTHING, {}, {"free", "full", "small"}, {"free", "full", "small"}, id="nothing, which needs a node all the same"),
    ],
)
def test_s31_the_masks_say_what_the_words_say(table, wanted, selector, feasible, available):
    vector = table.vector(wanted)
    could = feasible_rows(table, vector, selector)
    assert named(table, could) == feasible
    assert named(table, available_rows(table, vector, could)) == available
    verdicts = fits(table, wanted, selector)
    assert {node for node, fit in verdicts.items() if fit is not NodeFit.INFEASIBLE} == feasible
    assert {node for node, fit in verdicts.items() if fit is NodeFit.AVAILABLE} == available


def test_what_is_promised_is_not_available(table):
    table.promise(table.row(NodeName("free")), table.vector(some(gpu=1.5)))
    assert fits(table, some(gpu=1))[NodeName("free")] is NodeFit.UNAVAILABLE


def test_an_over_committed_node_still_offers_other_resources(table):
    table.update_resource(NodeName("full"), "gpu", 10_000)
    vector = table.vector(some(cpu=8))
    assert "full" in named(table, available_rows(table, vector, feasible_rows(table, vector)))
    assert fits(table, some(cpu=8))[NodeName("full")] is NodeFit.AVAILABLE


def test_rows_without_a_node_suit_no_selector(table):
    assert label_rows(table, {}).tolist() == label_rows(table, {"zone": "!in(north, south)"}).tolist() == [False, True, True, True]


def test_a_vector_from_before_a_new_column_is_still_read(table):
    vector = table.vector(some(gpu=1))
    table.vector(some(tpu=1))
    assert named(table, feasible_rows(table, vector)) == {"free", "full"}


def test_a_bad_selector_is_an_error(table):
    with pytest.raises(SelectorError):
        feasible_rows(table, table.vector(NOTHING), {"zone": "in(east"})


@pytest.mark.parametrize(
    ("wanted", "selector", "node", "reason", "words"),
    [
        pytest.param(some(cpu=1), {}, None, Reason.WAITING_IN_QUEUE, "a node has room now", id="room"),
        pytest.param(
            some(gpu=2),
            {"gpu": "h100"},
            None,
            Reason.NODES_BUSY,
            "node full has 0.5 gpu free of 2, 2 requested; gpu=h100 is required, node free has gpu=a100 (and 1 more like it)",
            id="a full node, and others that do not suit",
        ),
        pytest.param(
            some(cpu=16),
            {},
            None,
            Reason.NO_NODE_FITS,
            "node free has 8 cpu in total, 16 requested (and 2 more like it)",
            id="too much for all",
        ),
        pytest.param(
            some(gpu=3), {}, "full", Reason.NAMED_NODE_TOO_SMALL, "node full has 2 gpu in total, 3 requested", id="a small one is named"
        ),
        pytest.param(some(gpu=2), {}, "full", Reason.NODES_BUSY, "node full has 0.5 gpu free of 2, 2 requested", id="a full one is named"),
        pytest.param(
            some(gpu=2),
            {"zone": "east"},
            "full",
            Reason.NAMED_NODE_GONE,
            "zone=east is required, node full has zone=west",
            id="one with other labels is named",
        ),
    ],
)
def test_s31_why_a_demand_waits_is_one_sentence(table, wanted, selector, node, reason, words):
    verdicts = explain(table, wanted, selector, node=None if node is None else NodeName(node))
    assert summarise(verdicts, is_named=node is not None) == (reason, words)


def test_a_mesh_without_nodes_says_so():
    assert summarise(explain(NodeTable(), some(cpu=1))) == (Reason.NO_NODE_FITS, "the mesh has no nodes")
