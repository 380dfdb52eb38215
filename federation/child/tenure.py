"""A mesh's session by the mesh's own clock: which one it has, what the ledger last told it, and until when that may be acted on.

And when the ledger is asked to renew it: a heartbeat is due at a moment, or as soon as somebody has reason to hurry.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import structlog

from federation.child.books import Books
from federation.child.deadlines import Deadlines, Permission
from federation.child.wanting import Demand
from federation.errors import EpochChanged, HoldingsWanted, SessionLost, UnfitName
from federation.leases import ROWS_MAX, Beat, LeaseLedger, Session, Told
from mesh.errors import AmountError

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Tenure:
    """Sessions of one process of a mesh, one after the other. Times are milliseconds of that process' own clock."""

    session: Session | None = None
    since: int = 0  #: The first of an unbroken line of sessions, each of which went on with the work of the one before.
    told: Told = field(default_factory=Told)  #: The ledger's last word.
    seen: int = 0  #: The highest token that any session of this process got, or its predecessors had.
    number: int = 0  #: Of the session's last beat.
    wants: tuple[Demand, ...] | None = ()
    """As the ledger has them; None: it was asked for quota since, or has granted some, and may have noted others."""
    renewed_ms: int = 0  #: When the last heartbeat that was answered was sent.
    deadlines: Deadlines = field(default_factory=lambda: Deadlines.of(0))
    due_ms: int = 0  #: When the next heartbeat is due.
    is_cut_off: bool = False  #: A call was not answered since the last heartbeat was: no other is made before the next one is.

    def held(self) -> Session:
        """The session.

        Raises:
            SessionLost: There is none.
        """
        if self.session is None:
            raise SessionLost("the mesh has no session")
        return self.session

    def due_in_ms(self, now_ms: int) -> int:
        """In how many milliseconds the next heartbeat is due."""
        return max(0, self.due_ms - now_ms)

    def hurry(self, due_ms: int = 0) -> None:
        """The next heartbeat is due at once, or then if that is sooner than it was."""
        self.due_ms = min(self.due_ms, due_ms)

    def presses(self, now_ms: int) -> bool:
        """A quarter of the session's time has gone by since it was proved: whatever else there is to do, a heartbeat goes first."""
        return now_ms - self.renewed_ms >= self.deadlines.no_admission_ms // 2

    def begin(self, session: Session, since: int = 0) -> None:
        """A session; `since`: the first of the line that it goes on with."""
        self.session, self.since, self.number, self.wants = session, since or session.incarnation, 0, ()

    def end(self) -> None:
        """It is over; tokens that were seen stay seen."""
        self.session, self.told, self.wants = None, Told(), ()

    def renew(self, ledger: LeaseLedger, books: Books, now_ms: int) -> tuple[Told, Beat]:
        """One heartbeat; a second one at once when the ledger has to learn what the mesh holds. What it told, and what it was told.

        Raises:
            SessionLost: And whatever else `LeaseLedger.heartbeat` may raise; a second change of epoch too.
        """
        session = self.held()
        self.number += 1
        record, balance, wanted = books.as_told(), books.balance, books.wants()
        wants = tuple(demand.told(now_ms) for demand in wanted) if wanted != self.wants else None
        beat = Beat(number=self.number, acks=balance.acks()[:ROWS_MAX], wants=wants, pays=books.pays())
        if self.told.learn_ms:
            beat = replace(beat, claims=balance.claims())
        if beat.wants is not None:
            self.wants = None  # Until it is answered nobody knows which the ledger has; one that it keeps takes quota from others.
        try:
            told = ledger.heartbeat(session, record, beat)
        except (UnfitName, AmountError) as refused:
            if not beat.wants:
                raise
            log.warning(
                "what a stage waits for cannot be told; nothing is", mesh=session.mesh, error=str(refused), remedy="cancel the stage"
            )
            beat = replace(beat, wants=())  # One odd name must not cost the session, and with it the work of all.
            told = ledger.heartbeat(session, record, beat)
            balance.note_told(beat.pays)
            return told, beat
        except (EpochChanged, HoldingsWanted) as learns:
            if isinstance(learns, EpochChanged):
                log.warning("the ledger began another epoch", mesh=session.mesh, epoch=learns.epoch, learns_for_ms=learns.learn_ms)
                session = self.session = replace(session, epoch=learns.epoch)
            wanted = books.wants()
            beat, self.wants = replace(beat, claims=balance.claims(), wants=tuple(demand.told(now_ms) for demand in wanted)), None
            told = ledger.heartbeat(session, record, beat)
        balance.note_told(beat.pays)
        if told.leases:
            self.wants = None  # What leases have grown by is wanted no more there; here it is as long as nothing was started on it.
        elif beat.wants is not None:
            self.wants = wanted
        return told, beat

    def take_in(self, told: Told) -> None:
        """What any answer of the ledger tells of the session itself."""
        self.told = told
        if self.session is not None:
            self.session = replace(self.session, mark=told.mark)
            self.seen = max(self.seen, told.mark, told.epoch, self.session.incarnation)

    def prove(self, sent_ms: int) -> None:
        """What was sent then has been answered: every moment counts from there."""
        self.renewed_ms, self.is_cut_off = sent_ms, False
        self.deadlines = Deadlines.of(self.held().ttl_ms)

    def permission(self, now_ms: int) -> Permission:
        """What may be done now."""
        return self.deadlines.permission(now_ms - self.renewed_ms)

    def next_change_ms(self, now_ms: int) -> int | None:
        """In how many milliseconds less may be done; None when nothing may be."""
        return self.deadlines.next_change_ms(now_ms - self.renewed_ms)
