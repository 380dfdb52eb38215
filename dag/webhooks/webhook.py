"""A webhook, the messages that it owes its receiver, and the port of the store that keeps both over restarts.

Messages have the form of Standard Webhooks. Source: https://www.standardwebhooks.com.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from dag.run.runs import RunSummary
from dag.run.states import RunState
from federation.mesh_access import may_use
from mesh.core.clock import rfc3339
from mesh.core.ids import RunId

#: Most messages that a webhook owes; new ends of runs wait in the feed meanwhile.
PENDING_MAX = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Calls that one receiver gets."""

    name: str
    url: str
    events: tuple[RunState, ...] = (RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED)  #: Ends of runs.
    tenant: str = "*"  #: Only runs of this tenant and of the tenants below it; `*`: of all.
    secret_file: str | None = None  #: File with the keys of signatures, one a line; None: unsigned.
    timeout_ms: int = 10_000  #: Longest time of one attempt, until the status has come.
    attempts_max: int = 10

    def concerns(self, summary: RunSummary) -> bool:
        """Return whether the run has ended in a state that the receiver is told of."""
        return summary.state in self.events and may_use((self.tenant,), summary.tenant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Message to the receiver of one webhook."""

    id: str  #: The same in every attempt, also after a restart: receivers drop repeats by it.
    run: RunId
    body: str
    attempts: int = 0  #: Failed ones.
    due_ms: int = 0  #: Earliest time of the next attempt, since the epoch.


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookCounts:
    """Counts of one webhook since its first start."""

    pending: int = 0  #: Messages that are to be delivered.
    delivered: int = 0
    dead: int = 0  #: Messages that were given up.
    failure: str = ""  #: Last failed attempt, in words; empty: none since the last delivery.


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedRuns:
    """Runs that may have ended after a mark, and the mark to go on from."""

    after: str | None  #: Mark of the webhook; None: it is new.
    mark: str
    runs: tuple[RunId, ...] = ()


class WebhookStore(Protocol):
    """Port of the store. All methods raise StoreUnavailable. Methods that write are safe to repeat."""

    def keep_only(self, names: Collection[str]) -> None:
        """Forget everything of other webhooks, so that one that comes back begins with the runs that end from then on."""

    def ended(self, name: str, limit: int) -> EndedRuns:
        """Return runs that ended after the webhook's mark, oldest first; of a new webhook, only the present mark.

        Some of them may have gone on since, or were returned before. If the feed has lost changes after the mark, these are all kept runs
        that ended since, at most; none that is kept is missing.
        """

    def accept(self, name: str, mark: str, messages: Sequence[Message]) -> None:
        """Keep new messages, and go on from the mark. A message that is kept already stays as it is."""

    def due(self, name: str, now_ms: int, limit: int) -> tuple[Message, ...]:
        """Return the messages whose attempt is due, the earliest first."""

    def postpone(self, name: str, message: Message, failure: str) -> None:
        """Store a message after a failed attempt."""

    def settle(self, name: str, message: Message, *, failure: str = "") -> None:
        """Remove a message and count it once: as delivered, or with a failure as dead."""

    def counts(self) -> Mapping[str, WebhookCounts]:
        """Return the counts of all webhooks, by name."""


def message_of(webhook: Webhook, summary: RunSummary, described: Mapping[str, Any]) -> Message:
    """Return the message about the end of a run.

    Args:
        described: The run as `GET /v1/runs` lists it.
    """
    kind = f"run.{summary.state.value.lower()}"
    facts = "\n".join((webhook.name, summary.run, kind, str(summary.ended_ms)))
    body = {"type": kind, "timestamp": rfc3339(summary.ended_ms), "data": described}
    return Message(
        id=f"msg_{hashlib.sha256(facts.encode()).hexdigest()[:32]}",
        run=summary.run,
        body=json.dumps(body, ensure_ascii=False, separators=(",", ":")),
    )
