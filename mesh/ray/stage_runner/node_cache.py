"""Latest node list of the Ray cluster, without a wait longer than a heartbeat can afford."""

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

SILENT = "Ray does not list its nodes; the last known nodes are used"
REMEDY = "check that the head of the Ray cluster runs and is not overloaded; work continues, and the request is repeated"


def _of_ray() -> Nodes:
    nodes: Nodes = ray.nodes()  # type: ignore[no-untyped-call]  # Ray gives it no types
    return nodes


class NodeCache:
    """Latest answer of `ray.nodes()`. A thread makes the call, which has no time limit and may block for minutes.

    Args:
        ask: Replaces Ray in tests.
    """

    def __init__(self, ask: Callable[[], Nodes] = _of_ray) -> None:
        self._ask = ask
        self._asked: Future[Nodes] | None = None
        self._nodes: Nodes | None = None

    def look(self, wait_s: float) -> Nodes | None:
        """Return the nodes; the last known nodes when Ray does not answer within `wait_s` seconds. None: Ray has never answered."""
        if self._asked is None:
            self._asked = Future()
            threading.Thread(target=self._answer, args=(self._asked,), name="nodes", daemon=True).start()
        try:
            self._nodes, self._asked = self._asked.result(wait_s), None
        except NotYet:
            log.warning(SILENT, remedy=REMEDY)
        except Exception as away:  # noqa: BLE001  Ray raises many errors when its control service is away
            self._asked = None
            log.warning(SILENT, error=str(away), remedy=REMEDY)
        return self._nodes

    def _answer(self, asked: Future[Nodes]) -> None:
        try:
            asked.set_result(self._ask())
        except BaseException as away:  # noqa: BLE001  the waiting thread gets it
            asked.set_exception(away)
