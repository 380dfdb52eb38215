"""Errors of calls to a group of agents.

MeshError
└── GroupError              base of all errors of actor groups
    ├── ShapeError          members do not match the shape, or a dimension or index does not exist
    ├── DispatchError       arguments cannot be distributed, or results cannot be combined
    ├── NoMembers           no member is left to call
    ├── MemberLost          the chosen member's process is gone
    ├── CallTimeout         no answer within the given time
    └── GroupCallFailed     some ranks failed; contains the results of the others
        └── GroupCallTimeout    some ranks did not answer in time
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.core.counting import counted
from mesh.core.ids import AgentId
from mesh.errors import MeshError

_SHOWN_CHARS_MAX = 300


class GroupError(MeshError):
    """Base of all errors of actor groups."""


class ShapeError(GroupError, ValueError):
    """The members do not match the shape, or the group lacks a dimension, coordinate or rank."""


class DispatchError(GroupError, ValueError):
    """Arguments cannot be distributed, or results cannot be combined.

    Attributes:
        results: Results of ranks that had been called already, so that no work is lost.
    """

    def __init__(self, message: str, results: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.results = results


class NoMembers(GroupError):
    """No member can be called: none has the label, or all are lost."""


class MemberLost(GroupError):
    """The chosen member's process is gone. The group does not choose it again until a refresh finds its successor."""

    def __init__(self, agent: AgentId, rank: int, detail: str) -> None:
        super().__init__(f"agent {agent} (rank {rank}) is lost: {_shown(detail)}")
        self.agent = agent
        self.rank = rank


class GroupCallFailed(GroupError):
    """Some ranks failed. The results of the other ranks are not lost.

    Attributes:
        errors: Error by rank; the first one if a rank was called several times.
        results: Value by rank; the last one if a rank was called several times. Empty for streamed values.
    """

    def __init__(self, method: str, errors: Mapping[int, BaseException], results: Mapping[int, Any], places: Mapping[int, str]) -> None:
        count = len({*errors, *results, *places})
        described = "; ".join(f"{places.get(rank, f'rank {rank}')}: {_named(error)}" for rank, error in sorted(errors.items()))
        super().__init__(f"{method}: {len(errors)} of {counted(count, 'rank')} failed. {described}")
        self.method = method
        self.errors = dict(errors)
        self.results = dict(results)


class CallTimeout(GroupError, TimeoutError):
    """An agent did not answer within the given time; its call continues, and the result is dropped."""


class GroupCallTimeout(GroupCallFailed, TimeoutError):
    """Some ranks did not answer within the given time; `errors` has a `CallTimeout` for each of them."""


def _named(error: BaseException) -> str:
    """Return the error's type and message on one line; the remote traceback is in `errors`."""
    cause = getattr(error, "cause", None) or error
    return _shown(f"{type(cause).__name__}: {cause}")


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS_MAX else f"{line[:_SHOWN_CHARS_MAX]}…"
