"""Running work over a ledger, to try things out on: every change goes into an undo log, so nothing is ever copied."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from federation.quota.forest import QuotaForest
from federation.quota.ledger import Amounts, QuotaLedger
from federation.quota.policies import QueueSettings, Rules
from federation.quota.share_ranks import ShareRanks
from federation.quota.workloads import Running, Workload
from federation.tenants import FlavorResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A workload that wants room, flavors already chosen."""

    workload: Workload
    node: int
    amounts: Amounts
    needed: frozenset[FlavorResource]  #: Where it did not fit; a victim has to use one of these.


@dataclass(frozen=True, slots=True)
class _Charged:
    node: int
    amounts: Amounts
    sign: int


@dataclass(frozen=True, slots=True)
class _Moved:
    running: Running
    was_added: bool


def nobody_displaced(by: Workload, victim: Workload) -> bool:
    """The relation that forbids no eviction."""
    del by, victim
    return False


class QuotaSnapshot:
    """One state of the quota world.

    `displaces(a, b)` says whether `b` may not be evicted by `a`, because `b` evicted `a` before; see `precedence`.
    """

    __slots__ = ("_log", "displaces", "forest", "ledger", "now_ms", "rules", "running", "settings", "shares")

    def __init__(
        self,
        forest: QuotaForest,
        rules: Rules,
        settings: Mapping[int, QueueSettings],
        *,
        now_ms: int = 0,
        displaces: Callable[[Workload, Workload], bool] = nobody_displaced,
    ) -> None:
        self.forest = forest
        self.rules = rules
        self.settings = settings  #: By queue.
        self.ledger = QuotaLedger(forest, keeps_local=rules.keeps_local)
        self.shares = ShareRanks(self.ledger)
        self.running: dict[int, dict[str, Running]] = {}  #: Queue to id to what holds quota there.
        self.now_ms = now_ms
        self.displaces = displaces
        self._log: list[_Charged | _Moved] = []

    def mark(self) -> int:
        """A place in the undo log to come back to."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Take back all that was done since the mark."""
        while len(self._log) > mark:
            last = self._log.pop()
            if isinstance(last, _Charged):
                self._apply(last.node, last.amounts, -last.sign)
            elif last.was_added:
                self._take(last.running)
            else:
                self._put(last.running)

    def forget_log(self) -> None:
        """What was done so far stays."""
        self._log.clear()

    def charge(self, node: int, amounts: Amounts) -> None:
        """So much more in use at the queue."""
        self._apply(node, amounts, 1)
        self._log.append(_Charged(node, amounts, 1))

    def discharge(self, node: int, amounts: Amounts) -> None:
        """So much less in use at the queue. Raises LedgerError."""
        self._apply(node, amounts, -1)
        self._log.append(_Charged(node, amounts, -1))

    def add(self, running: Running) -> None:
        """It holds its quota."""
        self._put(running)
        self._log.append(_Moved(running, was_added=True))

    def remove(self, running: Running) -> None:
        """It holds its quota no longer."""
        self._take(running)
        self._log.append(_Moved(running, was_added=False))

    def remove_all(self, several: Iterable[Running]) -> None:
        """None of these holds quota any longer; those that do not anyway are passed over."""
        for running in several:
            if running.workload.workload in self.running.get(self.node_of(running), {}):
                self.remove(running)

    def node_of(self, running: Running) -> int:
        """The queue that it runs for."""
        return self.forest.index[running.workload.queue]

    def _apply(self, node: int, amounts: Amounts, sign: int) -> None:
        if sign > 0:
            self.ledger.charge(node, amounts)
        else:
            self.ledger.discharge(node, amounts)

    def _put(self, running: Running) -> None:
        node = self.node_of(running)
        self.running.setdefault(node, {})[running.workload.workload] = running
        self.ledger.charge(node, running.amounts)

    def _take(self, running: Running) -> None:
        node = self.node_of(running)
        del self.running[node][running.workload.workload]
        self.ledger.discharge(node, running.amounts)
