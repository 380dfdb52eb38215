"""`/v1/dead` and `/v1/audit`, for operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from dag.errors import UnknownLetter
from dag.requeueing import requeue
from serve_apps.requests.access import Operating, looking
from serve_apps.requests.dependencies import Ports
from serve_apps.requests.openapi import refused
from serve_apps.schemas.audits import AuditView
from serve_apps.schemas.dead_letters import DroppedView, LettersView, LetterView, RequeuedView
from serve_apps.views.dead_letters import audit_view, letter_view, letters_view

LETTERS_MAX = 1_000

LetterPath = Annotated[str, Path(description="Name of the dead letter.", max_length=400)]

router = APIRouter(prefix="/v1", tags=["dead letters"])


@router.get("/dead")
def list_letters(
    ports: Ports,
    principal: Operating,  # noqa: ARG001  whoever asks has to be an operator
    limit: Annotated[int, Query(ge=1, le=LETTERS_MAX, description="At most this many.")] = 100,
) -> LettersView:
    """List nodes that failed for good, newest first."""
    return letters_view(ports.runs.dead(limit))


@router.get("/dead/{letter}", responses=refused(404))
def show_letter(letter: LetterPath, ports: Ports, principal: Operating) -> LetterView:  # noqa: ARG001  the same
    """Show one dead letter."""
    found = ports.runs.dead_letter(letter)
    if found is None:
        raise UnknownLetter(f"there is no dead letter {letter}")
    return letter_view(found)


@router.post("/dead/{letter}/requeue", responses=refused(404, 409))
def requeue_letter(letter: LetterPath, ports: Ports, principal: Operating) -> RequeuedView:  # noqa: ARG001  the same
    """Submit the whole run of the dead letter again, as a new run, and drop all dead letters of the old run."""
    return RequeuedView(letter=letter, run=requeue(ports.runs, ports.blobs, letter, ports.clock.wall_ms()))


@router.post("/dead/{letter}/drop")
def drop_letter(letter: LetterPath, ports: Ports, principal: Operating) -> DroppedView:  # noqa: ARG001  the same
    """Remove the dead letter. Its run does not change. Does nothing if there is no such dead letter."""
    return DroppedView(letters=ports.runs.drop_dead((letter,)))


@router.get("/audit", dependencies=[Depends(looking)])
def audit(ports: Ports, principal: Operating) -> AuditView:  # noqa: ARG001  the same
    """Check that stages and indexes agree, and leases and their sums. Reads everything, so do not poll it."""
    return audit_view(ports.queue.orphans(), ports.ledger.audit())
