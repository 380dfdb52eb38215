"""Choice of the running work that is preempted for a request, by the snapshot's rules."""

from __future__ import annotations

from federation.quota.preemption.candidates import Victim
from federation.quota.preemption.classical import classical_victims
from federation.quota.preemption.fair import fair_victims
from federation.quota.snapshot import Ask, QuotaSnapshot


def victims_for(snapshot: QuotaSnapshot, ask: Ask) -> tuple[Victim, ...]:
    """Return the victims, empty if no preemption helps; the snapshot is unchanged afterwards."""
    return fair_victims(snapshot, ask) if snapshot.rules.fair_sharing else classical_victims(snapshot, ask)
