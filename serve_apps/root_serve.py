"""Ray Serve on the root's cluster. A cluster has one Serve with one port, and keeps both until Serve is shut down."""

from __future__ import annotations

import structlog
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.context import _get_global_client

from mesh.errors import RuntimeDoorError
from serve_apps.deployments import COORDINATOR, GATEWAY

log = structlog.get_logger(__name__)

_QUIET = {"enable_access_log": False, "log_level": "WARNING"}


def start_serve(host: str, port: int) -> None:
    """Have Serve answer here. What is there already goes on if it does, and else is shut down, if nobody else uses it.

    Raises:
        RuntimeDoorError: It answers elsewhere, for others.
    """
    there = _address()
    if there not in (None, (host, port)):
        if others := _others():
            at = ":".join(map(str, there or ()))
            raise RuntimeDoorError(
                f"Ray Serve of the root's cluster is in use: it answers at {at}, for {', '.join(others)}. "
                "A cluster has one Serve, and the root wants one of its own: name another cluster in `root.cluster`"
            )
        log.warning("Serve answers elsewhere, for nobody; it is started anew", there=there, here=(host, port))
        serve.shutdown()  # type: ignore[no-untyped-call]  # Ray gives it no types
    serve.start(proxy_location="HeadOnly", http_options={"host": host, "port": port}, logging_config=_QUIET)


def end_serve(*, cluster_stays: bool) -> None:
    """Take back what the root has deployed.

    Args:
        cluster_stays: Nobody stops the cluster after this: Serve, which would keep its port, ends too, unless others use it.
    """
    if cluster_stays and not _others():
        serve.shutdown()  # type: ignore[no-untyped-call]  # Ray gives it no types
        return
    for name in (GATEWAY, COORDINATOR):
        serve.delete(name, _blocking=False)


def _address() -> tuple[str, int] | None:
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return None
    options: HTTPOptions = client.http_config
    return options.host or "", options.port


def _others() -> list[str]:
    return sorted(serve.status().applications.keys() - {GATEWAY, COORDINATOR})
