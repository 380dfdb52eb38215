"""Webhooks in this process: for tests."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from dag.webhooks.webhook import EndedRuns, Message, WebhookCounts
from mesh.core.ids import RunId


@dataclass(slots=True)
class _Kept:
    mark: str
    counts: WebhookCounts = field(default_factory=WebhookCounts)
    messages: dict[str, Message] = field(default_factory=dict)


class MemoryWebhooks:
    """`WebhookStore` in this process; thread-safe. `end` stands for the feed of runs."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._kept: dict[str, _Kept] = {}
        self._ended: list[RunId] = []

    def end(self, run: RunId) -> None:
        """Announce the end of a run."""
        with self._guard:
            self._ended.append(run)

    def keep_only(self, names: Collection[str]) -> None:
        with self._guard:
            self._kept = {name: kept for name, kept in self._kept.items() if name in names}

    def ended(self, name: str, limit: int) -> EndedRuns:
        with self._guard:
            if name not in self._kept:
                return EndedRuns(after=None, mark=str(len(self._ended)))
            first = int(self._kept[name].mark)
            runs = self._ended[first : first + limit]
            return EndedRuns(after=str(first), mark=str(first + len(runs)), runs=tuple(dict.fromkeys(runs)))

    def accept(self, name: str, mark: str, messages: Sequence[Message]) -> None:
        with self._guard:
            kept = self._kept.setdefault(name, _Kept(mark))
            kept.mark = mark
            for message in messages:
                kept.messages.setdefault(message.id, message)

    def due(self, name: str, now_ms: int, limit: int) -> tuple[Message, ...]:
        with self._guard:
            messages = self._kept[name].messages.values() if name in self._kept else ()
            found = sorted((one for one in messages if one.due_ms <= now_ms), key=lambda one: (one.due_ms, one.id))
            return tuple(found[:limit])

    def postpone(self, name: str, message: Message, failure: str) -> None:
        with self._guard:
            kept = self._kept[name]
            kept.messages[message.id] = message
            kept.counts = replace(kept.counts, failure=failure)

    def settle(self, name: str, message: Message, *, failure: str = "") -> None:
        with self._guard:
            kept = self._kept[name]
            if kept.messages.pop(message.id, None) is None:
                return
            counts = kept.counts
            kept.counts = replace(counts, delivered=counts.delivered + (not failure), dead=counts.dead + bool(failure), failure=failure)

    def counts(self) -> Mapping[str, WebhookCounts]:
        with self._guard:
            return {name: replace(kept.counts, pending=len(kept.messages)) for name, kept in sorted(self._kept.items())}
