"""Process that deploys the root mesh on its cluster and stays beside it: `python -m serve_apps.root_process FILE`."""

from __future__ import annotations

import sys
from dataclasses import replace

import ray
from ray import serve

from serve_apps.processes.process import configure_logging, report_ready, stop_on_signals
from serve_apps.processes.ray_entry import cluster_id, enter
from serve_apps.processes.settings import RootSettings
from serve_apps.root.deployments import root_applications, root_targets
from serve_apps.root.proxy_responses import VARIABLES
from serve_apps.root.serve import end_serve, start_serve
from serve_apps.root.standby import Standby


def main(settings_file: str) -> None:
    """Deploy, print the ready line, wait for the end, undeploy."""
    configure_logging()
    settings = RootSettings.read(settings_file)
    enter(settings.ray_address, VARIABLES if settings.cluster_stays else None)  # On the stack's own clusters there is no proxy.
    if settings.has_own_cluster:
        settings = settings.model_copy(update={"configured_meshes": replace(settings.configured_meshes, root_cluster=cluster_id())})
    stop, names = stop_on_signals(), root_applications(settings.ledger)
    standby = None if settings.cluster_stays else Standby(settings.host, settings.port)
    start_serve(settings.host, settings.port, ours=names, has_proxy=settings.cluster_stays)
    serve.run_many(root_targets(settings))
    report_ready(address=f"http://{settings.host}:{settings.port}")
    stop.wait()
    if standby is not None:
        standby.close()
    end_serve(ours=names, cluster_stays=settings.cluster_stays)
    ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
