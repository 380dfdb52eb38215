"""Submission of a graph: reads it, checks it against what the tenant may do, and stores it once."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

from dag.errors import SpecError
from dag.planning import NeverPlaced, never_placed
from dag.run.node_table import NodeTable
from dag.run.runs import RunRecord
from dag.spec.plans import misspelt_resources, refused_for
from dag.spec.spec import DagSpec, digest, kept_form, parse, parse_columns
from dag.spec.strict_json import pointer
from federation.api_keys import EVERYBODY
from federation.configured_meshes import ConfiguredMeshes
from federation.durability import Durability, check_reachable
from federation.quota.policies import TenantPolicies
from federation.quota.tenant_policies import PoliciesInForce
from federation.snapshot import FederationSnapshot, resources_of
from mesh.core.counting import counted
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.errors import MeshError
from mesh.observability.trace_context import parse_traceparent
from serve_apps.requests.auth import Principal
from serve_apps.requests.dependencies import Dependencies
from serve_apps.requests.errors import MalformedBody, NoMeshFits
from serve_apps.schemas.runs import SubmittedView
from serve_apps.services.stopping import check_covered
from serve_apps.snapshot_cache.snapshots import snapshot_now

#: Kinds of nodes that one refusal explains.
KINDS_NAMED = 20
#: Last line of a refusal: the remedies.
WAIT_INSTEAD = (
    "ask for less, or change the meshes or quotas; to wait until a mesh fits, submit with --wait-for-capacity "
    "(`wait_for_capacity: true` in the graph, `wait_for_capacity=True` in Python)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """Submission as received over HTTP."""

    body: bytes
    is_columns: bool = False  #: The graph comes as columns; otherwise as JSON.
    idempotency_key: str | None = None  #: Identifies repeats of this submission; becomes the run's id if the spec has none.
    durability: Durability | None = None  #: Requested level; None: the root's level.
    traceparent: str | None = None  #: Trace context of the client; a wrong one is ignored.


def accept(ports: Dependencies, principal: Principal, submission: Submission) -> SubmittedView:
    """Store the run, or find it stored already.

    Raises:
        MalformedBody: The body is not a graph at all.
        SpecError: The graph is wrong, or holds what the tenant may not run; lists every problem found.
        OutOfReach: The key does not cover the tenant.
        UnknownTenant: There is no such tenant.
        RunConflict: The id exists with another graph.
        KeyConflict: The idempotency key was used for another submission.
        NoMeshFits: No mesh could ever run part of the graph, and the spec does not wait for capacity.
        DurabilityUnreachable: The store cannot provide the requested durability; nothing was stored.
        BacklogFull, StoreFull: Too much work is open.
        StoreUnavailable: The store does not answer; safe to submit again.
    """
    spec = read_spec(submission.body, is_columns=submission.is_columns)
    tenant = tenant_of(spec, principal)
    caller = parse_traceparent(submission.traceparent)
    record = RunRecord(
        run=RunId(spec.id or _id_for(tenant, submission.idempotency_key)),
        tenant=tenant,
        user=user_of(spec, principal),
        labels=dict(spec.labels),
        digest=digest(spec),
        spec=kept_form(spec),
        created_ms=ports.clock.wall_ms(),
        nodes=NodeTable(map(NodeId, spec.nodes)),
        key=submission.idempotency_key or "",
        traceparent=caller.header if caller is not None else "",
    )
    snapshot = ports.accepting()
    try:
        _check(ports, spec, record, snapshot, ports.policies())
    except MeshError:  # By a snapshot that is a moment old; what it refuses may be right by now.
        snapshot = ports.ledger.snapshot()
        _check(ports, spec, record, snapshot, ports.tenant_policies.in_force())
    if submission.durability is not None:
        check_reachable(submission.durability, ports.durable.reachable())
    created = ports.accepted.create(record, spec.blob_bytes(), epoch=snapshot.epoch)
    reached = ports.durable.confirm(submission.durability or ports.durability)
    summary = None if created else ports.runs.summary(record.run)
    state = summary.state if summary is not None else record.state
    return SubmittedView(id=record.run, tenant=tenant, state=state.value, created=created, durability=reached.value)


def _check(ports: Dependencies, spec: DagSpec, record: RunRecord, snapshot: FederationSnapshot, in_force: PoliciesInForce) -> None:
    check_against(spec, snapshot, record.tenant, ports.configured_meshes, in_force.filed)
    check_runnable(ports, spec, record, snapshot, in_force.filed)


def read_spec(body: bytes, *, is_columns: bool = False) -> DagSpec:
    """Parse the spec. A problem without a place in the body is MalformedBody: the body is not JSON, or not a spec at all."""
    try:
        return parse_columns(body) if is_columns else parse(body)
    except SpecError as wrong:
        if all(place == "" for place, _ in wrong.problems):
            raise MalformedBody(f"the body cannot be read: {wrong}", wrong.problems) from None
        raise


def check_against(
    spec: DagSpec, snapshot: FederationSnapshot, tenant: TenantPath, configured_meshes: ConfiguredMeshes, tenant_policies: TenantPolicies
) -> None:
    """Check the spec against what the tenant may run and ask for, and what meshes have, including those that only the root's file names.

    Raises:
        SpecError: The spec holds what the tenant may not run, too high a priority, a misspelt resource, a gang of nothing, or a
            cache where none can be.
        UnknownTenant: There is no such tenant.
    """
    allowed = snapshot.tree.tenant(tenant)
    resources = snapshot.resources() | resources_of(configured_meshes.meshes.values())
    problems = (
        *refused_for(spec, allowed, tenant_policies.settings_of(tenant).priority_max),
        *misspelt_resources(spec, resources),
    )
    if problems:
        raise SpecError(problems)


def check_runnable(
    ports: Dependencies, spec: DagSpec, record: RunRecord, snapshot: FederationSnapshot, tenant_policies: TenantPolicies
) -> None:
    """Check that some mesh could run each node one day, by the code that routes the nodes.

    Args:
        snapshot: With or without the absent meshes, which may only add reasons to wait.

    Raises:
        NoMeshFits: No mesh could, and the spec does not wait for capacity. Never raised for a run that was accepted before.
        StoreUnavailable: The store does not answer.
    """
    if spec.wait_for_capacity:
        return
    settings = tenant_policies.settings_of(record.tenant)
    if not never_placed(spec, record.tenant, snapshot, ports.costs, settings):
        return
    complete = snapshot_now(lambda: snapshot, ports.registry, ports.configured_meshes)
    refused = never_placed(spec, record.tenant, complete, ports.costs, settings)
    if refused and ports.runs.summary(record.run) is None:
        problems = (problem for one in refused[:KINDS_NAMED] for problem in _problems_of(one))
        raise NoMeshFits("the submission was refused: no mesh could ever run part of the graph", (*problems, ("", WAIT_INSTEAD)))


def _problems_of(never: NeverPlaced) -> Iterator[tuple[str, str]]:
    """Yield a sentence for each mesh, with the place of the first node that the mesh refuses."""
    first, *others = never.nodes
    place = pointer("/nodes", first)
    yield from ((place, sentence) for sentence in never.refused.sentences)
    if others:
        yield place, f"the same holds for {counted(len(others), 'other node')}, such as {others[0]}"


def tenant_of(spec: DagSpec, principal: Principal) -> TenantPath:
    """Return the tenant that the spec names, or else the key's tenant."""
    if spec.tenant is None:
        if principal.tenant == EVERYBODY:
            raise SpecError((("/tenant", "is missing; this API key covers every tenant, so the graph must name its tenant"),))
        return principal.tenant
    tenant = TenantPath(spec.tenant)
    check_covered(principal, tenant)
    return tenant


def user_of(spec: DagSpec, principal: Principal) -> str:
    """Return the user of the run: the key's user, which the spec cannot change; else the user in the spec; else the key.

    Raises:
        SpecError: The key has a user, and the spec names another one.
    """
    if principal.user and spec.user not in (None, principal.user):
        raise SpecError((("/user", f"this API key belongs to {principal.user} and submits for no other user"),))
    return principal.user or spec.user or f"key {principal.key}"


def _id_for(tenant: TenantPath, idempotency_key: str | None) -> str:
    """Return an id for a run whose spec has none: the same id for the same tenant and key, else a new one."""
    if idempotency_key is None:
        return f"run-{uuid.uuid4().hex}"
    return f"run-{hashlib.sha256(f'{tenant}|{idempotency_key}'.encode()).hexdigest()[:32]}"
