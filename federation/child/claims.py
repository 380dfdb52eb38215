"""Stages that the mesh claims from its queue: claim, start on the host with all inputs, and reconcile with the store.

A claim whose response was lost may have taken effect. Every few heartbeats the mesh reconciles its running stages with the claims in
the store, and each side drops what the other does not know. The mesh also drops the values of runs that the store has forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from federation.blobs import BlobStore
from federation.child.child_session import ChildSession
from federation.child.child_state import ChildState
from federation.child.guard import Guard
from federation.child.running_stage import RunningStage, StageNote
from federation.child.status_reporter import StatusReporter
from federation.dispatch import HEADS_MAX, StageQueue
from federation.errors import SessionLost
from federation.mesh_access import may_use
from mesh.core.clock import Clock
from mesh.core.ids import NodeId, PoolName, StageId
from mesh.core.reasons import Reason
from mesh.core.shapes import bundles_in
from mesh.core.values import StoredValue
from mesh.errors import MeshError
from mesh.observability.trace_context import TRACES
from mesh.stages import admission_events as events
from mesh.stages.admission_decisions import AdmissionDecision, GrowWorkload, StartWorkload
from mesh.stages.hosting import Delivered, Places, StageHost

log = structlog.get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Claims:
    """Claims of one mesh."""

    child_state: ChildState
    child_session: ChildSession
    reporter: StatusReporter
    queue: StageQueue
    blobs: BlobStore
    host: StageHost
    clock: Clock
    guard: Guard
    _unbrought: dict[StageId, None] = field(default_factory=dict)  #: Stages with possibly new inputs, in order of arrival.

    def start(self, decision: StartWorkload) -> list[AdmissionDecision]:
        """Claim the stage and start it. Return admission's next decisions if the claim or the start fails.

        Raises:
            SessionLost: There is no session any more.
        """
        admission, name = self.child_state.admission, decision.workload
        waiting = admission.workloads.get(name)
        if waiting is not None and not may_use(self.child_state.record.tenants, waiting.offer.tenant):
            # The stage was sent before the mesh closed to its tenant; the root takes the stage back.
            return admission.handle(events.WorkloadWithdrawn(workload=name))
        self.child_state.can_start = self.child_state.can_start and self.host.is_ready()
        if (
            not self.child_state.can_start
        ):  # The heartbeat that follows at once reports this, and the root sends queued stages to other meshes.
            self.child_session.hurry()
            return admission.handle(events.WorkloadWithdrawn(workload=name))
        try:
            payer = self.child_state.accounting.payer(name)
            claimed = self.queue.claim(self.child_session.held(), name, payer, decision.slots)
            blobs = self.blobs.get(claimed.spec.run, claimed.blobs()) if claimed is not None else {}
        except SessionLost:
            raise
        except MeshError as gone:
            log.warning("the store did not respond to a claim", stage=name)
            self.guard.note(gone)
            claimed = None  # If the claim took effect all the same, `compare` releases it.
        self.child_session.doubt_demands()
        if claimed is None:
            return admission.handle(events.WorkloadWithdrawn(workload=name))
        TRACES.note_header(claimed.spec.run, claimed.spec.traceparent)
        flavor = admission.ledger.pools[decision.pool].spec.flavor
        note = StageNote(
            claim=claimed.claim.token,
            pool=decision.pool,
            flavor=flavor,
            slots=decision.slots,
            token=decision.token,
            tenant=claimed.spec.tenant,
            slot=claimed.spec.slot,
            nodes=decision.nodes,
            groups=decision.groups,
            bundles=bundles_in(claimed.spec.gang),
        )
        running = self.child_state.running[name] = RunningStage.of(claimed, note, self.clock.monotonic_ms(), paid_by=payer)
        running.delivered.update(claimed.inputs)
        inputs = {node: _delivered(value, blobs) for node, value in claimed.inputs.items()}
        try:
            places = self._places(decision.pool, decision)
            running.holder = self.host.start(claimed.spec, decision.slots, claimed.claim.token, blobs, inputs, note.encoded(), places)
        except MeshError:  # Nothing runs, so the host will never report an end.
            log.exception("a stage could not be started", mesh=self.child_state.record.mesh, stage=name)
            del self.child_state.running[name]
            self.reporter.add_loss(claimed.claim, Reason.WORKER_LOST)
            self.guard(self.reporter.report_in_turn)
            return admission.handle(events.WorkloadWithdrawn(workload=name))
        self.reporter.add_start(running)
        self.guard(self.reporter.report_in_turn)
        if claimed.cancelled:
            running.cancel(self.host)
        return []

    def grow(self, decision: GrowWorkload) -> None:
        """Give a running stage the slots that its lease pays for. No effect if the stage has ended."""
        running = self.child_state.running.get(decision.workload)
        if running is not None:
            running.grow(self.host, decision.slots, self._places(running.note.pool, decision))

    def _places(self, pool: PoolName, decision: StartWorkload | GrowWorkload) -> Places:
        selector = self.child_state.admission.ledger.pools[pool].spec.selector
        return Places(nodes=decision.nodes, labels=selector, pool=pool, groups=decision.groups)

    def fit_slots(self) -> tuple[events.UsefulSlotsKnown, ...]:
        """Ask for the slots back that no task of a running stage can use. Return what admission must know of useful slots."""
        changes = []
        for stage, running in self.child_state.running.items():
            workload = self.child_state.admission.workloads.get(stage)
            if workload is None or not running.note.slot:
                continue
            useful = running.note.slots if running.stops else running.useful
            if useful < running.kept and not workload.asked:
                running.shrink(self.host, useful)
            if workload.useful != useful:
                changes.append(events.UsefulSlotsKnown(workload=stage, slots=useful))
        return tuple(changes)

    def note_inputs(self, stages: Iterable[StageId]) -> None:
        """Record that these stages may have new inputs; many inputs of one stage cost one call."""
        self._unbrought.update(dict.fromkeys(stages))

    def bring_inputs(self) -> None:
        """Deliver new inputs to running stages, until a heartbeat is due.

        Raises:
            StoreUnavailable: Inputs that were not delivered stay recorded for the next call.
        """
        done = 0
        while self._unbrought and not self.guard.has_to_stop(done):
            stage = next(iter(self._unbrought))
            running = self.child_state.running.get(stage)
            if running is not None and not running.is_disowned:
                self.bring(running, self.queue.inputs_of(stage))
                done += 1
            del self._unbrought[stage]

    def bring(self, running: RunningStage, inputs: dict[NodeId, StoredValue | None]) -> bool:
        """Deliver the inputs that the stage lacks; return whether there were any.

        Raises:
            StoreUnavailable: The store did not respond.
        """
        fresh = {node: value for node, value in inputs.items() if node not in running.delivered}
        inline = tuple(value.sha256 for value in fresh.values() if value is not None and value.uri is None)
        blobs = self.blobs.get(running.run, inline) if inline else {}
        for node, value in fresh.items():
            running.delivered.add(node)
            if value is None:
                running.drop((node,) if node in running.nodes else running.readers.get(node, ()))  # Its own node: it is stopped.
            self.host.deliver(running.claim.stage, node, _delivered(value, blobs))
        return bool(fresh)

    def compare(self) -> bool:
        """Reconcile the running stages with the session's claims in the store. False: a heartbeat was due before the end.

        Raises:
            SessionLost: The session is lost; other errors of the store pass through.
        """
        if self.reporter:
            return True  # The store lacks the pending reports.
        running = self.child_state.running
        claims = self.queue.claims_of(self.child_session.held())
        unclaimed = sorted(running.keys() - {claimed.claim.stage for claimed in claims})
        if unclaimed:  # The store has lost its last second, or someone has closed the claim.
            self.reporter.doubt(running[stage] for stage in unclaimed)
            self.reporter.report()
        done = 0
        for claimed in claims:
            if self.guard.has_to_stop(done):
                return False
            ours = running.get(claimed.claim.stage)
            if ours is None and self.reporter.report_end_again(claimed.claim):
                continue  # The store has lost the report of the stage's end.
            if ours is None:
                self.reporter.report_lost(claimed.claim, Reason.LEDGER_UNREACHABLE)
                done += 1
                continue
            done += self.bring(ours, claimed.inputs)
            if claimed.cancelled:
                ours.cancel(self.host)
        return self._drop_what_is_over(done)

    def _drop_what_is_over(self, done: int) -> bool:
        """Drop the values of runs that the store has forgotten, in case the notification was lost or an earlier process received it."""
        if self.child_session.response.recovery_ms:
            return True  # The ledger is recovering, so the store may still learn of these stages.
        needed = {running.run for running in self.child_state.running.values()}
        held = [(run, stage) for run, stage in self.host.held().items() if run not in needed]
        for first in range(0, len(held), HEADS_MAX):
            if self.guard.has_to_stop(done):
                return False
            asked = held[first : first + HEADS_MAX]
            known = set(self.queue.remembered(self.child_state.record.mesh, tuple(stage for _, stage in asked)))
            for run in (run for run, stage in asked if stage not in known):
                self.host.forget(run)
            done += 1
        return True


def _delivered(value: StoredValue | None, blobs: dict[str, bytes]) -> Delivered:
    return None if value is None else (value, blobs.get(value.sha256) if value.uri is None else None)
