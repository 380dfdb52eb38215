"""Answers of calls on actors."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import ray


class ActorCalls:
    """Calls on Ray actors. A call is the value that `actor.method.remote(…)` returns."""

    def result(self, call: Any, limit_s: float | None = None) -> Any:
        """Wait for the call and return its result.

        Args:
            limit_s: Seconds; None: no limit.

        Raises:
            GetTimeoutError: The call was not answered in time.
            RayError: The actor died, or cannot be reached.
            RuntimeError: This driver has left the cluster.
        """
        return ray.get(call, timeout=limit_s)

    def answered(self, calls: Collection[Any], wait_s: float) -> list[Any]:
        """Return the answered calls, failed ones included. Wait at most `wait_s` seconds for all of them."""
        return ray.wait(list(calls), num_returns=len(calls), timeout=wait_s)[0] if calls else []

    def kill(self, actor: Any) -> None:
        """Kill the actor. Raises RayError or RuntimeError when Ray does not answer."""
        ray.kill(actor)
