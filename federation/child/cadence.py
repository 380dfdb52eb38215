"""When a mesh renews its session: a fifth sooner or later each time, so that the meshes of a fleet do not ask the ledger in step.

Meshes that were started at once, or that have waited for the same server, would else come back in the same millisecond for ever. How
much sooner or later comes from a hash of the mesh's name and the number of the beat: no chance, so what is replayed beats alike.

    first beat   0.2 to 1.0 of the interval after it   whoever began together is apart from the next beat on
    any other    0.8 to 1.2 of the interval            never so late that two of them pass the first deadline (T1), where one
                                                       interval less does not

Source: the lease protocol's heartbeat (3 s, 20 % jitter); ADR 0027 says why the interval does not grow with the fleet.
"""

from __future__ import annotations

import hashlib

from federation.child.deadlines import Deadlines
from mesh.ids import MeshId

#: Steps between the soonest and the latest moment.
_STEPS = 1_000


def soonest_ms(heartbeat_ms: int) -> int:
    """No two heartbeats, but the first two of a process, are nearer to each other by their own cadence, in milliseconds."""
    return heartbeat_ms * 4 // 5


def interval_ms(mesh: MeshId, beat: int, *, heartbeat_ms: int, ttl_ms: int | None) -> int:
    """How long after the sending of this heartbeat the next one is due, in milliseconds.

    Args:
        beat: Its number, of all that this process of the mesh has sent; 0 is the first.
        heartbeat_ms: How often the file wants one.
        ttl_ms: Of the session; None: there is none.
    """
    first_ms, latest_ms = soonest_ms(heartbeat_ms), heartbeat_ms * 6 // 5
    if beat == 0:
        first_ms, latest_ms = heartbeat_ms // 5, heartbeat_ms
    if ttl_ms is not None:  # One beat may be lost and nothing else: the one after it still comes before work would wait for it.
        latest_ms = min(latest_ms, max(heartbeat_ms, Deadlines.of(ttl_ms).no_admission_ms // 2))
    return first_ms + (latest_ms - first_ms) * _step(mesh, beat) // _STEPS


def _step(mesh: MeshId, beat: int) -> int:
    """From 0 to `_STEPS`, both inclusive, as evenly as a hash is."""
    return int.from_bytes(hashlib.sha256(f"{mesh}|{beat}".encode()).digest()[:8], "big") % (_STEPS + 1)
