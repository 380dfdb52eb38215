"""The loop between run machines, routing and the stage queue.

The coordinator takes messages from the inbox, passes them to the machine of their run, commits the changes, carries out the
decisions, and only then acknowledges the messages. It may die between any two of these steps. Messages without a commit are read
again from the inbox. Committed decisions that were not carried out stand in the run's outbox, and all of them are safe to repeat.
Two coordinators at once cost work, not safety: commits compare versions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import structlog

from dag.alarms import Alarms
from dag.function_times import FunctionTimes
from dag.growing import read_growths
from dag.moving import stage_to_move_alone, stages_to_move
from dag.planning import Unplaced, keep_back, place
from dag.result_cache import ResultCache
from dag.run.events import (
    Blockage,
    CacheAnswer,
    CacheAnswered,
    CancelRequested,
    ForgetDue,
    MeshClosed,
    MeshGone,
    NodesPlaced,
    SignalSent,
    StagesMoved,
    StartsAllowed,
    TimersDue,
    WaitsLimited,
)
from dag.run.machine import RunInput, RunMachine
from dag.run.node_facts import CacheState
from dag.run.retrying import RETRY_RULES, RetryRules
from dag.run.runs import (
    CancelStage,
    Decision,
    DeliverInput,
    DropValue,
    ForgetRun,
    KeepCached,
    ReleaseCached,
    RunChange,
    RunRecord,
    RunStore,
    SendStage,
    StageRecord,
    StopNode,
    graph_of,
)
from dag.run.states import RUN_ENDS, NodeState, StageState
from dag.spec.plans import function_of, functions_of, plans_of, refused_for
from dag.spec.spec import DagSpec
from dag.stage_timing import StageTiming
from dag.starting import Starting, as_event
from federation.auditing import LedgerAudit
from federation.blobs import BlobStore
from federation.configured_meshes import NO_CONFIGURED_MESHES, ConfiguredMeshes
from federation.dispatch import CONTESTED, STAGE_MESSAGES, InboxEntry, StageQueue
from federation.errors import StoreUnavailable
from federation.estimates import COST_RULES, CostRules
from federation.flap_detection import FlapRules
from federation.leases import LeaseLedger
from federation.mesh_access import may_use
from federation.quota.starts import Allowance
from federation.quota.tenant_policies import TenantPolicyStore
from federation.registry import MeshRegistry, RegistryNote, enrolled, observe
from federation.routing.domains import crowded
from federation.snapshot import FederationSnapshot
from mesh.core.clock import Clock
from mesh.core.ids import MeshId, NodeId, RunId, TenantPath
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.core.wire import decode
from mesh.observability.trace_context import TRACES
from mesh.stages.messages import NodeGrew, NodesSucceeded, NodeSucceeded

log = structlog.get_logger(__name__)

#: Attempts to read the registry when another coordinator writes into it meanwhile; the last reading is used as it is.
LOOKS_MAX = 3
#: Time limit of one tick for reclaiming what is overdue, so that runs advance too; the next tick goes on.
SWEEP_MS_MAX = 500
#: Nodes of one message whose run times are learned; a mean needs no more.
MEASURED_MAX = 64
#: Functions of a run whose expected run times its record keeps.
EXPECTED_MAX = 1_000
#: Every so many ticks, some sums of the ledger are audited.
TICKS_PER_COUNT = 10


class _SharedLook:
    """The snapshot by which the runs of one step are placed. Call it to get the snapshot.

    Runs that arrive together share it as long as routing has no choice. With several meshes each run needs one that shows the stages
    of the run before, or all runs would go to the mesh that was the best for the first.
    """

    def __init__(self, look: Callable[[], FederationSnapshot], snapshot: FederationSnapshot | None = None) -> None:
        self._look = look
        self._snapshot = snapshot
        self._is_given = snapshot is not None

    def __call__(self) -> FederationSnapshot:
        if self._snapshot is None:
            self._snapshot = self._look()
        return self._snapshot

    def end_run(self) -> None:
        """Drop the snapshot unless the next run may have it too."""
        if not self._is_given and self._snapshot is not None and len(self._snapshot.meshes) > 1:
            self._snapshot = None


class Coordinator:
    """Advances runs. It keeps no state that the stores do not have.

    Args:
        on_end: Called with the record of each run that ended, to write traces.
        delete: Removes a file of a run's value that is no longer needed; a worker reported the file's address.
        clear: Removes every file of a run that has ended, except those at the addresses given.
        fetch: Returns the verified bytes of a run's value in a file; raises RuntimeAdapterError.
        retention_ms: How long ended runs are kept.
        costs: Costs of waiting and of moving data, for the choice of a mesh.
        flap_rules: How long a mesh that was lost and came back is on probation.
        retrying: Limits and waits for retries.
        configured_meshes: The meshes in the root's file, so that routing can name one that is not there.
        cache: Values of cached nodes; None: all nodes run.
        is_traced: Whether tasks get a trace context though the client sent none.
    """

    def __init__(
        self,
        *,
        runs: RunStore,
        queue: StageQueue,
        ledger: LeaseLedger,
        registry: MeshRegistry,
        tenant_policies: TenantPolicyStore,
        blobs: BlobStore,
        clock: Clock,
        on_end: Callable[[RunRecord], None],
        delete: Callable[[RunId, str], None],
        clear: Callable[[RunId, frozenset[str]], None],
        fetch: Callable[[RunId, StoredValue], bytes],
        retention_ms: int,
        costs: CostRules = COST_RULES,
        flap_rules: FlapRules = FlapRules(),  # noqa: B008  frozen
        retrying: RetryRules = RETRY_RULES,
        configured_meshes: ConfiguredMeshes = NO_CONFIGURED_MESHES,
        cache: ResultCache | None = None,
        is_traced: bool = False,
    ) -> None:
        self._runs = runs
        self._queue = queue
        self._ledger = ledger
        self._registry = registry
        self._tenant_policies = tenant_policies
        self._blobs = blobs
        self._clock = clock
        self._on_end = on_end
        self._delete = delete
        self._clear = clear
        self._fetch = fetch
        self._retention_ms = retention_ms
        self._costs = costs
        self._flap_rules = flap_rules
        self._retrying = retrying
        self._configured_meshes = configured_meshes
        self._cache = cache
        self._is_traced = is_traced
        self._run_times_ms: defaultdict[MeshId, list[int]] = defaultdict(list)  #: Run times of stages that ended since the last snapshot.
        self._stage_timing = StageTiming(clock.wall_ms())
        self._times = FunctionTimes()  #: Of nodes that ended since this coordinator began.
        self._kept: dict[RunId, RunMachine] = {}  #: Machines of runs that have not ended, as committed.
        self._alarms = Alarms()
        self._starting = Starting()
        self._audit = LedgerAudit()
        self._ticks = 0
        self._taking: set[MeshId] = set()  # Meshes that take a waiting stage in this turn.
        self._in_turn = False  #: True while `tend` goes through all runs, the oldest first.
        self.has_contest = False  #: Tenants compete for quota that they would borrow; the next `survey` has their demand.
        self._epoch: int | None = None  #: Epoch of the ledger at the last snapshot.

    def step(self, wait_ms: int) -> int:
        """Handle the messages in the inbox, waiting up to `wait_ms` for the first; return their number.

        Raises:
            StoreUnavailable: Nothing is lost; call again.
        """
        entries = self._queue.inbox(wait_ms)
        about_runs = [entry for entry in entries if entry.kind != CONTESTED]
        self.has_contest = self.has_contest or len(about_runs) < len(entries)
        if about_runs:
            self._look_at_policies()
        closed, look = cache(self._closed_now), _SharedLook(partial(self._look, with_note=False))
        by_run: dict[RunId, list[InboxEntry]] = {}
        for entry in about_runs:
            by_run.setdefault(entry.run, []).append(entry)
        for run, of_run in by_run.items():
            self._alone(run, partial(self._take, run, of_run, closed, look))
        if entries:
            self._queue.acknowledge(tuple(entry.entry for entry in entries))
        return len(entries)

    def next_timer_ms(self) -> int | None:
        """Return when a timer of a run is due, since the epoch; None: no run that is known has one."""
        return self._alarms.next_ms()

    def take_timers(self) -> None:
        """Run a step of each run with a timer that is due. `tend` finds the runs that another coordinator began.

        Raises:
            StoreUnavailable: Nothing is lost; call again.
        """
        due = self._alarms.take_due(self._clock.wall_ms())
        snapshot = self._look() if due else None
        for run in due:
            self._alone(run, partial(self._take_timer, run, snapshot))

    def _take_timer(self, run: RunId, snapshot: FederationSnapshot | None) -> None:
        kept = self._get(run)
        if kept is not None and self._is_due(kept):
            self._advance(run, [TimersDue()], "", _SharedLook(partial(self._look, with_note=False), snapshot))
        elif kept is not None:
            self._alarms.set(run, kept.next_timer_ms())

    def _is_due(self, machine: RunMachine) -> bool:
        due_ms = machine.next_timer_ms()
        return due_ms is not None and due_ms <= self._clock.wall_ms()

    def tick(self) -> None:
        """Do all periodic work: `survey`, then `tend`. Raises as these two."""
        self.tend(self.survey())

    def survey(self) -> FederationSnapshot:
        """Sweep expired sessions, take back overdue stages, and return a snapshot of the federation. Audit some sums now and then.

        Raises:
            StoreUnavailable: Nothing is lost; call again.
        """
        self.has_contest = False
        self._sweep()
        overdue = self._queue.take_back_overdue()
        if overdue:
            log.warning("stages took longer than their runs allow", stages=overdue)
        snapshot = self._look()
        self._heed_epoch(snapshot)
        self._count_again(snapshot)
        self._starting.adopt(snapshot.tree, self._tenant_policies.in_force())
        return snapshot

    def tend(self, snapshot: FederationSnapshot) -> None:
        """Take back stages from dead meshes, route blocked nodes again, and retire old runs.

        Args:
            snapshot: A recent result of `survey`.

        Raises:
            StoreUnavailable: Nothing is lost; call again.
        """
        open_to = {view.record.mesh: view.record.tenants for view in snapshot.meshes if view.can_start}
        barred = frozenset(crowded(snapshot))
        self._in_turn = True
        self._taking.clear()
        try:
            for run in sorted(self._runs.active(), key=self._age):
                self._alone(run, partial(self._look_after, run, open_to, barred, snapshot))
        finally:
            self._in_turn = False
        for run in self._runs.to_forget(self._clock.wall_ms()):
            self._alone(run, partial(self._forget, run))
        if self._cache is not None:
            self._cache.clean()
        for run, uri in self._runs.retire(self._clock.wall_ms() - self._retention_ms):
            _delete_if_possible(partial(self._delete, run, uri), uri)

    def _sweep(self) -> None:
        """Sweep all expired sessions in parts. While many meshes are lost at once, other work waits for their quota."""
        until_ms = self._clock.monotonic_ms() + SWEEP_MS_MAX
        while True:
            swept = self._ledger.sweep()
            if swept.meshes:
                log.warning("sessions swept", meshes=swept.meshes, leases=swept.leases, stages=len(swept.stages))
            if not swept.is_more_due or self._clock.monotonic_ms() >= until_ms:
                return

    def _heed_epoch(self, snapshot: FederationSnapshot) -> None:
        """Load all runs again after an epoch change: the store may have lost writes, and its records are the truth.

        Nothing else is lost: lost decisions are made again, and meshes repeat their reports.
        """
        if self._epoch not in (None, snapshot.epoch):
            log.warning("the ledger began another epoch: loading all runs again", epoch=snapshot.epoch, runs=len(self._kept))
            self._kept.clear()
            self._starting = Starting()
            self._starting.adopt(snapshot.tree, self._tenant_policies.in_force())
            self._count_running()
        self._epoch = snapshot.epoch

    def _count_again(self, snapshot: FederationSnapshot) -> None:
        """Audit some sums of the ledger, all of them over time. A wrong sum is logged as an error and never corrected silently."""
        self._ticks += 1
        if self._ticks % TICKS_PER_COUNT:
            return
        for wrong in self._audit.look(snapshot):
            log.error(
                "a sum in the ledger differs from the sum of its leases",
                tenant=wrong.tenant,
                flavor=wrong.flavor,
                resource=wrong.resource,
                kept=wrong.kept,
                counted=wrong.counted,
                remedy="compare with schedulemesh audit and schedulemesh history",
            )

    def _look_at_policies(self) -> None:
        """Use the policies in force. The first time, count all active runs before any of them sends more."""
        tenant_policies = self._tenant_policies.in_force()
        if self._starting.has_tree:
            self._starting.obey(tenant_policies)
            return
        snapshot = self._ledger.snapshot()
        self._starting.adopt(snapshot.tree, tenant_policies)
        self._count_running()

    def _count_running(self) -> None:
        if self._starting.limits_running:
            for run in self._runs.active():
                self._alone(run, partial(self._get, run))

    def _age(self, run: RunId) -> tuple[int, RunId]:
        kept = self._kept.get(run)
        return (kept.record.created_ms if kept is not None else 0, run)

    def _allowed(self, record: RunRecord) -> Allowance:
        return self._starting.allowed(record, self._clock.wall_ms(), in_turn=self._in_turn)

    def _look_after(
        self, run: RunId, open_to: Mapping[MeshId, tuple[str, ...]], barred: frozenset[MeshId], snapshot: FederationSnapshot
    ) -> None:
        """Advance one run if its meshes, limits or waits require it.

        Args:
            open_to: The live meshes, each with the tenants that may use it.
            barred: The meshes whose cluster is crowded.
        """
        kept = self._get(run)
        if kept is None or kept.record.state in RUN_ENDS:
            self._settle(run)
            return
        unsent = (StageState.PLANNED, StageState.QUEUED)
        asked = {stage.mesh for stage in kept.record.stages.values() if stage.state in unsent}
        gone = {mesh: why for mesh in sorted(asked) if (why := _why_shut(mesh, kept.record.tenant, open_to, barred)) is not None}
        closed = {view.record.mesh for view in snapshot.meshes if view.is_draining or view.flapping_ms(snapshot.at_ms)}
        updates: list[RunInput] = [MeshGone(mesh=mesh, reason=why) for mesh, why in gone.items()]
        updates += _closings(kept, closed - gone.keys())
        if self._starting.nudge(kept.record, self._allowed(kept.record)):
            updates.append(StartsAllowed())  # Every step gets the limits; this event only forces a step.
        longest_ms = self._starting.max_wait_ms(kept.record.tenant)
        if longest_ms is not None and kept.overdue(longest_ms, self._clock.wall_ms()):
            updates.append(WaitsLimited(longest_ms=longest_ms))
        if self._is_due(kept):
            updates.append(TimersDue())
        if not updates:
            updates += self._moves(kept, snapshot)
        if updates or kept.unplaced(self._clock.wall_ms()) or kept.lookups(again=True):
            self._advance(run, updates, "", _SharedLook(lambda: snapshot, snapshot), looks_again=True)

    def _moves(self, machine: RunMachine, snapshot: FederationSnapshot) -> list[RunInput]:
        """Return the event for the stages that a mesh which has run dry takes. In a turn each mesh takes one that waits alone."""
        place_again = partial(self._placed, tenant=machine.record.tenant, snapshot=snapshot)
        now_ms = self._clock.wall_ms()
        moved = stages_to_move(machine, snapshot, self._times, now_ms, place_again)
        if not moved and (alone := stage_to_move_alone(machine, snapshot, now_ms, place_again, taken=self._taking)):
            stage, mesh = alone
            self._taking.add(mesh)
            moved = (stage,)
        return [StagesMoved(stages=moved)] if moved else []

    def _forget(self, run: RunId) -> None:
        """Delete the values of an ended run that nobody has resumed in time."""
        record = self._runs.load(run)
        if record is not None and record.state in RUN_ENDS:
            machine = machine_of(record, self._retrying)
            if not record.forgotten:
                change = machine.handle((ForgetDue(),), self._clock.wall_ms())
                record.outbox = change.decisions
                if not self._runs.commit(record, change):
                    return
            if not self._carry_out(record, machine.outbox(), machine):
                return
        self._runs.note_forgotten(run)

    def _look(self, *, with_note: bool = True) -> FederationSnapshot:
        """Return the ledger's snapshot with the remembered conditions of each mesh.

        Args:
            with_note: Record new paces of meshes in the registry; else the next survey does. Losses and returns are recorded in any case.

        Raises:
            StoreUnavailable: Nothing is lost; call again.
        """
        for _ in range(LOOKS_MAX):
            conditions = self._registry.conditions()
            snapshot = self._ledger.snapshot()
            run_times_ms = {mesh: tuple(took) for mesh, took in self._run_times_ms.items()} if with_note else {}
            after, note = observe(snapshot, conditions, run_times_ms, self._flap_rules)
            if note is not None:
                note = replace(note, stage_metrics=self._stage_timing.metrics(self._clock.wall_ms(), snapshot.at_ms))
            if not with_note and not (note is not None and note.flap_history):
                break
            if note is None or self._registry.note(note, conditions.version):
                if with_note:
                    self._run_times_ms.clear()
                _report_returns(note, snapshot.at_ms)
                break
        return enrolled(snapshot, after, self._configured_meshes)

    def _closed_now(self) -> frozenset[MeshId]:
        """Return the meshes that the registry knows to be draining or on probation. A new loss shows at the next tick."""
        conditions = self._registry.conditions()
        return frozenset(
            mesh
            for mesh, kept in conditions.meshes.items()
            if kept.drain is not None or (kept.flap_history is not None and kept.flap_history.remaining_ms(conditions.watched_ms))
        )

    def _alone(self, run: RunId, work: Callable[[], object]) -> None:
        """Isolate failures: log an error of one run and skip this run, so that the others go on."""
        try:
            work()
        except StoreUnavailable:
            raise
        except Exception:  # an unreadable record or an illegal transition must stop only this run
            log.exception("a run cannot be advanced", run=run)
            self._kept.pop(run, None)

    def _clear_files(self, record: RunRecord, dropped: tuple[str, ...]) -> None:
        values = [*record.nodes.stored.values(), *(kept.failure.pickled for kept in record.nodes.rare.values() if kept.failure)]
        keep = frozenset(value.uri for value in values if value is not None and value.uri is not None) - set(dropped)
        _delete_if_possible(partial(self._clear, record.run, keep), f"run {record.run}")

    def _take(self, run: RunId, entries: list[InboxEntry], closed: Callable[[], frozenset[MeshId]], look: _SharedLook) -> None:
        if any(entry.kind == "resumed" for entry in entries):
            self._kept.pop(run, None)  # The gateway has committed the resumption.
        kept = self._get(run)
        if kept is not None and _order(entries[0].entry) <= _order(kept.record.last_entry):
            del self._kept[run]  # A repeated entry: the acknowledgement failed, or the store has lost the commit.
            kept = self._get(run)
        if kept is None or kept.record.state in RUN_ENDS:
            self._settle(run)
            return
        seen = _order(kept.record.last_entry)
        fresh = [entry for entry in entries if _order(entry.entry) > seen]
        if fresh:
            has_planned = any(stage.state is StageState.PLANNED for stage in kept.record.stages.values())
            events = [*_closings(kept, closed() if has_planned else ()), *(event for entry in fresh for event in _events_of(entry))]
            if any(isinstance(event, NodeGrew) for event in events):
                events = list(read_growths(events, kept.record, self._blobs, self._fetch, partial(self._refused, kept.record.tenant)))
            self._advance(run, events, fresh[-1].entry, look, looks_again=any(entry.kind == "cached" for entry in fresh))

    def _refused(self, tenant: TenantPath, spec: DagSpec) -> tuple[tuple[str, str], ...]:
        """Return what the tenant may not run or ask for, as for its submissions."""
        tree = self._starting.tree or self._ledger.snapshot().tree
        return refused_for(spec, tree.tenant(tenant), self._starting.settings(tenant).priority_max)

    def _get(self, run: RunId) -> RunMachine | None:
        if run not in self._kept:
            record = self._runs.load(run)
            if record is None:
                return None
            machine = machine_of(record, self._retrying, is_traced=self._is_traced)
            if self._is_traced or record.traceparent:
                TRACES.note(run, record.trace.trace_id)
            self._carry_out(record, machine.outbox(), machine)
            self._kept[run] = machine
            self._starting.count(record, self._allowed(record))
            self._alarms.set(run, machine.next_timer_ms())
        return self._kept[run]

    def _advance(self, run: RunId, events: list[RunInput], last_entry: str, look: _SharedLook, *, looks_again: bool = False) -> None:
        """Run steps of the machine, each with its own commit, until nothing is left to do. On a conflict load the run and repeat.

        Args:
            look: Returns the snapshot to place by.
            looks_again: Ask the cache also about nodes that wait for the value of another one.
        """
        pending: list[RunInput] = list(events)
        has_moved = True
        while True:
            kept = self._get(run)
            if kept is None:
                return
            if not pending and has_moved and self._is_due(kept):
                pending = [TimersDue()]
            if not pending and (answers := self._looked_up(kept, again=looks_again)):
                pending, looks_again = [CacheAnswered(answers=answers)], False
            if not pending and not kept.unplaced(self._clock.wall_ms()):
                break
            if not pending:
                placed = self._place(kept, look())
                if placed is None:
                    break
                pending = [placed]
            before = _progress(kept)
            if self._commit(run, kept, pending, last_entry):
                after = _progress(self._kept[run])
                pending, has_moved = [], after != before
                if has_moved:
                    self._alarms.set(run, after[1])
                continue
            reloaded = self._get(run)
            was_applied = reloaded is not None and _order(reloaded.record.last_entry) >= _order(last_entry)
            pending = [] if was_applied and last_entry else list(events)
        look.end_run()
        self._settle(run)

    def _looked_up(self, machine: RunMachine, *, again: bool) -> dict[NodeId, CacheAnswer]:
        """Return what the cache says about nodes that could start, as far as the record lacks it."""
        lookups = machine.lookups(again=again)
        if not lookups:
            return {}
        if self._cache is None:
            return {node: CacheAnswer(state=CacheState.OFF) for node in lookups}
        answers = self._cache.look_up(machine.record, lookups)
        return {node: answer for node, answer in answers.items() if machine.changes_node(node, answer)}

    def _place(self, machine: RunMachine, snapshot: FederationSnapshot) -> NodesPlaced | None:
        allowed, now_ms = self._allowed(machine.record), self._clock.wall_ms()
        if allowed.is_closed and allowed.gate is not None:
            placed = keep_back(machine, Blockage(reason=allowed.gate.reason, detail=allowed.detail), now_ms=now_ms)
        else:
            placed = self._placed(machine, tenant=machine.record.tenant, snapshot=snapshot)
        return placed if placed.placements or _is_change(machine, placed) else None

    def _placed(self, run: Unplaced, *, tenant: TenantPath, snapshot: FederationSnapshot) -> NodesPlaced:
        settings = self._starting.settings(tenant)
        return place(run, tenant, snapshot, self._costs, settings, self._times, now_ms=self._clock.wall_ms())

    def _commit(self, run: RunId, machine: RunMachine, events: Sequence[RunInput], last_entry: str) -> bool:
        """Run one step, commit it and carry it out. Return False if another coordinator committed first.

        The machine is dropped from memory first, and kept again only on success, because a failed step leaves it changed.
        """
        del self._kept[run]
        allowed = self._allowed(machine.record)
        starts = as_event(machine.record, allowed, self._starting.preemption(machine.record.tenant))
        change = machine.handle((*events, starts), self._clock.wall_ms())
        machine.record.last_entry = last_entry or machine.record.last_entry
        machine.record.outbox = change.decisions
        if any(isinstance(event, NodesPlaced) for event in events):
            change = self._with_expected(machine, change)
        if not self._runs.commit(machine.record, change):
            return False
        if change.expected_ms is not None:
            machine.record.expected_ms = change.expected_ms
        self._note_run_times(machine.record, change)
        self._stage_timing.note(machine.record, machine.plans, change)
        self._note_node_times(machine, events)
        self._starting.count(machine.record, allowed)
        self._carry_out(machine.record, change.decisions, machine)
        self._kept[run] = machine_of(machine.record, self._retrying, is_traced=self._is_traced) if change.growths else machine
        return True

    def _with_expected(self, machine: RunMachine, change: RunChange) -> RunChange:
        """Return the change with what is known of the run times of the run's functions, for readers who have no such history."""
        functions = functions_of(machine.plans)[:EXPECTED_MAX]
        known = {function: self._times.known_ms(machine.record.tenant, function) for function in functions}
        expected = {function: round(run_ms) for function, run_ms in known.items() if run_ms is not None}
        return change if expected == machine.record.expected_ms else replace(change, expected_ms=expected)

    def _note_node_times(self, machine: RunMachine, events: Iterable[RunInput]) -> None:
        """Learn from the nodes that succeeded. A message that came too late is as good a measure as any."""
        tenant = machine.record.tenant
        for event in events:
            if not isinstance(event, (NodeSucceeded, NodesSucceeded)) or event.stage not in machine.record.stages:
                continue
            stage = machine.record.stages[event.stage]
            for node, took_ms, stored in _measured(event, stage.nodes):
                if node in machine.plans:
                    self._times.note(tenant, function_of(machine.plans, node), stage.mesh, took_ms, stored.size_bytes if stored else None)

    def _note_run_times(self, record: RunRecord, change: RunChange) -> None:
        for stage in change.stages:
            if stage.state is StageState.ENDED and stage.started_ms and not _was_cut_short(record, stage):
                self._run_times_ms[stage.mesh].append(max(0, stage.ended_ms - stage.started_ms))

    def _carry_out(self, record: RunRecord, decisions: Iterable[Decision], machine: RunMachine) -> bool:
        """Carry out the decisions; return False if the run has changed since, so that its values must stay."""
        for decision in decisions:
            if isinstance(decision, SendStage):
                self._queue.submit(decision.mesh, decision.spec)
            elif isinstance(decision, DeliverInput):
                self._queue.deliver(decision.stage, decision.node, decision.value)
            elif isinstance(decision, CancelStage):
                self._queue.cancel(decision.stage)
            elif isinstance(decision, StopNode):
                self._queue.deliver(decision.stage, decision.node, None)  # A stage stops its own node when the value is withdrawn.
            elif isinstance(decision, DropValue):
                self._drop_value(record.run, decision.value)
            elif isinstance(decision, KeepCached | ReleaseCached):
                self._settle_cached(record, decision, machine)
            elif isinstance(decision, ForgetRun):
                if not self._queue.forget(record.run, decision.meshes, keep=decision.keep, version=record.version):
                    return False
                self._clear_files(record, decision.uris)
        return True

    def _settle_cached(self, record: RunRecord, decision: KeepCached | ReleaseCached, machine: RunMachine) -> None:
        if self._cache is None:
            return
        if isinstance(decision, KeepCached):
            self._cache.keep(record, machine.plans, decision)
        else:
            self._cache.release(record, decision)

    def _drop_value(self, run: RunId, value: StoredValue) -> None:
        if value.uri is None:
            self._blobs.drop(run, value.sha256)
        else:
            _delete_if_possible(partial(self._delete, run, value.uri), value.uri)

    def _settle(self, run: RunId) -> None:
        kept = self._kept.get(run)
        if kept is not None and kept.record.state in RUN_ENDS:
            del self._kept[run]
            self._starting.forget(kept.record)
            self._stage_timing.forget(run)
            if self._runs.settle(run):
                self._on_end(kept.record)


def _progress(machine: RunMachine) -> tuple[int, int | None]:
    """Return what every useful step changes. A step without an event that leaves the timer as it is would be repeated for ever."""
    return machine.record.seq, machine.next_timer_ms()


def _was_cut_short(record: RunRecord, stage: StageRecord) -> bool:
    """Return whether part of the stage was stopped, skipped or recalled, so that its time is no measure of such stages."""
    rows = record.nodes.rows(stage.nodes)
    has_left = not record.nodes.in_stage(rows, stage.stage).all()
    return has_left or not record.nodes.states_of(rows).isdisjoint((NodeState.CANCELLED, NodeState.SKIPPED))


def _measured(event: NodeSucceeded | NodesSucceeded, nodes: Sequence[NodeId]) -> Iterator[tuple[NodeId, int, StoredValue | None]]:
    """Yield nodes that succeeded, each with its run time and value; of many the first.

    Args:
        nodes: The nodes of their stage.
    """
    if isinstance(event, NodeSucceeded):
        yield event.node, event.finished_ms - event.started_ms, event.stored
        return
    for entry, task in enumerate(event.tasks[:MEASURED_MAX]):
        if task < len(nodes):
            yield nodes[task], event.took[entry], event.stored.get(entry)


def _delete_if_possible(delete: Callable[[], None], what: str) -> None:
    try:
        delete()
    except Exception:  # fsspec's file systems raise errors of any class, and a file left behind must not stop the coordinator
        log.exception("files could not be deleted", of=what)


def _why_shut(mesh: MeshId, tenant: TenantPath, open_to: Mapping[MeshId, tuple[str, ...]], barred: frozenset[MeshId]) -> Reason | None:
    """Return why the mesh cannot begin work of the tenant; None if it can."""
    if mesh not in open_to:
        return Reason.MESH_UNREACHABLE
    if not may_use(open_to[mesh], tenant):
        return Reason.TENANT_NOT_ALLOWED
    return Reason.CLUSTER_NOT_SHARED if mesh in barred else None


def _closings(machine: RunMachine, closed: Iterable[MeshId]) -> list[RunInput]:
    """Return an event for each closed mesh that has planned stages of the run."""
    planned = {stage.mesh for stage in machine.record.stages.values() if stage.state is StageState.PLANNED}
    return [MeshClosed(mesh=mesh) for mesh in sorted(planned.intersection(closed))]


def _report_returns(note: RegistryNote | None, now_ms: int) -> None:
    for mesh, kept in (note.flap_history if note is not None else {}).items():
        if kept.alive and kept.back_ms == now_ms and kept.remaining_ms(now_ms):
            log.warning("a lost mesh is back, on probation", mesh=mesh, losses=len(kept.losses_ms), probation_ms=kept.remaining_ms(now_ms))


def machine_of(record: RunRecord, retrying: RetryRules = RETRY_RULES, *, is_traced: bool = False) -> RunMachine:
    """Return a run machine for a stored run; see `RunMachine`."""
    spec = graph_of(record)
    return RunMachine(
        record,
        plans_of(spec),
        runtime_env=spec.code.runtime_env,
        on_error=spec.on_error,
        retrying=retrying,
        stage_deadline_ms=None if spec.stage_deadline_s is None else int(spec.stage_deadline_s * 1000),
        deadline_ms=None if spec.deadline_s is None else int(spec.deadline_s * 1000),
        is_traced=is_traced,
    )


def _events_of(entry: InboxEntry) -> list[RunInput]:
    if entry.kind == "stage":
        messages: list[RunInput] = decode(STAGE_MESSAGES, entry.body)
        return messages
    if entry.kind in ("cancel", "cancel_all"):
        return [CancelRequested(detail=entry.body.decode(), also_cleanup=entry.kind == "cancel_all")]
    if entry.kind == "signal":
        return [decode(SignalSent, entry.body)]
    return []


def _is_change(machine: RunMachine, placed: NodesPlaced) -> bool:
    """Return whether any blockage differs from the recorded one."""
    nodes = machine.record.nodes
    return any(
        (nodes[node].state, nodes[node].reason, nodes[node].detail) != (NodeState.BLOCKED, blockage.reason, blockage.detail)
        for node, blockage in placed.blockages.items()
    )


def _order(entry: str) -> tuple[int, int]:
    """Return a sort key for an entry id, two integers around a dash; the empty id sorts first."""
    major, _, minor = entry.partition("-")
    return (int(major or 0), int(minor or 0))
