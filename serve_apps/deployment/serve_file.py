"""Config file of Ray Serve for the root: what `serve deploy FILE` reads."""

from __future__ import annotations

from typing import Any

import yaml

from federation.config.loading import FederationConfig
from serve_apps.configuration.root_arguments import RootArguments
from serve_apps.root.proxy_responses import VARIABLES

BUILDERS = "serve_apps.root.serve_build"
#: Serve's applications: one that HTTP reaches, and one that advances runs.
GATEWAY, COORDINATOR = "schedulemesh-gateway", "schedulemesh-coordinator"
_HEADER = """\
# The root of the federation {name} on Ray Serve, written by `schedulemesh serve-config`.
# The cluster needs ScheduleMesh in its Python, and Redis needs `schedulemesh prepare` once before.
"""


def serve_config(
    config: FederationConfig, arguments: RootArguments, *, host: str | None = None, on_every_node: bool = False
) -> dict[str, Any]:
    """Return the content of the file.

    Args:
        host: Address that Serve's proxy listens on; None: `root.host`.
        on_every_node: Each node has a proxy, and not only the head.
    """
    given = arguments.model_dump(exclude_none=True)
    light = {"num_cpus": 0}
    return {
        "proxy_location": "EveryNode" if on_every_node else "HeadOnly",
        "http_options": {"host": host or config.root.host, "port": config.root.port},
        "controller_options": {"runtime_env": {"env_vars": dict(VARIABLES)}},
        "logging_config": {"log_level": "WARNING", "enable_access_log": False},
        "applications": [
            {
                "name": GATEWAY,
                "route_prefix": "/",
                "import_path": f"{BUILDERS}:gateway",
                "args": given,
                "deployments": [{"name": "Gateway", "num_replicas": config.root.gateways, "ray_actor_options": dict(light)}],
            },
            {
                "name": COORDINATOR,
                "route_prefix": None,
                "import_path": f"{BUILDERS}:coordinator",
                "args": given,
                "deployments": [{"name": "Coordinator", "num_replicas": 1, "ray_actor_options": dict(light)}],
            },
        ],
    }


def serve_text(config: FederationConfig, content: dict[str, Any]) -> str:
    """Return the text of the file. Both applications share their arguments by an anchor."""
    return _HEADER.format(name=config.federation.name) + yaml.safe_dump(content, sort_keys=False, width=120)
