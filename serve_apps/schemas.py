"""What goes over HTTP, key by key: the one place where answers and small requests get their shape. `/docs` shows it.

Times are milliseconds since the epoch, 0 where a thing has not happened. A quantity is told twice: in ledger units (exact,
for programs) and as people write it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _View(BaseModel):
    """An answer. A reader ignores keys that it does not know, so that an older client understands a newer root."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class ProblemView(_View):
    """One thing that is wrong with a request."""

    place: str = Field(description="JSON pointer, or the name of a parameter; empty: the request as a whole.")
    problem: str


class ErrorView(_View):
    """Why there is no answer."""

    code: str = Field(description="One word for programs.")
    message: str = Field(description="For people.")
    problems: list[ProblemView] = []
    request_id: str = Field(default="", description="The log has the story under this id.")
    facts: dict[str, int] = Field(
        default={}, exclude_if=lambda facts: not facts, description="Numbers that the error carries; left out when there are none."
    )


class ErrorBody(_View):
    """The body of every answer that is no success."""

    error: ErrorView


class CancelRequest(BaseModel):
    """Stop a run."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=1_000, description="Shown wherever the run is shown.")


class DrainRequest(BaseModel):
    """Take a mesh out of use."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=1_000, description="Shown wherever the mesh is shown, and to whoever waits for it.")


class StopRequest(BaseModel):
    """Hold or drain a tenant."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(default="", max_length=1_000, description="Shown wherever the tenant is shown, and to whoever waits for it.")


class SubmittedView(_View):
    """A run that was accepted, now or before."""

    id: str
    tenant: str
    state: str
    created: bool = Field(description="False: the same graph was submitted under this id before, and this is that run.")
    durability: str = Field(default="D0", description="The level at which it is kept; never a better one than was reached.")


class LetterView(_View):
    """A node that failed for good."""

    letter: str = Field(description="Its name, for `requeue` and `drop`.")
    run: str
    node: str
    tenant: str
    stage: str | None
    mesh: str | None
    reason: str
    type: str
    message: str
    attempts: int
    retries_used: int = Field(description="Attempts that its own errors have cost.")
    losses: int = Field(description="Attempts that lost meshes and runners have cost.")
    kills: int = Field(description="Workers that died under it.")
    at_ms: int


class LettersView(_View):
    """Dead letters, the latest first."""

    letters: list[LetterView]


class RequeuedView(_View):
    """A dead letter was submitted again."""

    letter: str
    run: str = Field(description="The new run.")


class DroppedView(_View):
    """Dead letters were taken away."""

    letters: int = Field(description="How many there were.")


class OrphanView(_View):
    """A trace in an index, or a record, that has lost its other half."""

    kind: str
    stage: str
    mesh: str
    detail: str


class MismatchView(_View):
    """A sum of the ledger that is not that of its leases."""

    tenant: str
    flavor: str
    resource: str
    kept: int
    counted: int


class AuditView(_View):
    """What does not agree in the stores; nothing is repaired."""

    orphans: list[OrphanView]
    mismatches: list[MismatchView]


class RunLine(_View):
    """A run in one line."""

    id: str
    tenant: str
    state: str
    created_ms: int
    ended_ms: int = 0
    reason: str | None = None
    detail: str = ""
    counts: dict[str, int] = Field(default={}, description="Nodes per state.")
    user: str = Field(default="", description="Who submitted it: the key's user, else whom the graph names, else `key` and the key's id.")


class RunsView(_View):
    """Runs, newest first."""

    runs: list[RunLine]


class StageView(_View):
    """A stage of a run: what one mesh got as one."""

    id: str
    mesh: str
    cluster: str = Field(description="Ray's own id of the cluster; empty until the stage has started.")
    level: int
    state: str
    reason: str | None = Field(description="While it waits: why.")
    detail: str
    why_here: str = Field(description="The routing decision in words.")
    slots: int
    width: int = Field(description="How many of its nodes could run at once.")
    sent_ms: int
    started_ms: int
    ended_ms: int
    counts: dict[str, int] = Field(description="Its nodes per state; nodes that went on to another stage are counted there.")


class BlockedView(_View):
    """Nodes that no mesh takes at present, all for the same reason."""

    reason: str
    detail: str
    count: int
    nodes: list[str] = Field(description="The first of them.")


class MeshShare(_View):
    """What one mesh has of a run."""

    mesh: str
    stages: int
    slots: int = Field(description="Held at this moment.")
    counts: dict[str, int] = Field(description="Nodes per state.")


class FailureView(_View):
    """A node that failed for good."""

    node: str
    attempt: int
    mesh: str | None
    reason: str
    type: str
    message: str
    traceback: str = ""
    pickled: str | None = Field(default=None, description="The exception, pickled, in base64; only in the answer to `result`.")
    pickled_sha256: str | None = None


class SkippedView(_View):
    """A node that did not run, and the failures that it goes back to."""

    node: str
    roots: list[str]


class RunView(RunLine):
    """A run with its stages."""

    outputs: list[str]
    stages: list[StageView]
    blocked: list[BlockedView]
    meshes: list[MeshShare]
    failures: list[FailureView]
    skipped: list[SkippedView] = Field(description="At most 1 000 of them; `counts` tells how many there are.")


class NodeView(_View):
    """A node of a run, in its present attempt."""

    node: str
    state: str
    attempt: int
    retries_used: int
    losses: int
    stage: str | None
    mesh: str | None
    reason: str | None
    detail: str
    started_ms: int
    finished_ms: int
    failure: FailureView | None
    roots: list[str]


class NodesView(_View):
    """Nodes by id, a page at a time."""

    nodes: list[NodeView]
    next: str | None = Field(description="Give it as `after` for the next page; null: this is the last.")


class EventView(_View):
    """One change of a run."""

    seq: int = Field(description="Numbered per run from 1 without gaps.")
    at_ms: int
    run: str
    kind: str = Field(description="`run`, `stage` or `node`.")
    node: str | None = None
    attempt: int = 0
    stage: str | None = None
    mesh: str | None = None
    cluster: str = ""
    before: str = ""
    after: str = ""
    reason: str | None = None
    detail: str = ""


class EventsView(_View):
    """Events, oldest first."""

    events: list[EventView]
    next: int = Field(description="Give it as `after` to go on.")


class OutputView(_View):
    """An output of a run. JSON values stand in `value`, small pickled ones in `data`; the others are fetched from `href`."""

    encoding: Literal["json", "pickle"]
    sha256: str = Field(description="Of the bytes that `href` gives.")
    size_bytes: int
    href: str = Field(description="Where the bytes are.")
    inline: bool = Field(description="True when `value` or `data` is the whole of it.")
    value: Any = None
    data: str | None = Field(default=None, description="Pickled bytes in base64.")
    uri: str | None = Field(default=None, description="The file that the value is kept in, for readers that reach it.")
    path: list[str | int] = Field(default=[], description="The part of the value that was asked for; `value` is that part already.")


class ResultView(_View):
    """The outputs of a run that succeeded."""

    id: str
    state: str
    outputs: dict[str, OutputView]


class NoResultView(ErrorBody):
    """Why a run that ended has no result (409; `run_failed` or `run_cancelled`)."""

    id: str
    state: str
    reason: str | None = None
    detail: str = ""
    failures: list[FailureView] = []
    skipped: list[SkippedView] = []


class Quantity(_View):
    """An amount of a resource."""

    units: int = Field(description="1/10 000 of a CPU, GPU or custom resource; bytes of memory.")
    amount: int | float = Field(description="Whole CPUs, or bytes.")
    text: str = Field(description="As people write it: `2`, `0.5`, `4GiB`.")


class QuotaView(_View):
    """What a tenant has of one resource of one flavor."""

    flavor: str
    resource: str
    nominal: Quantity
    used: Quantity
    borrowed: Quantity = Field(description="Used beyond its own and what is below it.")
    available: Quantity = Field(description="What it would be granted now; negative after a cut.")
    potential: Quantity = Field(description="What it could hold if nobody else held any.")
    borrowing_limit: Quantity | None
    lending_limit: Quantity | None


class WindowView(_View):
    """A time in which work may start."""

    opens_ms: int = Field(description="From the beginning of each period.")
    lasts_ms: int
    every_ms: int


class TenantView(_View):
    """A tenant; its parent comes before it."""

    tenant: str
    parent: str | None
    quotas: list[QuotaView]
    pickled_code: bool
    functions: list[str]
    stop: str = Field(default="none", description="`hold`: nothing new starts; `drain`: what runs stops as well. All below it too.")
    stop_reason: str = Field(default="", description="In the words of whoever stopped it; empty when the file says so.")
    stopped_ms: int = Field(default=0, description="Since when; 0 when the file says so.")
    weight: str = Field(default="1", description="Its part of what is borrowed, beside its siblings'.")
    running_max: int | None = Field(default=None, description="Stages that it and all below it may run at a time.")
    running_max_per_user: int | None = Field(default=None, description="The same for each user.")
    max_wait_ms: int | None = Field(default=None, description="How long work may wait to start.")
    on_max_wait: str = Field(default="refuse", description="What waited longer: `refuse` it, or let it go `first`.")
    windows: list[WindowView] = Field(default=[], description="New work starts only inside of one of these; none: always.")


class TenantsView(_View):
    """The tenants that the key reaches."""

    at_ms: int
    tenants: list[TenantView]


class PoolView(_View):
    """A pool of a mesh."""

    pool: str
    flavor: str
    capacity: dict[str, Quantity]
    used: dict[str, Quantity]


class MeshEntry(_View):
    """A mesh."""

    mesh: str
    alive: bool
    draining: bool = Field(description="It finishes what it has and gets nothing new.")
    drain_reason: str = Field(default="", description="In the words of whoever drained it.")
    drained_ms: int = Field(default=0, description="Since when it is drained.")
    steady: bool = Field(default=True, description="False: it was lost, came back, and gets nothing new yet.")
    steady_in_ms: int = Field(default=0, description="How much longer it is on probation.")
    losses: int = Field(default=0, description="How often it was lost lately, as far as that is remembered.")
    run_ms: int | None = Field(default=None, description="How long a stage ran there lately, a smoothed mean; null: none has ended yet.")
    heartbeat_age_ms: int
    labels: dict[str, str]
    cluster: str
    tenants: list[str] = Field(description="Who may use it; `*`: everybody.")
    pools: list[PoolView]
    waiting: int = Field(description="Stages in its queue.")
    running: int = Field(description="Stages it runs.")
    oldest_waiting_ms: int = Field(default=0, description="For how long the oldest stage has been in its queue.")
    oldest_running_ms: int = Field(default=0, description="For how long it has had the stage that it has had longest.")


class MeshesView(_View):
    """The meshes that the key's tenant may use, or some tenant below it."""

    at_ms: int
    meshes: list[MeshEntry]


class LeaseEntry(_View):
    """A lease that is held now."""

    lease: str
    tenant: str
    mesh: str
    flavor: str
    amounts: dict[str, Quantity] = Field(description="What is held, and charged to the tenant.")
    target: dict[str, Quantity] = Field(
        default={}, description="What the ledger aims at: less than is held is being taken back, more is on its way."
    )
    priority: int = Field(default=0, description="Of the most urgent work that it was granted for.")
    granted_ms: int = 0
    running_out: bool = Field(default=False, description="Of an earlier session of the mesh: it runs out by itself.")
    token: int


class LeasesView(_View):
    """Leases of the tenants that the key reaches."""

    at_ms: int
    leases: list[LeaseEntry]


class ChapterView(_View):
    """One change of a lease."""

    at_ms: int
    verb: str = Field(description="`grant`, `release`, `plan`, `shrink`, `grow`, `cut`, `revoke`, `expire`, `restore`, `epoch`, …")
    why: str = ""
    lease: str | None = Field(description="Null: not about one lease.")
    tenant: str | None = None
    mesh: str | None = None
    flavor: str | None = None
    held: dict[str, Quantity] = Field(default={}, description="After the change.")
    target: dict[str, Quantity] = {}


class StoryView(_View):
    """What happened to leases, oldest first."""

    chapters: list[ChapterView]


class ChangeView(_View):
    """One thing that stands in the way, and by how much."""

    lever: str = Field(description="`free`, `borrowed`, `borrowing_limit` or `nominal`.")
    tenant: str
    flavor: str
    resource: str
    amount: Quantity
    words: str = Field(description="The same in words that go on where `it would start if` ends.")


class GivesWayView(_View):
    """A lease that would be asked for a part of what it holds, or pays for stages that would stop."""

    mesh: str
    tenant: str | None = Field(description="Null: a tenant that the key does not reach.")
    flavor: str
    amounts: dict[str, Quantity] = Field(description="The part.")
    reason: str
    stages: list[str] = Field(default=[], description="Which would stop, of the same tenant on the same mesh.")


class WaitingView(_View):
    """A stage in the queue of a mesh."""

    stage: str
    run: str
    tenant: str
    mesh: str
    position: int = Field(description="1 is the next one at that mesh.")
    tenant_position: int | None = Field(default=None, description="1 is the next one of its tenant, on any mesh; null: not worked out.")
    priority: int
    reason: str
    changes: list[ChangeView] = Field(default=[], description="What would have to change in the quotas; all of it together would do.")
    start_ms: int | None = Field(default=None, description="When it starts, about; null: nobody can say, as when no stage has ended yet.")
    slot: dict[str, Quantity] = Field(description="What it needs to start.")
    width: int


class KeptBackView(_View):
    """A run of which something was not sent to any mesh."""

    run: str
    tenant: str
    user: str
    position: int = Field(description="1 is the oldest of those that wait for the same reason.")
    reason: str
    detail: str
    created_ms: int


class UnmetView(_View):
    """What a mesh could use for a tenant, and the planner would not give it now."""

    mesh: str
    tenant: str
    flavor: str
    slots: int = Field(description="How many are missing.")
    slot: dict[str, Quantity]
    reason: str
    detail: str
    waiting_ms: int


class QueueView(_View):
    """What waits, of a tenant and of all below it: in the queues of meshes, and before them."""

    tenant: str = Field(description="`*`: all that the key reaches.")
    at_ms: int = 0
    waiting: list[WaitingView]
    kept_back: list[KeptBackView] = []
    unmet: list[UnmetView] = []


class StageExplanation(_View):
    """Why a stage is where it is."""

    stage: str
    run: str
    tenant: str
    user: str
    mesh: str
    state: str
    reason: str | None = Field(description="Null: nothing stands in its way.")
    detail: str
    why_here: str
    nodes: int
    slot: dict[str, Quantity]
    slots: int = Field(default=0, description="Held since it began; it keeps them to its end.")
    width: int = Field(default=1, description="How many of its nodes could run at once.")
    position: int | None = Field(default=None, description="1 is the next one at its mesh; null: it stands in no queue.")
    tenant_position: int | None = Field(default=None, description="1 is the next one of its tenant, on any mesh.")
    changes: list[ChangeView] = []
    start_ms: int | None = Field(
        default=None, description="When it starts, about; null: nobody can say (no stage has ended yet), or it has started."
    )
    gives_way: list[GivesWayView] = Field(default=[], description="Whom its mesh or the planner would ask for it.")
    story: list[EventView] = Field(default=[], description="What happened to it; only where one stage is asked about.")


class RunExplanation(_View):
    """Why a run is not further."""

    id: str
    tenant: str
    user: str
    state: str
    reason: str | None
    detail: str
    at_ms: int
    stages: list[StageExplanation] = Field(description="Those that have not ended.")
    blocked: list[BlockedView]


class PlannedStageView(_View):
    """A stage that a run would have."""

    stage: str
    mesh: str
    level: int
    nodes: list[str] = Field(description="The first of them.")
    count: int = Field(description="How many nodes.")
    width: int
    slot: dict[str, Quantity]
    why_here: str
    goes_first: bool = Field(description="It would be sent at once; the others wait for what goes before them.")
    reason: str | None = Field(description="What it would wait for; null: it would start at once.")
    detail: str = ""
    position: int = Field(description="1 is the next one at its mesh.")
    tenant_position: int
    changes: list[ChangeView] = []
    start_ms: int | None = None
    gives_way: list[GivesWayView] = []


class PlanView(_View):
    """What would become of a graph if it were submitted now. Nothing is kept, nothing is sent."""

    tenant: str
    user: str
    at_ms: int
    reason: str | None = Field(description="What keeps the whole run back: a hold, a window, a limit; null: nothing does.")
    detail: str = ""
    stages: list[PlannedStageView]
    blocked: list[BlockedView]


class StopView(_View):
    """A tenant, and whether it takes in work."""

    tenant: str
    stop: str = Field(description="`none`, `hold` or `drain`, by hand or by the file.")
    reason: str = ""
    by: str = Field(default="", description="The id of the key.")
    since_ms: int = 0
    changed: bool = Field(default=True, description="False: it was not stopped by hand, so there was nothing to take back.")


class HealthView(_View):
    """Whether requests can be answered."""

    status: Literal["ok"]
