"""Outcome of an attempt: delivered, again later, or given up. The waits grow like those of Standard Webhooks, and are bounded.

A receiver that answers 410 wants no more of it. Everything else may be better later: a redirect too, since redirects are not followed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Enum

#: First wait, factor of each further one, longest wait.
WAIT_MS, FACTOR, WAIT_MS_MAX = 5_000, 4, 6 * 3_600_000
#: HTTP statuses.
_DELIVERED, _REDIRECTS, _GONE = range(200, 300), range(300, 400), 410
#: Part of a wait by which messages differ, so that a receiver that comes back does not get all at once.
SPREAD = 0.2


class Verdict(str, Enum):
    """Outcome of an attempt for its message."""

    DELIVERED = "DELIVERED"
    RETRY = "RETRY"
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """Outcome of one call."""

    status: int | None = None  #: None: no response.
    failure: str = ""  #: Why there is no response.
    retry_after_ms: int = 0  #: Wait that the receiver asks for.


def verdict_of(attempt: Attempt, attempts: int, attempts_max: int) -> Verdict:
    """Return what becomes of the message.

    Args:
        attempts: Attempts so far, this one included.
    """
    if attempt.status in _DELIVERED:
        return Verdict.DELIVERED
    if attempt.status == _GONE or attempts >= attempts_max:
        return Verdict.DEAD
    return Verdict.RETRY


def wait_ms(message_id: str, attempts: int, retry_after_ms: int = 0) -> int:
    """Return the wait before the next attempt, at most `WAIT_MS_MAX`.

    Args:
        attempts: Failed ones so far.
        retry_after_ms: The receiver asked for it; 0: it did not.
    """
    grown = min(WAIT_MS * FACTOR ** min(attempts - 1, 10), WAIT_MS_MAX)
    share = int.from_bytes(hashlib.sha256(f"{message_id}|{attempts}".encode()).digest()[:4], "big") / 2**32
    return min(max(int(grown * (1 - SPREAD * share)), retry_after_ms), WAIT_MS_MAX)


def words_of(attempt: Attempt) -> str:
    """Describe a failed attempt."""
    if attempt.status is None:
        return attempt.failure
    return f"HTTP {attempt.status}{'; redirects are not followed' if attempt.status in _REDIRECTS else ''}"
