"""Coordinator of a root that kills itself at one point of a run.

`python dying_coordinator.py SETTINGS POINT` runs the production loop until it dies at the point; at `none` it never does. With `unelected`
in place of a point it leads although another one leads too.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from dag.run.run_events import NodesEnded
from dag.run.runs import DeliverInput, SendStage
from serve_apps.processes.settings import RootSettings
from serve_apps.processes.stores import Stores, open_stores
from serve_apps.root import deployments


@dataclass(frozen=True, slots=True)
class Moment:
    """A call of the coordinator on its stores."""

    port: str
    method: str
    is_after: bool
    matches: Callable[..., bool] = lambda *_: True


def _ends_a_node(change: Any) -> bool:
    return any(isinstance(event, NodesEnded) or getattr(event, "after", "") == "SUCCEEDED" for event in change.events)


def _decides(change: Any, kind: type) -> bool:
    return any(isinstance(decision, kind) and getattr(decision, "value", True) is not None for decision in change.decisions)


POINTS = {
    "submitted": Moment("runs", "commit", False),
    "planned": Moment("runs", "commit", True, lambda _, change: _decides(change, SendStage)),
    "sent": Moment("queue", "submit", True),
    "done": Moment("runs", "commit", False, lambda _, change: _ends_a_node(change)),
    "recorded": Moment("runs", "commit", True, lambda _, change: _decides(change, DeliverInput)),
    "transferring": Moment("queue", "deliver", True, lambda _stage, _node, value: value is not None),
}


class Tapped:
    """Port that kills this process at the moment."""

    def __init__(self, port: Any, moment: Moment) -> None:
        self._port = port
        self._moment = moment

    def __getattr__(self, name: str) -> Any:
        method, moment = getattr(self._port, name), self._moment
        if name != moment.method:
            return method

        def call(*args: Any, **named: Any) -> Any:
            is_now = moment.matches(*args, **named)
            if is_now and not moment.is_after:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = method(*args, **named)
            if is_now:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call


def main(settings: str, point: str) -> None:
    def opened(*args: Any, **named: Any) -> Stores:
        stores, moment = open_stores(*args, **named), POINTS.get(point)
        if moment is None:
            return stores
        tapped: dict[str, Any] = {moment.port: Tapped(getattr(stores, moment.port), moment)}
        return replace(stores, **tapped)

    deployments.open_stores = opened  # type: ignore[assignment]  # as the production loop opens them
    if point == "unelected":
        deployments.CoordinatorElection.hold = lambda *_: True  # type: ignore[method-assign]  # two leaders at once
    loop = deployments.CoordinatorLoop(RootSettings.read(settings))
    signal.pause()
    loop.close()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
