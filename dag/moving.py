"""Moves of stages that their mesh has not begun to a mesh that has run dry.

A large stage goes to its mesh in parts (`dag.parting`). If another mesh has room and nothing in its queue, it takes half of the parts
that wait behind others, as in work stealing. A part moves only if all its nodes would be placed on that mesh now. So a mesh that refuses
them, or to which their inputs would move too long, is left alone. A node moves once at most: each move is another attempt.

A stage that waits alone moves later, and only from a mesh without room for it: on a mesh with room it waits for quota, which may be on its
way there. Nor does it move while its mesh makes room: for preemptors there, or because a plan changes leases. Routing sees a mesh as of
its last heartbeat, so a stage may have been sent to a mesh that other work had just filled. Pure.

Source: ADR 0054; Blumofe and Leiserson 1999 (work stealing).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from dag.function_times import FunctionTimes
from dag.parting import WORK_MS_MIN
from dag.run.events import NodesPlaced
from dag.run.machine import RunMachine
from dag.run.runs import StageRecord
from dag.run.states import StageState
from dag.spec.plans import NodePlan
from federation.snapshot import FederationSnapshot, MeshView
from mesh.core.ids import MeshId, NodeId, StageId
from mesh.core.reasons import Reason
from mesh.core.resources import ResourceSet

#: Time that a mesh has to begin a part before another may take it; for a stage that waits alone.
BEGIN_MS, BEGIN_ALONE_MS = 2_000, 5_000


@dataclass(frozen=True, slots=True)
class _AsIfTaken:
    """A run as if some of its stages had been taken back; what `dag.planning.place` needs of a run."""

    machine: RunMachine
    taken: frozenset[NodeId]

    @property
    def plans(self) -> Mapping[NodeId, NodePlan]:
        return self.machine.plans

    def unplaced(self, _now_ms: int) -> tuple[NodeId, ...]:
        return tuple(node for node in self.machine.plans if node in self.taken)

    def mesh_of(self, node: NodeId) -> MeshId | None:
        return None if node in self.taken else self.machine.mesh_of(node)

    def value_at(self, node: NodeId) -> MeshId | None:
        return self.machine.value_at(node)

    def size_of(self, node: NodeId) -> int | None:
        return self.machine.size_of(node)


def stages_to_move(
    machine: RunMachine, snapshot: FederationSnapshot, times: FunctionTimes, now_ms: int, place: Callable[[_AsIfTaken], NodesPlaced]
) -> tuple[StageId, ...]:
    """Return the stages of a run that a dry mesh should take; none if there is no such mesh.

    Args:
        times: Run times of functions; too little work is not worth a move.
        now_ms: Milliseconds since the epoch.
        place: Places the nodes of a run on the snapshot.
    """
    waiting, victim = _victim(machine.record.stages.values(), now_ms)
    holders = {stage.mesh for stage in machine.record.stages.values() if stage.state is StageState.QUEUED}
    if victim is None:
        return ()
    taken = waiting[len(waiting) // 2 :]
    slot = machine.plans[taken[0].nodes[0]].task.resources
    if not (dry := _dry(snapshot, slot) - holders):
        return ()
    if not _is_worth_it(machine, taken, times):
        return ()
    placed = place(_AsIfTaken(machine, frozenset(node for stage in taken for node in stage.nodes))).placements
    moving = [stage for stage in taken if all(node in placed and placed[node].mesh in dry for node in stage.nodes)]
    return tuple(stage.stage for stage in moving) if _is_worth_it(machine, moving, times) else ()


def stage_to_move_alone(
    machine: RunMachine,
    snapshot: FederationSnapshot,
    now_ms: int,
    place: Callable[[_AsIfTaken], NodesPlaced],
    *,
    taken: Collection[MeshId] = (),
) -> tuple[StageId, MeshId] | None:
    """Return the stage of a run that waits alone, and the dry mesh that should take it, if there is one.

    Args:
        now_ms: Milliseconds since the epoch.
        place: As in `stages_to_move`.
        taken: Meshes that take another stage already.
    """
    stages = machine.record.stages.values()
    open_stages = [stage for stage in stages if stage.state in (StageState.QUEUED, StageState.RUNNING)]
    if len(open_stages) != 1:
        return None
    (stage,) = open_stages
    if stage.state is not StageState.QUEUED or now_ms - stage.sent_ms < BEGIN_ALONE_MS or not _moved(stages).isdisjoint(stage.nodes):
        return None
    slot = machine.plans[stage.nodes[0]].task.resources
    if any(view.record.mesh == stage.mesh and (_has_room(view, slot) or _makes_room(view, slot)) for view in snapshot.meshes):
        return None
    if any(lease.mesh == stage.mesh and lease.target != lease.amounts for lease in snapshot.leases):
        return None  # Preempted work would have stopped for nothing.
    if not (dry := _dry(snapshot, slot).difference(taken, (stage.mesh,))):
        return None
    placed = place(_AsIfTaken(machine, frozenset(stage.nodes))).placements
    chosen = {placed[node].mesh if node in placed else None for node in stage.nodes}
    mesh = chosen.pop()
    return (stage.stage, mesh) if not chosen and mesh in dry else None


def _dry(snapshot: FederationSnapshot, slot: ResourceSet) -> set[MeshId]:
    """Return the meshes that have an empty queue and room for a slot."""
    return {view.record.mesh for view in snapshot.meshes if view.can_start and not view.waiting and _has_room(view, slot)}


def _moved(stages: Iterable[StageRecord]) -> set[NodeId]:
    """Return the nodes that have moved before."""
    return {node for stage in stages if stage.state is StageState.STOPPED and stage.reason is Reason.MOVED for node in stage.nodes}


def _is_worth_it(machine: RunMachine, stages: Iterable[StageRecord], times: FunctionTimes) -> bool:
    tenant, plans = machine.record.tenant, machine.plans
    return sum(times.run_ms(tenant, plans[node].task.function) for stage in stages for node in stage.nodes) >= WORK_MS_MIN


def _has_room(view: MeshView, slot: ResourceSet) -> bool:
    return any(all(units <= pool.free(name) for name, units in slot.items()) for pool in view.record.pools)


def _makes_room(view: MeshView, slot: ResourceSet) -> bool:
    """Return whether a pool will have room for the slot when the victims there have stopped."""
    return any(
        bool(pool.set_aside) and all(units <= pool.free(name) + pool.set_aside[name] for name, units in slot.items())
        for pool in view.record.pools
    )


def _victim(stages: Collection[StageRecord], now_ms: int) -> tuple[list[StageRecord], MeshId | None]:
    """Return the parts to take from, and their mesh: the one with the most that wait behind others of the same level.

    Parts with a node that has moved before are left out.
    """
    has_moved = _moved(stages)
    of_level: dict[tuple[MeshId, int], list[StageRecord]] = {}
    for stage in stages:
        if stage.state in (StageState.QUEUED, StageState.RUNNING):
            of_level.setdefault((stage.mesh, stage.level), []).append(stage)
    found: list[StageRecord] = []
    for together in of_level.values():
        late = [stage for stage in together if stage.state is StageState.QUEUED and now_ms - stage.sent_ms >= BEGIN_MS]
        late = [stage for stage in late if has_moved.isdisjoint(stage.nodes)]
        if len(together) > 1 and len(late) > len(found):
            found = late
    return found, found[0].mesh if found else None
