"""What can break when a group of agents is called.

MeshError
└── GroupError              every error of actor groups
    ├── ShapeError          a shape that the members do not fill, a dimension or an index that is not there
    ├── DispatchError       values that cannot be dealt out as asked, or results that cannot be put together
    ├── NoMembers           nobody is left to call
    ├── MemberLost          the chosen member's process is gone
    ├── CallTimeout         no answer within the time that was given
    └── GroupCallFailed     some ranks failed; the results of the others are kept in it
        └── GroupCallTimeout    some of them have not answered in time
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mesh.counting import counted
from mesh.errors import MeshError
from mesh.ids import AgentId

_SHOWN_CHARS_MAX = 300


class GroupError(MeshError):
    """Root of what actor groups raise."""


class ShapeError(GroupError, ValueError):
    """A shape that the members do not fill, or a dimension, coordinate or rank that the group does not have."""


class DispatchError(GroupError, ValueError):
    """Values cannot be dealt out as asked, or results cannot be put together.

    Attributes:
        results: What the ranks returned, where they had been called already; nothing of it is lost.
    """

    def __init__(self, message: str, results: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.results = results


class NoMembers(GroupError):
    """No member can be called: none carries the label, or all are lost."""


class MemberLost(GroupError):
    """The chosen member's process is gone; its group does not choose it again until a refresh brings its successor."""

    def __init__(self, agent: AgentId, rank: int, detail: str) -> None:
        super().__init__(f"agent {agent} (rank {rank}) is lost: {_shown(detail)}")
        self.agent = agent
        self.rank = rank


class GroupCallFailed(GroupError):
    """Some ranks failed. Nothing of the other ranks' work is lost.

    Attributes:
        errors: Rank to what it raised; of several calls on one rank the first error.
        results: Rank to what it returned; of several calls on one rank the last value. Empty where values were given as they came.
    """

    def __init__(self, method: str, errors: Mapping[int, BaseException], results: Mapping[int, Any], places: Mapping[int, str]) -> None:
        count = len({*errors, *results, *places})
        told = "; ".join(f"{places.get(rank, f'rank {rank}')}: {_named(error)}" for rank, error in sorted(errors.items()))
        super().__init__(f"{method}: {len(errors)} of {counted(count, 'rank')} failed. {told}")
        self.method = method
        self.errors = dict(errors)
        self.results = dict(results)


class CallTimeout(GroupError, TimeoutError):
    """An agent has not answered within the time that was given; its call goes on, and its result is dropped."""


class GroupCallTimeout(GroupCallFailed, TimeoutError):
    """Some ranks have not answered within the time that was given; `errors` holds a `CallTimeout` for each of them."""


def _named(error: BaseException) -> str:
    """The error's kind and its last line; a remote traceback is in `errors` for who wants it."""
    cause = getattr(error, "cause", None) or error
    return _shown(f"{type(cause).__name__}: {cause}")


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_CHARS_MAX else f"{line[:_SHOWN_CHARS_MAX]}…"
