"""Pictures of graphs and timelines of runs."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from dag.drawing.picture import GraphNode, picture_of
from dag.drawing.svg import graph_svg, timeline_svg
from dag.drawing.text import bars, mermaid, plain
from dag.drawing.timeline import timeline_of

SVG = "{http://www.w3.org/2000/svg}"
NODES = [
    GraphNode(node="a", state="SUCCEEDED", mesh="east", stage="r.1", started_ms=1_000, finished_ms=2_000),
    GraphNode(node="b<1>", needs=("a",), state="FAILED", mesh="west", stage="r.2", started_ms=2_000, finished_ms=4_000),
    GraphNode(node="c", needs=("a", "b<1>")),
]


def fan(count: int) -> list[GraphNode]:
    ends = [GraphNode(node=f"part_ID{number}", needs=("cut",), mesh="east", state="SUCCEEDED") for number in range(count)]
    return [GraphNode(node="cut", mesh="east"), *ends]


def test_a_picture_has_a_box_for_each_node_and_its_edges():
    picture = picture_of("r", NODES)
    assert [(box.label, box.level, box.mesh) for box in picture.boxes] == [("a", 0, "east"), ("b<1>", 1, "west"), ("c", 2, "")]
    assert sorted(picture.arrows) == [("a", "b<1>", 1), ("a", "c", 1), ("b<1>", "c", 1)]


def test_many_alike_nodes_are_one_box_with_their_number():
    picture = picture_of("r", fan(10_000))
    assert [(box.label, box.count) for box in picture.boxes] == [("cut", 1), ("part", 10_000)]
    assert [count for *_, count in picture.arrows] == [10_000]
    assert "10,000 part (SUCCEEDED)" in plain(picture)


def test_numbers_at_the_end_of_names_make_no_other_kind():
    nodes = [GraphNode(node=f"NFCORE.RNASEQ.FASTQC_{number}") for number in range(200)]
    assert [box.label for box in picture_of("r", nodes).boxes] == ["FASTQC"]


def test_rare_kinds_of_a_level_are_one_box():
    nodes = [GraphNode(node=f"kind{chr(97 + number % 26)}{chr(97 + number // 26)}") for number in range(200)]
    assert len(picture_of("r", nodes).boxes) == 12


def test_a_chain_of_ten_thousand_is_drawn_without_recursion():
    nodes = [GraphNode(node=f"n{at}", needs=(f"n{at - 1}",) if at else ()) for at in reversed(range(10_000))]
    assert len(picture_of("r", nodes).boxes) == 10_000


def test_a_graph_as_svg_is_valid_and_escapes_names():
    drawn = ET.fromstring(graph_svg(picture_of("a & b", NODES)))  # noqa: S314  our own output
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    assert "b<1> (FAILED)" in texts
    assert len(list(drawn.iter(f"{SVG}path"))) == 3


def test_mermaid_has_a_subgraph_for_each_mesh_and_escapes():
    lines = mermaid(picture_of("r", NODES)).splitlines()
    assert lines[0] == "flowchart LR"
    assert [line.strip() for line in lines if "subgraph" in line] == ['subgraph mesh_0["east"]', 'subgraph mesh_1["west"]']
    assert any("b#60;1#62; #40;FAILED#41;<br/>r.2" in line for line in lines)
    assert "    n0 --> n1" in lines


def test_bars_that_overlap_get_rows_of_their_own():
    nodes = [GraphNode(node=f"n{at}", mesh="east", started_ms=1_000 + at * 500, finished_ms=2_000 + at * 500) for at in range(4)]
    rows = timeline_of("r", nodes, now_ms=9_000).rows
    assert [[bar.label for bar in row] for _, row in rows] == [["n0", "n2"], ["n1", "n3"]]


def test_a_running_node_ends_now_and_a_waiting_one_has_no_bar():
    made = timeline_of("r", [*NODES, GraphNode(node="d", mesh="west", started_ms=5_000)], now_ms=7_000, begin_ms=0)
    assert [(bar.label, bar.end_ms) for _, row in made.rows for bar in row] == [("a", 2_000), ("b<1>", 4_000), ("d", 7_000)]


def test_a_timeline_in_the_terminal_shows_bars_by_mesh():
    assert bars(timeline_of("r", NODES, now_ms=9_000, begin_ms=0), columns=29).splitlines() == [
        "r: 4 s",
        "east          │  ██    │ a",
        "west          │    ▒▒▒▒│ b<1>",
    ]


def test_a_timeline_is_no_wider_than_it_may_be():
    long = [GraphNode(node="n" * 60, mesh="east" * 9, started_ms=1_000, finished_ms=2_000)]
    lines = bars(timeline_of("r", [*NODES, *long], now_ms=9_000), columns=80).splitlines()
    assert max(map(len, lines)) == 80
    assert any(line.endswith("nnn…") for line in lines)


def test_a_timeline_of_many_nodes_has_a_bar_for_each_stage():
    nodes = [GraphNode(node=f"n{at}", mesh="east", stage=f"r.{at % 2}", started_ms=1_000, finished_ms=2_000) for at in range(1_000)]
    assert [[(bar.label, bar.nodes) for bar in row] for _, row in timeline_of("r", nodes, 0).rows] == [[("r.0", 500)], [("r.1", 500)]]


def test_a_timeline_as_svg_is_valid():
    drawn = ET.fromstring(timeline_svg(timeline_of("r", NODES, now_ms=9_000)))  # noqa: S314  our own output
    titles = [title.text for title in drawn.iter(f"{SVG}title")]
    assert titles == ["a: 0 s to 1 s SUCCEEDED", "b<1>: 1 s to 3 s FAILED"]


def test_what_the_root_does_itself_has_a_shape_and_a_sign():
    kinds = ("cond", "sleep", "wait_signal")
    picture = picture_of("r", [GraphNode(node=kind[:4], control=kind) for kind in kinds])
    drawn = mermaid(picture)
    for part in ('{"◇ cond"}', '(["◷ slee"])', '(["✉ wait"])'):
        assert part in drawn
    assert "◇ cond" in plain(picture)
