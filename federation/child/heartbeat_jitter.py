"""Heartbeat jitter: each interval is up to a fifth shorter or longer, so the meshes of a fleet do not call the ledger in step.

Without jitter, meshes that started together or waited for the same server would call in the same millisecond for ever. The jitter is
a hash of the mesh's name and the heartbeat's number, not a random number, so a replay sends heartbeats at the same moments.

    first heartbeat   0.2 to 1.0 of the interval after it   meshes that start together are apart from the next heartbeat on
    any other         0.8 to 1.2 of the interval            two intervals stay within the first deadline (T1) whenever two
                                                            intervals without jitter do

Source: the lease protocol's heartbeat (3 s, 20 % jitter); ADR 0027 explains why the interval does not grow with the fleet.
"""

from __future__ import annotations

import hashlib

from federation.child.deadlines import Deadlines
from mesh.core.ids import MeshId

#: Steps between the shortest and the longest interval.
_STEPS = 1_000


def soonest_ms(heartbeat_ms: int) -> int:
    """Return the shortest interval between two heartbeats, in milliseconds; only the first two of a process may be closer."""
    return heartbeat_ms * 4 // 5


def interval_ms(mesh: MeshId, number: int, *, heartbeat_ms: int, ttl_ms: int | None) -> int:
    """Return the interval from the sending of this heartbeat to the next one, in milliseconds.

    Args:
        number: Number of the heartbeat within this process; 0 is the first.
        heartbeat_ms: Configured interval.
        ttl_ms: Time to live of the session; None without a session.
    """
    first_ms, latest_ms = soonest_ms(heartbeat_ms), heartbeat_ms * 6 // 5
    if number == 0:
        first_ms, latest_ms = heartbeat_ms // 5, heartbeat_ms
    if ttl_ms is not None:  # If one heartbeat is lost, the next still comes before admission pauses.
        latest_ms = min(latest_ms, max(heartbeat_ms, Deadlines.of(ttl_ms).no_admission_ms // 2))
    return first_ms + (latest_ms - first_ms) * _step(mesh, number) // _STEPS


def _step(mesh: MeshId, number: int) -> int:
    """Return an evenly distributed step from 0 to `_STEPS`, both inclusive."""
    return int.from_bytes(hashlib.sha256(f"{mesh}|{number}".encode()).digest()[:8], "big") % (_STEPS + 1)
