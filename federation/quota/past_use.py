"""Past use of queues, fading: after each half-life it counts half.

    past(now) = past(before) · fade + load · (1 - fade)          fade = 2 ^ (-time / half-life)

`load` is the dominant part of the root's capacity that a queue uses, divided by its weight; with a weight of 0 any use exceeds all
others'. The result does not depend on how time is cut into steps, except for one part of `WHOLE` per step, so small amounts vanish.
Source: Kueue's admission fair sharing, as one order among queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.quota.forest import QuotaForest
from federation.quota.snapshot import QuotaSnapshot

#: All that the root could hold. Fine enough that a second is not lost in a half-life of months.
WHOLE = 10**12
ENTRY_PART = 15  #: About what a tenth of a half-life would add.


@dataclass(slots=True)
class PastUse:
    """Past use by queue, in parts of the root's capacity (`WHOLE`), zero at the start."""

    half_life_ms: int
    sampled_ms: int = 0  #: Time up to which all use is counted.
    _past: dict[int, int] = field(default_factory=dict)

    def sample(self, snapshot: QuotaSnapshot) -> None:
        """Count the time since the last sample with the present use; call this before use changes."""
        if self.half_life_ms and snapshot.now_ms > self.sampled_ms:
            self.let_pass(snapshot.now_ms, {queue: _load(snapshot, queue) for queue in self._past.keys() | snapshot.running.keys()})

    def let_pass(self, now_ms: int, loads: Mapping[int, int]) -> None:
        """Count the time up to `now_ms` with these loads (`load_of`); queues without a load use nothing."""
        since_ms, self.sampled_ms = max(0, now_ms - self.sampled_ms), max(self.sampled_ms, now_ms)
        if self.half_life_ms and since_ms:
            for queue in self._past.keys() | loads.keys():
                load = loads.get(queue, 0)
                self._past[queue] = load + self.faded(self._past.get(queue, 0) - load, since_ms)

    def count_entry(self, snapshot: QuotaSnapshot, queue: int) -> None:
        """Count an admission at once with a fifteenth of the queue's load, so that a burst between samples wins only once."""
        if self.half_life_ms:
            self._past[queue] = self._past.get(queue, 0) + _load(snapshot, queue) // ENTRY_PART

    def of(self, queue: int) -> int:
        """Return the past use of a queue; 0 if past use does not count."""
        return self._past.get(queue, 0) if self.half_life_ms else 0

    def move(self, before: QuotaForest, after: QuotaForest) -> None:
        """Move to another forest: past use stays with the tenants, and is dropped for tenants that are gone."""
        past = {before.tenant_of(queue): use for queue, use in self._past.items() if use}
        self._past = {after.queue_of(tenant): use for tenant, use in past.items() if tenant in after.index}

    def faded(self, amount: int, since_ms: int) -> int:
        """Return what is left of an amount after some time; negative amounts fade towards 0 as well."""
        halvings, rest_ms = divmod(since_ms, self.half_life_ms)
        left = abs(amount) >> min(halvings, 128)
        left = int(left * 0.5 ** (rest_ms / self.half_life_ms))
        return left if amount >= 0 else -left


NO_PAST = PastUse(half_life_ms=0)  #: For rules where past use does not count.


def load_of(forest: QuotaForest, queue: int, used: Mapping[str, int]) -> int:
    """Return the dominant part of the root's capacity (`WHOLE`) that the queue uses, divided by its weight.

    Args:
        used: Resource to units, all flavors together.
    """
    lendable, weight = forest.lendable(forest.root(queue)), forest.weights[queue]
    part = max((units * WHOLE // lendable[name] for name, units in used.items() if lendable.get(name, 0) > 0), default=0)
    return part * weight.denominator // weight.numerator if weight else part * WHOLE


def _load(snapshot: QuotaSnapshot, queue: int) -> int:
    used: dict[str, int] = {}
    for key in snapshot.forest.keys:
        units = snapshot.ledger.use(queue, key)
        if units:
            used[key[1]] = used.get(key[1], 0) + units
    return load_of(snapshot.forest, queue, used)
