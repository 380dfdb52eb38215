"""The child's ports over HTTP, with a mesh key for the root and no key to the store. Source: `federation.link`.

A call goes to the replica that answered last, and then to the next addresses. Each address is tried once, for a bounded time, until the
call's own time limit. There are no further retries: the child's own loop retries. An invalid response (a proxy's page, half a body, other
types than agreed) counts as no response.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import time
from dataclasses import replace

import httpx

from federation.dispatch import Claim, ClaimedStage, ClaimStatus, HeldClaim, Notification, QueuedStage
from federation.errors import BatchTooLarge, CallRejected, LinkRefused, StoreUnavailable
from federation.leases import ROWS_SENT_MAX, Acquired, HeartbeatReport, Lease, LeaseAck, LedgerResponse, QuotaDemand, Session
from federation.link import (
    ACQUIRE,
    APPEND_OUTPUT,
    BLOB_BYTES_MAX,
    CLAIM,
    CLAIMS_OF,
    EXPLAIN,
    HEADS_OF,
    HEARTBEAT,
    INPUTS_OF,
    JOIN,
    LEAVE,
    LINK_PATH,
    LONG_TEXTS,
    NO_BLOB,
    NOTIFICATION_WAIT_MS_MAX,
    NOTIFICATIONS,
    PROOF_HEADER,
    QUEUED,
    REFUSALS,
    REJECTIONS,
    RELEASE,
    REMEMBERED,
    REPORT,
    RESUME,
    SESSION_HEADER,
    SETTINGS_OF,
    TERMS,
    A,
    Acquire,
    AppendOutput,
    AskTerms,
    AwaitNotifications,
    ClaimsOf,
    ClaimStage,
    Explain,
    HeadsOf,
    Heartbeat,
    InputsOf,
    Join,
    Leave,
    LinkError,
    LinkTerms,
    Queued,
    R,
    Release,
    Remembered,
    Report,
    Resume,
    SettingsOf,
    Verb,
    named_error,
)
from federation.snapshot import MeshRecord
from federation.store.inbox_entries import refuse_many
from federation.store.report_parts import parts_of
from mesh.core.counting import counted
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.core.wire import decode, encode
from mesh.errors import RuntimeAdapterError
from mesh.stages.messages import NodeOutput, StageMessage
from mesh.stages.stage_settings import StageSettings

#: The client drops idle connections before servers do (uvicorn after 5 s), so no call meets a closing connection.
KEEP_IDLE_S = 4.0
CONNECT_S_MAX = 1.0
#: After this time no further address is tried: the caller has one thread, and a heartbeat waits.
CALL_S_MAX = 10.0
#: Largest response of a root.
ANSWER_BYTES_MAX = 64 << 20
BLOB_LIMIT_MS = 10_000
JSON, BYTES = "application/json", "application/octet-stream"
#: The format of `federation.receipts`.
_PROOF = re.compile(r"(?P<token>[0-9]{1,16})\.[^.]+\.[^.]+\.(?P<ledger>.+)")


class HttpLink:
    """Calls of one mesh to the root's replicas; thread-safe.

    Args:
        roots: Addresses like `https://root.example:8000`, tried in order.
        key: The mesh's key: `smm_<id>_<secret>`.
        verify: Trusted certificates, for `https`.
        http: Another `httpx.Client`, for tests; its headers are used as they are.
        patience: Factor on the time limits of responses.
    """

    def __init__(
        self,
        roots: tuple[str, ...],
        key: str,
        *,
        verify: ssl.SSLContext | bool = True,
        http: httpx.Client | None = None,
        patience: int = 1,
    ) -> None:
        self._patience = patience
        self._roots = tuple(root.rstrip("/") for root in roots)
        self._first = 0  #: Index of the replica that answered last.
        self._incarnation: int | None = None  #: Incarnation of the last session that began through this link.
        self._proof = ""  #: Proof of the highest token from the root; see `PROOF_HEADER`.
        self._http = http or httpx.Client(
            headers={"Authorization": f"Bearer {key}", "Accept-Encoding": "identity"},
            limits=httpx.Limits(keepalive_expiry=KEEP_IDLE_S),
            verify=verify if any(root.startswith("https:") for root in roots) else False,  # Loading certificates is slow.
        )

    def call(self, verb: Verb[A, R], asked: A, *, wait_ms: int = 0) -> R:
        """Call the verb at the root and return its response.

        Args:
            wait_ms: Time that the root may wait on purpose.

        Raises:
            StoreUnavailable: No root responds, or LinkRefused.
            MeshError: Any error of the port's method.
        """
        data = self.send("POST", f"/{verb.name}", encode(asked), limit_ms=verb.limit_ms + wait_ms)
        try:
            answer: R = decode(verb.answered, data)
        except RuntimeAdapterError as garbage:
            raise StoreUnavailable(
                f"the root's response to {verb.name} cannot be parsed; check that the root has the same version: {str(garbage)[:200]}"
            ) from None
        return answer

    def send(self, method: str, path: str, body: bytes, *, limit_ms: int, kind: str = JSON) -> bytes:
        """Send a request and return the body of a successful response. Each replica has `limit_ms`. Raises as `call`."""
        away: list[str] = []
        latest = time.monotonic() + self._patience * CALL_S_MAX
        for turn in range(len(self._roots)):
            if turn and time.monotonic() >= latest:
                break
            place = (self._first + turn) % len(self._roots)
            try:
                data = self._ask(f"{self._roots[place]}{LINK_PATH}{path}", method, body, self._patience * limit_ms / 1000, kind)
            except _Away as gone:
                away.append(f"{self._roots[place]}: {gone}")
                continue
            self._first = place
            return data
        # The next call begins with an address that was not tried; if all were tried, with another one than this call.
        self._first = (self._first + (len(away) if len(away) < len(self._roots) else 1)) % len(self._roots)
        raise StoreUnavailable(f"no root responds ({'; '.join(away)})")

    def speak_for(self, session: Session) -> None:
        """Send the session's incarnation with all later calls."""
        self._incarnation = session.incarnation

    def close(self) -> None:
        self._http.close()

    def _ask(self, url: str, method: str, body: bytes, limit_s: float, kind: str) -> bytes:
        timeout = httpx.Timeout(limit_s, connect=min(limit_s, CONNECT_S_MAX))
        deadline = time.monotonic() + limit_s
        try:
            with self._http.stream(method, url, content=body, headers=self._headers(kind), timeout=timeout) as answer:
                data = _read(answer, deadline)
        except (httpx.HTTPError, httpx.InvalidURL, RuntimeError) as lost:  # RuntimeError: the client was closed meanwhile.
            raise _Away(str(lost) or type(lost).__name__) from None
        if answer.status_code == httpx.codes.OK:
            self._proof = _higher(self._proof, answer.headers.get(PROOF_HEADER, ""))
            return data
        raise _error_in(answer.status_code, data)

    def _headers(self, kind: str) -> dict[str, str]:
        known = {PROOF_HEADER: self._proof, SESSION_HEADER: str(self._incarnation or "")}
        return {"Content-Type": kind, **{name: text for name, text in known.items() if text}}


def _higher(known: str, received: str) -> str:
    """Return the proof with the higher token; for two ledgers the proof of the one that answered last."""
    before, after = _PROOF.fullmatch(known), _PROOF.fullmatch(received)
    if before is None or after is None:
        return received if after is not None else known
    return known if before["ledger"] == after["ledger"] and int(before["token"]) > int(after["token"]) else received


class _Away(Exception):
    """This replica does not respond now; another one may."""


class _NotThere(Exception):
    """The root has no such blob."""


def _read(answer: httpx.Response, deadline: float) -> bytes:
    """Read the whole body. A peer that sends slowly cannot exceed the deadline."""
    data = bytearray()
    for chunk in answer.iter_bytes():
        data += chunk
        if len(data) > ANSWER_BYTES_MAX:
            raise _Away("the response is larger than any of a root")
        if time.monotonic() > deadline:
            raise _Away("the response did not end in time")
    return bytes(data)


def _error_in(status: int, data: bytes) -> Exception:
    """Return the error that an unsuccessful response stands for."""
    link_error = _error_of(data)
    if link_error is None:
        return _Away(f"HTTP {status} from a server that is not a root")
    error = named_error(link_error)
    if error is not None:
        return error
    if link_error.code == NO_BLOB:
        return _NotThere(link_error.message)
    if link_error.code in REJECTIONS:
        return CallRejected(f"the root refuses: {link_error.message}")
    if link_error.code in REFUSALS:
        return LinkRefused(f"the root refuses: {link_error.message}")
    return _Away(link_error.message)


def _error_of(data: bytes) -> LinkError | None:
    """Return the error if a root wrote the response."""
    try:
        error = json.loads(data)
        facts = error.get("facts") or {}
        return LinkError(
            code=str(error["code"]), message=str(error["detail"]), facts={str(name): int(value) for name, value in facts.items()}
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


class HttpLedger:
    """The child's verbs of `LeaseLedger`."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link

    def join(self, record: MeshRecord, *, adopt: int = 0, seen: int = 0) -> Session:
        session = self._link.call(JOIN, Join(record=record, adopt=adopt, seen=seen))
        self._link.speak_for(session)
        return session

    def heartbeat(self, session: Session, record: MeshRecord, heartbeat_report: HeartbeatReport) -> LedgerResponse:
        for rows in (heartbeat_report.demands or (), heartbeat_report.claims or (), heartbeat_report.lease_uses):
            if len(rows) > ROWS_SENT_MAX:
                raise BatchTooLarge(f"{counted(len(rows), 'row')} in one call; send at most {ROWS_SENT_MAX}")
        return self._link.call(HEARTBEAT, Heartbeat(session=_bare(session), record=record, heartbeat_report=heartbeat_report))

    def leave(self, session: Session) -> None:
        self._link.call(LEAVE, Leave(session=_bare(session)))

    def acquire(self, session: Session, demands: tuple[QuotaDemand, ...]) -> Acquired:
        return self._link.call(ACQUIRE, Acquire(session=_bare(session), demands=demands))

    def release(self, session: Session, parts: tuple[LeaseAck, ...]) -> LedgerResponse:
        return self._link.call(RELEASE, Release(session=_bare(session), parts=parts))


class HttpStageQueue:
    """The child's verbs of `StageQueue`.

    It remembers claims made through it: the root returns a stage's inputs only with proof that the mesh has the stage.
    """

    def __init__(self, link: HttpLink, mesh: MeshId) -> None:
        self._link = link
        self._mesh = mesh
        self._claims: dict[StageId, Claim] = {}

    def queued(self, mesh: MeshId) -> tuple[StageId, ...]:
        return self._link.call(QUEUED, Queued(mesh=mesh))

    def heads_of(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[QueuedStage, ...]:
        return self._link.call(HEADS_OF, HeadsOf(mesh=mesh, stages=stages))

    def remembered(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[StageId, ...]:
        return self._link.call(REMEMBERED, Remembered(mesh=mesh, stages=stages))

    def explain(self, session: Session, stages: tuple[StageId, ...], reason: Reason, detail: str) -> None:
        shortened = detail[: LONG_TEXTS["detail"]]
        self._link.call(EXPLAIN, Explain(session=_bare(session), stages=stages, reason=reason, detail=shortened))

    def claim(self, session: Session, stage: StageId, lease: Lease | None, slots: int = 1) -> ClaimedStage | None:
        claimed = self._link.call(CLAIM, ClaimStage(session=_bare(session), stage=stage, lease=lease, slots=slots))
        if claimed is not None:
            self._claims[stage] = claimed.claim
        return claimed

    def resume(self, session: Session, claims: tuple[HeldClaim, ...]) -> tuple[ClaimStatus, ...]:
        refuse_many(claims)
        return self._link.call(RESUME, Resume(session=_bare(session), claims=claims))

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...], *, after: int = 0) -> int:
        """Report as `StageQueue.report`. A large batch is sent in parts, each of which the store accepts once."""
        for number, part in parts_of(batch, messages):
            after = self._link.call(REPORT, Report(claim=claim, batch=number, messages=part, after=after))
        return after

    def inputs_of(self, stage: StageId) -> dict[NodeId, StoredValue | None]:
        return self._link.call(INPUTS_OF, InputsOf(mesh=self._mesh, stage=stage, claim=self._claims.get(stage)))

    def claims_of(self, session: Session) -> tuple[ClaimedStage, ...]:
        claims = self._link.call(CLAIMS_OF, ClaimsOf(session=_bare(session)))
        self._claims = {claimed.claim.stage: claimed.claim for claimed in claims}
        return claims

    def notifications(self, mesh: MeshId, cursor: str, wait_ms: int) -> tuple[str, tuple[Notification, ...]]:
        wait_ms = min(wait_ms, NOTIFICATION_WAIT_MS_MAX)
        return self._link.call(NOTIFICATIONS, AwaitNotifications(mesh=mesh, cursor=cursor, wait_ms=wait_ms), wait_ms=wait_ms)


class HttpRunLog:
    """The child's verb of `RunLog`."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link

    def append(self, claim: Claim, batch: int, output: tuple[NodeOutput, ...]) -> None:
        for number, part in parts_of(batch, output):
            self._link.call(APPEND_OUTPUT, AppendOutput(claim=claim, batch=number, output=part))


class HttpSettings:
    """`PublishedSettings` over the link."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link

    def settings_of(self, mesh: MeshId) -> StageSettings | None:
        return self._link.call(SETTINGS_OF, SettingsOf(mesh=mesh))


class HttpBlobs:
    """The child's verbs of `BlobStore`; each blob is one call with its raw bytes."""

    def __init__(self, link: HttpLink) -> None:
        self._link = link

    def put(self, run: RunId, sha256: str, data: bytes) -> None:
        """Store the bytes as `BlobStore.put`.

        Raises:
            BatchTooLarge: More bytes than a mesh may store at once.
        """
        if len(data) > BLOB_BYTES_MAX:
            raise BatchTooLarge(f"a blob of {counted(len(data), 'byte')}; the root accepts at most {BLOB_BYTES_MAX}")
        self._link.send("PUT", _place_of(run, sha256), data, limit_ms=BLOB_LIMIT_MS, kind=BYTES)

    def get(self, run: RunId, hashes: tuple[str, ...]) -> dict[str, bytes]:
        found = {sha256: self._get(run, sha256) for sha256 in hashes}
        return {sha256: data for sha256, data in found.items() if data is not None}

    def _get(self, run: RunId, sha256: str) -> bytes | None:
        try:
            data = self._link.send("GET", _place_of(run, sha256), b"", limit_ms=BLOB_LIMIT_MS, kind=BYTES)
        except _NotThere:
            return None
        if hashlib.sha256(data).hexdigest() != sha256:
            raise StoreUnavailable(f"the received bytes do not match the hash {sha256}")
        return data


def ask_terms(link: HttpLink, mesh: MeshId, record: MeshRecord | None = None) -> LinkTerms:
    """Return the terms of the root, with its warnings about the record. Raises as `HttpLink.call`."""
    return link.call(TERMS, AskTerms(mesh=mesh, record=record))


def trusted(ca_file: str | None) -> ssl.SSLContext | bool:
    """Return the trusted certificates: those of the file, or without a file those of this machine.

    Raises:
        StoreUnavailable: The file has no readable certificates.
    """
    if ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as wrong:
        raise StoreUnavailable(f"{ca_file} holds no certificates: {wrong}") from None


def _bare(session: Session) -> Session:
    """Return the session without the response to its join, which the root knows."""
    return replace(session, response=LedgerResponse())


def _place_of(run: RunId, sha256: str) -> str:
    return f"/blobs/{run}/{sha256}"
