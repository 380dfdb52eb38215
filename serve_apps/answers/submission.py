"""A submitted graph on its way to a run: read, checked against what the tenant may do, stored once."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

from dag.compiling import misspelt_resources, refused_functions
from dag.errors import SpecError
from dag.runs import NodeRecord, RunRecord
from dag.spec import DagSpec, digest, kept_form, parse
from federation.durability import Durability, check_reachable
from federation.roster import Roster
from federation.snapshot import Snapshot, resources_of
from mesh.ids import NodeId, RunId, TenantPath
from serve_apps.requests.access import EVERYBODY, reaches
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies
from serve_apps.requests.errors import MalformedBody, OutOfReach
from serve_apps.schemas.runs import SubmittedView


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What came over HTTP."""

    body: bytes
    idempotency_key: str | None = None  #: For repeats of this submission; names the run when the spec has no id.
    durability: Durability | None = None  #: The level that is asked for; None: the root's own.


def accept(ports: Dependencies, principal: Principal, submission: Submission) -> SubmittedView:
    """Store the run, or find that it was stored before.

    Raises:
        MalformedBody: Not JSON.
        SpecError: The graph is wrong, or holds what the tenant may not run; every problem that was found.
        OutOfReach: The tenant is not the key's.
        UnknownTenant: It is nobody's.
        RunConflict: The id exists with another graph.
        KeyConflict: The idempotency key was used for another submission.
        DurabilityUnreachable: The store cannot keep it as safely as is asked for; nothing was stored.
        BacklogFull, StoreFull: Too much is open.
        StoreUnavailable: The store does not answer; to submit again is safe.
    """
    spec = read_spec(submission.body)
    tenant = tenant_of(spec, principal)
    snapshot = ports.ledger.snapshot()
    check_against(spec, snapshot, tenant, ports.roster)
    if submission.durability is not None:
        check_reachable(submission.durability, ports.durable.reachable())
    record = RunRecord(
        run=RunId(spec.id or _id_for(tenant, submission.idempotency_key)),
        tenant=tenant,
        user=user_of(spec, principal),
        digest=digest(spec),
        spec=kept_form(spec),
        created_ms=ports.clock.wall_ms(),
        nodes={NodeId(node): NodeRecord(node=NodeId(node)) for node in spec.nodes},
        key=submission.idempotency_key or "",
    )
    created = ports.accepted.create(record, spec.blob_bytes(), epoch=snapshot.epoch)
    reached = ports.durable.confirm(submission.durability or ports.durability)
    summary = ports.runs.summary(record.run)
    state = summary.state if summary is not None else record.state
    return SubmittedView(id=record.run, tenant=tenant, state=state.value, created=created, durability=reached.value)


def read_spec(body: bytes) -> DagSpec:
    """The spec. A problem that has no place in the body is one of reading it: no JSON, or none that can be taken for a spec."""
    try:
        return parse(body)
    except SpecError as wrong:
        if all(place == "" for place, _ in wrong.problems):
            raise MalformedBody(f"the body cannot be read: {wrong}", wrong.problems) from None
        raise


def check_against(spec: DagSpec, snapshot: Snapshot, tenant: TenantPath, roster: Roster) -> None:
    """Check the spec against what the tenant may run and what meshes have, those included that only the root's file names.

    Raises:
        SpecError: It holds what the tenant may not run, or a resource whose name was misspelt.
        UnknownTenant: There is no such tenant.
    """
    allowed = snapshot.tree.tenant(tenant)
    resources = snapshot.resources() | resources_of(roster.meshes.values())
    problems = (*refused_functions(spec, allowed.functions, allowed.pickled_code), *misspelt_resources(spec, resources))
    if problems:
        raise SpecError(problems)


def tenant_of(spec: DagSpec, principal: Principal) -> TenantPath:
    """The tenant that the spec names, or else the key's own."""
    if spec.tenant is None:
        if principal.tenant == EVERYBODY:
            raise SpecError((("/tenant", "is missing; this API key reaches every tenant, so the graph has to name its own"),))
        return principal.tenant
    tenant = TenantPath(spec.tenant)
    if not reaches(principal, tenant):
        raise OutOfReach(f"the API key does not reach the tenant {tenant}; it reaches {principal.tenant} and what is below it")
    return tenant


def user_of(spec: DagSpec, principal: Principal) -> str:
    """Whose run it is: the key's user, whom the spec cannot change; else whom the spec names, as the key's holder says; else the key.

    Raises:
        SpecError: The key is somebody's, and the spec names somebody else.
    """
    if principal.user and spec.user not in (None, principal.user):
        raise SpecError((("/user", f"this API key is {principal.user}'s, and submits for nobody else"),))
    return principal.user or spec.user or f"key {principal.key}"


def _id_for(tenant: TenantPath, idempotency_key: str | None) -> str:
    """An id for a run whose spec has none: the same one for the same key of the same tenant, else one that nobody has."""
    if idempotency_key is None:
        return f"run-{uuid.uuid4().hex}"
    return f"run-{hashlib.sha256(f'{tenant}|{idempotency_key}'.encode()).hexdigest()[:32]}"
