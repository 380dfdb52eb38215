"""The example of an index as an actor: its graph as users see it."""

from __future__ import annotations

from dag.client.compiling import compile_graph
from examples.dedup import dedup


def test_the_index_keeps_each_text_once():
    index = dedup.Index()
    kept = [index.keep_new(dedup.normalized(texts)) for texts in dedup.SHARDS]
    assert kept == [["the quick brown fox.", "a lazy dog."], ["another text."], ["something new."]]
    assert index.size() == 4


def test_the_graph_has_the_index_as_one_node():
    nodes = compile_graph(dedup.graph())["nodes"]
    assert [call[0] for call in nodes["Index"]["args"][0]["$calls"]] == ["keep_new", "keep_new", "keep_new", "size"]
    assert nodes["Index.size"]["args"] == [{"$ref": "Index", "path": [3]}]
