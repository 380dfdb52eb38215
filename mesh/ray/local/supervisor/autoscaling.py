"""Reports pending demand to Ray's autoscaler, so that the cluster can grow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog

from mesh.core.resources import ResourceSet
from mesh.ray.placement import bundle_of

log = structlog.get_logger(__name__)


def request_resources(**request: Any) -> Any:
    """Call Ray's function of this name."""
    from ray.autoscaler.sdk import request_resources as request_of_ray  # noqa: PLC0415  the import is long, and few meshes ask

    return request_of_ray(**request)


class Autoscaling:
    """Sends demand to the autoscaler. Without an autoscaler the failure is logged once, and work waits for nodes.

    Args:
        request: Ray's `request_resources`, or a stand-in.
    """

    def __init__(self, request: Callable[..., Any] = request_resources) -> None:
        self._request = request
        self._asked: tuple[ResourceSet, ...] = ()
        self._has_warned = False

    def ask(self, demands: Sequence[ResourceSet]) -> None:
        """Replace the earlier demand; an empty list withdraws it. Blocks for a call to Ray."""
        wanted = tuple(demands)
        if wanted == self._asked:
            return
        try:
            self._request(bundles=[bundle_of(demand) for demand in wanted])
            self._asked = wanted
        except Exception as error:  # noqa: BLE001 - the mesh works without the autoscaler
            if not self._has_warned:
                log.warning("the autoscaler did not accept the request", error=str(error), demands=len(wanted))
                self._has_warned = True
