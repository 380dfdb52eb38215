"""A call on many agents, in flight."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError

from mesh.actors.collecting import collected
from mesh.actors.dimensions import Dimensions
from mesh.actors.errors import CallTimeout, GroupCallFailed, GroupCallTimeout
from mesh.actors.results import Collect
from mesh.actors.selection import Load
from mesh.ray.local.client.checked_calls import read_timeout
from mesh.ray.local.client.in_flight import AgentChannel, InFlight, is_lost

_LATE = "no answer in time; the call continues"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCall:
    """Result of `.remote(…)` of a collective call: take the value with `result()` or `await`, or each as it comes."""

    method: str
    refs: tuple[Any, ...]  #: [calls] Ray's references to collected results, in the order of the dispatch.
    ranks: tuple[int, ...]  #: [calls]
    sent_to: tuple[tuple[AgentChannel, Load], ...]  #: [calls] Agents, with the loads that the calls were counted on.
    dimensions: Dimensions
    collect: Collect
    in_flight: InFlight

    def result(self, timeout: float | None = None) -> Any:
        """Wait for all results and combine them. `timeout` is in seconds, for the whole call.

        Raises:
            GroupCallTimeout: Some ranks have not answered in time; the error keeps the results of the others.
            GroupCallFailed: Some ranks raised or died; the error keeps the results of the others.
            DispatchError: The results cannot be combined; the error keeps them.
        """
        timeout = read_timeout(timeout)
        ends = None if timeout is None else time.monotonic() + timeout
        try:
            values = ray.get(list(self.refs), timeout=timeout)
        except Exception as error:
            # One error ends the wait for all; the results are then read one by one to find the failed ranks.
            raise self._failed([_outcome(reference, ends) for reference in self.refs]) from error
        return self._collected(values)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait like `result`, in an event loop."""
        return self._awaited().__await__()

    def as_they_come(self, timeout: float | None = None) -> Iterator[tuple[int, Any]]:
        """Yield `(rank, value)` of each call as it ends; the value of a failed call is its error.

        Raises:
            GroupCallTimeout: After the others, for ranks that have not answered within `timeout` seconds in all.
        """
        timeout = read_timeout(timeout)
        ends = None if timeout is None else time.monotonic() + timeout
        rank_of = dict(zip(self.refs, self.ranks, strict=True))
        waiting = list(self.refs)
        while waiting:
            ready, waiting = ray.wait(waiting, num_returns=1, timeout=_left(ends))
            if not ready:
                late = {rank_of[reference]: CallTimeout(_LATE) for reference in waiting}
                raise GroupCallTimeout(self.method, late, {}, self._places())
            for reference in ready:
                outcome = _outcome(reference, None)
                yield rank_of[reference], outcome.error if isinstance(outcome, _Caught) else outcome

    def cancel(self) -> None:
        """Ask the agents to cancel the calls: pending calls never begin, asynchronous methods are interrupted."""
        for reference in self.refs:
            ray.cancel(reference)

    async def _awaited(self) -> Any:
        outcomes = await asyncio.gather(*[_awaited_outcome(reference) for reference in self.refs])
        if any(isinstance(outcome, _Caught) for outcome in outcomes):
            raise self._failed(outcomes)
        return self._collected(outcomes)

    def _collected(self, values: Sequence[Any]) -> Any:
        return collected(self.collect, tuple(values), self.ranks, self.dimensions)

    def _failed(self, outcomes: Sequence[Any]) -> GroupCallFailed:
        errors: dict[int, BaseException] = {}
        results: dict[int, Any] = {}
        for rank, (channel, load), outcome in zip(self.ranks, self.sent_to, outcomes, strict=True):
            if not isinstance(outcome, _Caught):
                results[rank] = outcome
                continue
            errors.setdefault(rank, outcome.error)
            if is_lost(outcome.error):
                self.in_flight.mark_out(channel, load)
        kind = GroupCallTimeout if any(isinstance(error, CallTimeout) for error in errors.values()) else GroupCallFailed
        return kind(self.method, errors, results, self._places())

    def _places(self) -> dict[int, str]:
        return {rank: place_of(rank, channel, self.dimensions) for rank, (channel, _) in zip(self.ranks, self.sent_to, strict=True)}


@dataclass(frozen=True, slots=True)
class _Caught:
    """An error that a call raised, as opposed to an error that a call returned."""

    error: BaseException


def place_of(rank: int, channel: AgentChannel, dimensions: Dimensions) -> str:
    """Return text like `rank 3 (agent a-3, pipeline=1, tensor=1)`."""
    coordinates = {} if dimensions.is_flat else dimensions.coordinates(rank)
    return f"rank {rank} ({', '.join([f'agent {channel.member.agent}', *(f'{name}={at}' for name, at in coordinates.items())])})"


def _outcome(reference: Any, ends: float | None) -> Any:
    try:
        return ray.get(reference, timeout=_left(ends))
    except GetTimeoutError:
        return _Caught(CallTimeout(_LATE))
    except Exception as error:  # noqa: BLE001  an error of the agent's code is a result too
        return _Caught(error)


async def _awaited_outcome(reference: Any) -> Any:
    try:
        return await reference
    except Exception as error:  # noqa: BLE001  the same
        return _Caught(error)


def _left(ends: float | None) -> float | None:
    """Return the seconds until `ends`, on the monotonic clock."""
    return None if ends is None else max(0.0, ends - time.monotonic())
