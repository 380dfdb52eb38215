"""Sent reports: batches that the store has acknowledged, kept for a while since a store may lose its last writes.

A batch is kept as bytes, so its size is known, in the order of sending. A batch is dropped when it is old; if all together are too
large, the oldest go first. A loss of writes beyond the kept batches makes work run again.

Source: ADR 0028.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from federation.child.running_stage import RunningStage
from federation.dispatch import STAGE_MESSAGES, Claim
from mesh.core.ids import NodeId, StageId
from mesh.core.wire import decode, encode
from mesh.stages.messages import NodeCheckpoint, StageEnded, StageLost, StageMessage

#: How long sent batches are kept. A store that lives loses about a second; a failover to a lagging replica loses more.
KEPT_MS = 120_000
#: Limit for the messages and values of all batches together.
KEPT_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class SentReport:
    """Messages on a stage that were sent in one call."""

    stage: RunningStage
    number: int  #: Number by the mesh's count.
    taken: int  #: Number by the store's count, of the batch's last part; 0 until the store has acknowledged it.
    words: bytes  #: Messages, encoded as `STAGE_MESSAGES`.
    blobs: dict[str, bytes]  #: Values that the messages name.
    closes: bool  #: The last batch of its claim.
    reported_ms: int  #: On this process's own clock.
    checkpoints: dict[NodeId, str] = field(default_factory=dict)  #: Hashes of the checkpoints among the values, by node.

    @classmethod
    def of(
        cls,
        stage: RunningStage,
        *,
        number: int,
        taken: int,
        messages: tuple[StageMessage, ...],
        blobs: dict[str, bytes],
        now_ms: int,
    ) -> SentReport:
        """Return a batch that was sent just now."""
        words = encode(list(messages), STAGE_MESSAGES)
        closes = any(isinstance(message, (StageEnded, StageLost)) for message in messages)
        saved = {message.node: message.stored.sha256 for message in messages if isinstance(message, NodeCheckpoint)}
        return cls(stage=stage, number=number, taken=taken, words=words, blobs=blobs, closes=closes, reported_ms=now_ms, checkpoints=saved)

    @property
    def claim(self) -> Claim:
        """The claim under which the batch was sent."""
        return self.stage.claim

    @property
    def messages(self) -> tuple[StageMessage, ...]:
        """The messages, decoded."""
        return tuple(decode(STAGE_MESSAGES, self.words))

    @property
    def size_bytes(self) -> int:
        """Size of messages and values together."""
        return len(self.words) + sum(len(content) for content in self.blobs.values())


@dataclass(slots=True)
class SentReports:
    """Sent batches of one session, the oldest first."""

    _batches: deque[SentReport] = field(default_factory=deque)
    _of_stage: dict[StageId, deque[SentReport]] = field(default_factory=dict)  #: Batches of the stage's last claim.
    _size_bytes: int = 0

    def __iter__(self) -> Iterator[SentReport]:
        return iter(tuple(self._batches))

    def stages(self) -> tuple[RunningStage, ...]:
        """Return the stages with kept batches, each with its last claim."""
        return tuple(batches[0].stage for batches in self._of_stage.values())

    def of(self, claim: Claim) -> tuple[SentReport, ...]:
        """Return the kept batches of the claim."""
        return tuple(batch for batch in self._of_stage.get(claim.stage, ()) if batch.claim == claim)

    def keep(self, batch: SentReport) -> None:
        """Keep the batch and drop old ones. Batches of an earlier claim on the stage are dropped, since nobody will need them."""
        stage = batch.claim.stage
        if stage in self._of_stage and self._of_stage[stage][0].claim != batch.claim:
            self.drop(self._of_stage[stage][0].claim)
        self._drop_older_checkpoints(batch)
        self._of_stage.setdefault(stage, deque()).append(batch)
        self._batches.append(batch)
        self._size_bytes += batch.size_bytes
        self.drop_old(batch.reported_ms)

    def _drop_older_checkpoints(self, batch: SentReport) -> None:
        """Drop the bytes of checkpoints that the batch replaces: the root needs the newest of each node only."""
        for earlier in self._of_stage.get(batch.claim.stage, ()) if batch.checkpoints else ():
            for node in batch.checkpoints.keys() & earlier.checkpoints.keys():
                self._size_bytes -= len(earlier.blobs.pop(earlier.checkpoints[node], b""))

    def drop_old(self, now_ms: int) -> None:
        """Drop batches beyond `KEPT_MS` and `KEPT_BYTES_MAX`."""
        while self._batches and (self._batches[0].reported_ms <= now_ms - KEPT_MS or self._size_bytes > KEPT_BYTES_MAX):
            oldest = self._batches.popleft()
            self._size_bytes -= oldest.size_bytes
            oldest.stage.is_whole = False
            left = self._of_stage[oldest.claim.stage]
            left.popleft()
            if not left:
                del self._of_stage[oldest.claim.stage]

    def drop(self, claim: Claim) -> None:
        """Drop the batches of a claim that the session has lost."""
        dropped = self.of(claim)
        if dropped:
            del self._of_stage[claim.stage]
            self._batches = deque(batch for batch in self._batches if batch.claim != claim)
            self._size_bytes -= sum(batch.size_bytes for batch in dropped)

    def clear(self) -> None:
        """Drop all batches, since their session is lost."""
        self._batches.clear()
        self._of_stage.clear()
        self._size_bytes = 0
