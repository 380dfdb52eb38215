"""The stage host on Ray: warm runners, one per tenant, and placement groups for the resources that leases pay for.

One thread carries out all orders in sequence and never waits for Ray. A stage gets its placement groups from `StageGroups`, which may
wait. Until then the orders for the stage wait too, and a cancellation ends the stage at once. Another thread removes the resources that
stages left in Ray. Each runner has a thread that waits for its batches. A runner that dies loses the values of its tenant: its stages are
reported lost, and the next stage of the tenant gets a new runner with another holder token.

A runner whose runs have all ended holds no value that will be read; it is ended after a while without a new stage. A recovered runner
reports the runs whose values it holds.

Runners, and the keeper of the groups, outlive this process: see `DetachedActors`. They are created after the watchdogs have the first
renewal of a session, since the watchdogs would end them before. A new process of the mesh recovers them, and receives again the reports
that this process has not confirmed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import queue
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
import structlog
from ray.exceptions import RayActorError, RayError

from mesh.core.clock import Clock, SystemClock
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.resources import NOTHING
from mesh.core.seen_nodes import NodeSeen
from mesh.core.wire import decode, encode
from mesh.ray.cluster.node_logs import last_word_of
from mesh.ray.cluster.tcp_probe import can_connect
from mesh.ray.stage_runner.actor_calls import ActorCalls
from mesh.ray.stage_runner.bound_runner import BoundRunner, HostedStage, RunnerKey
from mesh.ray.stage_runner.cancellations import Cancellations
from mesh.ray.stage_runner.detached_actors import DetachedActors, FoundActors, detached_name
from mesh.ray.stage_runner.held_groups import Groups
from mesh.ray.stage_runner.kept_values import KeptValues
from mesh.ray.stage_runner.node_guards import NodeGuards, guard_name
from mesh.ray.stage_runner.outbox import Finished
from mesh.ray.stage_runner.runner import Inventory
from mesh.ray.stage_runner.stage_groups import StageGroups
from mesh.ray.user_code.collector import GarbageCollector
from mesh.ray.user_code.output_relay import with_last_lines
from mesh.ray.user_code.outside import Evict, OutsideLook, OutsideWatch
from mesh.ray.user_code.sweep import Sweep, Swept
from mesh.stages.hosting import ANYWHERE, LAST_WORD, Delivered, FoundStages, GroupLayers, HostReport, Places
from mesh.stages.messages import (
    RUNNER_MESSAGE,
    Failure,
    NodeFailed,
    NodeOutput,
    NodesSucceeded,
    NodeSucceeded,
    StageEnded,
    StageLost,
    StageMessage,
)
from mesh.stages.spec import StageSpec

log = structlog.get_logger(__name__)

#: Length of one wait for a runner's reports; seconds. The host's threads notice its close within it.
BATCH_WAIT_S = 2.0
#: Time for a cancelled task to clean up before its worker is killed; seconds.
CANCEL_GRACE_S = 2.0
#: Wait for the watchdogs to accept the first renewal of a session; seconds.
FIRST_PROOF_S = 1.0
#: Time that a runner without stages and runs waits for more work of its tenant; seconds.
IDLE_S = 300.0
#: Name prefixes of the own actors of all meshes: see `DetachedActors.prefix` and `guard_name`.
ANY_MESHES = ("mesh/", "guard/")
#: Longest wait for a runner to accept the eviction of a node; seconds.
EVICT_S_MAX = 5.0
#: Time limit for a connection to the cluster's control service; seconds. It is tried twice.
CONNECT_S = 0.25

REMEDY = "restart the cluster, then the mesh; queued work goes to other meshes, and work that still runs continues"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostParts:
    """The host's collaborators; each belongs to one host."""

    actors: DetachedActors
    guards: NodeGuards
    sweep: Callable[[Collection[str], Callable[[], Collection[StageId] | None]], Swept]  #: See `Sweep`.
    look_outside: Callable[[Callable[[], Collection[StageId] | None], Evict], None] = lambda _running, _evict: None  #: See `OutsideLook`.
    cancelled: Cancellations = field(default_factory=Cancellations)
    calls: ActorCalls = field(default_factory=ActorCalls)
    clock: Clock = field(default_factory=SystemClock)

    @classmethod
    def on_ray(cls, name: MeshId, node_labels: dict[str, str]) -> HostParts:
        """Return the parts on the cluster of this driver. `name`: the mesh's `detached_name`."""
        actors = DetachedActors(name, node_labels)
        own = actors.prefix, guard_name(name, "")
        return cls(actors=actors, guards=NodeGuards(name, node_labels), sweep=Sweep(name, own), look_outside=OutsideLook(name, ANY_MESHES))


@dataclass(slots=True)
class _Unstarted:
    """A stage that waits for its placement groups."""

    orders: list[Callable[[Any], object]] = field(default_factory=list)  #: For its runner, to be sent after the start.


class RayStageHost:
    """Stages on the Ray cluster that this process is a driver of.

    Args:
        address: `HOST:PORT` of the cluster's control service.
        report: Called from threads of the host; must only pass the report on.
        node_labels: Ray node labels of the mesh's slice of the cluster.
        warm_runners: Number of runners that wait for a tenant, so that a first stage waits for no process start.
        ledger: The id of the federation's ledger: on one cluster a mesh of another federation may have the same name.
        idle_s: See `IDLE_S`; seconds.
        parts: Default: those on Ray.
    """

    def __init__(
        self,
        *,
        mesh: MeshId,
        address: str,
        report: Callable[[HostReport], None],
        storage_url: str,
        inline_limit_bytes: int,
        node_labels: dict[str, str],
        warm_runners: int,
        ledger: str = "",
        idle_s: float = IDLE_S,
        parts: HostParts | None = None,
    ) -> None:
        self._mesh = mesh
        self._address = address
        self._name = detached_name(ledger, mesh)
        parts = parts or HostParts.on_ray(self._name, node_labels)
        self._actors, self._guards, self._cancelled = parts.actors, parts.guards, parts.cancelled
        self._calls, self._clock = parts.calls, parts.clock
        self._garbage = GarbageCollector(self._name, lambda given_back: parts.sweep(given_back, self._running))
        self._outside = OutsideWatch(self._name, lambda: parts.look_outside(self._running, self._evict_node))
        self._report = report
        self._storage_url = storage_url
        self._inline_limit_bytes = inline_limit_bytes
        self._warm_target = warm_runners
        self._idle_s = idle_s
        self._warm: list[Any] = []
        self._runners: dict[RunnerKey, BoundRunner] = {}
        self._dead: dict[RunnerKey, BoundRunner] = {}  #: Runners that died, until the next one takes over their values.
        self._of_stage: dict[StageId, RunnerKey] = {}
        self._sender: dict[StageId, BoundRunner] = {}  #: Runner that keeps the reports of a stage until they are confirmed.
        self._unstarted: dict[StageId, _Unstarted] = {}  #: Stages that wait for their placement groups.
        self._found: FoundActors | None = None
        self._session = 0, 0  #: The session renewed last, and the first session that it continues.
        self._unguarded: frozenset[str] = frozenset()  #: Nodes whose watchdog had not accepted the renewal before the last.
        self._guard = threading.Lock()  #: Guards the state of runners and stages, which the threads of runners read too.
        self._orders: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._obey, name="host", daemon=True)
        self._thread.start()
        # As an order: it comes after the start of each stage that has got a group of the dead keeper.
        self._groups = StageGroups(mesh, self._actors, self._calls, lambda why: self._orders.put(partial(self._lose_groups, why)))

    # -- the port ------------------------------------------------------------------------------------------------------

    def start(
        self,
        spec: StageSpec,
        slots: int,
        token: int,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, Delivered],
        note: bytes = b"",
        places: Places = ANYWHERE,
    ) -> int:
        """Start the stage; a tenant's first stage takes a warm runner."""
        key = (spec.tenant, _digest(spec.runtime_env))
        with self._guard:
            runner = self._runners.get(key)
            if runner is None:
                try:
                    runner = BoundRunner(actor=self._take_warm(spec.runtime_env, key[1]), holder=token)
                except Exception as refused:  # noqa: BLE001  a user wrote the environment, and Ray raises many errors to refuse it
                    self._refuse(spec, f"Ray refuses the runtime environment: {refused}")
                    return token
                if (before := self._dead.pop(key, None)) is not None:
                    runner.holder, runner.values, runner.runs = before.holder, before.values, before.runs
                # Until the values reach it, it is a holder without any: this process may die before.
                runner.actor.bind.remote(key[0], self._storage_url, self._inline_limit_bytes, self._name, token)
                if before is not None:
                    self._orders.put(partial(self._pass_values, runner, runner.values.inheritance(), dict(runner.runs), runner.holder))
                self._listen_to(key, runner)
            hosted = runner.stages[spec.stage] = HostedStage(spec.slot, gang=spec.gang)
            runner.runs.setdefault(spec.run, spec.stage)  # Keeps the first stage: a store that loses writes forgets the new ones.
            runner.idle_since_s = None
            self._of_stage[spec.stage] = key
            self._sender[spec.stage] = runner
            unstarted = self._unstarted[spec.stage] = _Unstarted()
        start = partial(self._start, runner, unstarted, hosted, spec, blobs, inputs, note)
        # Tasks without resource requests need no bundle each: any number of them runs in one.
        # As an order, like all requests of groups: it comes after the return of the groups of the stage whose end made room.
        slot, count = spec.gang or spec.slot, slots if spec.slot else 1
        self._orders.put(partial(self._groups.take, slot, count, places, lambda groups: self._orders.put(partial(start, groups))))
        return runner.holder

    def grow(self, stage: StageId, slots: int, note: bytes, places: Places = ANYWHERE) -> None:
        """Add slots to the stage. The runner gets the note together with their groups: if this process dies before, neither counts."""
        with self._guard:
            key = self._of_stage.get(stage)
            runner = self._runners.get(key) if key is not None else None
            if runner is None:
                return  # It has ended.
            hosted = runner.stages[stage]
            hosted.growths += 1
        grow = partial(self._grow, runner, hosted, stage, note)
        if slots and hosted.slot:
            slot = hosted.gang or hosted.slot
            self._orders.put(partial(self._groups.take, slot, slots, places, lambda groups: self._orders.put(partial(grow, slots, groups))))
        else:  # Any number of tasks without resource requests runs in one bundle.
            self._orders.put(partial(self._groups.after, lambda: self._orders.put(partial(grow, 0, ()))))

    def keep_groups(self, layers: GroupLayers) -> None:
        self._groups.keep(layers)

    def shrink(self, stage: StageId, slots: int, *, at_once: bool = False) -> None:
        def shrink(actor: Any) -> object:
            return actor.shrink.remote(stage, slots, CANCEL_GRACE_S if at_once else None)

        with self._guard:
            key = self._of_stage.get(stage)
            runner = self._runners.get(key) if key is not None else None
            if runner is None:
                return  # It has ended.
            waits = runner.stages[stage].growths > 0
        if waits:  # Slots that were added before must be there.
            self._orders.put(partial(self._groups.after, lambda: self._order(stage, shrink)))
        else:
            self._order(stage, shrink)

    def deliver(self, stage: StageId, node: NodeId, value: Delivered) -> None:
        self._order(stage, lambda actor: actor.deliver.remote(stage, node, *_on_the_wire(value)))

    def cancel(self, stage: StageId) -> None:
        """Cancel the stage, and kill its workers when it has not ended after `EVICT_AFTER_S`.

        Code that never returns to the interpreter notices neither Ray's interrupt nor its order to end. A worker in such a call ends when
        its placement group is removed.
        """
        with self._guard:
            if stage not in self._of_stage:
                return  # It has ended.
            is_unstarted = stage in self._unstarted
            if is_unstarted:
                self._drop(self._runners[self._of_stage[stage]], stage)
            else:
                self._cancelled.add((stage,))
        if is_unstarted:
            self._report(HostReport(stage=stage, number=LAST_WORD, messages=(StageEnded(stage=stage),)))
            return
        self._order(stage, lambda actor: actor.cancel.remote(stage, CANCEL_GRACE_S))
        with self._guard:
            self._cancelled.evict_later(stage, self._evict)

    def confirm(self, stage: StageId, number: int) -> None:
        """Confirm the stage's reports up to this number; the runner learns of it with the next `next_batch`."""
        with self._guard:
            runner = self._sender.get(stage)
            if runner is not None:
                runner.heard[stage] = number
                if runner.ends.get(stage, LAST_WORD + 1) <= number:
                    del runner.ends[stage], self._sender[stage]

    def forget(self, run: RunId) -> None:
        with self._guard:
            actors = [runner.actor for runner in self._runners.values()]
            for runner in (*self._runners.values(), *self._dead.values()):
                runner.runs.pop(run, None)
                runner.values.forget(run)
            self._dead = {key: runner for key, runner in self._dead.items() if runner.runs}
        for actor in actors:
            self._orders.put(partial(actor.forget.remote, run))

    def held(self) -> dict[RunId, StageId]:
        with self._guard:
            runners = (*self._dead.values(), *self._runners.values())
            return {run: stage for runner in runners for run, stage in runner.runs.items()}

    def is_ready(self) -> bool:
        """Return whether a node of the mesh is guarded, and the control service of the cluster accepts connections.

        Ray itself would wait a minute for the control service, and accept new work meanwhile that it can only lose.
        """
        try:
            try:
                can_connect(self._address, CONNECT_S)
            except TimeoutError:  # The network may have lost the first packet, and TCP resends it only after a second.
                can_connect(self._address, CONNECT_S)
        except OSError as away:
            log.warning("the Ray cluster is down or unreachable: no new stage starts", mesh=self._mesh, error=str(away), remedy=REMEDY)
            return False
        if self._session[0] and not self._guards.can_work():
            log.warning("no node of the mesh is guarded: no new stage starts", mesh=self._mesh)
            return False
        return True

    def nodes(self) -> tuple[NodeSeen, ...]:
        return self._guards.nodes(self._groups.keeper_id)

    def stop_all(self) -> None:
        """Kill every actor of the mesh, warm or bound. Ray ends the tasks of dead runners, and removes all groups."""
        with self._guard:
            for runner in self._runners.values():
                runner.stages.clear()  # Waiting orders still refer to the runner: from now on none of them starts or loses a stage.
            self._cancelled.forget_all()
            for kept in (self._runners, self._dead, self._of_stage, self._sender, self._warm, self._unstarted):
                kept.clear()
            self._found, self._session = None, (0, 0)  # From now on no order creates an actor.
        self._groups.end()
        self._actors.end_all()
        self._orders.put(self._garbage.collect)

    def read_clock(self) -> None:
        self._guards.read_clock()
        self._outside.look()  # At each heartbeat.

    def extend_deadline(self, incarnation: int, stop_after_ms: int, kill_after_ms: int, since: int) -> None:
        """Renew the lease deadline on all nodes. The first renewal of a session also creates the keeper and warm runners."""
        unguarded = self._guards.unguarded()
        if still := unguarded & self._unguarded:  # Two misses in a row count: a node that has just joined was sent no renewal yet.
            log.warning("watchdogs did not accept the last renewal of the leases; work on their nodes may be stopped", nodes=sorted(still))
        self._unguarded = unguarded
        self._guards.extend_deadline(incarnation, stop_after_ms, kill_after_ms, since)
        if (incarnation, since) != self._session:
            self._guards.unguarded(FIRST_PROOF_S)
            self._session = incarnation, since
            self._groups.begin(incarnation, since)
            if self._found is None:  # Else `go_on` settles: a second keeper would find its room taken by the first.
                self._settle()

    def leave(self, incarnation: int) -> None:
        self._guards.leave(incarnation)

    def find(self) -> FoundStages | None:
        """Return the stages that an earlier process left running. None: nothing can be recovered, and all actors are ended."""
        self._found = self._actors.find()
        if self._found is None:
            self._actors.end_all()
            return None
        stages = tuple(held for _, inventory in self._found.runners for held in inventory.stages)
        return FoundStages(incarnation=self._found.incarnation, since=self._found.since, stages=stages)

    def go_on(self, stages: frozenset[StageId]) -> None:
        """Recover the found stages. Cancel those that are not in `stages`."""
        found = self._found
        if found is None:
            return
        for actor, inventory in found.runners:
            self._take_over(actor, inventory)
        self._found = None  # From now on the running stages are known.
        held = (groups for _, inventory in found.runners for groups in inventory.groups.values())
        groups = frozenset(group.hex_id for its_groups in held for group in its_groups)
        self._groups.adopt(found.keeper, groups)
        self._settle()
        for stage in [stage for stage in self._of_stage if stage not in stages]:
            log.warning("a recovered stage is cancelled: it no longer belongs to the mesh", mesh=self._mesh, stage=stage)
            self.cancel(stage)

    def _take_over(self, actor: Any, inventory: Inventory) -> None:
        key = (inventory.tenant, inventory.environment)
        if not inventory.tenant and not inventory.environment:
            self._warm.append(actor)
        elif not inventory.tenant or key in self._runners:  # No stage will ask for this runner.
            self._calls.kill(actor)
        else:
            with self._guard:
                stages = {
                    held.stage: HostedStage(
                        inventory.slots.get(held.stage, NOTHING), inventory.groups.get(held.stage, ()), inventory.gangs.get(held.stage)
                    )
                    for held in inventory.stages
                }
                runner = BoundRunner(
                    actor=actor,
                    holder=inventory.holder,
                    stages=stages,
                    runs=dict(inventory.runs),
                    values=KeptValues(half_known=inventory.runs),
                )
                self._of_stage.update(dict.fromkeys(runner.stages, key))
                self._sender.update(dict.fromkeys(runner.stages, runner))
                cancelled = [held.stage for held in inventory.stages if held.is_cancelled]
                self._cancelled.add(cancelled)
                self._listen_to(key, runner)
                for stage in cancelled:  # The process that cancelled them died, and its eviction timers with it.
                    self._cancelled.evict_later(stage, self._evict)

    def close(self) -> None:
        """End the host's threads after the orders given so far, which ask for groups and get them as further orders."""
        has_asked = threading.Event()
        self._orders.put(has_asked.set)
        has_asked.wait(CANCEL_GRACE_S * 2)
        self._groups.close()
        self._orders.put(None)
        self._thread.join(timeout=CANCEL_GRACE_S * 2)
        self._garbage.close(CANCEL_GRACE_S * 2)
        self._outside.close(CANCEL_GRACE_S * 2)

    # -- orders, one after the other -----------------------------------------------------------------------------------

    def _obey(self) -> None:
        while (order := self._orders.get()) is not None:
            self._carry_out(order)

    def _carry_out(self, order: Callable[[], object]) -> None:
        try:
            order()
        except Exception:  # without its thread the mesh would go on accepting stages and run none
            log.exception("an order failed", mesh=self._mesh)

    def _order(self, stage: StageId, order: Callable[[Any], object]) -> None:
        with self._guard:
            unstarted = self._unstarted.get(stage)
            if unstarted is not None:
                unstarted.orders.append(order)
                return
            key = self._of_stage.get(stage)
            runner = self._runners.get(key) if key is not None else None
        if runner is not None:
            self._orders.put(partial(order, runner.actor))

    def _start(
        self,
        runner: BoundRunner,
        unstarted: _Unstarted,
        hosted: HostedStage,
        spec: StageSpec,
        blobs: dict[str, bytes],
        inputs: dict[NodeId, Delivered],
        note: bytes,
        groups: Groups,
    ) -> None:
        """Pass the stage to its runner with its placement groups, then the orders that came meanwhile."""
        with self._guard:
            if self._unstarted.get(spec.stage) is not unstarted:  # The stage ended, or all stages were stopped, meanwhile.
                self._groups.give_back(groups)
                return
            if groups:
                del self._unstarted[spec.stage]
                hosted.groups = groups
        if not groups:
            self._lose(runner, spec.stage)
            return
        try:
            on_the_wire = {node: _on_the_wire(value) for node, value in inputs.items()}
            runner.actor.start.remote(encode(spec), blobs, on_the_wire, groups, note)
        except Exception:
            self._lose(runner, spec.stage)
            raise
        for order in unstarted.orders:
            self._carry_out(partial(order, runner.actor))

    def _pass_values(
        self, runner: BoundRunner, values: dict[RunId, dict[NodeId, Delivered]], runs: dict[RunId, StageId], holder: int
    ) -> None:
        """Pass the runs of a dead runner, their values and its token to the next one, before its first stage."""
        on_the_wire = {run: {node: _on_the_wire(value) for node, value in its.items()} for run, its in values.items()}
        runner.actor.inherit.remote(on_the_wire, runs, holder)

    def _grow(self, runner: BoundRunner, hosted: HostedStage, stage: StageId, note: bytes, slots: int, groups: Groups) -> None:
        """Pass new slots to the stage's runner, unless the stage has ended meanwhile."""
        with self._guard:
            hosted.growths -= 1
            is_there = runner.stages.get(stage) is hosted
            if is_there:
                hosted.groups += groups
        if not is_there:
            self._groups.give_back(groups)
        else:
            missing = slots - sum(group.slots for group in groups)
            runner.actor.grow.remote(stage, groups, note, missing)

    def _lose(self, runner: BoundRunner, stage: StageId) -> None:
        """Report a stage lost that could not be passed to its runner."""
        with self._guard:
            if stage not in runner.stages:
                return
            groups = self._drop(runner, stage)
        self._groups.give_back(groups, reuse=False)
        self._report_lost(runner, stage)

    def _drop(self, runner: BoundRunner, stage: StageId) -> Groups:
        """Forget a stage that its runner does not know or lost; return its placement groups. Call under the guard."""
        self._of_stage.pop(stage, None)
        self._sender.pop(stage, None)
        self._unstarted.pop(stage, None)
        self._cancelled.forget(stage)
        return runner.stages.pop(stage).groups

    def _report_lost(self, runner: BoundRunner, stage: StageId) -> None:
        lost = StageLost(
            stage=stage,
            mesh=self._mesh,
            incarnation=runner.holder,
            reason=Reason.WORKER_LOST,
            keeps_values=runner.values.is_whole,
        )
        self._report(HostReport(stage=stage, number=LAST_WORD, messages=(lost,)))

    def _lose_groups(self, why: str) -> None:
        """End the stages whose placement groups are gone with their keeper."""
        with self._guard:
            lost = [(runner.actor, stage) for runner in self._runners.values() for stage, hosted in runner.stages.items() if hosted.groups]
        log.warning("stages have lost their placement groups", mesh=self._mesh, stages=sorted(stage for _, stage in lost), why=why)
        for actor, stage in lost:
            actor.lose_group.remote(stage)

    def _clear(self, groups: Groups, *, reuse: bool = True) -> None:
        """Remove the resources that an ended stage's code created, then return the stage's groups. See `ORDERS_WAIT_S`."""
        ids = [group.hex_id for group in groups]
        self._garbage.clear(ids, lambda is_clean: self._groups.give_back(groups, reuse=reuse and is_clean))

    def _running(self) -> frozenset[StageId] | None:
        """Return the stages that have not ended. None: it is not known yet which stages an earlier process left running."""
        with self._guard:
            return frozenset(self._of_stage) if self._found is None else None

    def _refuse(self, spec: StageSpec, why: str) -> None:
        """Fail each task of the stage with the reason: the stage can run on no mesh."""
        failure = Failure(reason=Reason.CODE_UNAVAILABLE, type_name="schedulemesh.CodeUnavailable", message=why)
        failed = (
            NodeFailed(stage=spec.stage, node=task.node, attempt=task.attempt, started_ms=0, finished_ms=0, failure=failure)
            for task in spec.tasks
        )
        self._report(HostReport(stage=spec.stage, number=LAST_WORD, messages=(*failed, StageEnded(stage=spec.stage))))

    def _evict_node(self, stage: StageId, node: NodeId, why: str) -> None:
        """Have the runner fail a node whose code holds resources outside the stage's placement group; return when it has the order."""
        with self._guard:
            key = self._of_stage.get(stage)
            runner = self._runners.get(key) if key is not None else None
        if runner is not None:
            with contextlib.suppress(RayError, RuntimeError):  # A runner that is gone takes its nodes with it.
                self._calls.result(runner.actor.evict.remote(stage, node, why), EVICT_S_MAX)

    def _evict(self, stage: StageId) -> None:
        with self._guard:
            self._cancelled.begin_eviction(stage)
            key = self._of_stage.get(stage)
            hosted = self._runners[key].stages.get(stage) if key is not None and key in self._runners else None
            groups = () if hosted is None else hosted.groups
        if groups:
            log.warning("a cancelled stage does not end; its workers are killed", mesh=self._mesh, stage=stage)
            self._groups.give_back(groups, reuse=False)

    # -- runners -------------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Set up a new session: name it to the keeper, sweep leftovers, and create missing actors."""
        self._groups.settle()
        self._orders.put(self._garbage.collect)
        self._orders.put(self._warm_up)

    def _warm_up(self) -> None:
        with self._guard:
            while self._session[0] and len(self._warm) < self._warm_target:
                self._warm.append(self._actors.new_runner({}, ""))

    def _take_warm(self, runtime_env: dict[str, object], environment: str) -> Any:
        return self._warm.pop() if self._warm and not runtime_env else self._actors.new_runner(runtime_env, environment)

    def _listen_to(self, key: RunnerKey, runner: BoundRunner) -> None:
        self._runners[key] = runner
        threading.Thread(target=self._listen, args=(key, runner), name=f"runner-{key[0]}", daemon=True).start()

    def _listen(self, key: RunnerKey, runner: BoundRunner) -> None:
        while not self._end_if_idle(key, runner, self._clock.monotonic_ms() / 1_000):
            with self._guard:
                if self._runners.get(key) is not runner:
                    return  # All stages were stopped on purpose.
                listener = self._session[0]
                heard, runner.heard = runner.heard, {}
            try:
                batches = self._calls.result(runner.actor.next_batch.remote(BATCH_WAIT_S, listener, heard))
            except RayActorError as death:
                self._record_end(key, runner, str(death))
                return
            except (RayError, RuntimeError) as failure:  # RuntimeError: this driver has left the cluster.
                log.warning("a runner cannot be reached", mesh=self._mesh, tenant=key[0], error=str(failure))
                self._record_end(key, runner, str(failure))
                return
            for stage, number, encoded, blobs, finished in batches:
                received = [decode(RUNNER_MESSAGE, message) for message in encoded]
                output = tuple(message for message in received if isinstance(message, NodeOutput))
                messages = tuple(message for message in received if not isinstance(message, NodeOutput))
                messages, output = self._with_unread(messages, output)
                self._keep_values(runner, blobs, finished)
                self._pass_on(runner, StageId(stage), number, messages, blobs, output)

    def _end_if_idle(self, key: RunnerKey, runner: BoundRunner, now_s: float) -> bool:
        """End the runner if it has had no stage, no run and no unconfirmed report for long; return whether it was ended."""
        with self._guard:
            is_busy = runner.stages or runner.runs or any(sender is runner for sender in self._sender.values())
            if is_busy or self._runners.get(key) is not runner:
                runner.idle_since_s = None
                return False
            runner.idle_since_s = now_s if runner.idle_since_s is None else runner.idle_since_s
            if now_s - runner.idle_since_s < self._idle_s:
                return False
            del self._runners[key]
        log.info("an idle runner is ended", mesh=self._mesh, tenant=key[0])
        self._actors.end(runner.actor)
        return True

    def _keep_values(self, runner: BoundRunner, blobs: dict[str, bytes], finished: Sequence[Finished]) -> None:
        with self._guard:
            runner.values.keep([one for one in finished if one[0] in runner.runs], blobs)

    def _with_unread(
        self, messages: tuple[StageMessage, ...], output: tuple[NodeOutput, ...]
    ) -> tuple[tuple[StageMessage, ...], tuple[NodeOutput, ...]]:
        """Add the unread output of lost workers: a runner reads only the files of its own node."""
        lost = [message for message in messages if isinstance(message, NodeFailed) and message.failure.reason is Reason.WORKER_LOST]
        if not lost:
            return messages, output
        found = self._guards.unread_output([(message.stage, message.node, message.attempt) for message in lost])
        lines: defaultdict[NodeId, list[str]] = defaultdict(list)
        for each in found:
            lines[each.node].extend(each.lines)
        with_lines = {message.node: replace(message, failure=with_last_lines(message.failure, lines[message.node])) for message in lost}
        shown = tuple(with_lines.get(message.node, message) if isinstance(message, NodeFailed) else message for message in messages)
        return shown, (*output, *found)

    def _pass_on(
        self,
        runner: BoundRunner,
        stage: StageId,
        number: int,
        messages: tuple[StageMessage, ...],
        blobs: dict[str, bytes],
        output: tuple[NodeOutput, ...],
    ) -> None:
        with self._guard:
            is_cancelled = stage in self._cancelled
        if is_cancelled:
            messages = tuple(map(_as_cancelled, messages))
        if any(message.kind == "stage_ended" for message in messages):
            with self._guard:
                hosted = runner.stages.pop(stage, None)
                groups = () if hosted is None else _seen_at_work(hosted.groups, messages)
                self._of_stage.pop(stage, None)
                clean = stage not in self._cancelled
                self._cancelled.forget(stage)
                runner.ends[stage] = number
            self._orders.put(partial(self._clear, groups, reuse=clean))
            self._orders.put(self._warm_up)
        elif any(message.kind == "stage_resized" for message in messages):
            self._give_back_free(runner, stage)
        for waiting in (message for message in messages if message.kind == "stage_waiting"):
            log.warning("a stage waits for Ray", mesh=self._mesh, stage=stage, reason=waiting.reason.value, why=waiting.detail)
        self._report(HostReport(stage=stage, number=number, messages=messages, blobs=blobs, output=output))

    def _give_back_free(self, runner: BoundRunner, stage: StageId) -> None:
        """Return the groups of retired slots. They are removed: code of the stage, which goes on, may have left something in them."""
        try:
            free: Groups = self._calls.result(runner.actor.take_free.remote(stage))
        except (RayError, RuntimeError):
            return  # The next call for batches finds the runner dead.
        with self._guard:
            hosted = runner.stages.get(stage)
            if hosted is None:
                return
            ids = {group.hex_id for group in free}
            hosted.groups = tuple(group for group in hosted.groups if group.hex_id not in ids)
        self._groups.give_back(free, reuse=False)

    def _record_end(self, key: RunnerKey, runner: BoundRunner, why: str) -> None:
        with self._guard:
            if self._runners.get(key) is not runner:
                return  # All stages were stopped on purpose.
            del self._runners[key]
            stages = dict(runner.stages)
            runner.stages.clear()
            for stage in stages:
                self._of_stage.pop(stage, None)
                self._unstarted.pop(stage, None)
                self._cancelled.forget(stage)
            for stage in [stage for stage, sender in self._sender.items() if sender is runner]:
                del self._sender[stage]
            if runner.runs and runner.values.is_whole:
                self._dead[key] = runner
        self._actors.end(runner.actor)  # An unreachable runner may be alive, with work that nothing would track any more.
        log.warning("a runner died", mesh=self._mesh, tenant=key[0], stages=sorted(stages), why=why, last_word=_last_word(why))
        for stage, hosted in stages.items():
            self._orders.put(partial(self._clear, hosted.groups))
            self._report_lost(runner, stage)


def _seen_at_work(groups: Groups, messages: Sequence[StageMessage]) -> Groups:
    """Return the groups of a stage with what its last messages tell: where a task has run, Ray had placed the only group."""
    if len(groups) == 1 and any(isinstance(message, (NodeSucceeded, NodesSucceeded)) for message in messages):
        return (replace(groups[0], is_placed=True),)
    return groups


def _last_word(death: str) -> str | None:
    """Return the fatal message in a dead actor's own log, if this process can read that log. Ray's error text names the process."""
    named = re.search(r"\bpid: (\d+)", death)
    node = ray._private.worker._global_node  # noqa: SLF001  Ray has no public name for it
    return last_word_of(int(named[1]), Path(node.get_logs_dir_path())) if named is not None and node is not None else None


def _as_cancelled(message: StageMessage) -> StageMessage:
    """Return the message of a cancelled stage; a lost worker counts as cancelled.

    A busy runner may hear of the cancellation after the stage's workers were killed for it: see `RayStageHost.cancel`.
    """
    if isinstance(message, NodeFailed) and message.failure.reason is Reason.WORKER_LOST:
        return replace(message, failure=replace(message.failure, reason=Reason.CANCELLED_BY_USER))
    return message


def _digest(runtime_env: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(runtime_env, sort_keys=True).encode()).hexdigest() if runtime_env else ""


def _on_the_wire(value: Delivered) -> tuple[bytes | None, bytes | None]:
    return (None, None) if value is None else (encode(value[0]), value[1])
