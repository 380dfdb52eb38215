"""Whose work is whose tenant nobody names: what the running stack has published, kept true when tenants go."""

from __future__ import annotations

from dataclasses import dataclass

from dag.store.client_access import CLIENT_FILE
from federation.config.loading import FederationConfig, default_within, tenants_of
from mesh.ids import TenantPath
from serve_apps.one_machine.state_folder import StateFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultGone:
    """The tenant that clients submit to who name none is not in the file any more."""

    before: TenantPath
    after: TenantPath | None  #: The one in its place; None: the key that is published beside it reaches none that is left.

    def in_words(self, folder: StateFolder) -> str:
        """What that means for whoever submits."""
        file = folder.path / CLIENT_FILE
        if self.after is not None:
            return f"work whose tenant nobody names went to {self.before}, which is gone; it goes to {self.after} ({file})"
        return (
            f"work whose tenant nobody names went to {self.before}, which is gone, and is refused: the key in {file} reaches no "
            "tenant that is left. `schedulemesh keys create TENANT` makes one, "
            "for SCHEDULEMESH_API_KEY, `--tenant` names it; `down` and `up` mend the file"
        )


def gone_default(folder: StateFolder, config: FederationConfig) -> DefaultGone | None:
    """What a file makes of the default of the stack in this folder; None when it stays, or nothing is published."""
    before = folder.read(CLIENT_FILE).get("tenant")
    if not before or any(tenant.path == before for tenant in tenants_of(config)):
        return None
    reach = TenantPath(str(before).partition("/")[0])  # The key is that of the top of the path: see `Stack`.
    return DefaultGone(before=TenantPath(str(before)), after=default_within(config, within=reach))


def publish_default(folder: StateFolder, gone: DefaultGone) -> None:
    """From now on clients read the new one."""
    if gone.after is not None:
        folder.write(CLIENT_FILE, {**folder.read(CLIENT_FILE), "tenant": gone.after})
