"""What a mesh has told and the store has answered: kept for a while, since a store may lose its last writes after it has answered.

What was told of a stage is kept as bytes, so that what it takes is known, in the order in which it was told. A batch is dropped when it
is old, and the oldest go first where there is more than may be kept: then a loss of that much makes work run again, as without this.

Source: references of the protocol §5 (lost writes: a commit); ADR 0028.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from federation.child.running_stage import RunningStage
from federation.dispatch import STAGE_MESSAGES, Claim
from mesh.ids import StageId
from mesh.messages import StageEnded, StageLost, StageMessage
from mesh.wire import decode, encode

#: How long what was told is kept. A store that lives loses about a second; a failover to a replica that lagged loses more.
KEPT_MS = 120_000
#: Words and values of all batches together.
KEPT_BYTES_MAX = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldBatch:
    """What was told of a stage in one go."""

    stage: RunningStage
    number: int  #: As the mesh counts its batches.
    taken: int  #: As the store counts them: the last part of it; 0: it has not answered.
    words: bytes  #: `STAGE_MESSAGES`.
    blobs: dict[str, bytes]  #: Values that belong to it.
    closes: bool  #: Nothing comes after it.
    told_ms: int  #: On this process' own clock.

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
    ) -> ToldBatch:
        """One that was told just now."""
        words = encode(list(messages), STAGE_MESSAGES)
        closes = any(isinstance(message, (StageEnded, StageLost)) for message in messages)
        return cls(stage=stage, number=number, taken=taken, words=words, blobs=blobs, closes=closes, told_ms=now_ms)

    @property
    def claim(self) -> Claim:
        """Under which it was told."""
        return self.stage.claim

    @property
    def messages(self) -> tuple[StageMessage, ...]:
        """As they were told."""
        return tuple(decode(STAGE_MESSAGES, self.words))

    @property
    def size_bytes(self) -> int:
        """Of its words and values."""
        return len(self.words) + sum(len(content) for content in self.blobs.values())


@dataclass(slots=True)
class ToldBatches:
    """Of one session; the oldest first."""

    _batches: deque[ToldBatch] = field(default_factory=deque)
    _of_stage: dict[StageId, deque[ToldBatch]] = field(default_factory=dict)  #: Of one claim each: a stage's last.
    _size_bytes: int = 0

    def __iter__(self) -> Iterator[ToldBatch]:
        return iter(tuple(self._batches))

    def stages(self) -> tuple[RunningStage, ...]:
        """Those of which something is kept, with their last claim."""
        return tuple(batches[0].stage for batches in self._of_stage.values())

    def of(self, claim: Claim) -> tuple[ToldBatch, ...]:
        """What is kept of the claim."""
        return tuple(batch for batch in self._of_stage.get(claim.stage, ()) if batch.claim == claim)

    def keep(self, batch: ToldBatch) -> None:
        """Keep it, and let go what is too old or too much. Of an earlier claim on the stage nothing will be told again."""
        stage = batch.claim.stage
        if stage in self._of_stage and self._of_stage[stage][0].claim != batch.claim:
            self.drop(self._of_stage[stage][0].claim)
        self._of_stage.setdefault(stage, deque()).append(batch)
        self._batches.append(batch)
        self._size_bytes += batch.size_bytes
        self.drop_old(batch.told_ms)

    def drop_old(self, now_ms: int) -> None:
        """Let go what is too old or too much."""
        while self._batches and (self._batches[0].told_ms <= now_ms - KEPT_MS or self._size_bytes > KEPT_BYTES_MAX):
            oldest = self._batches.popleft()
            self._size_bytes -= oldest.size_bytes
            oldest.stage.is_whole = False
            left = self._of_stage[oldest.claim.stage]
            left.popleft()
            if not left:
                del self._of_stage[oldest.claim.stage]

    def drop(self, claim: Claim) -> None:
        """The claim is not ours any more."""
        dropped = self.of(claim)
        if dropped:
            del self._of_stage[claim.stage]
            self._batches = deque(batch for batch in self._batches if batch.claim != claim)
            self._size_bytes -= sum(batch.size_bytes for batch in dropped)

    def clear(self) -> None:
        """The session is lost: under none of its claims anything may be told."""
        self._batches.clear()
        self._of_stage.clear()
        self._size_bytes = 0
