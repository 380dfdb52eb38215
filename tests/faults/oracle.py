"""Independent oracle: samples what really runs and what the ledger holds, and judges the samples at the end.

Running work is found by its command line in the system's process table. The ledger is read by plain commands on its
keys, without scripts, so a sample advances no clock and begins no epoch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import redis
from patience import PATIENCE_S, eventually

from federation.store.redis.client import connect
from federation.store.redis.keys import Keys

LOOK_S, LEDGER_LOOK_S, LEDGER_ANSWER_MS = 0.02, 0.06, 100
#: 1/10 000: a CPU in the ledger's units.
CPU = 10_000


@dataclass(frozen=True, slots=True)
class Work:
    """Process that uses a slot."""

    pid: int
    tenant: str
    mesh: str
    stage: str


@dataclass(frozen=True, slots=True)
class Use:
    """Real use at the moment of a sample."""

    since_s: float
    until_s: float
    by_tenant: Mapping[str, int]  #: Slots.
    by_mesh: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Charge:
    """Ledger charges at the moment of a sample."""

    since_s: float
    until_s: float
    held: Mapping[str, int]  #: Units of all leases of a tenant.


def work_of(fifo: str) -> list[Work]:
    """Return every live process of the bed's work."""
    found = []
    marker = b"\0" + fifo.encode() + b"\0"
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                said = (entry / "cmdline").read_bytes()
                if marker in said:
                    tenant, mesh, stage = (part.decode() for part in said.split(b"\0")[4:7])
                    found.append(Work(int(entry.name), tenant, mesh, stage))
    return found


class Oracle:
    """Samples from construction to `stop`.

    Args:
        limits: Slots that each tenant may use, by tenant.
    """

    def __init__(self, fifo: str, url: str, limits: Mapping[str, int]) -> None:
        self.uses: list[Use] = []
        self.charges: list[Charge] = []
        self.exempt: set[int] = set()
        self._limits: list[tuple[float, dict[str, int]]] = [(time.monotonic(), dict(limits))]
        self._fifo = fifo
        self._client = connect(url, timeout_ms=LEDGER_ANSWER_MS)
        self.tokens: dict[int, set[str]] = defaultdict(set)  #: By the holder of the lease.
        self._end = threading.Event()
        self._threads = [threading.Thread(target=watch, daemon=True) for watch in (self._watch_work, self._watch_ledger)]
        for thread in self._threads:
            thread.start()

    def limit(self, limits: Mapping[str, int]) -> None:
        """Apply other limits from now on."""
        self._limits.append((time.monotonic(), dict(limits)))

    def spare(self, *pids: int) -> None:
        """Exclude these processes, for the row's stated reason."""
        self.exempt.update(pids)

    @staticmethod
    def now_s() -> float:
        """Return the time on the samples' clock."""
        return time.monotonic()

    def stop(self) -> None:
        """Take a few last samples, then stop; repeated calls are harmless.

        Raises:
            AssertionError: A thread of the oracle has died.
        """
        if self._end.is_set():
            return
        looks = len(self.uses)
        eventually(lambda: len(self.uses) >= looks + 3)
        assert all(thread.is_alive() for thread in self._threads)
        self._end.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
        self._client.close()

    def _watch_work(self) -> None:
        while not self._end.wait(LOOK_S):
            since_s = time.monotonic()
            running = [work for work in work_of(self._fifo) if work.pid not in self.exempt]
            by_tenant = Counter(path for work in running for path in ways_up(work.tenant))
            self.uses.append(Use(since_s, time.monotonic(), by_tenant, Counter(work.mesh for work in running)))

    def _watch_ledger(self) -> None:
        while not self._end.wait(LEDGER_LOOK_S):
            with contextlib.suppress(redis.RedisError):
                self._look_at_ledger()

    def _look_at_ledger(self) -> None:
        """Return all leases at one moment; drop a sample during which holders came or went."""
        keys, since_s = Keys(), time.monotonic()
        holders = self._client.zrange(keys.due, 0, -1)
        reading = self._client.pipeline(transaction=True)
        for holder in holders:
            reading.hgetall(keys.leases(holder.decode()))
        *rows, sessions, after = reading.hgetall(keys.sessions).zrange(keys.due, 0, -1).execute()
        if {*holders} != {*after}:
            return
        held: Counter[str] = Counter()
        for holder, leases in zip(holders, rows, strict=True):
            mesh = holder.decode().partition("~")[0]
            for field, row in leases.items():
                tenant = field.rpartition(b"|")[0].decode()
                self.tokens[int(row.split(b"|")[0])].add(f"lease of {tenant} on {mesh}")
                for path in ways_up(tenant):
                    held[path] += units_held(row)
        for mesh, row in sessions.items():
            self.tokens[int(row.split(b"|")[0])].add(f"session of {mesh.decode()}")
        self.charges.append(Charge(since_s, time.monotonic(), held))

    # ---- the verdict

    def verdict(self, *, may_be_over: bool = False) -> None:
        """Check I1, I3 and I6.

        Args:
            may_be_over: The row loses leases that return above the limit: held sums (I3) are not judged, real use always is.

        Raises:
            AssertionError: With the offending samples.
        """
        for use in self.uses:
            limits = self._limits_in(use)
            over = {tenant: (slots, limits[tenant]) for tenant, slots in use.by_tenant.items() if slots > limits[tenant]}
            assert not over, f"real use above the quota at {use.since_s - self.uses[0].since_s:.2f} s: {over}, by mesh {dict(use.by_mesh)}"
        if not may_be_over:
            self._judge_charges()
        repeated = {token: bearers for token, bearers in self.tokens.items() if len(bearers) > 1}
        assert not repeated, f"tokens that were given out twice: {repeated}"

    def _judge_charges(self) -> None:
        """Check that charges stay within the limit or fall after it was lowered."""
        before: dict[str, int] = {}
        for charge in self.charges:
            limits = self._limits_in(charge)
            for tenant, units in charge.held.items():
                bound = max(limits[tenant] * CPU, before.get(tenant, 0))
                assert units <= bound, f"{tenant} was charged {units} units, more than {bound}"
            before = dict(charge.held)

    def _limits_in(self, look: Use | Charge) -> dict[str, int]:
        """Return each tenant's highest limit during the sample, because its exact moment is unknown."""
        before = [limits for since_s, limits in self._limits if since_s <= look.since_s][-1]
        meanwhile = [limits for since_s, limits in self._limits if look.since_s < since_s <= look.until_s]
        return {tenant: max([slots, *(limits.get(tenant, slots) for limits in meanwhile)]) for tenant, slots in before.items()}


def ways_up(tenant: str) -> list[str]:
    """Return the tenant and all its ancestors."""
    parts = tenant.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def units_held(row: bytes) -> int:
    """Return the CPU units held by a lease's row: `token|version|priority|cut`, then resource, held, target, …"""
    parts = row.decode().split("|")[4:]
    return sum(int(held) for name, held in zip(parts[::3], parts[1::3], strict=True) if name == "cpu")
