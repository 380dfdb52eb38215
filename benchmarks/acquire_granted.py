"""Time from a child's request for a slot to the grant: the direct link beside its script alone, HTTP beside a call of Serve."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import httpx
from fastapi import FastAPI, Request, Response
from ray import serve

from benchmarks.bed import Bed
from benchmarks.measuring import WALL, Result, Sample, in_turns, result_of
from federation.leases import Granted, LeaseLedger, QuotaDemand
from federation.manual_mesh import ManualMesh
from federation.snapshot import MeshRecord, PoolRecord
from federation.store.http_link import HttpLedger, HttpLink
from federation.store.lease_rows import ask_line, lines_of
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.scripts import Scripts
from federation.store.redis.session_calls import of_session
from mesh.core.ids import FlavorName, MeshId, PoolName, TenantPath
from mesh.core.resources import ResourceSet
from serve_apps.processes.stores import Stores, open_stores
from serve_apps.requests.auth import issue_for_mesh

SCRIPT, DIRECT = "the script alone", "direct link"
SERVE, OVER_HTTP = "a bare call of Serve", "HTTP link"
TENANT, FLAVOR = TenantPath("lab"), FlavorName("standard")
SLOT = ResourceSet.of({"cpu": 0.1})
POOL = PoolRecord(pool=PoolName("general"), flavor=FLAVOR, capacity=ResourceSet.of({"cpu": 1}))
#: Resources of the bed's flavor in a mesh's offer.
LABELS = {"tier": "standard"}
BARE = "/bare"
RENEW_S = 2.0
#: As long as a request for a slot, and as its response.
QUESTION, ANSWER = b"q" * 450, b"a" * 550


def measure_direct(bed: Bed, turns: int) -> Result:
    """Measure both sides in turns."""
    stores = _stores_of(bed)
    scripts = Scripts(stores.client, stores.keys.scripted)
    asked, bare = _Asking(stores.ledger, "bench-direct"), _Asking(stores.ledger, "bench-script")
    sides = {DIRECT: lambda: _granted(asked), SCRIPT: lambda: _called(bare, scripts)}
    found = in_turns(sides, warm_ups=10, turns=turns)
    for mesh in (asked, bare):
        mesh.leave()
    about = "a slot, from the child's request to the grant, with a key to Redis; beside it the same script with prepared arguments"
    return result_of("acquire_granted", about, found, base=SCRIPT)


def measure_http(bed: Bed, turns: int) -> Result:
    """Measure both sides in turns."""
    stores, name = _stores_of(bed), "bench-http"
    address = bed.client.access.address
    with ExitStack() as opened:
        ring = RedisKeyRing(stores.client, stores.keys)
        key = issue_for_mesh(ring, MeshId(name), 0)
        opened.callback(ring.revoke, key.split("_")[1])
        link = HttpLink((address,), key)
        opened.callback(link.close)
        bare = opened.enter_context(_bare_serve(address))
        # The adapter has a child's verbs, and only those are called.
        asked = _Asking(cast("LeaseLedger", HttpLedger(link)), name)
        found = in_turns({OVER_HTTP: lambda: _granted(asked), SERVE: lambda: _answered(bare)}, warm_ups=10, turns=turns)
        asked.leave()
    about = "a slot, from the child's request to the grant, over HTTP; beside it a call of Serve that does nothing"
    return result_of("acquire_granted_http", about, found, base=SERVE)


def _stores_of(bed: Bed) -> Stores:
    return open_stores(bed.redis_url, lease_ttl_ms=10_000, lease_grace_ms=3_000)


class _Asking(ManualMesh):
    """Mesh that renews its session at the usual interval."""

    def __init__(self, ledger: LeaseLedger, name: str) -> None:
        super().__init__(ledger, MeshRecord(mesh=MeshId(name), labels=LABELS, pools=(POOL,), cluster="benchmark"))
        self._renewed = time.monotonic()

    def renew(self) -> None:
        """Send a heartbeat if one is due."""
        if time.monotonic() - self._renewed > RENEW_S:
            self.heartbeat()
            self._renewed = time.monotonic()


def _granted(mesh: _Asking) -> Sample:
    mesh.renew()
    begun = time.perf_counter()
    answer = mesh.acquire(TENANT, FLAVOR, SLOT)
    ended = time.perf_counter()
    if not isinstance(answer, Granted):
        raise TypeError(f"a slot was not granted: {answer}")
    mesh.release(TENANT, FLAVOR)
    return {WALL: (ended - begun) * 1000}


def _called(mesh: _Asking, scripts: Scripts) -> Sample:
    mesh.renew()
    demand = QuotaDemand(tenant=TENANT, flavor=FLAVOR, slot=SLOT, version=mesh.lease(TENANT, FLAVOR).version)
    arguments = (*of_session(mesh.session), lines_of([ask_line(demand)]))
    begun = time.perf_counter()
    reply = scripts.call("acquire", *arguments)
    ended = time.perf_counter()
    if reply[0] != b"OK" or reply[-1] != b"GRANTED|1":  # A refused call could be fast as well.
        raise ValueError(f"the script answered {reply}")
    mesh.heartbeat()  # Reports the granted lease.
    mesh.release(TENANT, FLAVOR)
    return {WALL: (ended - begun) * 1000}


def _answered(http: httpx.Client) -> Sample:
    begun = time.perf_counter()
    http.post(f"{BARE}/", content=QUESTION).raise_for_status()
    return {WALL: (time.perf_counter() - begun) * 1000}


@contextmanager
def _bare_serve(address: str) -> Iterator[httpx.Client]:
    """Deploy, beside the gateway on the same Serve, an application that reads a body and answers."""

    deployment = serve.deployment(name="Bare", ray_actor_options={"num_cpus": 0}, max_ongoing_requests=1000)
    serve.run(deployment(serve.ingress(_bare_app)()).bind(), name="bare", route_prefix=BARE)
    with httpx.Client(base_url=address, headers={"Accept-Encoding": "identity"}) as http:
        yield http
    serve.delete("bare")


def _bare_app() -> FastAPI:
    app = FastAPI()

    @app.post("/")
    async def answer(request: Request) -> Response:
        await request.body()
        return Response(ANSWER, media_type="application/json")

    return app
