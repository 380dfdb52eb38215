"""How often whoever comes with a key may ask, and how many wrong keys an address may show; counted in each replica.

A key is looked at before anybody is refused: many may share an address, so what one of them shows says nothing of the others. A look
costs the store one field of one hash; what a wrong key is spared is the answer that it was wrong.

Source: references of the protocol §7 row 11.
"""

from __future__ import annotations

from typing import NoReturn

from serve_apps.requests.auth import Principal
from serve_apps.requests.errors import NotAuthenticated, TooManyCalls
from serve_apps.requests.limits import CallBudget

#: Calls of a key in a second, and those that may come at once after a pause.
CALLS_PER_S, CALLS_BURST = 200.0, 1_000
#: Of these, calls that look at the whole ledger.
LOOKS_PER_S, LOOKS_BURST = 20.0, 200
#: Wrong keys that one address may show, in a second and at once.
WRONG_PER_S, WRONG_BURST = 0.5, 20
#: Keys and addresses that are counted, at most.
KEYS_MAX, ADDRESSES_MAX = 16_384, 4_096


class FrontDesk:
    """The counts of one replica; safe to use from many threads. `now_ms` is on a clock that never goes back."""

    def __init__(self) -> None:
        self._calls = CallBudget(calls_per_s=CALLS_PER_S, burst=CALLS_BURST, keys_max=KEYS_MAX)
        self._looks = CallBudget(calls_per_s=LOOKS_PER_S, burst=LOOKS_BURST, keys_max=KEYS_MAX)
        self._wrong = CallBudget(calls_per_s=WRONG_PER_S, burst=WRONG_BURST, keys_max=ADDRESSES_MAX)

    def count_call(self, principal: Principal, now_ms: int) -> None:
        """Raises TooManyCalls when the key has used up its calls."""
        _take(self._calls, principal, "calls", now_ms)

    def count_look(self, principal: Principal, now_ms: int) -> None:
        """Raises TooManyCalls when the key has used up its looks at the ledger."""
        _take(self._looks, principal, "looks at the whole ledger", now_ms)

    def is_suspect(self, address: str, now_ms: int) -> bool:
        """Have too many wrong keys come from there?"""
        return self._wrong.wait_ms(address, now_ms) > 0

    def refuse(self, address: str, denied: NotAuthenticated, now_ms: int) -> NoReturn:
        """Raises what becomes of a wrong key from this address: the denial, or TooManyCalls."""
        wait_ms = self._wrong.take(address, now_ms)
        if wait_ms:
            raise TooManyCalls(f"too many wrong keys from {address}; show another in {wait_ms} ms", wait_ms=wait_ms) from denied
        raise denied


def _take(budget: CallBudget, principal: Principal, what: str, now_ms: int) -> None:
    wait_ms = budget.take(principal.key, now_ms)
    if wait_ms:
        raise TooManyCalls(f"the key {principal.key} has used up its {what}; the next is taken in {wait_ms} ms", wait_ms=wait_ms)
