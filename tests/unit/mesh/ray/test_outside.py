"""Work of stages that holds resources outside the placement groups of the mesh, and the nodes above it."""

from __future__ import annotations

from typing import Any

import pytest

from mesh.core.ids import NodeId, StageId
from mesh.ray.user_code.outside import Outside, outside
from mesh.ray.user_code.ownership import OwnerReference, ResourceKind
from mesh.ray.user_code.ray_tables import ActorRow, GroupRow, TaskRow
from mesh.ray.user_code.sweep import OwnActors

RUNS, OVER = StageId("runs"), StageId("over")
JOB = "0000000j"
ONE_CPU = {"CPU": 1.0}
OWN = OwnActors(frozenset({"keeper"}), frozenset({"driver", "runner"}))


def mark(node: str, *, stage: StageId = RUNS, at_ms: int = 10_000) -> OwnerReference:
    """Return the mark of a node that has called Ray; its task has the node's name."""
    return noted(ResourceKind.STAGE, f"{node}{JOB}", node=node, stage=stage, at_ms=at_ms)


def noted(kind: ResourceKind, name: str, *, node: str = "n", stage: StageId = RUNS, at_ms: int = 10_000) -> OwnerReference:
    return OwnerReference(stage=stage, kind=kind, id=name, worker="w", job=JOB, at_ms=at_ms, node=NodeId(node))


def task(name: str, parent: str, *, owner: str = "w", amounts: dict[str, float] = ONE_CPU, group: str = "", job: str = JOB) -> TaskRow:
    return TaskRow(id=f"{name}{job}", parent=f"{parent}{job}", owner=owner, name=name, group=group, amounts=amounts)


def actor(
    name: str, *, owner: str = "w", amounts: dict[str, float] = ONE_CPU, group: str = "", created_ms: int = 20_000, job: str = JOB
) -> ActorRow:
    return ActorRow(
        id=name,
        name=name,
        class_name="A",
        job=job,
        worker=f"process of {name}",
        owner=owner,
        group=group,
        is_detached=False,
        created_ms=created_ms,
        amounts=amounts,
    )


def group(name: str, *, creator: str = "", created_ms: int = 20_000, job: str = JOB) -> GroupRow:
    return GroupRow(id=name, name=name, job=job, creator=creator, is_placed=True, created_ms=created_ms, amounts=ONE_CPU)


def found(references: list[OwnerReference], *rows: Any) -> Outside:
    return outside(
        references,
        running={RUNS},
        actors=[row for row in rows if isinstance(row, ActorRow)],
        groups=[row for row in rows if isinstance(row, GroupRow)],
        tasks=[row for row in rows if isinstance(row, TaskRow)],
        own=OWN,
    )


NOTHING = found([mark("n")])


@pytest.mark.parametrize(
    ("references", "rows", "node"),
    [
        pytest.param([mark("n")], [task("t", "n")], "n", id="its parent is the node"),
        pytest.param(
            [mark("n"), mark("m")], [task("between", "m", amounts={}), task("t", "between", owner="v")], "m", id="its parent's is"
        ),
        pytest.param([mark("n"), mark("m")], [task("t", "ended", owner="v")], None, id="its parent has ended, and two nodes may be meant"),
        pytest.param([mark("n"), mark("n", stage=OVER)], [task("t", "n")], "n", id="the other stage of the thread is over"),
        pytest.param([mark("n")], [task("t", "ended", owner="v")], "n", id="its parent has ended, and one node is left"),
        pytest.param([mark("n", stage=OVER)], [task("t", "n")], None, id="its stage is over"),
        pytest.param([mark("n"), noted(ResourceKind.ACTOR, "a", node="m")], [actor("a")], "m", id="an actor with a record"),
        pytest.param(
            [mark("n"), noted(ResourceKind.ACTOR, "a", node="m")],
            [actor("a", amounts={}), actor("b", owner="process of a")],
            "m",
            id="an actor of an actor with a record",
        ),
        pytest.param(
            [mark("n"), noted(ResourceKind.ACTOR, "a", node="m")],
            [actor("a", amounts={}), task("t", "call", owner="process of a")],
            "m",
            id="a task of an actor with a record",
        ),
        pytest.param(
            [mark("n"), noted(ResourceKind.ACTOR, "a", node="m")],
            [actor("a", amounts={}), group("g", creator="a")],
            "m",
            id="a group of an actor with a record",
        ),
        pytest.param([mark("n"), mark("m", at_ms=90_000)], [group("g")], "n", id="a group that is older than the other mark"),
    ],
)
def test_the_node_above_is_named_when_no_other_can_be_meant(references: list[OwnerReference], rows: list[Any], node: str | None) -> None:
    (held,) = found(references, *rows).held
    assert held.above == (None if node is None else (RUNS, node))


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(task("t", "n", amounts={}), id="a task that holds nothing, or is in the stage's group"),
        pytest.param(actor("a", amounts={}, group="stage's"), id="an actor in the stage's group"),
        pytest.param(task("t", "x", owner="runner"), id="a task of a runner"),
        pytest.param(actor("a", owner="driver"), id="an actor of the mesh"),
        pytest.param(group("g", creator="keeper"), id="a group of the keeper"),
        pytest.param(group("g", creator="a dead actor"), id="a group that Ray removes with its dead creator"),
        pytest.param(group("g", created_ms=5_000), id="a group that is older than all marks"),
        pytest.param(task("t", "n", job="0000000k"), id="a task of another job"),
        pytest.param(actor("a", job="0000000k"), id="an actor of another job"),
        pytest.param(group("g", job="0000000k"), id="a group of another job"),
    ],
)
def test_other_work_is_not_outside(row: Any) -> None:
    assert found([mark("n")], row) == NOTHING


def test_tasks_and_actors_in_an_unpaid_group_end_before_it() -> None:
    ended = found([mark("n")], group("g"), task("t", "n", amounts={}, group="g"), actor("a", amounts={}, group="g"))
    assert (ended.parents, ended.actors, ended.groups) == ({("w", f"n{JOB}")}, {"a"}, {"g"})
    assert [held.kind for held in ended.held] == ["placement group"]


def test_the_words_name_work_node_amounts_and_remedy() -> None:
    (held,) = found([mark("n")], task("f", "n", amounts={"CPU": 2.0, "lamp": 0.5})).held
    assert held.words == (
        "task f of node n is outside its stage's placement group and asks for 2 CPU and 0.5 lamp, for which no lease pays; "
        "remove scheduling_strategy or placement_group=None, or let it ask for num_cpus=0"
    )
