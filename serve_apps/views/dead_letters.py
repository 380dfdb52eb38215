"""Views of dead letters and audits. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dag.run.dead_letters import DeadLetter
from federation.auditing import Mismatch
from federation.dispatch import Orphan
from serve_apps.schemas.audits import AuditView, MismatchView, OrphanView
from serve_apps.schemas.dead_letters import LettersView, LetterView


def letter_view(letter: DeadLetter) -> LetterView:
    return LetterView(
        letter=letter.letter,
        run=letter.run,
        node=letter.node,
        tenant=letter.tenant,
        stage=letter.stage,
        mesh=letter.mesh,
        reason=letter.reason.value,
        type=letter.type_name,
        message=letter.message,
        attempts=letter.attempts,
        retries_used=letter.retries_used,
        losses=letter.losses,
        kills=letter.kills,
        at_ms=letter.at_ms,
    )


def letters_view(letters: Iterable[DeadLetter]) -> LettersView:
    return LettersView(letters=[letter_view(letter) for letter in letters])


def audit_view(orphans: Iterable[Orphan], mismatches: Iterable[Mismatch]) -> AuditView:
    return AuditView(
        orphans=[OrphanView(kind=orphan.kind.value, stage=orphan.stage, mesh=orphan.mesh, detail=orphan.detail) for orphan in orphans],
        mismatches=[
            MismatchView(tenant=wrong.tenant, flavor=wrong.flavor, resource=wrong.resource, kept=wrong.kept, counted=wrong.counted)
            for wrong in mismatches
        ],
    )
