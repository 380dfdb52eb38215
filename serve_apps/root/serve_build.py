"""Applications of the root that a Serve config file imports: `serve deploy FILE`, or a `RayService` of KubeRay.

Each builder gets the arguments of its application. A replica reads the secrets and asks Redis for the ledger that `schedulemesh prepare`
has made: neither is in the file, in Serve's own store, or on its dashboard.
"""

# Serve reads the builders' annotations as classes, so this module has no `from __future__ import annotations`.

import os
import time
from dataclasses import replace
from typing import cast

import structlog
from fastapi import FastAPI
from ray import serve
from ray.serve import Application

from federation.config.loading import FederationConfig
from federation.errors import LedgerMissing, SchemaMismatch, StoreUnavailable
from federation.leases import LeaseTerms
from federation.store.redis.client import connect
from federation.store.redis.keys import Keys
from federation.store.redis.safety import check_server
from federation.store.redis.scripts import redis_responses
from serve_apps.configuration.root_arguments import RootArguments, RootSecrets
from serve_apps.configuration.root_settings import root_settings_of
from serve_apps.processes.process import configure_logging
from serve_apps.processes.ray_entry import cluster_id
from serve_apps.processes.settings import RootSettings
from serve_apps.processes.stores import ANSWER_MS_MAX
from serve_apps.root.deployments import CoordinatorLoop, coordinator_deployment, gateway_app, gateway_deployment

log = structlog.get_logger(__name__)

#: How long a replica waits at its start for Redis; afterwards Serve starts another.
STORE_S_MAX = 60.0
_PAUSE_S = 1.0
#: A replica waits for Redis and for HTTP, and computes little.
LIGHT = {"num_cpus": 0}


class PreparedCoordinator(CoordinatorLoop):
    """Coordinator that finds its settings in its replica."""

    def __init__(self, arguments: RootArguments) -> None:
        super().__init__(prepared_settings(arguments))


def gateway(arguments: RootArguments) -> Application:
    """Build the gateways' application. Raises ConfigError."""
    deployed = gateway_deployment(arguments.config().root.gateways, LIGHT)

    def build() -> FastAPI:  # Serve needs a function without arguments.
        return gateway_app(prepared_settings(arguments))

    return deployed(serve.ingress(build)()).bind()


def coordinator(arguments: RootArguments) -> Application:
    """Build the coordinator's application. Raises ConfigError."""
    arguments.config()  # A wrong file fails here, with its problems in `serve status`.
    return coordinator_deployment(LIGHT)(PreparedCoordinator).bind(arguments)


def prepared_settings(arguments: RootArguments) -> RootSettings:
    """Return the settings of this replica, once Redis answers.

    Raises:
        SecretMissing: A secret is at none of its places.
        LedgerMissing: `schedulemesh prepare` has not made the ledger.
        StoreUnavailable: The server does not answer within `STORE_S_MAX`.
        MeshError: As `check_server`.
    """
    configure_logging()
    config, secrets = arguments.config(), arguments.secrets(os.environ)
    deadline = time.monotonic() + STORE_S_MAX
    while True:
        try:
            return _settings_on_store(config, secrets)
        except SchemaMismatch:  # Waiting does not help.
            raise
        except StoreUnavailable as gone:
            if time.monotonic() >= deadline:
                raise
            log.warning("the store does not answer yet", error=str(gone))
            time.sleep(_PAUSE_S)


def _settings_on_store(config: FederationConfig, secrets: RootSecrets) -> RootSettings:
    terms = LeaseTerms.of(config.federation.lease_ttl_ms, config.federation.lease_grace_ms)
    keys = Keys()
    with connect(secrets.redis_url, timeout_ms=ANSWER_MS_MAX) as client:
        server = check_server(client, keys, terms)
        with redis_responses("look at the ledger"):
            uid = cast("bytes | None", client.hget(keys.meta, "uid"))
    if uid is None:
        raise LedgerMissing("the server holds no ledger; run `schedulemesh prepare` with the federation file and this server")
    settings = root_settings_of(
        config,
        ray_address="",
        redis_url=secrets.redis_url,
        ledger=uid.decode(),
        replicated=server.min_replicas_to_write > 0,
        storage_url=config.storage.url or "",
        port=config.root.port,
        receipt_keys=secrets.receipt_keys,
        cluster_stays=True,
    )
    if not settings.has_own_cluster:
        return settings
    return settings.model_copy(update={"configured_meshes": replace(settings.configured_meshes, root_cluster=cluster_id())})
