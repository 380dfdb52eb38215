"""Ledger of a federation file on a Redis server: `up` makes it for its own root, `prepare` for a root that Ray Serve deploys."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial

from federation.config.loading import FederationConfig, stage_settings_of, tenants_of
from federation.config.quota_rules import tenant_policies_of
from federation.errors import ConfigError
from federation.leases import LeaseTerms
from federation.store.redis.key_ring import RedisKeyRing
from federation.store.redis.safety import check_server
from federation.tenants import TenantTree
from mesh.core.counting import counted
from serve_apps.configuration.root_arguments import NO_STORAGE, write_secrets
from serve_apps.configuration.root_settings import root_settings_of
from serve_apps.processes.settings import RootSettings
from serve_apps.processes.stores import Stores, open_stores
from serve_apps.standalone.active_stops import active_stops
from serve_apps.standalone.ledger_identity import keep_ledger, known_ledger, ledger_of
from serve_apps.standalone.stack_folder import PREPARED_FILE, StackFolder
from serve_apps.standalone.startup_config import keep
from serve_apps.standalone.tenant_replacement import replace_tenants

_RECEIPTS = "receipts.json"


def bring_into_force(stores: Stores, config: FederationConfig, *, say: Callable[[str], None]) -> None:
    """Create the ledger if there is none, and put the file's tenants, rules and settings of meshes into force.

    Args:
        say: Called with each effect, in words for people.

    Raises:
        StoreUnavailable: The store does not answer. Safe to repeat.
    """
    tenants = tenants_of(config)
    ring, known_tree = RedisKeyRing(stores.client, stores.keys), stores.ledger.configured_at()[1]
    orphans = replace_tenants(stores.ledger, ring, stores.schedules, TenantTree(tenants), known=known_tree)
    for key in orphans.keys:
        say(f"revoked the API key {key}, since its tenant was removed")
    for tenant, name in orphans.schedules:
        say(f"paused the schedule {name} of {tenant}, since its tenant was removed")
    stores.tenant_policies.publish(tenant_policies_of(config))
    stores.registry.publish_settings(stage_settings_of(config))
    say(f"ledger: {counted(len(tenants), 'tenant')}, {counted(len(config.flavors), 'flavor')}")
    for words in active_stops(stores.registry.conditions(), stores.tenant_policies.in_force()):
        say(words)


def prepare(
    config: FederationConfig, folder: StackFolder, *, redis_url: str, rebuild_ledger: bool = False, say: Callable[[str], None]
) -> RootSettings:
    """Make the server ready for a root that Ray Serve deploys, and the folder for operators' commands. Safe to repeat.

    Args:
        folder: State folder, owned by the caller.
        rebuild_ledger: The operator confirms that the server was emptied on purpose.

    Raises:
        ConfigError: `storage.url` names no place.
        MeshError: As `check_server`.
    """
    storage_url = config.storage.url
    if storage_url is None:
        raise ConfigError(located=(config.problem_at(("storage", "url"), NO_STORAGE),))
    section = config.federation
    open_on = partial(open_stores, redis_url, lease_ttl_ms=section.lease_ttl_ms, lease_grace_ms=section.lease_grace_ms)
    known = known_ledger(folder)
    first = open_on(ledger=known)
    try:
        server = check_server(
            first.client,
            first.keys,
            LeaseTerms.of(section.lease_ttl_ms, section.lease_grace_ms),
            uid=known,
            may_found=known is None or rebuild_ledger,
        )
        uid = ledger_of(folder, first)
    finally:
        first.client.close()
    stores = open_on(ledger=uid)
    try:
        bring_into_force(stores, config, say=say)
    finally:
        stores.client.close()
    keep_ledger(folder, uid)
    keep(folder, config)
    settings = root_settings_of(
        config,
        ray_address="",
        redis_url=redis_url,
        ledger=uid,
        replicated=server.min_replicas_to_write > 0,
        storage_url=storage_url,
        port=config.root.port,
        receipt_keys=receipt_keys_of(folder),
        cluster_stays=True,
    )
    settings.write(folder.path / "settings" / "root.json")
    write_secrets(folder.path / "secrets", redis_url=redis_url, receipt_keys=settings.receipt_keys)
    folder.write(PREPARED_FILE, {"ledger": uid})
    return settings


def receipt_keys_of(folder: StackFolder) -> dict[int, str]:
    """Return the state folder's signing keys, made once, so that meshes can claim after a loss what they were granted before it."""
    kept = folder.read(_RECEIPTS)
    if not kept:
        kept = {"1": secrets.token_hex(32)}
        folder.write(_RECEIPTS, kept)
    return {int(number): str(key) for number, key in kept.items()}
