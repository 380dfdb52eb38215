"""A child mesh: joins the ledger, claims stages from its queue, runs them and reports their status.

One thread calls `heartbeat` when it is due and passes in notifications and host reports; nothing here blocks. Admission decides within
the mesh's pools, the host runs the stages, and the lease of the tenant pays for each stage. This file holds the session: how it
begins and is renewed, what comes in, and what becomes void at its end. The rest is elsewhere:

- `child_state`: queued stages, lease accounting, running stages;
- `lease_client`: asks the ledger for quota that the leases at hand do not cover, and returns idle quota;
- `decision_queue`: carries out admission's decisions; `claims`: claims stages from the queue and starts them;
- `stage_preemptor`: preempts stages for more urgent ones of the same tenant, and those that leases do not pay for any more;
- `status_reporter`: reports to the root, late if necessary.

When the ledger reduces a lease, the mesh stops the stages that the plan names, then the least urgent and most recently started ones, and
reports the freed quota.

While the store does not respond, the mesh keeps its reports and sends them later, in order. Meanwhile the session's deadlines
(`deadlines`) pass by this process's own clock: first the mesh starts nothing new, then it asks running stages to stop, then all work
ends at once. Work also ends at once when the session is lost, since the leases that paid may belong to others. The host's watchdogs
enforce the deadlines if this process cannot. A ledger that may have lost writes begins an epoch: the mesh reports all that it holds,
and work continues.

Work outlives this process. A new process looks for stages of its predecessor, takes over the session with its claims and leases, and
continues (`stage_recovery`). If that fails, the process stops the found stages and joins with a new session.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import structlog

from federation.blobs import BlobStore
from federation.child.child_session import ChildSession
from federation.child.child_state import ChildState
from federation.child.claims import Claims
from federation.child.deadlines import Permission
from federation.child.decision_queue import DecisionQueue
from federation.child.guard import DONE_AT_ONCE, Guard, remedy_of, will_pass
from federation.child.heartbeat_jitter import interval_ms, soonest_ms
from federation.child.lease_client import LeaseClient
from federation.child.output_reporter import OutputReporter
from federation.child.running_stage import RunningStage
from federation.child.stage_plugins import StagePlugins
from federation.child.stage_preemptor import StagePreemptor
from federation.child.stage_recovery import StageRecovery, offer_of, recovery_of, seen_in, workload_of
from federation.child.status_reporter import StatusReporter
from federation.dispatch import HEADS_MAX, ClaimedStage, Notification, NotificationKind, StageQueue
from federation.errors import (
    FutureToken,
    LedgerRecovering,
    SessionLost,
)
from federation.leases import LeaseLedger
from federation.registry import PublishedSettings
from federation.run_log import RunLog
from federation.snapshot import MeshRecord
from mesh.core.clock import Clock
from mesh.core.ids import RunId, StageId
from mesh.core.reasons import Reason
from mesh.errors import MeshError
from mesh.observability.trace_context import TRACES
from mesh.stages import admission_events as events
from mesh.stages.hosting import FoundStages, HostReport, StageHost
from mesh.stages.messages import StageEnded, StageLost, StageResized

log = structlog.get_logger(__name__)

#: Heartbeats between two reconciliations of the claims with the store, in case a notification was lost.
HEARTBEATS_PER_COMPARISON = 5
#: Heartbeats for which a lease may lie idle while nobody else wants quota.
IDLE_HEARTBEATS = 2


class ChildMesh:
    """One mesh, from join to leave.

    Args:
        record: Record of the mesh; each heartbeat fills in the use of its pools.
        host: Has to report through `take_report`, on the thread that calls everything else.
        heartbeat_ms: Interval between calls of `heartbeat`, before jitter.
        settings: Settings that the root has published for the mesh; None: the mesh follows those of its record.
        plugins: Plugins of the mesh; None: it has none.
        run_log: Takes what nodes print; None: it is dropped.
        start_delay_ms: How long the report of a start may wait for the stage's first report, if `wake` is called when it is due.
    """

    def __init__(
        self,
        *,
        record: MeshRecord,
        ledger: LeaseLedger,
        queue: StageQueue,
        blobs: BlobStore,
        host: StageHost,
        clock: Clock,
        heartbeat_ms: int,
        settings: PublishedSettings | None = None,
        plugins: StagePlugins | None = None,
        run_log: RunLog | None = None,
        start_delay_ms: int = 0,
    ) -> None:
        self._record = record
        self._ledger = ledger
        self._queue = queue
        self._host = host
        self._clock = clock
        self._heartbeat_ms = heartbeat_ms
        self._store_ahead_ms = 0  #: The store's clock less this process's own, as last measured; nothing has waited before.
        self._settings = settings
        self._reads_settings = settings is not None  #: The published settings are to be read.
        self._may_go_on = True  #: This process has had no session yet, so it may recover an earlier process's work.
        self._acknowledged = 0  #: Heartbeats that the ledger has acknowledged.
        self._begun = 0  #: Heartbeats, acknowledged or not.
        self._is_comparing = False  #: The claims are to be reconciled with the store.
        self._first = 0  #: Index of the step with which the next heartbeat begins.
        self._child_session = child_session = ChildSession()
        self._child_state = child_state = ChildState(record, plugins if plugins is not None else StagePlugins())
        self._guard = guard = Guard(mesh=record.mesh, child_session=child_session, clock=clock, lose=self._lose_session)
        output = OutputReporter(mesh=record.mesh, run_log=run_log, clock=clock)
        self._reporter = StatusReporter(
            child_state=child_state, queue=queue, blobs=blobs, host=host, guard=guard, output=output, start_delay_ms=start_delay_ms
        )
        self._lease_client = LeaseClient(
            child_state=child_state, child_session=child_session, ledger=ledger, clock=clock, guard=guard, obey_leases=self._obey_leases
        )
        self._claims = Claims(
            child_state=child_state,
            child_session=child_session,
            reporter=self._reporter,
            queue=queue,
            blobs=blobs,
            host=host,
            clock=clock,
            guard=guard,
        )
        self._decision_queue = DecisionQueue(
            child_state=child_state,
            lease_client=self._lease_client,
            child_session=child_session,
            queue=queue,
            guard=guard,
            start=self._claims.start,
            grow=self._claims.grow,
        )
        self._preemptor = StagePreemptor(
            child_state=child_state,
            lease_client=self._lease_client,
            decision_queue=self._decision_queue,
            child_session=child_session,
            host=host,
            clock=clock,
        )

    @property
    def state(self) -> ChildState:
        """State of this mesh: its pools, admission, leases and running stages; for checks."""
        return self._child_state

    # -- the session ---------------------------------------------------------------------------------------------------

    @property
    def is_joined(self) -> bool:
        """Whether the mesh has a session at the root."""
        return self._child_session.session is not None

    def due_in_ms(self) -> int:
        """Return in how many milliseconds `heartbeat` is due."""
        return self._child_session.due_in_ms(self._clock.monotonic_ms())

    def wake_in_ms(self) -> int:
        """Return in how many milliseconds `heartbeat` or `wake` is due."""
        start_ms = self._reporter.due_in_ms(self._clock.monotonic_ms())
        return self.due_in_ms() if start_ms is None else min(start_ms, self.due_in_ms())

    def wake(self) -> None:
        """Do what is due: a heartbeat, or the reports of starts."""
        if self.due_in_ms() == 0:
            self.heartbeat()
        else:
            self._guard(partial(self._reporter.report_starts, self._clock.monotonic_ms()))

    def heartbeat(self) -> None:
        """Renew the session or begin one, send pending reports, and process the queue."""
        self._child_state.can_start = self._host.is_ready()
        self._host.read_clock()
        self._child_state.note_nodes(self._host.nodes())
        self._child_state.plugins.log_fenced(self._record.mesh)
        sent_ms = self._clock.monotonic_ms()
        self._child_session.due_ms = sent_ms + self._interval_ms()
        if (
            self._child_session.session is not None and self._child_session.permission(sent_ms) is Permission.OVER
        ):  # This process was paused.
            self._look_at_the_clock(sent_ms)
        try:
            if self._child_session.session is None:
                self._join(sent_ms)
            else:
                self._renew(sent_ms)
        except SessionLost as lost:
            self._lose_session(str(lost))
            self._child_session.due_ms = sent_ms
            return
        except MeshError as gone:  # All work ends at the last deadline; this process lives on.
            remedy = {} if will_pass(gone) else {"remedy": remedy_of(gone)}
            log.warning("the ledger does not respond", mesh=self._record.mesh, kind=type(gone).__name__, error=str(gone), **remedy)
            self._look_at_the_clock(sent_ms)
            return
        self._acknowledged += 1
        if self._acknowledged % HEARTBEATS_PER_COMPARISON == 0:
            self._is_comparing, self._reads_settings = True, self._settings is not None
        self._reporter.ask_again()
        self._work()
        self._look_at_the_clock(self._clock.monotonic_ms())

    def _interval_ms(self) -> int:
        session, number = self._child_session.session, self._begun
        self._begun += 1
        ttl_ms = session.ttl_ms if session is not None else None
        return interval_ms(self._record.mesh, number, heartbeat_ms=self._heartbeat_ms, ttl_ms=ttl_ms)

    def _work(self) -> None:
        """Run the steps that follow a heartbeat, until the next one is due.

        Round-robin: the next heartbeat begins after the step that used up the time or failed, so a long step starves no other.
        """
        steps = (
            self._reporter.report_starts,
            self._read_settings,
            self._look,
            self._fit_slots,
            self._keep_groups,
            self._decision_queue.explain,
            self._give_back_idle,
            self._claims.bring_inputs,
            self._compare,
        )
        for place in (*range(self._first, len(steps)), *range(self._first)):
            if not self._guard(steps[place]) or self._guard.has_to_stop(DONE_AT_ONCE):
                self._first = (place + 1) % len(steps)
                return
        self._first = 0

    def _fit_slots(self) -> None:
        changes = self._claims.fit_slots()
        if changes:
            self._decision_queue.take(*changes)

    def _keep_groups(self) -> None:
        self._host.keep_groups(self._child_state.admission.reserved.layers())

    def _read_settings(self) -> None:
        """Follow the settings that the root has published for the mesh, else those of its own record, if they have changed."""
        if self._settings is None or not self._reads_settings:
            return
        published = self._settings.settings_of(self._record.mesh)
        self._reads_settings = False
        changed = self._child_state.change_settings(published if published is not None else self._record.settings)
        if changed is not None:
            log.info("settings changed", mesh=self._record.mesh, settings=changed.settings)
            self._decision_queue.take(changed)
            self._child_session.hurry()  # The next heartbeat reports them.

    def _compare(self) -> None:
        if self._is_comparing:
            self._is_comparing = not self._claims.compare()

    def _join(self, sent_ms: int) -> None:
        found = self._host.find() if self._may_go_on else None
        recovery = self._recover(found) if found is not None else None
        if recovery is None:
            self._child_session.begin(self._ledger.join(self._child_state.as_reported(), seen=self._child_session.seen))
        self._may_go_on = False
        session = self._child_session.held()
        self._lease_client.apply(session.response)
        log.info("joined", mesh=self._record.mesh, incarnation=session.incarnation, goes_on=recovery is not None)
        self._note_renewal(sent_ms)
        if recovery is not None:
            self._go_on(recovery)

    def _renew(self, sent_ms: int) -> None:
        epoch = self._child_session.held().epoch
        response, heartbeat_report = self._child_session.renew(self._ledger, self._child_state, self._clock.monotonic_ms())
        self._lease_client.apply(response, [(ack.tenant, ack.flavor) for ack in heartbeat_report.acks])
        if self._child_session.held().epoch != epoch:
            self._decision_queue.report_again()
            self._reporter.report_again()
        self._note_renewal(sent_ms)

    def _note_renewal(self, sent_ms: int) -> None:
        """Count the deadlines from the sending of the acknowledged heartbeat, here and in the nodes' watchdogs."""
        self._child_session.extend_deadline(sent_ms)
        deadlines = self._child_session.deadlines
        self._host.extend_deadline(self._child_session.held().incarnation, deadlines.stop_ms, deadlines.over_ms, self._child_session.since)

    def _obey_leases(self) -> None:
        self._preemptor.obey_leases()

    def _look_at_the_clock(self, now_ms: int) -> None:
        """Apply the deadline that has passed, and schedule the next call for the following one."""
        if self._child_session.session is None:
            return
        permission = self._child_session.permission(now_ms)
        if permission is Permission.OVER:
            self._lose_session("the session was not renewed in time")
            return
        if permission is Permission.STOPPING:
            for stage, running in self._child_state.running.items():
                if not running.stops:
                    log.warning("a stage stops: its lease was not renewed in time", mesh=self._record.mesh, stage=stage)
                    running.preempt(self._host)
        change_ms = self._child_session.next_change_ms(now_ms)
        if change_ms is not None:
            self._child_session.hurry(now_ms + change_ms)

    def leave(self) -> None:
        """Stop all work and end the session, so that its quota is free at once."""
        self._host.stop_all()
        session, self._child_session.session = self._child_session.session, None
        if session is not None:
            self._host.leave(session.incarnation)
            self._ledger.leave(session)

    def _lose_session(self, why: str) -> None:
        log.warning("session lost: all work stops", mesh=self._record.mesh, why=why, stages=sorted(self._child_state.running))
        self._host.stop_all()
        self._child_session.end()
        self._reporter.clear()
        self._decision_queue.clear()
        self._lease_client.forget_refusals()
        self._child_state.begin()

    # -- recovery of an earlier process's work ---------------------------------------------------------------------------

    def _recover(self, found: FoundStages) -> StageRecovery | None:
        """Take over the session of the found stages. None: the ledger refused, and all found stages are stopping."""
        try:
            session = self._ledger.join(self._child_state.as_reported(), adopt=found.incarnation, seen=seen_in(found))
            claims = self._queue.claims_of(session)
        except (SessionLost, LedgerRecovering, FutureToken) as refused:
            log.warning("found stages cannot be recovered, and stop", mesh=self._record.mesh, why=str(refused), stages=len(found.stages))
            self._host.stop_all()
            return None
        self._child_session.begin(session, found.since)
        capacity = {pool.pool: pool.capacity for pool in self._record.pools}
        return recovery_of(found, claims, session, capacity=capacity, now_ms=self._clock.monotonic_ms())

    def _go_on(self, recovery: StageRecovery) -> None:
        """Continue the recovered stages: restore the state of each, then let the host report."""
        for running, claimed in recovery.stages:
            self._child_state.running[running.claim.stage] = running
            TRACES.note_header(running.run, claimed.spec.traceparent)
            self._decision_queue.take(workload_of(claimed, running.note))
            self._pay_for(running)
            self._reporter.add_start(running)
        goes_on = frozenset(self._child_state.running)
        for orphan in recovery.orphans:
            self._child_state.running[orphan.claim.stage] = orphan
            self._pay_for(orphan)  # Until the host reports its end, so that no other stage starts in its room.
        self._host.go_on(goes_on)
        self._lease_client.apply(self._child_session.response)  # The overdraft check needs the amounts spent.
        for claimed in recovery.missing:
            self._reporter.add_loss(claimed.claim, Reason.WORKER_LOST)
        for _, claimed in recovery.stages:
            self._catch_up(claimed)
        self._guard(self._claims.bring_inputs)

    def _pay_for(self, running: RunningStage) -> None:
        """Charge its lease for the found stage."""
        note = running.note
        if note.payer is not None:
            self._child_state.accounting.spend(running.claim.stage, note.payer, note.amounts, self._clock.monotonic_ms())

    def _catch_up(self, claimed: ClaimedStage) -> None:
        """Apply a cancellation or inputs that arrived while no process listened. Delivering an input twice is harmless."""
        running = self._child_state.running[claimed.claim.stage]
        if claimed.cancelled:
            running.cancel(self._host)
        elif running.is_preempted:  # The process that preempted the stage may have died before the host received the cancellation.
            self._host.cancel(claimed.claim.stage)
        if claimed.inputs:
            self._claims.note_inputs((claimed.claim.stage,))

    # -- what comes in -------------------------------------------------------------------------------------------------

    def take_notifications(self, notifications: Iterable[Notification]) -> None:
        """Handle notifications from the root."""
        notifications = tuple(notifications)
        kinds = {notification.kind for notification in notifications}
        running = self._child_state.running
        for notification in notifications:
            if notification.kind is NotificationKind.FORGET:
                self._host.forget(RunId(notification.subject))
            elif notification.kind is NotificationKind.CANCEL and notification.subject in running:
                running[StageId(notification.subject)].cancel(self._host)
        self._claims.note_inputs(
            StageId(notification.subject) for notification in notifications if notification.kind is NotificationKind.INPUT
        )
        self._guard(self._claims.bring_inputs)
        sent = [
            StageId(notification.subject)
            for notification in notifications
            if notification.kind is NotificationKind.STAGE and notification.subject
        ]
        if sent and NotificationKind.CANCEL not in kinds and not self._has_waiting() and len(sent) <= HEADS_MAX:
            self._guard(partial(self._take_sent, sent))
        elif sent or NotificationKind.CANCEL in kinds:
            self._guard(self._look)
        elif NotificationKind.STAGE in kinds:
            self._guard(self._try_again)
        if NotificationKind.LEASE in kinds:
            self._guard(self._give_back_now)
        if NotificationKind.SETTINGS in kinds:
            self._reads_settings = True
            self._guard(self._read_settings)
        if NotificationKind.PLAN in kinds:
            self._child_session.hurry()

    def take_report(self, report: HostReport) -> None:
        """Handle a report of the host on a stage."""
        running = self._child_state.running.get(report.stage)
        if running is None:
            self._host.confirm(report.stage, report.number)
            return
        over = any(isinstance(message, (StageEnded, StageLost)) for message in report.messages)
        running.heed(report.messages, self._clock.monotonic_ms())
        self._child_state.count_outside(report.messages)
        self._reporter.add_report(running, report)
        for message in report.messages:
            if isinstance(message, StageResized) and (fewer := running.note_retired(message, self._host)):
                self._child_session.hurry()  # Others may wait for the quota.
                self._reporter.then(partial(self._decision_queue.retire, running, fewer, message))
        if over:
            del self._child_state.running[report.stage]
            self._reporter.then(partial(self._decision_queue.end, report.stage))
        self._guard(self._reporter.report)
        if over and running.is_preempted:
            self._child_session.hurry()  # Another tenant waits for the reclaimed quota.

    # -- the queue -----------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        self._lease_client.forget_refusals()
        self._decision_queue.go_on()
        if not self._decision_queue.is_done:
            return  # The previous pass over the queue is unfinished, and a heartbeat is due.
        known = self._child_state.admission.workloads
        queued = self._queue.queued(self._record.mesh)
        gone = known.keys() - self._child_state.running.keys() - set(queued)
        fresh = [stage for stage in queued if stage not in known] if self._child_state.can_start else []
        self._preemptor.end_holds(gone)
        if gone and self._child_session.doubt_demands():
            self._child_session.hurry()  # The ledger may reclaim quota for them.
        offers = self._offers(fresh[:HEADS_MAX])
        withdrawn = (events.WorkloadWithdrawn(workload=name) for name in sorted(gone))
        clock_read = events.ClockRead(now_ms=self._clock.monotonic_ms() + self._store_ahead_ms)
        self._decision_queue.take(clock_read, self._child_state.nodes_seen(), *offers, *withdrawn, events.RoomMayHaveCome())
        for place in range(HEADS_MAX, len(fresh), HEADS_MAX):  # The most urgent come first; the next pass handles the rest.
            if not self._decision_queue.is_done or self._guard.has_to_stop(DONE_AT_ONCE):
                return
            self._decision_queue.take(*self._offers(fresh[place : place + HEADS_MAX]))
        if self._decision_queue.is_done:
            self._preemptor.make()

    def _has_waiting(self) -> bool:
        """Return whether any stage waits here, as far as this process knows; it may have left the queue."""
        return len(self._child_state.admission.workloads) > len(self._child_state.running)

    def _take_sent(self, sent: Iterable[StageId]) -> None:
        """Take in stages that the root has just sent, without reading the queue: no other stage waits that may have left it."""
        self._lease_client.forget_refusals()
        self._decision_queue.go_on()
        if not self._decision_queue.is_done:
            return  # The next pass over the queue finds them.
        fresh = [stage for stage in sent if stage not in self._child_state.admission.workloads] if self._child_state.can_start else []
        clock_read = events.ClockRead(now_ms=self._clock.monotonic_ms() + self._store_ahead_ms)
        offers = self._offers(fresh)
        self._decision_queue.take(clock_read, self._child_state.nodes_seen(), *offers, events.RoomMayHaveCome())
        if self._decision_queue.is_done:
            self._preemptor.make()

    def _offers(self, fresh: list[StageId]) -> list[events.WorkloadOffered]:
        """Return an offer for each queued stage that admission does not know yet."""
        heads = self._queue.heads_of(self._record.mesh, tuple(fresh)) if fresh else ()
        now_ms = self._clock.monotonic_ms()
        if heads:  # Waits are compared on the store's clock, of which this machine's may be far.
            self._store_ahead_ms = heads[0].queued_ms + heads[0].waited_ms - now_ms
        return [offer_of(stage, now_ms) for stage in heads]

    def _try_again(self) -> None:
        """Retry the known queued stages, without reading the queue again."""
        self._lease_client.forget_refusals()
        self._decision_queue.go_on()
        if self._decision_queue.is_done:
            self._decision_queue.take(events.RoomMayHaveCome())
        if self._decision_queue.is_done:
            self._preemptor.make()

    def _give_back_now(self) -> None:
        self._lease_client.offer(0)

    def _give_back_idle(self) -> None:
        self._lease_client.offer(0 if self._child_session.response.others_wait else IDLE_HEARTBEATS * soonest_ms(self._heartbeat_ms))
