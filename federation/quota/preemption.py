"""Which running work gives way to a request, by the rules that hold."""

from __future__ import annotations

from federation.quota.candidates import Victim
from federation.quota.classical import classical_victims
from federation.quota.fair import fair_victims
from federation.quota.snapshot import Ask, QuotaSnapshot


def victims_for(snapshot: QuotaSnapshot, ask: Ask) -> tuple[Victim, ...]:
    """The victims, empty when no preemption helps; the snapshot is afterwards as it was."""
    return fair_victims(snapshot, ask) if snapshot.rules.fair_sharing else classical_victims(snapshot, ask)
