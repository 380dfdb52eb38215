"""Limits on the stages that a run may send now, from the policies of its tenant and user, counted over all active runs.

A stage counts from its sending to its end. A run at a limit gets the next free start before later runs: a new run waits for the
next tick while an older one stands at the same limit.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dag.run.events import StartsAllowed
from dag.run.runs import RunRecord
from dag.run.states import RUN_ENDS, NodeState, StageState
from federation.quota.limits import Gate
from federation.quota.policies import NO_SETTINGS, OnMaxWait, QueueSettings, TenantPolicies
from federation.quota.starts import ANY_NUMBER, FULL, SHUT, Allowance, Starts, Tally
from federation.quota.tenant_policies import PoliciesInForce
from federation.tenants import TenantTree
from mesh.core.ids import RunId, TenantPath
from mesh.core.reasons import Reason
from mesh.preemption.stage_preemption import PreemptionPolicy

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
    """Start limits over the runs of one coordinator."""

    _starts: Starts | None = None
    _tallies: dict[RunId, Tally] = field(default_factory=dict)
    _kept_back: dict[RunId, _KeptBack] = field(default_factory=dict)

    @property
    def has_tree(self) -> bool:
        """Whether the tenants are known yet."""
        return self._starts is not None

    @property
    def tree(self) -> TenantTree | None:
        """The tenants, once they are known."""
        return self._starts.tree if self._starts is not None else None

    @property
    def limits_running(self) -> bool:
        """Whether any tenant or user has a limit on running stages."""
        return self._starts is not None and self._starts.limits_running

    def adopt(self, tree: TenantTree, tenant_policies: PoliciesInForce) -> None:
        """Use these tenants and policies from now on."""
        if self._starts is None or not self._starts.tree.covers(tree) or tenant_policies is not self._starts.tenant_policies:
            self._renew(Starts(tree, tenant_policies))

    def obey(self, tenant_policies: PoliciesInForce) -> None:
        """Use these policies from now on, for the known tenants."""
        if self._starts is not None and tenant_policies is not self._starts.tenant_policies:
            self._renew(Starts(self._starts.tree, tenant_policies))

    def _renew(self, starts: Starts) -> None:
        for tally in self._tallies.values():
            starts.count(tally, tally.started)
        self._starts = starts

    def allowed(self, record: RunRecord, now_ms: int, *, in_turn: bool) -> Allowance:
        """Return how many stages the run may send now.

        Args:
            in_turn: True if all older runs were asked since a stage ended. Otherwise older runs at the same limit go first.
        """
        if self._starts is None:
            return ANY_NUMBER
        allowed = self._starts.allowed(record.tenant, record.user, now_ms)
        if in_turn or allowed.starts is None or allowed.is_closed or not self._kept_back:
            return allowed
        before = next((other for run, other in self._kept_back.items() if run != record.run and self._goes_before(other, record)), None)
        if before is None:
            return allowed
        return Allowance(starts=0, gate=before.gate, detail=f"older work waits at the limit of {before.gate.node} and goes first")

    def _goes_before(self, other: _KeptBack, record: RunRecord) -> bool:
        is_within = self._starts is not None and self._starts.tree.is_within(record.tenant, TenantPath(other.gate.node))
        is_same_gate = is_within and (other.gate.reason is Reason.RUNNING_LIMIT or other.user == record.user)
        return is_same_gate and other.created_ms <= record.created_ms

    def settings(self, tenant: TenantPath) -> QueueSettings:
        """Return the tenant's queue settings: the order of its flavors, and how far it may go down that order."""
        return self._starts.tenant_policies.filed.settings_of(tenant) if self._starts is not None else NO_SETTINGS

    def preemption(self, tenant: TenantPath) -> PreemptionPolicy:
        """Return the preemption policy among the tenant's stages on one mesh."""
        filed = self._starts.tenant_policies.filed if self._starts is not None else TenantPolicies()
        return filed.preemption(tenant)

    def max_wait_ms(self, tenant: TenantPath) -> int | None:
        """Return how long work of the tenant may wait to start before it fails; None: no limit."""
        own = self._starts.tenant_policies.filed.settings.get(tenant) if self._starts is not None else None
        return own.max_wait_ms if own is not None and own.on_max_wait is OnMaxWait.REFUSE else None

    def count(self, record: RunRecord, allowed: Allowance) -> None:
        """Record the run's sent stages, and whether a limit holds back part of the run."""
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
        """Remove a run that has ended."""
        before = self._tallies.pop(record.run, None)
        self._kept_back.pop(record.run, None)
        if before is not None and self._starts is not None:
            self._starts.count(before, -before.started)

    def nudge(self, record: RunRecord, allowed: Allowance) -> bool:
        """Return whether the run needs a step because of its limits: to take back stages, or to send more."""
        if allowed.is_shut:
            return any(stage.state in (StageState.PLANNED, StageState.QUEUED) for stage in record.stages.values())
        return any(stage.state is StageState.PLANNED and stage.reason in _GATES for stage in record.stages.values())


def stands_at_gate(record: RunRecord, reasons: Iterable[Reason]) -> bool:
    """Return whether part of the run waits for one of these reasons."""
    wanted = frozenset(reasons)
    stages = (stage.reason for stage in record.stages.values() if stage.state is StageState.PLANNED)
    nodes = (node.reason for node in record.nodes.among(NodeState.BLOCKED))
    return any(reason in wanted for reason in (*stages, *nodes))


def as_event(record: RunRecord, allowed: Allowance, preemption: PreemptionPolicy) -> StartsAllowed:
    """Return the limit as an event for the run machine.

    The event has the total and not the rest, so a stage that ends in a step frees a start within the same step.
    """
    reason = allowed.gate.reason if allowed.gate is not None else None
    most = None if allowed.starts is None else 0 if allowed.is_shut else max(0, under_way(record) + allowed.starts)
    return StartsAllowed(under_way_max=most, reason=reason, detail=allowed.detail, is_shut=allowed.is_shut, preemption=preemption)


def under_way(record: RunRecord) -> int:
    """Return the number of stages that were sent and have not ended."""
    return sum(stage.state in _SENT for stage in record.stages.values())
