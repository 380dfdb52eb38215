"""Default tenant of clients that name none, kept valid when `apply` removes tenants."""

from __future__ import annotations

from dataclasses import dataclass

from dag.store.client_access import CLIENT_FILE
from federation.config.loading import FederationConfig, default_within, tenants_of
from mesh.core.ids import TenantPath
from serve_apps.standalone.stack_folder import StackFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultTenantRemoved:
    """Removal of the default tenant from the file."""

    before: TenantPath
    after: TenantPath | None  #: The new default; None: the published key covers no tenant that remains.

    def in_words(self, folder: StackFolder) -> str:
        """Return what this means for clients, in words."""
        file = folder.path / CLIENT_FILE
        if self.after is not None:
            return f"the default tenant {self.before} was removed; work without a tenant now goes to {self.after} ({file})"
        return (
            f"the default tenant {self.before} was removed, and work without a tenant is refused: the key in {file} covers no "
            "remaining tenant. `schedulemesh keys create TENANT` makes one, "
            "for SCHEDULEMESH_API_KEY; name the tenant with `--tenant`; `down` and `up` repair the file"
        )


def gone_default(folder: StackFolder, config: FederationConfig) -> DefaultTenantRemoved | None:
    """Return the change that a file makes to this stack's default tenant; None if the default stays, or none is published."""
    before = folder.read(CLIENT_FILE).get("tenant")
    if not before or any(tenant.path == before for tenant in tenants_of(config)):
        return None
    reach = TenantPath(str(before).partition("/")[0])  # The key covers the top of the path: see `Stack`.
    return DefaultTenantRemoved(before=TenantPath(str(before)), after=default_within(config, within=reach))


def publish_default(folder: StackFolder, gone: DefaultTenantRemoved) -> None:
    """Publish the new default tenant to clients."""
    if gone.after is not None:
        folder.write(CLIENT_FILE, {**folder.read(CLIENT_FILE), "tenant": gone.after})
