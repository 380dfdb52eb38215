"""What becomes of a call to a store that is not answered as it should be: later, never, or the session is lost.

Whatever a mesh asks its store for may fail in the same few ways, and each of them means the same wherever it happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from federation.errors import (
    BatchTooLarge,
    CallRejected,
    EpochChanged,
    LeaseLost,
    LedgerLearning,
    SessionLost,
    StoreUnavailable,
    TooManyClaims,
)
from federation.tenure import Tenure
from mesh.ids import MeshId

log = structlog.get_logger(__name__)

#: Will not be taken however often it is said.
NEVER = (BatchTooLarge, CallRejected)
#: Not now: asked again at a later beat.
NOT_NOW = (StoreUnavailable, EpochChanged, LedgerLearning, LeaseLost, TooManyClaims)


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Of one mesh.

    Args:
        lose: Ends the session, for the reason that it is given.
    """

    mesh: MeshId
    tenure: Tenure
    lose: Callable[[str], None]

    def __call__(self, work: Callable[[], None]) -> None:
        """Do it; a store that does not answer is tried again at the next beat, a lost session stops everything."""
        try:
            if self.tenure.session is not None:
                work()
        except SessionLost as lost:
            self.lose(str(lost))
            self.tenure.hurry()
        except EpochChanged:
            self.tenure.hurry()  # The next heartbeat tells what we hold.
        except NOT_NOW as gone:
            log.warning("the store does not answer", mesh=self.mesh, error=str(gone))
