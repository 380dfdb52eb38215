"""An agent's client of the supervisor: a named Ray actor, looked up by name, and again after a failure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from mesh.core.ids import AgentId
from mesh.ray.local.agent.report_sender import Receipt


class RaySupervisorClient:
    def __init__(self, name: str, namespace: str, agent: AgentId) -> None:
        self._name, self._namespace, self._agent = name, namespace, agent
        self._supervisor: Any = None

    def send(self, attempt: int, kind: str, payload: Any) -> Callable[[], Receipt]:
        try:
            if self._supervisor is None:
                self._supervisor = ray.get_actor(self._name, namespace=self._namespace)
            reply = self._supervisor.agent_said.remote(self._agent, attempt, kind, payload)
        except (ValueError, RayError):  # No actor has this name now, or its location cannot be read.
            self._supervisor = None
            return lambda: Receipt.LOST
        return lambda: self._became(reply)

    def _became(self, reply: Any) -> Receipt:
        ready, _ = ray.wait([reply], timeout=0)
        if not ready:
            return Receipt.OUT
        try:
            ray.get(reply)
        except RayTaskError:
            return Receipt.TAKEN  # The supervisor is alive and raised: sending again would raise again.
        except RayError:
            self._supervisor = None
            return Receipt.LOST
        return Receipt.TAKEN
