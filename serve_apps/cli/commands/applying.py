"""Command `apply`: change the tenants, rules and settings of meshes of a running federation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from federation.config.loading import stage_settings_of, tenants_of
from federation.config.quota_rules import tenant_policies_of
from federation.dispatch import NotificationKind
from federation.store.redis.key_ring import RedisKeyRing
from federation.tenants import SEPARATOR, TenantTree
from mesh.core.counting import counted
from serve_apps.cli.output import console_for, print_json
from serve_apps.cli.recording import recorded
from serve_apps.cli.session import JsonOption
from serve_apps.cli.state import STATE, ConfigArgument, StateOption, read_config_with_warnings, running_stores
from serve_apps.configuration.config_diff import (
    Changes,
    Difference,
    as_json,
    changes,
    mesh_changes,
    mesh_changes_as_json,
    refuse_crowding,
)
from serve_apps.standalone.default_tenant import gone_default, publish_default
from serve_apps.standalone.stack_folder import StackFolder
from serve_apps.standalone.startup_config import APPLIED, differing, refuse_another
from serve_apps.standalone.tenant_replacement import Orphans, orphans_after, replace_tenants

#: Characters of a diff in the log of changes.
CHANGED_MAX = 4_000


def register(app: typer.Typer) -> None:
    app.command()(apply)


def apply(
    config: ConfigArgument,
    state: StateOption = STATE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing; show what would change.")] = False,
    json_asked: JsonOption = False,
) -> None:
    """Apply the file's tenants, quotas, weights, rules, limits and settings of meshes to the running federation. Running work continues."""
    checked, folder = read_config_with_warnings(config, about=APPLIED), StackFolder(state)
    stores = running_stores(state)
    refuse_another(folder, checked, config)
    tree, asked = TenantTree(tenants_of(checked)), tenant_policies_of(checked)
    snapshot = stores.ledger.snapshot()
    refuse_crowding(snapshot, tree)
    found = changes(snapshot, stores.tenant_policies.in_force().filed, tree, asked)
    settings = stage_settings_of(checked)
    known = {mesh: kept.settings for mesh, kept in stores.registry.conditions().meshes.items() if kept.settings is not None}
    of_meshes = mesh_changes(known, settings)
    ring = RedisKeyRing(stores.client, stores.keys)
    if dry_run:
        orphans = orphans_after(ring, stores.schedules, tree, known=snapshot.tree)
    else:
        with recorded(stores, "apply", config.name, details={"file_sha256": _digest(config)}) as details:
            orphans = replace_tenants(stores.ledger, ring, stores.schedules, tree, known=snapshot.tree)
            stores.tenant_policies.publish(asked)
            stores.registry.publish_settings(settings)
            concerned = {one.mesh for one in of_meshes} | (known.keys() - settings.keys())  # The others follow their own again.
            for mesh in (view.record.mesh for view in snapshot.meshes if view.record.mesh in concerned):
                stores.queue.notify(mesh, NotificationKind.SETTINGS)
            details.update(_details(found, of_meshes, orphans))
    left, gone = differing(folder, checked), gone_default(folder, checked)
    if gone is not None and not dry_run:
        publish_default(folder, gone)
    if json_asked:
        described = {"applied": not dry_run, "tenants": len(tree.tenants), **as_json(found), "meshes": mesh_changes_as_json(of_meshes)}
        described["not_applied"] = list(left)
        described["revoked_keys"] = list(orphans.keys)
        described["paused_schedules"] = [{"tenant": tenant, "name": name} for tenant, name in orphans.schedules]
        described["default_tenant"] = {"before": gone.before, "after": gone.after} if gone is not None else None
        print_json(json.dumps(described, indent=2))
        return
    console = console_for()
    console.print(f"{'would be applied' if dry_run else 'applied'}: {counted(len(tree.tenants), 'tenant')}")
    restart = "`prepare`, `serve-config` and `serve deploy`" if folder.is_prepared else "`down` and `up`"
    for words in _lines(found, of_meshes, left, restart):
        console.print(words, soft_wrap=True)
    if orphans.keys:
        console.print(f"{'would revoke' if dry_run else 'revoked'} API keys of removed tenants: {', '.join(orphans.keys)}", soft_wrap=True)
    if orphans.schedules:
        listed = ", ".join(f"{name} of {tenant}" for tenant, name in orphans.schedules)
        console.print(f"{'would pause' if dry_run else 'paused'} schedules of removed tenants: {listed}", soft_wrap=True)
    if gone is not None:
        console_for(stderr=True).print(f"warning: {gone.in_words(folder)}", style="yellow", soft_wrap=True)


def _details(found: Changes, of_meshes: tuple[Difference, ...], orphans: Orphans) -> dict[str, str]:
    """Return what the log of changes keeps of a file that was applied."""
    schedules = ", ".join(f"{name} of {tenant}" for tenant, name in orphans.schedules)
    kept = {
        "changed": "\n".join(map(str, _lines(found, of_meshes, ()))) or "nothing",
        "revoked_keys": ", ".join(orphans.keys),
        "paused_schedules": schedules,
    }
    return {name: words[:CHANGED_MAX] for name, words in kept.items() if words}


def _digest(file: Path) -> str:
    """Return the beginning of the digest of a file that was read before."""
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def _lines(found: Changes, of_meshes: tuple[Difference, ...], left: tuple[str, ...], restart: str = "") -> Iterator[str]:
    moved = ", ".join(f"{path} (now {f'below {parent}' if parent is not None else 'at the top'})" for path, parent in found.moved)
    for what, words in (
        ("new tenants", ", ".join(found.new)),
        ("moved tenants, with the quota they hold", moved),
        ("removed tenants", ", ".join(found.gone)),
    ):
        if words:
            yield f"{what}: {words}"
    yield from _changed("limits", found.limits)
    yield from _changed("settings", found.settings)
    yield from _changed("settings of meshes, which a running mesh follows within seconds", of_meshes)
    if found.over:
        yield "over their limits, and granted nothing more until they are within them:"
        yield from (_over(row, is_stopped=row in found.stopped) for row in found.over)
    if left:
        yield f"not applied, because these need {restart}: {', '.join(left)}"


def _over(row: str, *, is_stopped: bool) -> str:
    tenant, flavor, resource = row.split(SEPARATOR)
    words = (
        "work is stopped until the limit holds (`on_quota_reduction: evict`)"
        if is_stopped
        else "running work continues until it ends (`on_quota_reduction: keep`)"
    )
    return f"  {tenant}: {flavor}.{resource}; {words}"


def _changed(title: str, differences: tuple[Difference, ...]) -> Iterator[str]:
    if differences:
        yield f"changed {title}:"
    for one in differences:
        yield f"  {f'mesh {one.mesh}' if one.mesh else one.tenant or 'the federation'}: {one.what}: {one.before} → {one.after}"
