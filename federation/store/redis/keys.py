"""Every Redis key, in one place. All share one hash tag, so a script may touch any of them, on a cluster too."""

from dataclasses import dataclass

from mesh.core.ids import MeshId, RunId, StageId

#: Version of the stored layout: increases with each change that an older program would misread.
SCHEMA = 10


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys of one shard."""

    shard: str = "main"

    def _key(self, *parts: str) -> str:
        return ":".join((f"{{q:{self.shard}}}", *parts))

    @property
    def prefix(self) -> str:
        """Prefix of all keys."""
        return self._key("")

    @property
    def meta(self) -> str:
        """Hash: the ledger's id, clock, epoch, terms and last token; see `lua/lib_clock.lua`. `arrivals`: stages ever queued."""
        return self._key("meta")

    @property
    def tree(self) -> str:
        """Hash: `tenant|<path>`, `parent|<path>`, and per tenant and flavor `quota|…`; see `lua/lib_tree.lua`."""
        return self._key("tree")

    @property
    def use(self) -> str:
        """Hash: `tenant|flavor` to the node's charged use; see `lua/lib_tree.lua`."""
        return self._key("use")

    @property
    def gone(self) -> str:
        """Hash: removed tenant that is still charged, to its former parent."""
        return self._key("gone")

    def draft(self, name: str) -> str:
        """Hash: rows of a tree that is not in force yet; expires if it never takes effect."""
        return self._key("draft", name)

    @property
    def sessions(self) -> str:
        """Hash: mesh to its session; see `lua/lib_session.lua`."""
        return self._key("sessions")

    @property
    def meshes(self) -> str:
        """Hash: mesh to its record, as JSON."""
        return self._key("meshes")

    @property
    def due(self) -> str:
        """Sorted set: holders of leases, by the time on the lease clock when these may expire: see `lua/lib_session.lua`."""
        return self._key("due")

    @property
    def cuts(self) -> str:
        """Sorted set: `holder|tenant|flavor` of leases that shrink, by the time when amounts above the target are reclaimed."""
        return self._key("cuts")

    @property
    def marks(self) -> str:
        """Hash: mesh to the version of the last change of its leases, `<mesh>|grow` and similar; see `lua/lib_lease.lua`."""
        return self._key("marks")

    @property
    def demanding(self) -> str:
        """Set: meshes with recorded demands."""
        return self._key("demanding")

    @property
    def plan(self) -> str:
        """Hash: the leading planner, its token and term; the number of the last plan; `contested`: LT of the last inbox entry."""
        return self._key("plan")

    @property
    def lease_log(self) -> str:
        """Stream: every change of a lease and every epoch: about the last 100,000 entries of at most five changes."""
        return self._key("lease-log")

    def leases(self, holder: MeshId | str) -> str:
        """Hash: `tenant|flavor` to the lease; see `lua/lib_lease.lua`."""
        return self._key("leases", holder)

    def demands(self, mesh: MeshId | str) -> str:
        """Hash: `tenant|flavor` to the mesh's demand, as JSON."""
        return self._key("demands", mesh)

    @property
    def demand_counts(self) -> str:
        """Hash: `tenant|flavor` to the number of its demands, flavor to the number of tenants with demands; see `lua/lib_lease.lua`."""
        return self._key("demand-counts")

    def stage(self, stage: StageId | str) -> str:
        """Hash: the record of a stage."""
        return self._key("stage", stage)

    def inputs(self, stage: StageId | str) -> str:
        """Hash: node to the delivered stored value, as JSON."""
        return self._key("inputs", stage)

    def ready(self, mesh: MeshId | str) -> str:
        """Sorted set: queued stages of a mesh as `<arrival, 16 digits>:<stage>` by negated priority: the next one first."""
        return self._key("ready", mesh)

    def claimed(self, mesh: MeshId | str) -> str:
        """Sorted set: stages that the mesh's session has claimed, by the time of the claim, ms on the server's clock."""
        return self._key("claimed", mesh)

    def stages_of(self, run: RunId | str) -> str:
        """Set: submitted stages of a run that are not forgotten."""
        return self._key("stages-of", run)

    def notifications(self, mesh: MeshId | str) -> str:
        """Stream: notifications to the mesh."""
        return self._key("notifications", mesh)

    @property
    def inbox(self) -> str:
        """Stream: messages about runs (fields `run`, `kind`, `body`), until they are acknowledged."""
        return self._key("inbox")

    @property
    def overdue(self) -> str:
        """Sorted set: claimed stages with a deadline, by its time on the lease clock."""
        return self._key("overdue")

    def taken(self, mesh: MeshId | str) -> str:
        """Hash: `tenant|flavor|resource` to the units that the mesh's claims use of its lease, with all slots of each stage."""
        return self._key("taken", mesh)

    def running(self, mesh: MeshId | str) -> str:
        """Hash: stage that the mesh's session has claimed under a lease, to its row for planners; see `lua/lib_stage.lua`."""
        return self._key("running", mesh)

    def queued_slots(self, mesh: MeshId | str) -> str:
        """Hash: kind of queued stages to the slots that they could use together; see `lua/lib_queue.lua`."""
        return self._key("queued-slots", mesh)

    @property
    def scripted(self) -> tuple[str, ...]:
        """`KEYS` of every script of the ledger and the queue, in the order of `lua/lib_keys.lua`. Keys that end in `:` are families: the
        script appends the id, because only the script knows which meshes a sweep touches.
        """
        single = (self.meta, self.tree, self.sessions, self.meshes, self.inbox)
        ledger = (self.due, self.cuts, self.marks, self.demanding, self.plan, self.lease_log)
        families = (self.leases, self.demands, self.stage, self.inputs, self.ready, self.claimed, self.stages_of, self.notifications)
        of_claims = (self.overdue, self.taken(""))
        of_trees = (self.use, self.gone, self.draft(""), self.demand_counts)
        of_stages = (self.running(""), self.queued_slots(""))
        of_logs = (self.run_log(""), self.run_log_use(""))
        of_runs = (self.run(""), self.blobs(""))
        of_usage = (self.usage_log, self.usage, self.usage_days, self.usage_of(""))
        of_changes = (self.change_logs, self.change_log(""))
        fixed = (*single, *ledger, *(family("") for family in families), *of_claims, *of_trees)
        return (*fixed, *of_stages, *of_logs, *of_runs, *of_usage, *of_changes)

    @property
    def usage_log(self) -> str:
        """Stream: what claims hold and what preemptions lost, until it is carried into rows; see `lua/lib_usage.lua`."""
        return self._key("usage-log")

    @property
    def usage(self) -> str:
        """Hash: `version`, `cursor` and, as JSON, `holding|<stage>` and `reckoning|<tenant>|<flavor>`; see `federation.usage`."""
        return self._key("usage")

    @property
    def usage_days(self) -> str:
        """Sorted set: days with rows of use, by their number since 1970-01-01."""
        return self._key("usage-days")

    def usage_of(self, day: int | str) -> str:
        """Hash: rows of use of the day: `[tenant, user, flavor, resource]` to `used|borrowed|lost`."""
        return self._key("usage-of", str(day))

    def run_log(self, run: RunId | str) -> str:
        """Stream: what the run's nodes have printed; the entry id is `<seq>-0`."""
        return self._key("run-log", run)

    def run_log_use(self, run: RunId | str) -> str:
        """Hash: counts of the run's log; see `lua/append_log.lua`."""
        return self._key("run-log-use", run)

    def blobs(self, run: RunId | str) -> str:
        """Hash: SHA-256 to bytes."""
        return self._key("blobs", run)

    def run(self, run: RunId | str) -> str:
        """Hash: the fields of a run, its spec included."""
        return self._key("run", run)

    def run_nodes(self, run: RunId | str) -> str:
        """Hash: the state of the run's nodes in columns, and rows of what few nodes have; see `dag.store.node_rows`."""
        return self._key("run-nodes", run)

    def run_stages(self, run: RunId | str) -> str:
        """Hash: stage to its record, as JSON; also a set of the run's stages."""
        return self._key("run-stages", run)

    def run_events(self, run: RunId | str) -> str:
        """Stream: the run's events, an entry per commit; its id is `<seq>-0` with the number of its last event."""
        return self._key("run-events", run)

    @property
    def active_runs(self) -> str:
        """Set: runs that have not ended."""
        return self._key("active-runs")

    def runs_of(self, tenant: str) -> str:
        """Sorted set: runs of a tenant and of all tenants below it, by creation."""
        return self._key("runs-of", tenant)

    def labelled(self, name: str) -> str:
        """Sorted set: runs with a label, of a tenant and of all tenants below it, by creation; `dag.store.rows.list_name` names it."""
        return self._key("labelled", name)

    @property
    def run_feed(self) -> str:
        """Stream: runs that were submitted, changed or removed (fields `run`, `tenant`): about the last 10,000 changes."""
        return self._key("run-feed")

    @property
    def ended_runs(self) -> str:
        """Sorted set: ended runs by end time, for retention."""
        return self._key("ended-runs")

    @property
    def to_forget(self) -> str:
        """Sorted set: ended runs whose values are kept for a resumption, by the time when they are deleted."""
        return self._key("to-forget")

    def dead_of(self, run: RunId | str) -> str:
        """Hash: node of a run that failed for good, to its dead letter, as JSON."""
        return self._key("dead-of", run)

    @property
    def dead(self) -> str:
        """Sorted set: dead letters as `<run>:<node>`, by the time of the failure."""
        return self._key("dead")

    def cached(self, tenant: str) -> str:
        """Hash: key to an entry of the tenant's cache, as JSON."""
        return self._key("cached", tenant)

    def cached_bytes(self, tenant: str) -> str:
        """Hash: key to the bytes of a small value of the tenant's cache."""
        return self._key("cached-bytes", tenant)

    def cached_hits(self, tenant: str) -> str:
        """Hash: key to the number of its hits."""
        return self._key("cached-hits", tenant)

    def cached_order(self, tenant: str) -> str:
        """Sorted set: keys of the tenant's cache by creation."""
        return self._key("cached-order", tenant)

    def cache_claims(self, tenant: str) -> str:
        """Hash: key to `<run>|<node>` of the node that computes its value."""
        return self._key("cache-claims", tenant)

    def cache_waits(self, tenant: str) -> str:
        """Hash: key to the runs that wait for its value, one a line."""
        return self._key("cache-waits", tenant)

    @property
    def cache_expiry(self) -> str:
        """Sorted set: entries of all caches as `<tenant>|<key>`, by the time when they expire."""
        return self._key("cache-expiry")

    def schedule(self, place: str) -> str:
        """Hash: `version`, `bytes` of the template and `row`, the record as JSON, of the schedule at `tenant|name`."""
        return self._key("schedule", place)

    def schedule_template(self, place: str) -> str:
        """Hash: `spec`, and the bytes of the template by their SHA-256."""
        return self._key("schedule-template", place)

    def schedule_use(self, tenant: str) -> str:
        """Hash: number of `schedules` of the tenant and `bytes` of their templates."""
        return self._key("schedule-use", tenant)

    @property
    def schedule_places(self) -> str:
        """Sorted set: schedules as `tenant|name`, all with the score 0: by name."""
        return self._key("schedule-places")

    @property
    def schedules_due(self) -> str:
        """Sorted set: schedules as `tenant|name`, by the time when they need a look."""
        return self._key("schedules-due")

    @property
    def webhooks(self) -> str:
        """Hash: of each webhook `mark|<name>` in the feed of runs, `delivered|<name>`, `dead|<name>` and `failure|<name>`."""
        return self._key("webhooks")

    def webhook_due(self, name: str) -> str:
        """Sorted set: messages of the webhook, by the time of their next attempt."""
        return self._key("webhook-due", name)

    def webhook_messages(self, name: str) -> str:
        """Hash: id to the message, as JSON."""
        return self._key("webhook-messages", name)

    @property
    def touched(self) -> str:
        """Text: a small write for which a connection can then wait; see `durability`."""
        return self._key("touched")

    def backlog(self, tenant: str) -> str:
        """Hash: open `runs` and `bytes` of a tenant and of all tenants below it."""
        return self._key("backlog", tenant)

    def idempotency(self, tenant: str) -> str:
        """Hash: idempotency key to the run submitted under it."""
        return self._key("idempotency", tenant)

    @property
    def api_keys(self) -> str:
        """Hash: key id to its record (tenant, role, SHA-256 of the secret, times), as JSON; `ID|end` and `ID|used` to milliseconds."""
        return self._key("api-keys")

    @property
    def registry(self) -> str:
        """Hash: `version`, `watched_ms`, and per mesh `drain|<mesh>`, `settings|<mesh>`, `flap_history|<mesh>`, `pace|<mesh>` as JSON."""
        return self._key("registry")

    @property
    def coordinator(self) -> str:
        """Hash, as `plan`: the leading coordinator and its term."""
        return self._key("coordinator")

    @property
    def tenant_policies(self) -> str:
        """Hash: `filed` (settings of the federation file) and `stop|<tenant>`, as JSON."""
        return self._key("tenant-policies")

    @property
    def change_logs(self) -> str:
        """Hash: `last`, the number of the last entry of all logs of changes; `log|<name>` for each log."""
        return self._key("change-logs")

    def change_log(self, name: str) -> str:
        """Stream: changes of a top-level tenant, or of all tenants (`*`); its id is `<number>-1`; see `federation.change_log`."""
        return self._key("change-log", name)

    @property
    def change_counter(self) -> str:
        """Hash: `count`, the number of tenant orders, drains of meshes and revocations of API keys so far."""
        return self._key("change-counter")
