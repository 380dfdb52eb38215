"""Lines that the nodes of a run have printed, for Python and the terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dag.store.http_calls import HttpCalls, Params
from mesh.core.clock import ms_of

#: Entries of one page.
_PAGE = 500
#: Event after the last output of a run that has ended.
_END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """One line that a node has printed. `str(line)` is its text."""

    node: str
    text: str
    stream: str  #: `stdout` or `stderr`.
    attempt: int
    mesh: str
    at_ms: int  #: When the worker read the line; milliseconds since the epoch.
    number: int  #: In this attempt of the node, from 1.
    left_out: int = 0  #: Number of lines of this attempt right before this one that are not kept.

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class LogReader:
    """Reader of one run's log, which continues where it stopped.

    Args:
        path: Address of the log at the root.
    """

    calls: HttpCalls
    path: str
    node: str | None = None
    attempt: int | None = None
    _after: int = 0
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)  #: Number of the next line of each attempt.

    def lines(self) -> Iterator[LogLine]:
        """Yield the lines that are there now. Raises UnknownRun, ApiError."""
        while True:
            page = self.calls.get(self.path, {**self._asked(), "limit": _PAGE}).json()
            for entry in page["entries"]:
                yield from self._lines_of(entry)
            self._after = page["next"]
            if not page["more"]:
                return

    def follow(self) -> Iterator[LogLine]:
        """Yield lines as they come until the run has ended, across lost connections. Raises as `lines`."""
        while True:
            for event in self.calls.events(self.path, self._asked()):
                if event.event == _END:
                    return
                if event.data:  # Control fields of the stream (`retry:`) come as events without data.
                    entry = json.loads(event.data)
                    yield from self._lines_of(entry)
                    self._after = entry["seq"]

    def _asked(self) -> Params:
        return {"node": self.node, "attempt": self.attempt, "after": self._after}

    def _lines_of(self, entry: Mapping[str, Any]) -> Iterator[LogLine]:
        attempt = entry["node"], entry["attempt"]
        left_out = entry["number"] - self._numbers.get(attempt, 1)
        self._numbers[attempt] = entry["number"] + len(entry["lines"])
        for place, text in enumerate(entry["lines"]):
            yield LogLine(
                node=entry["node"],
                text=text,
                stream=entry["stream"],
                attempt=entry["attempt"],
                mesh=entry["mesh"],
                at_ms=ms_of(entry["at"]),
                number=entry["number"] + place,
                left_out=max(0, left_out) if place == 0 else 0,
            )
