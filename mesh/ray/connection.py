"""Protection of a worker's connection to Ray: the tenant's code can neither repeat nor end it.

Scripts begin with `ray.init()` and end with `ray.shutdown()`. In a worker the first raises ("called ray.init twice"), and the second
ends the worker together with the task. `ray.init()` gets Ray's own option `ignore_reinit_error`, and `ray.shutdown()` does nothing.
"""

from __future__ import annotations

import functools
from typing import Any

import ray
import structlog

log = structlog.get_logger(__name__)

#: Addresses that mean the Ray cluster of this worker.
_HERE = (None, "", "auto")


class OtherRay(RuntimeError):
    """A task asked for a Ray cluster other than its mesh's."""


@functools.cache
def keep_connected() -> None:
    """Make `ray.init()` and `ray.shutdown()` harmless in this process, which Ray started as a worker."""
    ray.init, ray.shutdown = _again(ray.init), _left_out(ray.shutdown)


def _again(init: Any) -> Any:
    @functools.wraps(init)
    def ignored(address: str | None = None, **options: Any) -> Any:
        own = ray.get_runtime_context().gcs_address
        if address not in (*_HERE, own):
            raise OtherRay(f"ray.init({address!r}) in a task, which is connected to the Ray of its mesh, {own}: leave the address out")
        unheeded = ", ".join(sorted(options.keys() - {"ignore_reinit_error"}))
        log.info("ray_is_there_already", call="ray.init()", unheeded=unheeded or "nothing")
        return init(ignore_reinit_error=True)

    return ignored


def _left_out(shutdown: Any) -> Any:
    @functools.wraps(shutdown)
    def ignored(*_: Any, **options: Any) -> None:
        if options.get("_exiting_interpreter"):
            shutdown(**options)
            return
        log.info("ray_stays", call="ray.shutdown()", why="it would end the worker together with its task")

    return ignored
