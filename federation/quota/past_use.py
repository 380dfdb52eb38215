"""What queues used in the past, fading: after each half-life what is past counts half.

    past(now) = past(before) · fade + load · (1 - fade)          fade: 1/2 after a half-life, straight lines between

`load` is the dominant part of the root's capacity that a queue uses, in millionths. Integers only; the straight lines
instead of a power make each step exact, and are at most 6 % off the curve.
Source: Kueue's admission fair sharing, as one order among queues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from federation.quota.snapshot import QuotaSnapshot

MILLIONTHS = 1_000_000
ENTRY_PART = 15  #: About what a tenth of a half-life would add.


@dataclass(slots=True)
class PastUse:
    """Past use by queue, in millionths of the root's capacity."""

    half_life_ms: int
    _past: dict[int, int] = field(default_factory=dict)
    _sampled_ms: int = 0

    def sample(self, snapshot: QuotaSnapshot) -> None:
        """Let the time since the last sample count with what is in use now; call it before use changes."""
        if self.half_life_ms == 0:
            return
        since_ms, self._sampled_ms = max(0, snapshot.now_ms - self._sampled_ms), max(self._sampled_ms, snapshot.now_ms)
        if since_ms == 0:
            return
        for queue in self._past.keys() | snapshot.running.keys():
            load = _load(snapshot, queue)
            self._past[queue] = load + self.faded(self._past.get(queue, 0) - load, since_ms)

    def count_entry(self, snapshot: QuotaSnapshot, queue: int) -> None:
        """Count an admission at once with a fifteenth of the queue's load, so that a burst between samples wins once only."""
        if self.half_life_ms:
            self._past[queue] = self._past.get(queue, 0) + _load(snapshot, queue) // ENTRY_PART

    def of(self, queue: int) -> int:
        """The past use of a queue; 0 while the past does not count."""
        return self._past.get(queue, 0) if self.half_life_ms else 0

    def carry_over(self, past: Mapping[int, int]) -> None:
        """The past of the same queues in another forest."""
        self._past = {queue: use for queue, use in past.items() if use}

    def faded(self, amount: int, since_ms: int) -> int:
        """What is left of an amount after some time; towards 0 for negative ones, too."""
        halvings, rest_ms = divmod(since_ms, self.half_life_ms)
        left = abs(amount) >> min(halvings, 64)
        left -= left * rest_ms // (2 * self.half_life_ms)
        return left if amount >= 0 else -left


def _load(snapshot: QuotaSnapshot, queue: int) -> int:
    """The dominant part of the root's capacity that the queue uses, in millionths."""
    used: dict[str, int] = {}
    for key in snapshot.forest.keys:
        units = snapshot.ledger.use(queue, key)
        if units:
            used[key[1]] = used.get(key[1], 0) + units
    lendable = snapshot.forest.lendable(snapshot.forest.root(queue))
    return max((units * MILLIONTHS // lendable[name] for name, units in used.items() if lendable.get(name, 0) > 0), default=0)
