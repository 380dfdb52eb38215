"""Which run may send stages now: what holds for its tenant and user, counted over all runs that go on.

A stage counts from when it is sent until it has ended. Who was kept back by a limit gets the next free start before those who
came later: a run that has just arrived waits for the next tick while an older one stands at the same gate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dag.events import StartsAllowed
from dag.runs import RunRecord
from dag.states import RUN_ENDS, NodeState, StageState
from federation.quota.limits import Gate
from federation.quota.policies import NO_SETTINGS, OnMaxWait, QueueSettings, TenantPolicies
from federation.quota.starts import ANY_NUMBER, FULL, SHUT, Allowance, Starts, Tally
from federation.tenant_policies import PoliciesInForce
from federation.tenants import TenantTree
from mesh.ids import RunId, TenantPath
from mesh.reasons import Reason
from mesh.stage_preemption import PreemptionPolicy

_SENT = (StageState.QUEUED, StageState.RUNNING)
_GATES = SHUT | FULL


@dataclass(frozen=True, slots=True, kw_only=True)
class _KeptBack:
    """A run that stands at a limit."""

    created_ms: int
    gate: Gate
    user: str


@dataclass(slots=True)
class Starting:
    """Over the runs of one coordinator."""

    _starts: Starts | None = None
    _tallies: dict[RunId, Tally] = field(default_factory=dict)
    _kept_back: dict[RunId, _KeptBack] = field(default_factory=dict)

    @property
    def has_tree(self) -> bool:
        """Does it know any tenants yet?"""
        return self._starts is not None

    @property
    def limits_running(self) -> bool:
        """Is there anybody who may run only so much at a time?"""
        return self._starts is not None and self._starts.limits_running

    def adopt(self, tree: TenantTree, tenant_policies: PoliciesInForce) -> None:
        """From now on these tenants and orders hold."""
        if self._starts is None or not self._starts.tree.covers(tree) or tenant_policies is not self._starts.tenant_policies:
            self._renew(Starts(tree, tenant_policies))

    def obey(self, tenant_policies: PoliciesInForce) -> None:
        """From now on these orders hold, for the tenants that are known."""
        if self._starts is not None and tenant_policies is not self._starts.tenant_policies:
            self._renew(Starts(self._starts.tree, tenant_policies))

    def _renew(self, starts: Starts) -> None:
        for tally in self._tallies.values():
            starts.count(tally, tally.started)
        self._starts = starts

    def allowed(self, record: RunRecord, now_ms: int, *, in_turn: bool) -> Allowance:
        """How many stages the run may send now.

        Args:
            in_turn: All older runs have been asked since something ended; else those that stand at the gate go first.
        """
        if self._starts is None:
            return ANY_NUMBER
        allowed = self._starts.allowed(record.tenant, record.user, now_ms)
        if in_turn or allowed.starts is None or allowed.is_closed or not self._kept_back:
            return allowed
        before = next((other for run, other in self._kept_back.items() if run != record.run and self._goes_before(other, record)), None)
        if before is None:
            return allowed
        return Allowance(starts=0, gate=before.gate, detail=f"older work stands at the limit of {before.gate.node}, and goes first")

    def _goes_before(self, other: _KeptBack, record: RunRecord) -> bool:
        is_within = self._starts is not None and self._starts.tree.is_within(record.tenant, TenantPath(other.gate.node))
        is_same_gate = is_within and (other.gate.reason is Reason.RUNNING_LIMIT or other.user == record.user)
        return is_same_gate and other.created_ms <= record.created_ms

    def settings(self, tenant: TenantPath) -> QueueSettings:
        """What its file says: of flavors, in which order they are tried, and how far."""
        return self._starts.tenant_policies.filed.settings_of(tenant) if self._starts is not None else NO_SETTINGS

    def preemption(self, tenant: TenantPath) -> PreemptionPolicy:
        """What holds among the tenant's stages on one mesh."""
        filed = self._starts.tenant_policies.filed if self._starts is not None else TenantPolicies()
        return filed.preemption(tenant)

    def max_wait_ms(self, tenant: TenantPath) -> int | None:
        """How long work of the tenant waits to start before it is refused; None: as long as it takes."""
        own = self._starts.tenant_policies.filed.settings.get(tenant) if self._starts is not None else None
        return own.max_wait_ms if own is not None and own.on_max_wait is OnMaxWait.REFUSE else None

    def count(self, record: RunRecord, allowed: Allowance) -> None:
        """Take note of what the run has under way, and whether the gate kept something back."""
        has_ended = record.state in RUN_ENDS
        started = 0 if has_ended else under_way(record)
        before = self._tallies.pop(record.run, None)
        tally = Tally(tenant=record.tenant, user=record.user, started=started)
        if self._starts is not None:
            self._starts.count(tally, started - (before.started if before is not None else 0))
        if started:
            self._tallies[record.run] = tally
        self._kept_back.pop(record.run, None)
        if not has_ended and allowed.gate is not None and allowed.gate.reason in FULL and stands_at_gate(record, FULL):
            self._kept_back[record.run] = _KeptBack(created_ms=record.created_ms, gate=allowed.gate, user=record.user)

    def forget(self, record: RunRecord) -> None:
        """The run is over."""
        before = self._tallies.pop(record.run, None)
        self._kept_back.pop(record.run, None)
        if before is not None and self._starts is not None:
            self._starts.count(before, -before.started)

    def nudge(self, record: RunRecord, allowed: Allowance) -> bool:
        """Has the run to be looked at because of the gate: to take back what was sent, or to go on?"""
        if allowed.is_shut:
            return any(stage.state in (StageState.PLANNED, StageState.QUEUED) for stage in record.stages.values())
        return any(stage.state is StageState.PLANNED and stage.reason in _GATES for stage in record.stages.values())


def stands_at_gate(record: RunRecord, reasons: Iterable[Reason]) -> bool:
    """Is something of the run kept back for one of these reasons?"""
    wanted = frozenset(reasons)
    stages = (stage.reason for stage in record.stages.values() if stage.state is StageState.PLANNED)
    nodes = (node.reason for node in record.nodes.values() if node.state is NodeState.BLOCKED)
    return any(reason in wanted for reason in (*stages, *nodes))


def reported(record: RunRecord, allowed: Allowance, preemption: PreemptionPolicy) -> StartsAllowed:
    """What the run machine hears of it: in all, so that what ends in a step makes room for what starts in it."""
    reason = allowed.gate.reason if allowed.gate is not None else None
    most = None if allowed.starts is None else 0 if allowed.is_shut else max(0, under_way(record) + allowed.starts)
    return StartsAllowed(under_way_max=most, reason=reason, detail=allowed.detail, is_shut=allowed.is_shut, preemption=preemption)


def under_way(record: RunRecord) -> int:
    """Stages that were sent and have not ended."""
    return sum(stage.state in _SENT for stage in record.stages.values())
