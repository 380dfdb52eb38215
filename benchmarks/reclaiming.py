"""Time from a claim to its task, with all quota borrowed by another tenant on another cluster, whose work must stop first.

No quota is held in reserve, so the way is long. The claimant's mesh is refused and reports its demand. The planner reclaims the quota from
the borrower. The borrower's mesh learns of this with its next heartbeat, stops as much work as needed, and reports it. The claimant's mesh
learns of the freed quota and starts the task. The ends of the parts are read from the ledger's history after the run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import dag
from benchmarks.bed import open_stack
from benchmarks.journey import now_ms
from benchmarks.measuring import WALL, Result, Sample, result_of
from benchmarks.work import moment_ms, wait_for_file
from dag.store.client_access import Access
from dag.store.remote import Client, Run
from federation.leases import LeaseEvent
from mesh.core.ids import TenantPath
from serve_apps.processes.stores import Stores, open_stores

TURNS = 10
HEARTBEAT_MS, CANCEL_GRACE_MS = 2_000, 2_000
LIMIT_MS = 2 * HEARTBEAT_MS + CANCEL_GRACE_MS
CLAIM = "claim across clusters"
_TEMPLATE = Path(__file__).with_name("two_meshes.yaml")
_OWNER, _GUEST = TenantPath("lab/owner"), TenantPath("lab/guest")
_VICTIMS = 2
_WARM_UPS = 2

#: Names of the parts, in order of time; each ends with the event in its comment.
PLANNED = "refused, wanted, planned"  # the borrower's lease has a lower target
FREED = "notified, stopped, returned"  # the borrower's lease has shrunk
GRANTED = "granted"  # the claimant's lease has grown
STARTED = "started"  # the claimant's task runs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bed:
    client: Client
    stores: Stores


def measure(turns: int = TURNS) -> Result:
    """Measure one claim per turn; the borrower's work runs again after it, for the next turn."""
    about = (
        f"one CPU claimed on a cluster, {_VICTIMS} of {_VICTIMS} borrowed on another; heartbeat {HEARTBEAT_MS / 1000:g} s, a victim may"
        f" clean up for {CANCEL_GRACE_MS / 1000:g} s; target: {LIMIT_MS / 1000:g} s, twice the heartbeat and the grace"
    )
    with _open_bed() as bed:
        samples = [_claim(bed) for _ in range(_WARM_UPS + turns)]
    return result_of("reclaiming", about, {CLAIM: samples[_WARM_UPS:]})


@contextmanager
def _open_bed() -> Iterator[_Bed]:
    with ExitStack() as opened:
        stack = opened.enter_context(open_stack(_TEMPLATE, cpus=2))
        client = opened.enter_context(Client(Access(address=stack.address, api_key=stack.api_key, tenant=stack.default_tenant)))
        stores = open_stores(stack.redis_url, lease_ttl_ms=15_000, lease_grace_ms=10_000)
        opened.callback(stores.client.close)
        yield _Bed(client=client, stores=stores)


def _claim(bed: _Bed) -> Sample:
    with tempfile.TemporaryDirectory(prefix="schedulemesh-bench-") as folder:
        gate = str(Path(folder, "gate"))
        victims = [bed.client.submit(dag.task(wait_for_file, labels={"zone": "west"}).bind(gate), tenant=_GUEST) for _ in range(_VICTIMS)]
        for victim in victims:
            _await_start(victim)
        begun = now_ms()
        started = float(bed.client.submit(dag.task(moment_ms, labels={"zone": "east"}).bind(), tenant=_OWNER).result())
        Path(gate).touch()
        for victim in victims:
            victim.result()
    return {WALL: started - begun, **_parts(bed.stores, begun, started)}


def _await_start(run: Run) -> None:
    for event in run.events():
        if event.kind == "node" and event.after == "RUNNING":
            return
    raise AssertionError(f"run {run.id} ended before it began")


def _parts(stores: Stores, begun: float, started: float) -> Sample:
    """Return the duration of each part, from the end of the part before."""
    lease_events = [
        lease_event for lease_event in stores.ledger.history(limit=200) if lease_event.at_ms >= begun - 1 and lease_event.lease is not None
    ]
    ends = {
        PLANNED: _first(lease_events, _GUEST, "plan"),
        FREED: _first(lease_events, _GUEST, "shrink", "release"),
        GRANTED: _first(lease_events, _OWNER, "grow", "grant"),
        STARTED: started,
    }
    parts, before = {}, begun
    for name, end in ends.items():
        parts[name] = end - before
        before = end
    return parts


def _first(lease_events: list[LeaseEvent], tenant: TenantPath, *verbs: str) -> float:
    """Return the time of the first such change of a lease of the tenant; several verbs can make a change."""
    return next(
        float(lease_event.at_ms)
        for lease_event in lease_events
        if lease_event.lease and lease_event.lease.tenant == tenant and not set(verbs).isdisjoint(lease_event.verb.split(","))
    )
