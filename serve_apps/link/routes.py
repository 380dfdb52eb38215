"""`/v1/link/…`: calls of child meshes without a key to the store; see `federation.link` for the table of verbs.

Each verb is one call of one port, made in a thread. Heartbeats, other calls and waits for notifications have separate threads
and budgets, so that neither tenants nor waiting meshes can keep a session from being renewed. The key is checked, in threads of
yet another kind, before the body is read or one of these threads is used. Addresses with too many wrong keys share a few threads for
these checks, so that other meshes do not wait behind them; a good key from there is still admitted. A key that was good at its last
call is checked in the thread that does the work, before the work: this saves one thread change, and a revoked key is still refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, TypeVar, cast

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Request, Response

from dag.run.runs import RunSummary
from federation.configured_meshes import admitted, differences
from federation.errors import StaleFence
from federation.leases import Session
from federation.link import (
    BLOB_BYTES_MAX,
    CALL_BYTES_MAX,
    INPUTS_OF,
    JOIN,
    LINK_PATH,
    NOTIFICATIONS,
    PROOF_HEADER,
    SESSION_HEADER,
    TERMS,
    VERBS,
    AwaitNotifications,
    Budget,
    InputsOf,
    LinkTerms,
    Verb,
    arguments_of,
)
from federation.routing.domains import admitted_top_level
from federation.routing.mesh_filters import words_of_crowd
from federation.snapshot import MeshRecord
from mesh.core.ids import MeshId, NodeId, RunId
from mesh.core.resources import format_units
from mesh.core.values import StoredValue
from mesh.core.wire import encode
from serve_apps.configuration.config_diff import overruled
from serve_apps.link.calls import read_call
from serve_apps.link.proofs import believed, proof_of
from serve_apps.requests.access import address_of, asking_mesh
from serve_apps.requests.auth import MeshPrincipal
from serve_apps.requests.dependencies import Dependencies, dependencies_of
from serve_apps.requests.errors import BodyTooLarge, MalformedCall, NotAuthenticated, NotJson, TooManyCalls, UnknownBlob
from serve_apps.requests.limits import CallBudget, RunBytes
from serve_apps.requests.middleware import log
from serve_apps.requests.openapi import BYTES_KIND, MESH_KEY, OF_MESH_KEY, link_answer, link_operation, refused

T = TypeVar("T")
Endpoint = Callable[[Request], Awaitable[Response]]

#: Threads of a replica, by kind.
THREADS = {Budget.HEARTBEAT: 16, Budget.CALL: 32, Budget.NOTIFICATIONS: 64}
#: Threads that check keys, and those that check unknown keys from addresses with too many wrong keys.
KEY_THREADS, SUSPECT_THREADS = 16, 4
#: Most good keys that are remembered.
GOOD_MAX = 4_096
#: Calls of a mesh per second, and the burst after a pause.
CALLS_PER_S, CALLS_BURST = 200.0, 500
NOTIFICATIONS_PER_S, NOTIFICATIONS_BURST = 20.0, 40
#: Heartbeats of a mesh per heartbeat interval, and the least per second: after an epoch or a lost session there are several.
HEARTBEATS_PER_INTERVAL, HEARTBEATS_PER_S_MIN = 4, 5.0
#: Polling interval for notifications when every notification thread is in use.
LOOK_S = 0.25
#: How long a mesh's claim on a run is cached: looking it up reads all claims of the mesh.
CLAIM_KEPT_MS = 5_000
#: Most runs whose bytes are counted, and most claims that are cached.
RUNS_COUNTED, CLAIMS_KEPT = 4_096, 4_096
#: Bytes that meshes may upload into a run: at least this many, and more for a large graph, as each node may have values in several
#: attempts.
RUN_BYTES_MIN, VALUES_PER_NODE = 64 << 20, 8

Sha256 = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the bytes, in hex.")]
_INCARNATION = re.compile("[0-9]{1,16}")
RunPath = Annotated[str, Path(description="Id of the run.", max_length=200)]

router = APIRouter(prefix=LINK_PATH, tags=["link"])


class LinkHandler:
    """Threads and budgets that the routes of one replica share.

    Args:
        heartbeat_ms: Interval in which each mesh renews its session.
    """

    def __init__(self, heartbeat_ms: int) -> None:
        heartbeats_per_s = max(HEARTBEATS_PER_S_MIN, HEARTBEATS_PER_INTERVAL * 1_000 / heartbeat_ms)
        self._threads = {budget: CapacityLimiter(count) for budget, count in THREADS.items()}
        self._budgets = {
            Budget.HEARTBEAT: CallBudget(calls_per_s=heartbeats_per_s, burst=math.ceil(4 * heartbeats_per_s)),
            Budget.CALL: CallBudget(calls_per_s=CALLS_PER_S, burst=CALLS_BURST),
            Budget.NOTIFICATIONS: CallBudget(calls_per_s=NOTIFICATIONS_PER_S, burst=NOTIFICATIONS_BURST),
        }
        self._key_checks = CapacityLimiter(KEY_THREADS)
        self._suspect_checks = CapacityLimiter(SUSPECT_THREADS)
        self._good: dict[bytes, MeshPrincipal] = {}  #: Holders of good keys, by the digest of the header.
        self._bytes = RunBytes(runs=RUNS_COUNTED)
        self._claimed: dict[tuple[MeshId, int, RunId], int] = {}  #: Time at which each cache entry expires.

    async def do(self, budget: Budget, work: Callable[[], T]) -> T:
        """Run the work in a thread of this kind."""
        return await run_sync(work, limiter=self._threads[budget])

    def has_room(self, budget: Budget) -> bool:
        """Return whether a thread of this kind is free."""
        return self._threads[budget].available_tokens > 0

    async def admit(self, ports: Dependencies, request: Request, budget: Budget) -> MeshPrincipal:
        """Authenticate the mesh and count its call.

        Raises:
            NotAuthenticated: The key is missing or not valid.
            TooManyCalls: The mesh is over its limit, or its address has sent too many wrong keys.
        """
        authorization, address = request.headers.get("authorization"), address_of(request)
        shown = _digest_of(authorization)
        now_ms = ports.clock.monotonic_ms()
        is_suspect = shown not in self._good and ports.limiter.is_suspect(address, now_ms)
        try:
            principal = await run_sync(
                self._let_in, ports, authorization, budget, limiter=self._suspect_checks if is_suspect else self._key_checks
            )
        except NotAuthenticated as denied:
            self._good.pop(shown, None)
            ports.limiter.refuse(address, denied, now_ms)
        if len(self._good) >= GOOD_MAX:
            self._good.clear()
        self._good[shown] = principal
        return principal

    def was_good(self, ports: Dependencies, request: Request, budget: Budget) -> bool:
        """Return whether the key was good at its last call, and if so count this call. The caller must then call `look_again` before the
        work.

        Raises:
            TooManyCalls: The mesh is over its limit.
        """
        before = self._good.get(_digest_of(request.headers.get("authorization")))
        if before is not None:
            self._count_call(ports, before, budget)
        return before is not None

    def look_again(self, ports: Dependencies, request: Request) -> MeshPrincipal:
        """Check the key again, within a worker thread, and return its mesh. Raises NotAuthenticated."""
        authorization = request.headers.get("authorization")
        try:
            return asking_mesh(authorization, ports)
        except NotAuthenticated as denied:
            self._good.pop(_digest_of(authorization), None)
            ports.limiter.refuse(address_of(request), denied, ports.clock.monotonic_ms())

    def _let_in(self, ports: Dependencies, authorization: str | None, budget: Budget) -> MeshPrincipal:
        principal = asking_mesh(authorization, ports)
        self._count_call(ports, principal, budget)
        return principal

    def _count_call(self, ports: Dependencies, principal: MeshPrincipal, budget: Budget) -> None:
        wait_ms = self._budgets[budget].take(principal.key, ports.clock.monotonic_ms())
        if wait_ms:
            raise TooManyCalls(f"mesh {principal.mesh} is over its limit of calls; try again in {wait_ms} ms", wait_ms=wait_ms)

    def may_put(self, ports: Dependencies, session: Session, run: RunId) -> bool:
        """Return whether the session has claimed a stage of the run."""
        now_ms, key = ports.clock.monotonic_ms(), (session.mesh, session.incarnation, run)
        if self._claimed.get(key, 0) > now_ms:
            return True
        if not any(claimed.spec.run == run for claimed in ports.queue.claims_of(session)):
            return False
        if len(self._claimed) >= CLAIMS_KEPT:
            self._claimed.clear()
        self._claimed[key] = now_ms + CLAIM_KEPT_MS
        return True

    def count(self, ports: Dependencies, run: RunSummary, size_bytes: int) -> None:
        """Count bytes uploaded into the run.

        Raises:
            BodyTooLarge: The run has more bytes than its nodes can need.
        """
        most_bytes = max(RUN_BYTES_MIN, sum(run.counts.values()) * VALUES_PER_NODE * ports.inline_limit_bytes)
        if not self._bytes.take(run.run, size_bytes, most_bytes):
            raise BodyTooLarge(f"meshes have uploaded {format_units('memory', most_bytes)} into run {run.run}, more than it can need")


def _digest_of(authorization: str | None) -> bytes:
    return hashlib.sha256((authorization or "").encode()).digest()


def _handler_of(request: Request) -> LinkHandler:
    return cast(LinkHandler, request.app.state.link_handler)


# -- verbs -------------------------------------------------------------------------------------------------------------


def _endpoint_of(verb: Verb[Any, Any]) -> Endpoint:
    async def answer(request: Request) -> Response:
        ports, link_handler = dependencies_of(request), _handler_of(request)
        principal = None if link_handler.was_good(ports, request, verb.budget) else await link_handler.admit(ports, request, verb.budget)
        _expect_json(request)
        body = await _body_of(request, CALL_BYTES_MAX)
        proof = request.headers.get(PROOF_HEADER, "")

        def work() -> tuple[Any, str | None]:
            mesh = (principal or link_handler.look_again(ports, request)).mesh
            asked = read_call(verb, body, mesh)
            return (asked, None) if verb is NOTIFICATIONS else _proven(ports, verb, asked, mesh, proof)

        answered, new_proof = await link_handler.do(Budget.CALL if verb is NOTIFICATIONS else verb.budget, work)
        if verb is NOTIFICATIONS:
            answered = await _await_notifications(ports, link_handler, answered)
        return Response(
            encode(answered, verb.answered), media_type="application/json", headers={PROOF_HEADER: new_proof} if new_proof else None
        )

    return answer


def _proven(ports: Dependencies, verb: Verb[Any, Any], asked: Any, mesh: MeshId, proof: str) -> tuple[Any, str | None]:
    """Return the response with the proof of the tokens in it."""
    if ports.receipts is None:
        return _carry_out(ports, verb, asked), None
    asked = believed(asked, mesh, proof, ports.receipts)
    answered = _carry_out(ports, verb, asked)
    return answered, proof_of(asked, answered, mesh, ports.receipts)


def _carry_out(ports: Dependencies, verb: Verb[Any, Any], asked: Any) -> Any:
    record: MeshRecord | None = getattr(asked, "record", None)
    if record is not None:  # Checked here for every verb, so that no mesh gets past the rules of the root's file.
        asked = replace(asked, record=admitted(record, ports.configured_meshes))
    apart = differences(record, ports.configured_meshes) if record is not None and verb in (TERMS, JOIN) else ()
    if verb is TERMS:
        return _terms(ports, (*apart, *_overruled(ports, asked.record), *_crowding(ports, asked.record)))
    for words in apart:
        log.warning("joining mesh differs from the root's file", mesh=asked.record.mesh, difference=words)
    if verb is INPUTS_OF:
        return _inputs_of(ports, asked)
    return getattr(getattr(ports, verb.port), verb.method)(**arguments_of(asked))


def _overruled(ports: Dependencies, record: MeshRecord | None) -> tuple[str, ...]:
    """Return, in words, which of the mesh's own settings the root's file overrules."""
    published = ports.registry.settings_of(record.mesh) if record is not None else None
    keys = overruled(record.mesh, record.settings, published) if record is not None and published is not None else ()
    return (f"its own settings differ from those of the root's file, which count: {', '.join(keys)}",) if keys else ()


def _crowding(ports: Dependencies, record: MeshRecord | None) -> tuple[str, ...]:
    """Return, in words, whether a mesh alone on its Ray cluster would admit more tenants than may share a cluster."""
    if record is None or record.shared:
        return ()
    together = tuple(sorted(admitted_top_level(record.tenants, ports.ledger.snapshot().tree.top_level)))
    return (f"{words_of_crowd(together)}; join with --tenant of one of them",) if len(together) > 1 else ()


def _terms(ports: Dependencies, warnings: tuple[str, ...]) -> LinkTerms:
    return LinkTerms(
        heartbeat_ms=ports.heartbeat_ms,
        inline_limit_bytes=ports.inline_limit_bytes,
        storage_url=ports.storage_url,
        ledger=ports.ledger_id,
        warnings=warnings,
    )


def _inputs_of(ports: Dependencies, asked: InputsOf) -> dict[NodeId, StoredValue | None]:
    """Return the inputs of a stage that the mesh has claimed or that waits for the mesh; none of any other stage."""
    if asked.claim is not None and asked.claim.stage == asked.stage:
        try:
            ports.queue.report(asked.claim, 0, ())  # Batches begin with 1: this stores nothing and only checks the claim.
        except StaleFence:
            return {}
        return ports.queue.inputs_of(asked.stage)
    return ports.queue.inputs_of(asked.stage) if ports.queue.heads_of(asked.mesh, (asked.stage,)) else {}


async def _await_notifications(ports: Dependencies, link_handler: LinkHandler, asked: AwaitNotifications) -> Any:
    """Wait in a thread, or poll without one if all notification threads are in use."""
    if link_handler.has_room(Budget.NOTIFICATIONS):
        return await link_handler.do(Budget.NOTIFICATIONS, partial(ports.queue.notifications, asked.mesh, asked.cursor, asked.wait_ms))
    until_ms = ports.clock.monotonic_ms() + asked.wait_ms
    while True:
        cursor, notifications = await link_handler.do(Budget.CALL, partial(ports.queue.notifications, asked.mesh, asked.cursor, 0))
        if notifications or asked.cursor == "" or ports.clock.monotonic_ms() >= until_ms:
            return cursor, notifications
        await asyncio.sleep(LOOK_S)


for _verb in VERBS:
    _about = f"Call of a mesh: see {_verb.asked.__name__} of `federation.link`." if _verb is not TERMS else "Settings for every mesh."
    router.add_api_route(
        f"/{_verb.name}",
        _endpoint_of(_verb),
        methods=["POST"],
        name=f"link {_verb.name}",
        description=_about,
        response_class=Response,
        responses=link_answer(_verb.name),
        openapi_extra=link_operation(_verb.name),
    )


# -- blobs -------------------------------------------------------------------------------------------------------------


_BYTES: dict[str, Any] = {"content": {BYTES_KIND: {"schema": {"type": "string", "format": "binary"}}}}


@router.put(
    "/blobs/{run}/{sha256}",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "null"}}}}, **refused(*OF_MESH_KEY)},
    openapi_extra={"security": [{MESH_KEY: []}], "requestBody": {**_BYTES, "required": True}},
)
async def put_blob(run: RunPath, sha256: Sha256, request: Request) -> Response:
    """Store the bytes as long as the run is kept, if the mesh's session has claimed a stage of it. Other bytes are dropped, because the
    mesh's reports come too late to be used.
    """
    ports, link_handler = dependencies_of(request), _handler_of(request)
    principal = await link_handler.admit(ports, request, Budget.CALL)
    sent = request.headers.get(SESSION_HEADER, "")

    def look() -> RunSummary | None:
        session = Session(mesh=principal.mesh, incarnation=int(sent) if _INCARNATION.fullmatch(sent) else 0, ttl_ms=0)
        return ports.runs.summary(RunId(run)) if link_handler.may_put(ports, session, RunId(run)) else None

    wanted = await link_handler.do(Budget.CALL, look)
    data = await _body_of(request, BLOB_BYTES_MAX)

    def work() -> None:
        if hashlib.sha256(data).hexdigest() != sha256:
            raise MalformedCall(f"the bytes do not have the SHA-256 {sha256}")
        if wanted is not None:
            link_handler.count(ports, wanted, len(data))
            ports.blobs.put(RunId(run), sha256, data)

    await link_handler.do(Budget.CALL, work)
    return Response(b"null", media_type="application/json")


@router.get(
    "/blobs/{run}/{sha256}",
    response_class=Response,
    responses={200: _BYTES, **refused(404, *OF_MESH_KEY)},
    openapi_extra={"security": [{MESH_KEY: []}]},
)
async def get_blob(run: RunPath, sha256: Sha256, request: Request) -> Response:
    """Return the bytes. Only the root gives out digests, and a digest cannot be guessed, so no further check is needed."""
    ports, link_handler = dependencies_of(request), _handler_of(request)
    await link_handler.admit(ports, request, Budget.CALL)

    def work() -> bytes | None:
        return ports.blobs.get(RunId(run), (sha256,)).get(sha256)

    data = await link_handler.do(Budget.CALL, work)
    if data is None:
        raise UnknownBlob(f"run {run} has no such blob")
    return Response(data, media_type=BYTES_KIND)


# -- bodies ------------------------------------------------------------------------------------------------------------


def _expect_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise NotJson("send JSON with the header `Content-Type: application/json`")


async def _body_of(request: Request, limit_bytes: int) -> bytes:
    """Read the body, counted while it is read."""
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > limit_bytes:
            raise BodyTooLarge(f"the body is larger than {format_units('memory', limit_bytes)}")
    return bytes(data)
