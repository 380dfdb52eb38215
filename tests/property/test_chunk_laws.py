"""Laws of chunks, whatever workers do: they end, stall, raise, die; and the stage may be stopped."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from mesh.core.ids import NodeId, RunId, StageId, TenantPath
from mesh.core.resources import ResourceSet
from mesh.stages.chunks import Chunk, ChunkScheduler, Habits
from mesh.stages.spec import StageSpec, TaskSpec
from mesh.stages.stage_machine import StageMachine, StageTaskState

ONE = ResourceSet.of({"cpu": 1})
#: Ends of a worker's work on a chunk; the likely ones more often.
DEEDS = st.sampled_from(["end", "end", "end", "raise", "stall", "give back", "die", "die unseen", "die idle"])
TIMES_MS = [0.01, 0.5, 10.0, 100.0]


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[int, ...]]:
    count = draw(st.integers(1, 14))
    return [tuple(sorted(draw(st.sets(st.integers(0, at - 1), max_size=3)))) if at else () for at in range(count)]


class World:
    """Workers of one stage, and what they really ran."""

    def __init__(self, graph: list[tuple[int, ...]]) -> None:
        tasks = tuple(
            TaskSpec(
                node=NodeId(f"n{at}"), attempt=1, function=f"f{at % 3}", inputs=tuple(NodeId(f"n{need}") for need in needs), resources=ONE
            )
            for at, needs in enumerate(graph)
        )
        self.machine = StageMachine(StageSpec(stage=StageId("s"), run=RunId("r"), tenant=TenantPath("t"), tasks=tasks, slot=ONE, width=4))
        self.machine.begin(())
        self.habits = Habits()
        self.chunks = ChunkScheduler(self.machine, self.habits)
        self.ends: dict[NodeId, int] = {}
        self.done: set[NodeId] = set()  #: Tasks with a value.
        self.is_stopped = False

    def execute(self, chunk: Chunk, node: NodeId, local: set[NodeId]) -> None:
        """Run a task in its chunk: nothing else may run it, and what it needs must be there."""
        assert [other.number for other in self.chunks.chunks.values() if node in other.left] == [chunk.number]
        assert all(need in self.done or need in local for need in self.machine.needs(node))
        local.add(node)

    def end(self, node: NodeId) -> None:
        self.ends[node] = self.ends.get(node, 0) + 1
        assert self.ends[node] == 1

    def succeed(self, number: int, nodes: list[NodeId]) -> None:
        for node in self.chunks.succeed(number, nodes):
            self.end(node)
            self.done.add(node)

    def fail(self, node: NodeId | None) -> None:
        if node is not None and self.machine.fail(node) is not None:
            self.end(node)

    def give_up(self, number: int, but: NodeId | None = None) -> None:
        for node in self.chunks.left(number) if self.is_stopped else ():
            if node != but and self.chunks.ends(number, node):
                self.machine.leave(node)

    def work(self, chunk: Chunk, deed: str, upto: int) -> None:
        """Let a worker run a part of its chunk, and then do something."""
        number, local = chunk.number, set[NodeId]()
        runs = list(self.chunks.left(number))
        before, at = runs[:upto], runs[upto] if upto < len(runs) else None
        for node in before:
            if self.machine.state(node) is StageTaskState.SUBMITTED:
                self.execute(chunk, node, local)
        if deed == "stall" and at is not None:
            self.succeed(number, before)
            self.give_up(number, but=at)
            self.chunks.stall(number, at)
            assert set(self.chunks.left(number)) <= {at}
        elif deed.startswith("die"):
            self.give_up(number)
            self.fail(self.chunks.lose(number, at if deed == "die" else None, is_known=deed != "die unseen"))
        elif deed != "stall":
            self.succeed(number, runs if deed == "end" else before)
            if deed == "raise" and at is not None and self.chunks.ends(number, at):
                self.fail(at)
            self.give_up(number)
            self.chunks.close(number)


@settings(max_examples=300, deadline=None)
@given(graph=graphs(), data=st.data())
def test_each_task_ends_once_and_after_what_it_needs(graph: list[tuple[int, ...]], data: st.DataObject) -> None:
    world, number = World(graph), 0
    for _ in range(data.draw(st.integers(0, 40))):
        if data.draw(st.booleans()):
            world.habits.note(f"f{data.draw(st.integers(0, 2))}", [data.draw(st.sampled_from(TIMES_MS))])
        if not world.is_stopped and data.draw(st.integers(0, 15)) == 0:
            world.is_stopped = True
            world.machine.stop()
        number += 1
        chunk = None if len(world.chunks.chunks) > 3 else world.chunks.take(number, data.draw(st.integers(1, 4)), lambda _node: True)
        if chunk is not None:
            assert not world.is_stopped
        if world.chunks.chunks and (chunk is None or data.draw(st.booleans())):
            chosen = world.chunks.chunks[data.draw(st.sampled_from(sorted(world.chunks.chunks)))]
            world.work(chosen, data.draw(DEEDS), data.draw(st.integers(0, len(chosen.left))))
    while world.chunks.chunks or world.machine.ready:  # From now on all goes well.
        number += 1
        world.chunks.take(number, 1, lambda _node: True)
        for chunk in tuple(world.chunks.chunks.values()):
            world.work(chunk, "end", len(chunk.left))
    assert world.machine.is_ended
    for node in world.machine.spec.tasks:
        is_over = world.machine.state(node.node) is not StageTaskState.DROPPED
        assert world.ends.get(node.node, 0) == is_over
