"""The nodes of the Ray cluster, as it last told them: asked without waiting longer than a heartbeat can afford."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any

import ray
import structlog

log = structlog.get_logger(__name__)

Nodes = list[dict[str, Any]]

SILENT = "Ray does not tell its nodes; those that were known are looked after"
REMEDY = "look whether the head of the Ray cluster runs, and whether it is too busy to answer; work goes on, and nodes are asked again"


def _of_ray() -> Nodes:
    nodes: Nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray gives it no types
    return nodes


class NodeCache:
    """What `ray.nodes()` says. It has no time limit, and a control service that is away may hold it for minutes, so a thread asks it.

    Args:
        ask: Instead of Ray, for tests.
    """

    def __init__(self, ask: Callable[[], Nodes] = _of_ray) -> None:
        self._ask = ask
        self._asked: Future[Nodes] | None = None
        self._nodes: Nodes | None = None

    def look(self, wait_s: float) -> Nodes | None:
        """The nodes; those that were told before when nothing new is told in so many seconds. None: nothing was ever told."""
        if self._asked is None:
            self._asked = Future()
            threading.Thread(target=self._answer, args=(self._asked,), name="nodes", daemon=True).start()
        try:
            self._nodes, self._asked = self._asked.result(wait_s), None
        except NotYet:
            log.warning(SILENT, remedy=REMEDY)
        except Exception as away:  # noqa: BLE001  Ray has many ways to say that its control service is away
            self._asked = None
            log.warning(SILENT, error=str(away), remedy=REMEDY)
        return self._nodes

    def _answer(self, asked: Future[Nodes]) -> None:
        try:
            asked.set_result(self._ask())
        except BaseException as away:  # noqa: BLE001  whoever waits is told
            asked.set_exception(away)
