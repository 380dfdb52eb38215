"""Roles that calls need, and subjects of calls that change something: one table each for all routes of tenants and operators.

`asking` looks every call up here, so a route without a row answers nobody. The subtree of the key is checked apart, by `reaches` and
`operating`. See ADR 0070, and ADR 0073 for the subjects.
"""

from __future__ import annotations

from dataclasses import dataclass

from federation.api_keys import EVERYBODY, Role
from serve_apps.requests.auth import Principal
from serve_apps.requests.errors import RoleTooLow
from serve_apps.schemas.callers import Permission

#: Least role by method and path of the route.
ROLES: dict[tuple[str, str], Role] = {
    ("GET", "/metrics"): Role.VIEWER,
    ("GET", "/v1/audit"): Role.VIEWER,
    ("GET", "/v1/cache"): Role.VIEWER,
    ("GET", "/v1/dead"): Role.VIEWER,
    ("GET", "/v1/dead/{letter}"): Role.VIEWER,
    ("GET", "/v1/events"): Role.VIEWER,
    ("GET", "/v1/leases"): Role.VIEWER,
    ("GET", "/v1/leases/history"): Role.VIEWER,
    ("GET", "/v1/meshes"): Role.VIEWER,
    ("GET", "/v1/queues"): Role.VIEWER,
    ("GET", "/v1/queues/{tenant}"): Role.VIEWER,
    ("GET", "/v1/runs"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/events"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/explain"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/graph"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/logs"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/nodes"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/nodes/{node}"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/nodes/{node}/elements"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/result"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/result/{output}"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/stages/{stage_id}/explain"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/summary"): Role.VIEWER,
    ("GET", "/v1/runs/{run_id}/timeline"): Role.VIEWER,
    ("GET", "/v1/schedules"): Role.VIEWER,
    ("GET", "/v1/schedules/{name}"): Role.VIEWER,
    ("GET", "/v1/tenants"): Role.VIEWER,
    ("GET", "/v1/usage"): Role.VIEWER,
    ("GET", "/v1/whoami"): Role.VIEWER,
    ("POST", "/v1/plan"): Role.VIEWER,  # It changes nothing.
    ("POST", "/v1/runs"): Role.SUBMITTER,
    ("POST", "/v1/runs/{run_id}/cancel"): Role.SUBMITTER,
    ("POST", "/v1/runs/{run_id}/resume"): Role.SUBMITTER,
    ("POST", "/v1/runs/{run_id}/signals/{name}"): Role.SUBMITTER,
    ("DELETE", "/v1/runs/{run_id}"): Role.SUBMITTER,
    ("PUT", "/v1/schedules/{name}"): Role.SUBMITTER,
    ("DELETE", "/v1/schedules/{name}"): Role.SUBMITTER,
    ("POST", "/v1/schedules/{name}/pause"): Role.SUBMITTER,
    ("POST", "/v1/schedules/{name}/resume"): Role.SUBMITTER,
    ("POST", "/v1/schedules/{name}/trigger"): Role.SUBMITTER,
    ("POST", "/v1/cache/drop"): Role.SUBMITTER,
    ("POST", "/v1/dead/{letter}/drop"): Role.OPERATOR,
    ("POST", "/v1/dead/{letter}/requeue"): Role.OPERATOR,
    ("POST", "/v1/meshes/{mesh}/drain"): Role.OPERATOR,
    ("POST", "/v1/meshes/{mesh}/undrain"): Role.OPERATOR,
    ("POST", "/v1/tenants/{tenant}/drain"): Role.OPERATOR,
    ("POST", "/v1/tenants/{tenant}/resume"): Role.OPERATOR,
    ("POST", "/v1/tenants/{tenant}/suspend"): Role.OPERATOR,
    ("GET", "/v1/changes"): Role.OPERATOR,
    ("GET", "/v1/keys"): Role.ADMIN,
    ("POST", "/v1/keys/{key}/revoke"): Role.ADMIN,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Source of the tenant that a call is about. The first place that names one counts; without any it is the tenant of the key."""

    path: str = ""  #: Part of the path: `tenant`, or the `run_id`, `letter` or `key` that belongs to a tenant.
    query: str = ""  #: Parameter of the query with the path of a tenant.
    body: tuple[str, ...] = ()  #: Fields of the JSON body, from outside in, that lead to the path of a tenant.


_RUN, _LETTER, _TENANT, _KEY = (Subject(path=part) for part in ("run_id", "letter", "tenant", "key"))
_SCHEDULE = Subject(query="tenant")
#: Subject by method and path of each route that is no GET. A call that needs a key of all tenants is about all of them.
SUBJECTS: dict[tuple[str, str], Subject] = {
    ("POST", "/v1/plan"): Subject(body=("tenant",)),
    ("POST", "/v1/runs"): Subject(body=("tenant",)),
    ("POST", "/v1/runs/{run_id}/cancel"): _RUN,
    ("POST", "/v1/runs/{run_id}/resume"): _RUN,
    ("POST", "/v1/runs/{run_id}/signals/{name}"): _RUN,
    ("DELETE", "/v1/runs/{run_id}"): _RUN,
    ("PUT", "/v1/schedules/{name}"): Subject(query="tenant", body=("graph", "tenant")),
    ("DELETE", "/v1/schedules/{name}"): _SCHEDULE,
    ("POST", "/v1/schedules/{name}/pause"): _SCHEDULE,
    ("POST", "/v1/schedules/{name}/resume"): _SCHEDULE,
    ("POST", "/v1/schedules/{name}/trigger"): _SCHEDULE,
    ("POST", "/v1/cache/drop"): Subject(body=("tenant",)),
    ("POST", "/v1/dead/{letter}/drop"): _LETTER,
    ("POST", "/v1/dead/{letter}/requeue"): _LETTER,
    ("POST", "/v1/meshes/{mesh}/drain"): Subject(),
    ("POST", "/v1/meshes/{mesh}/undrain"): Subject(),
    ("POST", "/v1/tenants/{tenant}/drain"): _TENANT,
    ("POST", "/v1/tenants/{tenant}/resume"): _TENANT,
    ("POST", "/v1/tenants/{tenant}/suspend"): _TENANT,
    ("POST", "/v1/keys/{key}/revoke"): _KEY,
}
#: Permissions in the order of `/v1/whoami`: the call that each stands for, and whether the key must cover all tenants.
_PERMISSIONS: tuple[tuple[Permission, tuple[str, str], bool], ...] = (
    ("read", ("GET", "/v1/runs"), False),
    ("submit", ("POST", "/v1/runs"), False),
    ("cancel", ("POST", "/v1/runs/{run_id}/cancel"), False),
    ("stop_tenants", ("POST", "/v1/tenants/{tenant}/suspend"), False),
    ("manage_keys", ("POST", "/v1/keys/{key}/revoke"), False),
    ("drain_meshes", ("POST", "/v1/meshes/{mesh}/drain"), True),
    ("dead_letters", ("POST", "/v1/dead/{letter}/requeue"), True),
    ("audit", ("GET", "/v1/audit"), True),
    ("metrics", ("GET", "/metrics"), True),
)


def check_role(principal: Principal, method: str, path: str) -> None:
    """Check that the role of the key includes the call.

    Args:
        path: Path of the route, with its parameters in braces.

    Raises:
        RoleTooLow: It does not, or the table has no such route.
    """
    needed = ROLES.get((method, path))
    if needed is None or not principal.role.includes(needed):
        least = f"the role {needed.value} or a higher one" if needed is not None else "a role that does not exist"
        remedy = f"; `schedulemesh keys create TENANT --role {needed.value}` makes such a key" if needed is not None else ""
        raise RoleTooLow(f"{method} {path} needs {least}; the API key has the role {principal.role.value}{remedy}")


def permissions_of(principal: Principal) -> list[Permission]:
    """Return what the key may do in the tenants that it covers."""
    return [
        permission
        for permission, call, needs_all in _PERMISSIONS
        if principal.role.includes(ROLES[call]) and (principal.tenant == EVERYBODY or not needs_all)
    ]
