"""Number of further workloads that each tenant and user may start now: stops, time windows, limits on running work.

The federation's workload is the stage. A sender of stages asks here first, and counts the stages it sent and those that ended. The counts
are local, so two senders at once may each start as many as the limit leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from federation.quota.forest import QuotaForest
from federation.quota.limits import Gate, RunningCounts, queue_gate, starts_left
from federation.quota.policies import QueueSettings
from federation.quota.tenant_policies import PoliciesInForce
from federation.quota.workloads import Workload
from federation.tenants import TenantTree
from mesh.core.clock import moment
from mesh.core.counting import counted
from mesh.core.ids import TenantPath
from mesh.core.reasons import Reason

#: Reasons that close a tenant: stages that were sent and have not started are withdrawn as well.
SHUT = frozenset({Reason.TENANT_SUSPENDED, Reason.TENANT_DRAINED, Reason.OUTSIDE_WINDOW})
#: Reasons that end only when running work ends.
FULL = frozenset({Reason.RUNNING_LIMIT, Reason.USER_LIMIT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """Number of workloads that may start."""

    starts: int | None = None  #: None: any number. Negative: so many run too many.
    gate: Gate | None = None  #: The limit behind `starts`.
    detail: str = ""  #: The gate in words, which change only when the gate does.

    @property
    def is_closed(self) -> bool:
        """Nothing may start now."""
        return self.starts is not None and self.starts <= 0

    @property
    def is_shut(self) -> bool:
        """The tenant itself is closed, whatever runs."""
        return self.gate is not None and self.gate.reason in SHUT


ANY_NUMBER = Allowance()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Number of started and unended workloads of one tenant and user."""

    tenant: TenantPath
    user: str
    started: int


@dataclass(slots=True)
class Starts:
    """Start limits of one tree under the orders in force, with local counts."""

    tree: TenantTree
    tenant_policies: PoliciesInForce
    _counts: RunningCounts = field(init=False)
    _forest: QuotaForest = field(init=False)
    _settings: dict[int, QueueSettings] = field(init=False)

    def __post_init__(self) -> None:
        merged = self.tenant_policies.merged()
        self._forest = QuotaForest.of_tenants(self.tree, merged.weights)
        self._settings = {self._forest.index[path]: own for path, own in merged.settings.items() if path in self._forest.index}
        self._counts = RunningCounts(self._forest)

    @property
    def limits_running(self) -> bool:
        """Some tenant limits its running workloads."""
        return any(own.running_max is not None or own.running_max_per_user is not None for own in self._settings.values())

    def count(self, tally: Tally, by: int) -> None:
        """Count `by` more started workloads; negative for ended ones. Tenants that are not in the tree are not counted."""
        if tally.tenant in self._forest.index and by:
            self._counts.add(Workload(workload="", queue=self._queue_of(tally.tenant), created_ms=0, user=tally.user), by)

    def allowed(self, tenant: TenantPath, user: str, now_ms: int) -> Allowance:
        """Return how many workloads of the user may start now. A tenant outside the tree has no limit here; other code refuses it."""
        if tenant not in self._forest.index:
            return ANY_NUMBER
        gate = queue_gate(self._forest, self._settings, self._forest.queue_of(tenant), now_ms)
        if gate is not None:
            return Allowance(starts=0, gate=gate, detail=self._words(gate, user))
        starts, gate = starts_left(self._counts, self._settings, self._queue_of(tenant), user)
        return Allowance(starts=starts, gate=gate, detail=self._words(gate, user) if gate is not None else "")

    def _queue_of(self, tenant: TenantPath) -> str:
        return self._forest.names[self._forest.queue_of(tenant)]

    def _words(self, gate: Gate, user: str) -> str:
        if gate.reason is Reason.OUTSIDE_WINDOW and gate.opens_ms is not None:
            opens = moment(gate.opens_ms)
            return f"{gate.node} starts work only within its time windows; the next one opens {opens}"
        if gate.reason is Reason.RUNNING_LIMIT:
            return f"{gate.node} is at its limit of {counted(gate.limit or 0, 'running stage')}"
        if gate.reason is Reason.USER_LIMIT:
            return f"{user or 'the user without a name'} is at the limit of {counted(gate.limit or 0, 'running stage')} of {gate.node}"
        stopped = self.tenant_policies.stops.get(TenantPath(gate.node))
        why = f" ({stopped.reason})" if stopped is not None and stopped.reason else ""
        word = "on hold" if gate.reason is Reason.TENANT_SUSPENDED else "drained"
        return f"{gate.node} is {word}: nothing new starts{why}"
