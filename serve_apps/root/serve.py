"""Ray Serve on the root's cluster. A cluster has one Serve with one port, and keeps both until Serve is shut down."""

from __future__ import annotations

from collections.abc import Collection

import structlog
from ray import serve
from ray.serve.config import HTTPOptions
from ray.serve.context import _get_global_client

from mesh.errors import RuntimeAdapterError

log = structlog.get_logger(__name__)

_QUIET = {"enable_access_log": False, "log_level": "WARNING"}


def start_serve(host: str, port: int, *, ours: Collection[str], has_proxy: bool = True) -> None:
    """Make Serve listen here. A Serve that listens here already is reused; another one is shut down if no one else uses it.

    Args:
        has_proxy: Serve's proxy listens; else the gateways do.
        ours: Names of the applications that an earlier root of this federation may have left there.

    Raises:
        RuntimeAdapterError: Others use it.
    """
    there = _address()
    if there is not None and (others := _others(ours)):
        raise RuntimeAdapterError(
            f"Ray Serve of the root's cluster is in use: it listens on {there[0]}:{there[1]}, for {', '.join(others)}. A cluster has one "
            "Serve, and the root needs its own: name another cluster in `root.cluster`, or run `serve shutdown` there if nothing needs it"
        )
    if there not in (None, (host, port)):
        log.warning("Serve listens elsewhere, without applications; restarting it", there=there, here=(host, port))
        serve.shutdown()  # type: ignore[no-untyped-call]  # Ray gives it no types
    serve.start(proxy_location="HeadOnly" if has_proxy else "Disabled", http_options={"host": host, "port": port}, logging_config=_QUIET)


def end_serve(*, ours: Collection[str], cluster_stays: bool) -> None:
    """Delete the root's applications.

    Args:
        ours: Their names.
        cluster_stays: The cluster remains: shut down Serve too, which would keep its port, unless others use it.
    """
    if cluster_stays and not _others(ours):
        serve.shutdown()  # type: ignore[no-untyped-call]  # Ray gives it no types
        return
    for name in ours:
        serve.delete(name, _blocking=False)


def _address() -> tuple[str, int] | None:
    client = _get_global_client(raise_if_no_controller_running=False)
    if client is None:
        return None
    options: HTTPOptions = client.http_config
    return options.host or "", options.port


def _others(ours: Collection[str]) -> list[str]:
    return sorted(serve.status().applications.keys() - set(ours))
