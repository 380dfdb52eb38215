"""Who asks, and how far the key reaches. What is out of reach is told as if it did not exist, except at submission."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import HTTPBearer

from dag.errors import UnknownRun
from dag.runs import RunRecord, RunSummary
from federation.snapshot import Snapshot
from mesh.ids import RunId, TenantPath
from serve_apps.requests.auth import Denial, Denied, MeshPrincipal, Principal, authenticate, authenticate_mesh
from serve_apps.requests.dependencies import Dependencies, Ports
from serve_apps.requests.errors import NotAuthenticated, OutOfReach

#: The tenant of a key that reaches all of them: an operator's.
EVERYBODY = TenantPath("*")

_WORDS = {
    Denial.MISSING: "no API key; send the header `Authorization: Bearer smk_…`",
    Denial.MALFORMED: "the Authorization header is not `Bearer smk_<id>_<secret>`",
    Denial.UNKNOWN: "the API key is not known here",
    Denial.REVOKED: "the API key was revoked",
}
_MESHS_WORDS = {denial: words.replace("smk_", "smm_").replace("API key", "mesh key") for denial, words in _WORDS.items()}

#: For `/docs` only, where it makes the button; the header itself is read below.
_scheme = HTTPBearer(auto_error=False, scheme_name="API key", description="An API key: `smk_<id>_<secret>`.")


def asking(request: Request, ports: Ports, _shown: Annotated[object, Security(_scheme)] = None) -> Principal:
    """The holder of the request's API key.

    Raises:
        NotAuthenticated: There is none.
        TooManyCalls: The key has used up its calls; or too many wrong ones came from this address.
        StoreUnavailable: The ring of keys does not answer.
    """
    answer, now_ms = authenticate(request.headers.get("authorization"), ports.keys.find), ports.clock.monotonic_ms()
    if isinstance(answer, Denied):
        ports.desk.refuse(address_of(request), NotAuthenticated(_WORDS[answer.reason]), now_ms)
    ports.desk.count_call(answer, now_ms)
    return answer


def address_of(request: Request) -> str:
    """From where the request comes; many may share it."""
    return request.client.host if request.client is not None else ""


def asking_mesh(authorization: str | None, ports: Dependencies) -> MeshPrincipal:
    """The mesh whose key an `Authorization` header holds. Raises as `asking`."""
    answer = authenticate_mesh(authorization, ports.keys.find)
    if isinstance(answer, Denied):
        raise NotAuthenticated(_MESHS_WORDS[answer.reason])
    return answer


#: A parameter of a route: whoever asks.
Asking = Annotated[Principal, Depends(asking)]


def looking(principal: Asking, ports: Ports) -> None:
    """Count a call of a route that looks at the whole ledger. Raises TooManyCalls."""
    ports.desk.count_look(principal, ports.clock.monotonic_ms())


def operating(principal: Asking) -> Principal:
    """The holder of an operator's key.

    Raises:
        OutOfReach: The key is of one tenant.
    """
    if principal.tenant != EVERYBODY:
        raise OutOfReach("only an operator's API key may do this; `schedulemesh keys create '*'` makes one")
    return principal


#: A parameter of a route: whoever asks, who has to be an operator.
Operating = Annotated[Principal, Depends(operating)]


def reaches(principal: Principal, tenant: TenantPath) -> bool:
    """Whether the key reaches the tenant: its own, and all below it; an operator's reaches all."""
    return principal.tenant == EVERYBODY or principal.may(tenant)


def tops(principal: Principal, snapshot: Snapshot) -> tuple[TenantPath, ...]:
    """What the paths of all tenants that the key reaches begin with."""
    if principal.tenant != EVERYBODY:
        return (principal.tenant,)
    return snapshot.tree.first_names()


def summary_within(ports: Dependencies, principal: Principal, run: str) -> RunSummary:
    """The run in one line.

    Raises:
        UnknownRun: There is none, or it is out of reach.
        StoreUnavailable: The store does not answer.
    """
    found = ports.runs.summary(RunId(run))
    if found is None or not reaches(principal, found.tenant):
        raise UnknownRun(f"there is no run {run}")
    return found


def record_within(ports: Dependencies, principal: Principal, run: str) -> RunRecord:
    """The whole run. Raises as `summary_within`."""
    summary_within(ports, principal, run)
    record = ports.runs.load(RunId(run))
    if record is None:
        raise UnknownRun(f"there is no run {run}")
    return record
