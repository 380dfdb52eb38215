"""Rule of one stage for each mesh and level, on small graphs and recorded workflows."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from dag.run.stages import split
from dag.spec.graph import Graph, topological_order

WORKFLOWS = Path(__file__).parents[4] / "shared" / "workflows"

#: Substitute for missing recorded workflows: two producers, a reader of both on the other mesh, and one back.
WRITTEN_HERE = {
    "tasks": [
        {"id": "one_1", "name": "one_1", "parents": []},
        {"id": "one_2", "name": "one_2", "parents": []},
        {"id": "two_3", "name": "two_3", "parents": ["one_1", "one_2"]},
        {"id": "two_4", "name": "two_4", "parents": ["one_1"]},
        {"id": "one_5", "name": "one_5", "parents": ["two_3"]},
    ]
}
#: `one` goes to C and `two` to A, so there are three levels of one stage each.
WRITTEN_HERE_COUNTS = {"stages_mesh_level": 3, "cut_edges": 4, "hops": 2}


def recorded() -> list[Any]:
    if not (WORKFLOWS / "INDEX.json").exists():
        return [pytest.param(WRITTEN_HERE, WRITTEN_HERE_COUNTS, id="a graph written here")]
    index = json.loads((WORKFLOWS / "INDEX.json").read_text(encoding="utf-8"))
    return [
        pytest.param(WRITTEN_HERE, WRITTEN_HERE_COUNTS, id="a graph written here"),
        *(pytest.param(instance["name"], instance["by_type_mesh"], id=instance["name"]) for instance in index["instances"]),
    ]


def tasks_of_workflow(source: Any) -> list[dict[str, Any]]:
    if isinstance(source, str):
        source = json.loads(gzip.decompress((WORKFLOWS / f"{source}.json.gz").read_bytes()))["workflow"]["specification"]
    return source["tasks"]


def stages_of(order, edges, mesh_of):
    return split(order, edges, mesh_of, map(str, count(1)))


def mesh_by_type(name: str) -> str:
    """Apply the rule of INDEX.json: hash the name without its instance number."""
    kind = name.split(" (", maxsplit=1)[0]
    kind = kind.rsplit(".", 1)[-1] if kind.startswith("NFCORE") else kind
    kind = re.split(r"_ID\d+|\.", kind)[0].rstrip("0123456789").rstrip("_")
    return "ABC"[zlib.crc32(kind.encode()) % 3]


@pytest.mark.parametrize(("source", "counts"), recorded())
def test_recorded_workflows_split_as_counted_by_others(source, counts):
    tasks = tasks_of_workflow(source)
    mesh_of = {fields["id"]: mesh_by_type(fields["name"]) for fields in tasks}
    needs = {fields["id"]: tuple(fields["parents"]) for fields in tasks}
    edges = [(parent, node) for node, parents in needs.items() for parent in parents]

    stages = stages_of(topological_order(Graph(needs)), edges, mesh_of)

    assert len(stages) == counts["stages_mesh_level"]
    assert max(stage.level for stage in stages) == counts["hops"]
    assert sum(mesh_of[parent] != mesh_of[node] for parent, node in edges) == counts["cut_edges"]


def test_a_chain_on_one_mesh_is_one_stage_of_width_one():
    (stage,) = stages_of("abc", [("a", "b"), ("b", "c")], dict.fromkeys("abc", "east"))
    assert (stage.mesh, stage.level, stage.nodes, stage.width) == ("east", 0, ("a", "b", "c"), 1)


def test_a_fan_is_as_wide_as_its_middle():
    middle = [f"m{index}" for index in range(7)]
    edges = [("a", node) for node in middle] + [(node, "z") for node in middle]
    (stage,) = stages_of(["a", *middle, "z"], edges, dict.fromkeys(["a", *middle, "z"], "east"))
    assert stage.width == 7


def test_there_and_back_again_is_two_stages():
    stages = stages_of("abc", [("a", "b"), ("b", "c")], {"a": "east", "b": "west", "c": "east"})
    assert [(stage.mesh, stage.level, stage.nodes) for stage in stages] == [("east", 0, ("a",)), ("west", 1, ("b",)), ("east", 2, ("c",))]


def test_independent_lanes_of_one_mesh_and_level_share_a_stage():
    stages = stages_of("abcd", [("a", "b"), ("c", "d")], {"a": "east", "b": "west", "c": "east", "d": "west"})
    assert [(stage.mesh, stage.nodes, stage.width) for stage in stages] == [("east", ("a", "c"), 2), ("west", ("b", "d"), 2)]


def test_stages_of_a_level_are_ordered_by_their_first_nodes():
    assert [stage.mesh for stage in stages_of("abc", [], {"a": "west", "b": "east", "c": "west"})] == ["west", "east"]


def test_what_has_finished_elsewhere_does_not_raise_the_level():
    (stage,) = stages_of("b", [("a", "b")], {"a": "west", "b": "east"})
    assert (stage.level, stage.nodes) == (0, ("b",))
