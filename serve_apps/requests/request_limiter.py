"""Call limits: calls per key, and wrong keys per address; counted in each replica.

A key is checked before an address is refused, because many clients may share an address. A check costs the store one read of a
hash field; an address over its limit no longer learns whether a key was wrong.
"""

from __future__ import annotations

from typing import NoReturn

from serve_apps.requests.auth import Principal
from serve_apps.requests.errors import NotAuthenticated, TooManyCalls
from serve_apps.requests.limits import CallBudget

#: Calls of a key per second, and the burst after a pause.
CALLS_PER_S, CALLS_BURST = 200.0, 1_000
#: The same for calls that read the whole ledger.
SNAPSHOTS_PER_S, SNAPSHOTS_BURST = 20.0, 200
#: Wrong keys per second from one address, and the burst.
WRONG_PER_S, WRONG_BURST = 0.5, 20
#: Most keys and addresses that are counted.
KEYS_MAX, ADDRESSES_MAX = 16_384, 4_096


class RequestLimiter:
    """Call counts of one replica; thread-safe. `now_ms` is on a monotonic clock."""

    def __init__(self) -> None:
        self._calls = CallBudget(calls_per_s=CALLS_PER_S, burst=CALLS_BURST, keys_max=KEYS_MAX)
        self._looks = CallBudget(calls_per_s=SNAPSHOTS_PER_S, burst=SNAPSHOTS_BURST, keys_max=KEYS_MAX)
        self._wrong = CallBudget(calls_per_s=WRONG_PER_S, burst=WRONG_BURST, keys_max=ADDRESSES_MAX)

    def count_call(self, principal: Principal, now_ms: int) -> None:
        """Count a call. Raises TooManyCalls if the key is over its limit."""
        _take(self._calls, principal, "calls", now_ms)

    def count_look(self, principal: Principal, now_ms: int) -> None:
        """Count a read of the whole ledger. Raises TooManyCalls if the key is over its limit."""
        _take(self._looks, principal, "reads of the whole ledger", now_ms)

    def is_suspect(self, address: str, now_ms: int) -> bool:
        """Return whether the address has sent too many wrong keys."""
        return self._wrong.wait_ms(address, now_ms) > 0

    def refuse(self, address: str, denied: NotAuthenticated, now_ms: int) -> NoReturn:
        """Count a wrong key from this address and raise: the denial, or TooManyCalls."""
        wait_ms = self._wrong.take(address, now_ms)
        if wait_ms:
            raise TooManyCalls(f"too many wrong keys from {address}; try again in {wait_ms} ms", wait_ms=wait_ms) from denied
        raise denied


def _take(budget: CallBudget, principal: Principal, what: str, now_ms: int) -> None:
    wait_ms = budget.take(principal.key, now_ms)
    if wait_ms:
        raise TooManyCalls(f"key {principal.key} is over its limit of {what}; try again in {wait_ms} ms", wait_ms=wait_ms)
