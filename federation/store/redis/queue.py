"""The stage queue on Redis: scripts for decisions, streams for notifications and the inbox."""

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import redis

from federation.dispatch import (
    CLAIMS_PER_UNIT,
    LOOKED_AT_MAX,
    STAGE_MESSAGES,
    Claim,
    ClaimedStage,
    ClaimStatus,
    HeldClaim,
    InboxEntry,
    Notification,
    NotificationKind,
    Orphan,
    OrphanKind,
    QueuedStage,
    StageAges,
)
from federation.errors import EarlierReportsLost, LeaseLost, LedgerRecovering, LedgerUninitialised, StaleFence, TooManyClaims
from federation.leases import Lease, Session
from federation.store.inbox_entries import (
    claim_status_of,
    closing_state,
    ended,
    head_of,
    readable,
    refuse_foreign,
    refuse_many,
    waiting_for,
)
from federation.store.lease_rows import kind_of
from federation.store.redis.client import answer_s_max
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, entries_in, pairs, redis_responses
from federation.store.redis.session_calls import of_session, raise_named
from federation.store.report_parts import parts_of
from mesh.core.ids import MeshId, NodeId, RunId, StageId
from mesh.core.reasons import Reason
from mesh.core.values import StoredValue
from mesh.core.wire import decode, encode
from mesh.stages.messages import StageMessage
from mesh.stages.spec import StageSpec

#: Share of the client's own timeout for which a read may block without a timeout error.
_SHARE_OF_TIMEOUT = 0.8
#: Notifications that a mesh's stream keeps, as in `lua/lib_post.lua`.
NOTIFICATIONS_KEPT = 1_000
#: Records per script of an audit.
_AUDITED_AT_ONCE = 200


class RedisStageQueue:
    """`StageQueue` with scripts and streams.

    `notifications` and `inbox` block on a connection from the client's pool, so other calls go on. They wait no longer than the client's
    socket timeout allows, and then return nothing.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
    """

    def __init__(self, client: "redis.Redis", keys: Keys) -> None:
        self._client = client
        self._keys = keys
        self._scripts = Scripts(client, keys.scripted)

    def submit(self, mesh: MeshId, spec: StageSpec) -> bool:
        deadline = "" if spec.deadline_ms is None else spec.deadline_ms
        head = head_of(spec)
        about = spec.stage, spec.run, encode(spec), encode(head), -spec.priority, deadline, kind_of(head), spec.width
        return bool(self._scripts.call("submit", mesh, *about) == 1)

    def waiting(self, mesh: MeshId, limit: int = 64) -> tuple[QueuedStage, ...]:
        return _heads(self._scripts.call("waiting", mesh, limit))

    def queued(self, mesh: MeshId) -> tuple[StageId, ...]:
        return tuple(StageId(member.split(b":", 1)[1].decode()) for member in self._scripts.call("queued", mesh))

    def heads_of(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[QueuedStage, ...]:
        rows = self._scripts.call("heads_of", mesh, *stages)
        return tuple(replace(head, waited_ms=int(row[3])) for row, head in zip(rows, _heads(row[:3] for row in rows), strict=True))

    def remembered(self, mesh: MeshId, stages: tuple[StageId, ...]) -> tuple[StageId, ...]:
        return tuple(StageId(stage.decode()) for stage in self._scripts.call("remembered", mesh, *stages))

    def explain(self, session: Session, stages: tuple[StageId, ...], reason: Reason, detail: str) -> None:
        """Explain as `StageQueue.explain`. Calls of an ended session are ignored."""
        arguments = (part for stage in stages for part in (stage, waiting_for(stage, reason, detail)))
        with contextlib.suppress(LedgerUninitialised):
            self._scripts.call("explain", session.mesh, session.incarnation, reason.value, *arguments)

    def claim(self, session: Session, stage: StageId, lease: Lease | None, slots: int = 1) -> ClaimedStage | None:
        paid = (lease.tenant, lease.flavor, lease.token) if lease is not None else ("", "", 0)
        reply = self._scripts.call("claim", *of_session(session), stage, *paid, CLAIMS_PER_UNIT, slots)
        raise_named(reply, session.mesh)
        if reply[0] == b"NO_LEASE":
            raise LeaseLost(f"mesh {session.mesh} does not hold the lease for {stage}")
        if reply[0] == b"MANY":
            raise TooManyClaims(f"mesh {session.mesh} has claimed {CLAIMS_PER_UNIT} times what its lease holds; end some of it")
        if reply[0] == b"RECOVERING":
            raise LedgerRecovering(f"the ledger recovers for another {int(reply[1])} ms; claim then")
        return None if reply[0] == b"GONE" else _claimed(session, reply[1:])

    def resume(self, session: Session, claims: tuple[HeldClaim, ...]) -> tuple[ClaimStatus, ...]:
        refuse_many(claims)
        arguments = (part for held in claims for part in _claim_arguments(held))
        reply = self._scripts.call("resume", *of_session(session), CLAIMS_PER_UNIT, *arguments)
        raise_named(reply, session.mesh)
        return tuple(claim_status_of(int(batch)) for batch in reply[1:])

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...], *, after: int = 0) -> int:
        refuse_foreign(claim, messages)
        body = encode(list(messages), STAGE_MESSAGES) if messages else b""
        state = closing_state(messages) or "claimed"
        answer = self._scripts.call("report", claim.stage, claim.mesh, claim.incarnation, claim.token, batch, body, state, after)
        if answer == b"GAP":
            raise EarlierReportsLost(f"the store has lost reports of {claim.mesh} on {claim.stage} before batch {batch}; report them again")
        if answer != b"OK":
            raise StaleFence(f"claim {claim.token} of {claim.mesh} on {claim.stage} is not current")
        return batch

    def deliver(self, stage: StageId, node: NodeId, value: StoredValue | None) -> None:
        self._scripts.call("deliver", stage, node, encode(value, StoredValue | None))

    def inputs_of(self, stage: StageId) -> dict[NodeId, StoredValue | None]:
        with redis_responses("read inputs"):
            return _inputs(cast(dict[bytes, bytes], self._client.hgetall(self._keys.inputs(stage))))

    def cancel(self, stage: StageId) -> None:
        self._scripts.call("cancel", stage, ended(stage))

    def claims_of(self, session: Session) -> tuple[ClaimedStage, ...]:
        """Return claims as `StageQueue.claims_of`, in the order of the claims."""
        try:
            rows = self._scripts.call("claims_of", session.mesh, session.incarnation)
        except LedgerUninitialised:
            return ()
        claims = readable(rows, partial(_claimed, session), session.mesh)
        return tuple(sorted(claims, key=lambda claimed: claimed.claim.token))

    def take_back_overdue(self, limit: int = 200) -> tuple[StageId, ...]:
        _, taken = self._scripts.call("take_back_overdue", limit)
        return tuple(StageId(stage.decode()) for stage in taken)

    def ages(self) -> dict[MeshId, StageAges]:
        rows = self._scripts.call("ages", LOOKED_AT_MAX)
        return {
            MeshId(mesh.decode()): StageAges(queued_ms=int(queued), claimed_ms=int(oldest), claimed_ms_min=int(newest))
            for mesh, queued, oldest, newest in rows
        }

    def orphans(self) -> tuple[Orphan, ...]:
        """Audit as `StageQueue.orphans`. SCAN finds the keys, because keys of a forgotten mesh are orphans too."""
        meshes = sorted({*self._named(self._keys.ready("")), *self._named(self._keys.claimed(""))})
        rows = [row for mesh in meshes for row in self._scripts.call("orphans", "indexes", mesh)]
        stages = sorted(self._named(self._keys.stage("")))
        for first in range(0, len(stages), _AUDITED_AT_ONCE):
            rows += self._scripts.call("orphans", "records", *stages[first : first + _AUDITED_AT_ONCE])
        found = ([part.decode() for part in row] for row in rows)
        return tuple(
            Orphan(kind=OrphanKind(kind), stage=StageId(stage), mesh=MeshId(mesh), detail=detail) for kind, stage, mesh, detail in found
        )

    def _named(self, family: str) -> list[str]:
        """Return the ids of a family's keys."""
        with redis_responses("look for keys"):
            return [key.decode().removeprefix(family) for key in self._client.scan_iter(f"{family}*", count=1_000)]

    def forget(self, run: RunId, meshes: tuple[MeshId, ...], *, keep: tuple[str, ...] | None = None, version: int | None = None) -> bool:
        of_blobs = ("ALL",) if keep is None else ("ONLY", *keep)
        answer = self._scripts.call("forget", run, "" if version is None else version, len(meshes), *meshes, *of_blobs)
        return bool(answer == b"OK")

    def notifications(self, mesh: MeshId, cursor: str, wait_ms: int) -> tuple[str, tuple[Notification, ...]]:
        stream = self._keys.notifications(mesh)
        if cursor == "":
            with redis_responses("read notifications"):
                last = cast(list[tuple[bytes, dict[bytes, bytes]]], self._client.xrevrange(stream, count=1))
            return (last[0][0].decode() if last else "0-0"), ()
        notifications = self._entries(stream, cursor, wait_ms, limit=None)
        return (notifications[-1][0] if notifications else cursor), tuple(
            Notification(kind=NotificationKind(notification[b"kind"].decode()), subject=notification[b"subject"].decode())
            for _, notification in notifications
        )

    def notify(self, mesh: MeshId, kind: NotificationKind) -> None:
        with redis_responses("notify a mesh"):
            fields: dict[Any, Any] = {"kind": kind.value, "subject": ""}
            self._client.xadd(self._keys.notifications(mesh), fields, maxlen=NOTIFICATIONS_KEPT, approximate=True)

    def inbox(self, wait_ms: int, limit: int = 512) -> tuple[InboxEntry, ...]:
        return tuple(
            InboxEntry(entry=entry, run=RunId(message[b"run"].decode()), kind=message[b"kind"].decode(), body=message[b"body"])
            for entry, message in self._entries(self._keys.inbox, "0-0", wait_ms, limit)
        )

    def acknowledge(self, entries: tuple[str, ...]) -> None:
        if entries:
            with redis_responses("acknowledge"):
                self._client.xdel(self._keys.inbox, *entries)

    def _entries(self, stream: str, after: str, wait_ms: int, limit: int | None) -> list[tuple[str, dict[bytes, bytes]]]:
        """Return entries of a stream after an id, waiting up to `wait_ms` for the first."""
        block_ms = self._bounded(wait_ms) if wait_ms > 0 else None
        with redis_responses("read a stream"):
            found = entries_in(self._client.xread({stream: after}, count=limit, block=block_ms))
        return [(entry.decode(), fields) for entry, fields in found]

    def _bounded(self, wait_ms: int) -> int:
        timeout_s = answer_s_max(self._client)
        return wait_ms if timeout_s is None else max(1, min(wait_ms, int(timeout_s * 1000 * _SHARE_OF_TIMEOUT)))


def _claimed(session: Session, row: list[bytes | list[bytes]]) -> ClaimedStage:
    token, spec, cancelled, inputs = row
    decoded: StageSpec = decode(StageSpec, cast(bytes, spec))
    return ClaimedStage(
        claim=Claim(stage=decoded.stage, mesh=session.mesh, incarnation=session.incarnation, token=int(cast(bytes, token))),
        spec=decoded,
        inputs=_inputs(pairs(inputs)),
        cancelled=cancelled == b"1",
    )


def _claim_arguments(held: HeldClaim) -> tuple[str | int, ...]:
    """Return a claim as arguments of `lua/resume.lua`."""
    paid = (held.lease.tenant, held.lease.flavor, held.lease.token) if held.lease is not None else ("", "", 0)
    return (held.claim.stage, held.claim.token, *paid, held.spec, int(held.is_whole), int(held.has_ended), held.slots)


def _heads(rows: Iterable[tuple[bytes, bytes, bytes | None]]) -> tuple[QueuedStage, ...]:
    return tuple(
        replace(decode(QueuedStage, head), reason=Reason(reason.decode()), queued_ms=int(queued or 0)) for head, reason, queued in rows
    )


def _inputs(stored: dict[bytes, bytes]) -> dict[NodeId, StoredValue | None]:
    return {NodeId(node.decode()): decode(StoredValue | None, value) for node, value in stored.items()}


class ChildStageQueue(RedisStageQueue):
    """Stage queue of a mesh with a key to the store. It splits batches into the same numbered parts as HTTP.

    So a mesh whose `link` was changed continues its numbers, and the store takes no report for an earlier one.
    """

    def report(self, claim: Claim, batch: int, messages: tuple[StageMessage, ...], *, after: int = 0) -> int:
        for number, part in parts_of(batch, messages):
            after = super().report(claim, number, part, after=after)
        return after
