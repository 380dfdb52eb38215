"""Runs on Redis: a script for each atomic step, plain reads for the rest."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import TypeAlias, cast

import redis

from dag.backlog import BACKLOG_LIMITS, RETRY_AFTER_MS, STORE_FULL, BacklogLimits
from dag.errors import BacklogFull, KeyConflict, RunConflict, StoreFull, UnknownRun
from dag.run.dead_letters import DeadLetter, parted
from dag.run.events import SignalSent
from dag.run.run_events import RunEvent
from dag.run.runs import NO_LABELS, RunChange, RunPlace, RunRecord, RunSummary, ScheduleFence, SignalAnswer, StaleSchedule
from dag.run.states import RUN_ENDS
from dag.spec.run_labels import has_labels
from dag.store.node_rows import changed_rows, names_of, uris_in
from dag.store.rows import (
    SUMMARY_FIELDS,
    check_numbers,
    dead_rows,
    event_row,
    events_in,
    fixed_fields,
    labels_of,
    list_name,
    lists_of,
    moving_fields,
    reach_of,
    record_of,
    stage_rows,
    summary_of,
    weight_of,
)
from federation.errors import StoreUnavailable
from federation.store.redis.client import home_of
from federation.store.redis.keys import Keys
from federation.store.redis.scripts import Scripts, redis_responses
from federation.store.usage_rows import amounts_row
from mesh.core.ids import NodeId, RunId, TenantPath
from mesh.core.wire import decode, encode
from mesh.errors import LedgerError

#: An argument of a script.
_Argument = str | bytes | int
#: Entries of the first read of events, each with the events of a commit; each further read takes twice as many.
ENTRIES_AT_FIRST = 8
#: A time that no run ends after.
_NEVER_MS = 1 << 53
#: Runs of one read of a list by label, when several labels are asked for.
PAGE_RUNS = 500
#: A stream as redis-py reads it: entry id and fields.
Entries = list[tuple[bytes, dict[bytes, bytes]]]


#: As `list` is a method here.
_Names: TypeAlias = "list[RunId]"


def scripted_keys(keys: Keys) -> tuple[str, ...]:
    """Return the `KEYS` of every script in `dag/store/lua`, in the order of `lib_keys.lua`; names that end in `:` are prefixes."""
    of_run = (keys.run(""), keys.run_nodes(""), keys.run_stages(""), keys.run_events(""), keys.blobs(""), keys.runs_of(""))
    of_stage = (keys.stage(""), keys.inputs(""), keys.stages_of(""), keys.ready(""), keys.claimed(""))
    kept_beside = (keys.dead_of(""), keys.dead, keys.backlog(""), keys.idempotency(""))
    of_claims = (keys.overdue, keys.taken(""), keys.meta, keys.running(""))
    of_demands = (keys.demands(""), keys.demanding, keys.queued_slots(""), keys.demand_counts)
    of_logs = (keys.run_log(""), keys.run_log_use(""), keys.to_forget, keys.labelled(""))
    of_caches = (keys.cached(""), keys.cached_bytes(""), keys.cached_hits(""), keys.cached_order(""))
    of_schedules = (keys.schedule(""), keys.schedule_template(""), keys.schedule_use(""), keys.schedule_places, keys.schedules_due)
    of_twins = (keys.cache_claims(""), keys.cache_waits(""), keys.cache_expiry)
    return (
        *of_run,
        keys.inbox,
        keys.active_runs,
        keys.ended_runs,
        *of_stage,
        *kept_beside,
        *of_claims,
        *of_demands,
        *of_logs,
        *of_caches,
        *of_twins,
        keys.run_feed,
        *of_schedules,
        keys.usage_log,
    )


class RedisRunStore:
    """`RunStore` by scripts.

    Args:
        client: With `decode_responses=False`; its timeouts bound every call.
        keys: The shard.
        limits: Limits on open runs.
    """

    def __init__(self, client: "redis.Redis", keys: Keys, limits: BacklogLimits = BACKLOG_LIMITS) -> None:
        self._client = client
        self._keys = keys
        self._limits = limits
        self._scripts = Scripts(client, scripted_keys(keys), "dag.store.lua")

    def create(self, record: RunRecord, blobs: dict[str, bytes], fence: ScheduleFence | None = None) -> bool:
        fields = {**fixed_fields(record), **moving_fields(record, version=record.version)}
        weight = weight_of(record, blobs)
        answer = self._scripts.call(
            "create",
            record.run,
            record.tenant,
            record.digest,
            record.created_ms,
            record.key,
            weight,
            *self._limits.arguments,
            *(fence or ("", "")),
            *_section(reach_of(record.tenant)),
            *_section(lists_of(record.tenant, record.labels)),
            *_rows(fields),
            *_rows(changed_rows(record.nodes, record.nodes.take_changes())),
            *_rows(stage_rows(record.stages.values(), record.nodes)),
            *_rows(blobs),
        )
        code, *described = cast(list[bytes], answer)
        if code == b"CONFLICT":
            raise RunConflict(f"run {record.run} exists with another graph or tenant; give another id")
        if code == b"KEY":
            raise KeyConflict(f"the idempotency key was used for run {described[0].decode()}, with another graph or id; give another key")
        if code == b"STALE":
            raise StaleSchedule(f"the schedule of run {record.run} was changed")
        self._check_refusal(answer)
        return bool(code == b"CREATED")

    def check_room(self, record: RunRecord, blobs: dict[str, bytes]) -> None:
        reach, server = reach_of(record.tenant), home_of(self._client, self._keys.meta)
        with redis_responses("look for room"), self._client.pipeline(transaction=True) as reads:
            reads.exists(self._keys.run(record.run))
            for tenant in reach:
                reads.hmget(self._keys.backlog(tenant), "runs", "bytes")
            is_there, *open_of = reads.execute()
            memory = server.info("memory")
        if is_there:
            return  # A repeat of an accepted submission is never refused.
        for tenant, counts in zip(reach, open_of, strict=True):
            words = self._words_when_full(tenant, counts, weight_of(record, blobs))
            if words is not None:
                raise BacklogFull(words, RETRY_AFTER_MS)
        if memory["used_memory"] * 100 > memory["maxmemory"] * self._limits.memory_percent_max > 0:
            raise StoreFull(STORE_FULL, RETRY_AFTER_MS)

    def _check_refusal(self, answer: object) -> None:
        """Raise the error of a reply of `no_room_for`. Raises BacklogFull, StoreFull."""
        if not isinstance(answer, list):
            return
        if answer[0] == b"FULL":
            tenant, *counts, weight = answer[1:]
            raise BacklogFull(self._words_when_full(tenant.decode(), counts, int(weight)) or "too many open runs", RETRY_AFTER_MS)
        if answer[0] == b"MEMORY":
            raise StoreFull(STORE_FULL, RETRY_AFTER_MS)

    def _words_when_full(self, tenant: str, counts: Sequence[bytes | None], weight: int) -> str | None:
        runs, size_bytes = (int(count or 0) for count in counts)
        return self._limits.words_when_full(tenant, runs=runs, size_bytes=size_bytes, weight_bytes=weight)

    def load(self, run: RunId) -> RunRecord | None:
        with redis_responses("load a run"), self._client.pipeline(transaction=True) as reads:
            reads.hgetall(self._keys.run(run))
            reads.hgetall(self._keys.run_nodes(run))
            reads.hvals(self._keys.run_stages(run))
            fields, nodes, stages = cast(tuple[dict[bytes, bytes], dict[bytes, bytes], list[bytes]], reads.execute())
        return record_of(run, _named(fields), _named(nodes), stages) if fields else None

    def commit(self, record: RunRecord, change: RunChange) -> bool:
        before = check_numbers(record, change)
        version = record.version + 1
        answer = self._scripts.call(
            "commit",
            record.run,
            record.version,
            before,
            record.ended_ms if record.state in RUN_ENDS else "",
            event_row(change.events),
            record.seq,
            *self._limits.arguments,
            *_rows(moving_fields(record, version=version, change=change)),
            *_rows(changed_rows(record.nodes, change.nodes)),
            *_rows(stage_rows(change.stages, record.nodes)),
            *_rows(dead_rows(change.dead)),
            *_section([part for letter in change.dead for part in (letter.letter, str(letter.at_ms))]),
            *_section([part for lost in change.lost for part in (lost.stage, str(lost.at_ms), amounts_row(lost.resources))]),
        )
        if answer == b"GAP":
            raise LedgerError(f"run {record.run}: the events of version {record.version} do not end with number {before}")
        self._check_refusal(answer)
        if answer != b"COMMITTED":
            return False
        record.version = version
        return True

    def summary(self, run: RunId) -> RunSummary | None:
        with redis_responses("read a run"):
            values = cast(list[bytes | None], self._client.hmget(self._keys.run(run), list(SUMMARY_FIELDS)))
        return _summary(run, values)

    def summaries(self, runs: Sequence[RunId]) -> tuple[RunSummary | None, ...]:
        with redis_responses("read runs"), self._client.pipeline(transaction=False) as reads:
            for run in runs:
                reads.hmget(self._keys.run(run), list(SUMMARY_FIELDS))
            rows = reads.execute() if runs else []
        return tuple(_summary(run, values) for run, values in zip(runs, rows, strict=True))

    def list(
        self, tenant: TenantPath, limit: int = 50, labels: Mapping[str, str] = NO_LABELS, *, below: RunPlace | None = None
    ) -> tuple[RunSummary, ...]:
        """Return the runs of a tenant; a run that is retired during the read is left out."""
        if limit <= 0:
            return ()
        first = next(iter(labels.items()), None)
        index = self._keys.runs_of(tenant) if first is None else self._keys.labelled(list_name(tenant, *first))
        found: list[RunSummary] = []
        seen = 0
        count = max(limit, PAGE_RUNS) if len(labels) > 1 else limit
        while len(found) < limit:  # With several labels, the list of the first one has other runs too.
            names = self._names_from(index, below, seen, count)
            page = [summary for summary in self.summaries(names) if summary is not None]
            found += [
                summary for summary in page if (below is None or summary.place < below) and has_labels(summary.labels, labels.items())
            ]
            seen += len(names)
            if len(names) < count:
                break
        return tuple(found[:limit])

    def _names_from(self, index: str, below: RunPlace | None, first: int, count: int) -> _Names:
        """Return names of a list from the millisecond of `below` on, without the first ones."""
        newest = below.created_ms if below is not None else "+inf"
        with redis_responses("list runs"):  # Redis compares the names of one millisecond by their bytes, as Python does with ASCII.
            names = cast(list[bytes], self._client.zrange(index, newest, "-inf", desc=True, byscore=True, offset=first, num=count))
        return [RunId(name.decode()) for name in names]

    def active(self) -> tuple[RunId, ...]:
        """Return the active runs, ordered by id."""
        with redis_responses("read active runs"):
            names = cast(set[bytes], self._client.smembers(self._keys.active_runs))
        return tuple(sorted(RunId(name.decode()) for name in names))

    def settle(self, run: RunId) -> bool:
        return bool(self._scripts.call("settle", run) == 1)

    def dead(self, limit: int = 100) -> tuple[DeadLetter, ...]:
        """Return the dead letters; one that is dropped during the read is left out."""
        if limit <= 0:
            return ()
        with redis_responses("list dead letters"):
            names = cast(list[bytes], self._client.zrevrange(self._keys.dead, 0, limit - 1))
            with self._client.pipeline(transaction=False) as reads:
                for run, node in (parted(name.decode()) for name in names):
                    reads.hget(self._keys.dead_of(run), node)
                rows = cast(list[bytes | None], reads.execute())
        return tuple(decode(DeadLetter, row) for row in rows if row is not None)

    def dead_letter(self, letter: str) -> DeadLetter | None:
        run, node = parted(letter)
        with redis_responses("read a dead letter"):
            row = cast(bytes | None, self._client.hget(self._keys.dead_of(run), node))
        return decode(DeadLetter, row) if row is not None else None

    def drop_dead(self, letters: tuple[str, ...]) -> int:
        return int(self._scripts.call("drop_dead", *(part for letter in letters for part in parted(letter)))) if letters else 0

    def events(self, run: RunId, after: int = 0, limit: int = 1000) -> tuple[RunEvent, ...]:
        if limit <= 0:
            return ()
        found: list[RunEvent] = []
        count = ENTRIES_AT_FIRST  # An entry may hold thousands of events, or one.
        while len(found) < limit:
            with redis_responses("read events"):
                entries = cast(Entries, self._client.xrange(self._keys.run_events(run), min=f"{after + 1}-0", count=count))
            count *= 2
            if not entries:
                break
            found += islice(events_in(rows_of(entries), partial(self._names, run), after), limit - len(found))
            after = last_of(entries)
        return tuple(found)

    def _names(self, run: RunId) -> tuple[NodeId, ...]:
        with redis_responses("read the names of nodes"):
            row = cast(bytes | None, self._client.hget(self._keys.run(run), "names"))
        if row is None:
            raise StoreUnavailable(f"run {run} was retired while its events were read")
        return names_of(row)

    def to_forget(self, now_ms: int, limit: int = 100) -> tuple[RunId, ...]:
        with redis_responses("find runs whose values are due to go"):
            names = cast(list[bytes], self._client.zrangebyscore(self._keys.to_forget, "-inf", now_ms, start=0, num=limit))
        return tuple(RunId(name.decode()) for name in names)

    def note_forgotten(self, run: RunId) -> None:
        with redis_responses("note that values are gone"):
            self._client.zrem(self._keys.to_forget, run)

    def request_cancel(self, run: RunId, reason: str, *, also_cleanup: bool = False) -> None:
        if self._scripts.call("request_cancel", run, reason, "cancel_all" if also_cleanup else "cancel") == b"UNKNOWN":
            raise UnknownRun(f"there is no run {run}")

    def send_signal(self, run: RunId, signal: SignalSent, data: bytes) -> SignalAnswer:
        answer = cast(bytes, self._scripts.call("send_signal", run, signal.value.sha256, data, encode(signal), signal.name))
        if answer == b"UNKNOWN":
            raise UnknownRun(f"there is no run {run}")
        return SignalAnswer(answer.decode())

    def retire(self, before_ms: int, limit: int = 100) -> tuple[tuple[RunId, str], ...]:
        """Remove old runs, each with a script of its own, so that no other call waits for long."""
        with redis_responses("find runs to retire"):
            names = cast(list[bytes], self._client.zrangebyscore(self._keys.ended_runs, "-inf", f"({before_ms}", start=0, num=limit))
        runs = [RunId(name.decode()) for name in names]
        return tuple((run, uri) for run in runs for uri in self._retire_one(run, before_ms) or ())

    def remove(self, run: RunId) -> bool:
        return self._retire_one(run, _NEVER_MS, only_settled=True) is not None

    def _retire_one(self, run: RunId, before_ms: int, *, only_settled: bool = False) -> Iterable[str] | None:
        """Remove a run; return the files of its values, or None if it was not removed."""
        with redis_responses("read a run to retire"):
            tenant, labels = cast(list[bytes | None], self._client.hmget(self._keys.run(run), ["tenant", "labels"]))
            uris = uris_in(_named(cast(dict[bytes, bytes], self._client.hgetall(self._keys.run_nodes(run)))))
        path = TenantPath(tenant.decode()) if tenant is not None else None
        reach, lists = (reach_of(path), lists_of(path, labels_of(labels))) if path is not None else ((), ())
        answer = self._scripts.call("retire", run, before_ms, int(only_settled), *_section(reach), *_section(lists))
        return uris if answer == 1 else None


def rows_of(entries: Entries) -> list[bytes]:
    """Return the rows of events in entries of a run's stream."""
    return [fields[b"events"] for _, fields in entries]


def last_of(entries: Entries) -> int:
    """Return the number of the last event in entries of a run's stream; 0 without entries."""
    return int(entries[-1][0].partition(b"-")[0]) if entries else 0


def _named(fields: Mapping[bytes, bytes]) -> dict[str, bytes]:
    return {name.decode(): value for name, value in fields.items()}


def _summary(run: RunId, values: Iterable[bytes | None]) -> RunSummary | None:
    fields = {name: value for name, value in zip(SUMMARY_FIELDS, values, strict=True) if value is not None}
    return summary_of(run, fields) if fields else None


def _section(items: Iterable[_Argument]) -> tuple[_Argument, ...]:
    """Return a list as arguments of a script: its length, then its items."""
    listed = tuple(items)
    return (len(listed), *listed)


def _rows(rows: Mapping[str, bytes]) -> tuple[_Argument, ...]:
    return _section(chain.from_iterable(rows.items()))
