"""The graph layer's branch of the error tree.

DagError
├── SpecError              the graph or its JSON is wrong; carries every problem found, each with its place
│   ├── CycleError         the graph contains a circle; names it node by node
│   └── NotSerializable    an argument or function cannot be pickled; names node and argument
├── GraphTypeError         a value of the wrong type for a graph, or a node used as if it were its value
├── RunConflict            the run id exists with another graph
│   └── KeyConflict        the idempotency key was used for another submission
├── BacklogFull            too many open runs; carries a time to retry after
│   └── StoreFull          the store has hardly any memory left
├── TooManySchedules       the tenant has as many schedules, or as large ones, as it may have
├── UnknownSchedule        there is no such schedule, or not this tenant's
├── UnknownLetter          there is no such dead letter
├── NotRequeued            a dead letter cannot be run again: its run goes on, or its code is gone
├── NotResumed             a run cannot be resumed: it has succeeded or goes on, or its code is gone
├── NotRemoved             a run cannot be removed: it goes on, or its end is still being carried out
├── UnknownRun             no such run, or not this tenant's
│   ├── UnknownStage       the run has no such stage
│   ├── UnknownNode        the run has no such node
│   └── UnknownArray       the run has no such array
├── UnknownSignal          no node of the run waits for the signal
├── SignalConflict         the signal was sent with another value, or nothing waits for it any more
├── RunFailed              the run failed; carries the root failures, the user's exception is `__cause__`
├── RunCancelled           the run was cancelled, so it has no result
├── ResultTimeout          the run did not end in the time given
└── ApiError               the root refused a request or cannot be reached; carries status, code and the answer's problems
"""

from __future__ import annotations

from functools import partial
from typing import Any

from mesh.errors import MeshError


class DagError(MeshError):
    """Root of the graph layer's errors."""


class SpecError(DagError, ValueError):
    """The graph is wrong. `problems` lists every problem as (JSON pointer, message)."""

    def __init__(self, problems: tuple[tuple[str, str], ...]) -> None:
        self.problems = problems
        super().__init__("; ".join(f"{place}: {problem}" if place else problem for place, problem in problems))

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.problems,))


class CycleError(SpecError):
    """The graph contains a circle."""


class NotSerializable(SpecError):
    """A function or an argument cannot be sent to another process."""


class GraphTypeError(DagError, TypeError):
    """A value of the wrong type for a graph, or a node used as if it were its value. The message names the remedy."""


class RunConflict(DagError):
    """A run of this id exists with another graph. Give another id, or leave the id out."""


class KeyConflict(RunConflict):
    """The idempotency key was used for another submission. Only repeats of one submission may share a key."""


class BacklogFull(DagError):
    """The limit on accepted runs that have not ended is reached. Nothing was accepted; retry after `retry_after_ms`."""

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms  #: Time to wait before a retry.

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.args[0], self.retry_after_ms))


class StoreFull(BacklogFull):
    """The store has hardly any memory left, and needs the rest for accepted runs."""


class TooManySchedules(DagError):
    """The tenant has as many schedules as it may have, or their templates are too large. Delete one, or raise the limit."""


class UnknownSchedule(DagError):
    """There is no such schedule, or the API key may not see its tenant."""


class UnknownLetter(DagError):
    """There is no such dead letter: it never existed, was dropped, or went with its run."""


class NotRequeued(DagError):
    """A dead letter cannot be run again: its run still goes on, or its pickled code is gone."""


class NotRemoved(DagError):
    """The run cannot be removed: it still goes on, or its end is still being carried out."""


class NotResumed(DagError):
    """A run cannot be resumed: it has succeeded, it still goes on, or its pickled code is gone."""


class UnknownRun(DagError, KeyError):
    """There is no such run, or the API key may not see its tenant."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "unknown run"


class UnknownStage(UnknownRun):
    """The run has no such stage."""


class UnknownNode(UnknownRun):
    """The run has no such node."""


class UnknownArray(UnknownRun):
    """The run has no such node, or its function is not called for each element of a list."""


class UnknownSignal(DagError):
    """No node of the run waits for a signal of this name, now or later."""


class SignalConflict(DagError):
    """The signal was sent with another value before, or the nodes that waited for it have ended."""


class RunFailed(DagError):
    """The run failed. `failures` are the root causes, `skipped` the nodes that did not run because of them."""

    def __init__(self, message: str, failures: tuple[Any, ...] = (), skipped: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.failures = failures
        self.skipped = skipped

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.args[0], self.failures, self.skipped))


class RunCancelled(DagError):
    """The run was cancelled and has no result."""


class ResultTimeout(DagError, TimeoutError):
    """The run did not end in the time given; the run goes on."""


class ApiError(DagError):
    """The root refused a request, or cannot be reached."""

    def __init__(self, status: int, message: str, problems: tuple[tuple[str, str], ...] = (), *, code: str) -> None:
        super().__init__(message)
        self.status = status  #: HTTP status; 0 without an answer.
        self.problems = problems
        #: The root's error code, or `unreachable`, `no_answer`, `no_federation`, `not_running`, `no_key`, `invalid_address`.
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return (partial(type(self), code=self.code), (self.status, self.args[0], self.problems))
