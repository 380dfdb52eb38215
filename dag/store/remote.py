"""The Python client: submit a graph to a running federation, follow its run, get its result.

    import dag
    run = dag.submit(total.bind(parts))
    print(run.result())

A request is safe to repeat, because every submission has an id, which the client makes if the user gives none.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import sys
import threading
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any
from urllib.parse import quote

import httpx
from typing_extensions import Self

from dag.client.compiling import Outputs, compile_columns, compile_graph
from dag.client.tasks import named_call
from dag.client.writing import exact_bytes
from dag.errors import ApiError, GraphTypeError, ResultTimeout, RunCancelled, UnknownRun
from dag.progress.groups import NodeGroup
from dag.run.array_states import Element
from dag.run.run_events import RunEvent
from dag.run.states import NODE_ENDS, RUN_ENDS, NodeState, RunState
from dag.spec.checks import RUN_ID, RUN_ID_RULE
from dag.spec.columns import MEDIA_TYPE
from dag.store.client_access import CLIENT_FILE, Access, find_access
from dag.store.client_trace import client_traceparent
from dag.store.http_calls import JSON_KIND, PATIENCE_S, HttpCalls, Params
from dag.store.progress_display import ProgressDisplay
from dag.store.result_decoding import decode_output, failure_of
from dag.store.run_logs import LogLine, LogReader
from dag.store.script_modules import modules_beside_script
from dag.store.usage_rows import Usage, rows_of
from mesh.core.clock import Clock, SystemClock, ms_of
from mesh.core.ids import RunId
from mesh.core.wire import decode

#: Limit on the time that one request waits for the end of a run.
LONG_POLL_S = 20.0
#: Largest value of a signal.
SIGNAL_BYTES_MAX = 64 * 1024
#: Errors after which a client repeats a call until its timeout.
_NO_ANSWER_YET = frozenset({"unreachable", "too_many_calls"})
#: Elements that one request asks for.
_ELEMENTS_PAGE = 1_000
#: Characters of a node's id that are replaced in the id of a run.
_NOT_IN_IDS = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a run: its nodes per state, the same by name, and when it ends."""

    state: RunState
    counts: dict[NodeState, int]
    groups: tuple[NodeGroup, ...] = ()  #: Nodes that are named alike, and arrays: those with failures first; at most 50.
    estimated_end_ms: int | None = None  #: Since the epoch; None: unknown.

    @property
    def nodes(self) -> int:
        """Number of all nodes."""
        return sum(self.counts.values())

    @property
    def ended(self) -> int:
        """Number of nodes that have ended."""
        return sum(count for state, count in self.counts.items() if state in NODE_ENDS)


class Client:
    """HTTP client of one federation with one API key. Thread-safe.

    Args:
        http: Another `httpx.Client` than the built-in one, for tests.
        patience_s: How long a root that was reached before may be away.
    """

    def __init__(
        self, access: Access, *, http: httpx.Client | None = None, clock: Clock | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        self.access = access
        self.clock = clock or SystemClock()
        self._calls = HttpCalls(access, http=http, patience_s=patience_s)

    @named_call
    def submit(
        self,
        outputs: Outputs,
        *,
        id: str | None = None,  # noqa: A002  the word that a user reads everywhere else
        tenant: str | None = None,
        user: str | None = None,
        labels: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        on_error: str = "fail_fast",
        by_value: Sequence[ModuleType] = (),
        deadline_s: float | None = None,
        wait_for_capacity: bool = False,
        idempotency_key: str | None = None,
        durability: str | None = None,
    ) -> Run:
        """Submit the graph with these outputs and return its run.

        Args:
            id: Id of the run. The same id with the same graph is the same run. None: a new id, named after the first output.
            tenant: Tenant whose quota the run uses. None: the default tenant of the stack, or the key's own.
            user: User of the run, for limits per user. None: the key's user, or the key itself.
            labels: Labels of the run, to find it by: `schedulemesh runs --label team=ads`.
            params: Values of the graph's parameters.
            on_error: `fail_fast` stops at the first failure, `continue` finishes what does not depend on it.
            by_value: Modules whose functions are sent along, because no mesh can import them; those beside your script are anyway.
            deadline_s: Time limit of the run in seconds; then it is stopped, and fails with RUN_DEADLINE_EXCEEDED. None: no limit.
            wait_for_capacity: Accept nodes that no mesh could ever run as things are, and wait until one could; else they are refused.
            idempotency_key: The same key with the same graph is the same run, whoever repeats it; it names the run when `id` does not.
            durability: `D1` is refused unless the store writes the run to disk before the answer; `D0` never; None: as the root.

        Raises:
            SpecError: The graph is wrong; nothing was sent.
            RunConflict: The id exists with another graph.
            KeyConflict: The idempotency key was used for another graph or id.
            BacklogFull: The tenant has too many open runs; carries a time to retry after.
            ApiError: The root refused the graph, or does not answer.
        """
        tenant = tenant or self.access.tenant
        if labels is not None and not isinstance(labels, Mapping):
            raise GraphTypeError(f"labels takes a dict of text by name, like {{'team': 'ads'}}, not {labels!r}")
        beside = modules_beside_script()
        columns = compile_columns(outputs, id=id, tenant=tenant, params=params, on_error=on_error, by_value=by_value, beside=beside)
        asked = {
            "user": user,
            "labels": dict(labels) if labels else None,
            "deadline_s": deadline_s,
            "wait_for_capacity": wait_for_capacity or None,
        }
        head = {**columns.head, **{key: value for key, value in asked.items() if value is not None}}
        head = self._with_names(head, idempotency_key)
        return self._submit(head, replace(columns, head=head).packed(), MEDIA_TYPE, idempotency_key, durability)

    @named_call
    def spec_of(
        self,
        outputs: Outputs,
        *,
        id: str | None = None,  # noqa: A002  as in `submit`
        tenant: str | None = None,
        user: str | None = None,
        params: Mapping[str, Any] | None = None,
        on_error: str = "fail_fast",
        by_value: Sequence[ModuleType] = (),
    ) -> dict[str, Any]:
        """Return the graph as JSON, `dag/1`; `submit` sends the same graph as columns. Raises SpecError as `submit`."""
        tenant = tenant or self.access.tenant
        beside = modules_beside_script()
        spec = compile_graph(outputs, id=id, tenant=tenant, params=params, on_error=on_error, by_value=by_value, beside=beside)
        return {**spec, "user": user} if user is not None else spec

    @named_call
    def submit_spec(self, spec: Mapping[str, Any], *, idempotency_key: str | None = None, durability: str | None = None) -> Run:
        """Submit a graph as JSON, `dag/1`. Raises as `submit`."""
        named = self._with_names(spec, idempotency_key)
        body = json.dumps(named, ensure_ascii=False, allow_nan=False).encode()
        return self._submit(named, body, JSON_KIND, idempotency_key, durability)

    def _with_names(self, spec: Mapping[str, Any], idempotency_key: str | None) -> dict[str, Any]:
        """Return the graph, or its head, with an id and a tenant."""
        named = dict(spec)
        if not named.get("id") and idempotency_key is None:
            named["id"] = _new_id(named)
        if not named.get("tenant") and self.access.tenant:
            named["tenant"] = self.access.tenant
        return named

    def _submit(self, named: Mapping[str, Any], body: bytes, kind: str, idempotency_key: str | None, durability: str | None) -> Run:
        given = {"Idempotency-Key": idempotency_key, "traceparent": client_traceparent()}
        headers = {name: value for name, value in given.items() if value is not None}
        try:
            answer = self._calls.post("/v1/runs", body, kind=kind, params={"durability": durability}, headers=headers).json()
        except ApiError as refused:
            raise self._explained(refused, named) from None
        return Run(RunId(answer["id"]), self)

    def _explained(self, refused: ApiError, spec: Mapping[str, Any]) -> ApiError:
        """Return the error; if the default tenant is unknown, with the source of its name and the remedy."""
        if refused.code != "unknown_tenant" or spec.get("tenant") != self.access.tenant:
            return refused
        words = (
            f"{refused}. {self.access.tenant} is the default tenant in {CLIENT_FILE} of the running stack: name another "
            "one (`tenant=`, `--tenant`); if `schedulemesh apply` removed it, a new `dag.connect()` reads the new default"
        )
        return ApiError(refused.status, words, refused.problems, code=refused.code)

    def plan(self, spec: Mapping[str, Any]) -> Any:
        """Return the dry run of a graph in its wire form, as `POST /v1/plan` answers it. Raises as `submit`."""
        named = {**spec, "tenant": spec.get("tenant") or self.access.tenant}
        try:
            return self.post("/v1/plan", {key: value for key, value in named.items() if value is not None})
        except ApiError as refused:
            raise self._explained(refused, named) from None

    def run(self, id: str) -> Run:  # noqa: A002  the same
        """Return a run by its id.

        Raises:
            UnknownRun: There is no such run, or the key may not see it.
            ApiError: The root does not answer.
        """
        run = Run(RunId(id), self)
        self.ask(f"{run.path}/summary")
        return run

    def usage(
        self,
        first: date | None = None,
        last: date | None = None,
        *,
        tenant: str | None = None,
        by: Sequence[str] = ("tenant",),
    ) -> tuple[Usage, ...]:
        """Return what tenants have used, borrowed, and lost by preemption.

        Args:
            first: First day, in UTC; None: 30 days up to the last one.
            last: Last day; None: today. A report has 100 days at most.
            tenant: Only this tenant and the tenants below it.
            by: Columns that the rows tell apart: `day`, `tenant`, `user`, `flavor`.

        Raises:
            ApiError: The root does not answer, or refuses: the tenant is out of reach, or the range is wrong.
        """
        days = {"from": first.isoformat() if first is not None else None, "to": last.isoformat() if last is not None else None}
        return tuple(rows_of(self.ask("/v1/usage", {**days, "tenant": tenant, "by": list(by)})))

    def ask(self, path: str, params: Params | None = None, *, patience_s: float | None = None) -> Any:
        """Return the root's JSON answer to a GET; `patience_s` as for `HttpCalls.get`. Raises as `run`."""
        return self._calls.get(path, params, patience_s=patience_s).json()

    def post(self, path: str, body: Any) -> Any:
        """Return the root's JSON answer to a POST. Raises as `run`."""
        return self._calls.post(path, json.dumps(body).encode()).json()

    def post_once(self, path: str) -> Any:
        """Post without a body, so that a repeat after a lost answer has no second effect. Returns and raises as `post`."""
        return self._calls.post(path, b"{}", headers={"Idempotency-Key": uuid.uuid4().hex}).json()

    def put(self, path: str, body: Any) -> Any:
        """Return the root's JSON answer to a PUT. Raises as `run`."""
        return self._calls.put(path, json.dumps(body).encode()).json()

    def delete(self, path: str) -> None:
        """Delete a resource of the root. Raises as `run`."""
        self._calls.delete(path)

    def fetch(self, path: str) -> bytes:
        """Return all bytes at an address of the root. Raises as `run`."""
        return self._calls.get(path).content

    def events(self, run: RunId, after: int) -> Iterator[RunEvent]:
        """Yield the run's events with a greater number, until the stream ends or is cut off. Raises as `run`."""
        for described in self._calls.events(f"{_path_of(run)}/events", {"after": after}):
            if described.data:  # Control fields of the stream (`retry:`) come as events without data.
                yield _event_of(json.loads(described.data))

    def log_of(self, run: RunId, *, node: str | None = None, attempt: int | None = None) -> LogReader:
        """Return a reader of what the run's nodes have printed; `node` and `attempt` as for `Run.logs`."""
        return LogReader(self._calls, f"{_path_of(run)}/logs", node, attempt)

    def result_answer(self, run: RunId, wait_s: float = 0, *, patience_s: float | None = None) -> tuple[int, Any]:
        """Return status and JSON of `result` after at most `wait_s` seconds: 200, 202, or 409 with the failures. Raises as `run`."""
        path = f"{_path_of(run)}/result"
        answer = self._calls.get(path, {"wait_s": wait_s}, also_good=(httpx.codes.CONFLICT,), patience_s=patience_s)
        return answer.status_code, answer.json()

    @contextmanager
    def _within(self, run: RunId, timeout: float | None) -> Iterator[None]:
        """Bound the calls in the block by `timeout` seconds. Raises ResultTimeout if a root that was reached stays away until then."""
        try:
            yield
        except ApiError as gone:
            if timeout is None or gone.code not in _NO_ANSWER_YET or not self._calls.was_reached:
                raise
            raise ResultTimeout(f"no answer about run {run} for the rest of {timeout:g} s: {gone}; it goes on when the root does") from None

    def close(self) -> None:
        """Close the connections."""
        self._calls.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self.access.address!r})"


class Run:
    """Handle of a run. It pickles as the run's id and the root's address, so other processes can use it."""

    def __init__(self, id: RunId, client: Client) -> None:  # noqa: A002  the word that a user reads everywhere else
        self.id = id
        self._client = client

    @property
    def path(self) -> str:
        """Path of the run at the root."""
        return _path_of(self.id)

    @property
    def status(self) -> RunState:
        """Return the state of the run. Raises UnknownRun, ApiError."""
        return RunState(self._client.ask(f"{self.path}/summary")["state"])

    def progress(self) -> Progress:
        """Return the number of nodes per state and name, and the estimated end. Raises UnknownRun, ApiError."""
        return _progress_of(self._client.ask(self.path))

    @named_call
    def wait(self, timeout: float | None = None) -> RunState:
        """Wait for the end of the run and return its final state.

        Args:
            timeout: Seconds; None: no limit.
        Raises:
            ResultTimeout: The run has not ended; it goes on.
            UnknownRun, ApiError: As `Client.run`.
        """
        deadline_ms = None if timeout is None else self._client.clock.monotonic_ms() + int(timeout * 1000)
        while True:
            left_s = LONG_POLL_S if deadline_ms is None else max(0.0, (deadline_ms - self._client.clock.monotonic_ms()) / 1000)
            with self._client._within(self.id, timeout):  # noqa: SLF001  a client and its runs are one
                patience_s = None if timeout is None else left_s
                line = self._client.ask(f"{self.path}/summary", {"wait_s": min(LONG_POLL_S, left_s)}, patience_s=patience_s)
            state = RunState(line["state"])
            if state in RUN_ENDS:
                return state
            if left_s == 0:
                raise ResultTimeout(f"run {self.id} is {state.value} after {timeout:g} s; it goes on")

    @named_call
    def result(self, timeout: float | None = None, *, progress: bool = False) -> Any:
        """Wait for the end of the run and return the value of its output, or a dict of several outputs.

        Args:
            timeout: Seconds; None: no limit.
            progress: Print bars of the nodes by name to stderr meanwhile; lines of what has changed if that is no terminal.
        Raises:
            RunFailed: The run failed; `__cause__` is the user's own exception, the message has its traceback.
            RunCancelled: The run was cancelled.
            ResultTimeout: The run has not ended; it goes on.
            RuntimeAdapterError: A value arrived damaged.
            UnknownRun, ApiError: As `Client.run`.
        """
        shown = ProgressDisplay(sys.stderr) if progress else None
        status, answer = self._result_after(timeout, shown)
        if status == httpx.codes.OK:
            values = {name: decode_output(output, self._client.fetch) for name, output in answer["outputs"].items()}
            values.update(dict.fromkeys(answer.get("skipped", ())))  # Branches that were not taken.
            return next(iter(values.values())) if len(values) == 1 else values
        if answer.get("state") == RunState.FAILED.value:
            raise failure_of(self.id, answer)
        if answer.get("state") == RunState.CANCELLED.value:
            raise RunCancelled(f"run {self.id} was cancelled: {answer.get('run_detail') or 'no reason was given'}")
        raise ApiError(status, f"the root gave no result of run {self.id}: {answer}", code="no_answer")

    def _result_after(self, timeout: float | None, shown: ProgressDisplay | None) -> tuple[int, Any]:
        """Return status and answer of `result` after the end of the run, by long requests. Raises as `wait`."""
        deadline_ms = None if timeout is None else self._client.clock.monotonic_ms() + int(timeout * 1000)
        longest_s = LONG_POLL_S if shown is None else shown.look_s
        while True:
            left_s = LONG_POLL_S if deadline_ms is None else max(0.0, (deadline_ms - self._client.clock.monotonic_ms()) / 1000)
            with self._client._within(self.id, timeout):  # noqa: SLF001  a client and its runs are one
                patience_s = None if timeout is None else left_s
                if shown is not None:
                    shown.show(_progress_of(self._client.ask(self.path, patience_s=patience_s)).groups)
                status, answer = self._client.result_answer(self.id, wait_s=min(longest_s, left_s), patience_s=patience_s)
                if shown is not None and status != httpx.codes.ACCEPTED:
                    shown.show(_progress_of(self._client.ask(self.path, patience_s=patience_s)).groups)
            if status != httpx.codes.ACCEPTED:
                return status, answer
            if left_s == 0:
                raise ResultTimeout(f"run {self.id} is {answer['state']} after {timeout:g} s; it goes on")

    def events(self, after: int = 0) -> Iterator[RunEvent]:
        """Yield the run's events after number `after` up to the last one, across lost connections.

        Raises:
            UnknownRun, ApiError: As `Client.run`.
        """
        while True:
            before, has_ended = after, False
            for event in self._client.events(self.id, after):
                after = event.seq
                yield event
                has_ended = event.kind == "run" and event.after in _END_WORDS  # A resumed run has further events.
            if has_ended:
                return
            if after == before and self.status in RUN_ENDS:
                return  # The run had ended before event `after`.

    def logs(self, node: str | None = None, *, attempt: int | None = None, follow: bool = False) -> Iterator[LogLine]:
        """Yield the lines that the run's nodes have printed, from all meshes.

        Args:
            node: Only lines of this node.
            attempt: Only lines of this attempt.
            follow: Go on until the run has ended; else end after the lines that are there now.
        Raises:
            UnknownRun, ApiError: As `Client.run`.
        """
        log = self._client.log_of(self.id, node=node, attempt=attempt)
        return log.follow() if follow else log.lines()

    def elements(self, node: str, *, state: str | None = None) -> Iterator[Element]:
        """Yield the elements of an array by index.

        Args:
            node: The array.
            state: Only elements in this state, such as `FAILED`.
        Raises:
            UnknownArray, UnknownRun, ApiError: As `Client.run`.
        """
        after: int | None = -1
        while after is not None:
            asked = {"after": after, "limit": _ELEMENTS_PAGE, "state": state}
            page = self._client.ask(f"{self.path}/nodes/{quote(node, safe='')}/elements", asked)
            for one in page["elements"]:
                yield Element(one["index"], NodeState(one["state"]), one["attempt"], one["type"], one["message"])
            after = page["next"]

    @named_call
    def cancel(self, reason: str = "", *, also_cleanup: bool = False) -> None:
        """Cancel the run and its running tasks; no effect on an ended run.

        Args:
            reason: Shown beside the run.
            also_cleanup: Stop the run's cleanup too, which goes on otherwise.

        Raises:
            UnknownRun, ApiError: As `status`.
        """
        body: dict[str, Any] = {"reason": reason}
        if also_cleanup:
            body["cleanup"] = False
        self._client.post(f"{self.path}/cancel", body)

    @named_call
    def resume(self, reason: str = "") -> None:
        """Run again what has not succeeded; the run has failed or was cancelled, and keeps its id.

        Raises:
            ApiError: `not_resumed`: it has succeeded or still goes on, or its code is gone. `backlog_full`,
                `store_full`: too much work is open.
            UnknownRun: As `Client.run`.
        """
        self._client.post(f"{self.path}/resume", {"reason": reason})

    @named_call
    def delete(self) -> None:
        """Remove the run, which has ended, with its outputs, events and logs.

        Raises:
            ApiError: `not_removed`: it still goes on, or its end is still being carried out.
            UnknownRun: As `Client.run`.
        """
        self._client.delete(self.path)

    @named_call
    def signal(self, name: str, value: Any = True) -> dict[str, Any]:
        """Send a signal to the nodes that wait for it, now or later. The first signal of a name counts; sending it again changes nothing.

        Args:
            value: Plain JSON data of at most 64 KiB, which becomes the value of these nodes.

        Returns:
            The root's answer: `nodes` that get the value, and whether the signal was `repeated`.

        Raises:
            GraphTypeError: The value is not plain JSON data.
            UnknownRun: There is no such run.
            UnknownSignal: No node of the run waits for the signal.
            SignalConflict: The signal had another value before, or its nodes have ended.
            ApiError: The root does not answer.
        """
        if exact_bytes(value, SIGNAL_BYTES_MAX) is None:
            words = f"plain JSON data of at most {SIGNAL_BYTES_MAX >> 10} KiB"
            raise GraphTypeError(f"the value of signal {name!r} must be {words}, not {type(value).__name__}: put other data into a file")
        answer: dict[str, Any] = self._client.post(f"{self.path}/signals/{quote(name, safe='')}", value)
        return answer

    def __await__(self) -> Generator[Any, None, Any]:
        """Make `await run` return `run.result()`, without blocking the event loop."""
        return asyncio.to_thread(self.result).__await__()

    def __reduce__(self) -> tuple[Any, ...]:
        return (_run_at, (self._client.access.address, self.id))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and (self.id, self._client.access.address) == (other.id, other._client.access.address)

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"Run({self.id!r})"


@named_call
def connect(address: str | None = None, api_key: str | None = None) -> Client:
    """Return a client of the federation at `address`; without arguments, of the one in the environment or in a state folder.

    Raises:
        ApiError: Address or key is missing; the message lists every way to give them.
    """
    return Client(find_access(address, api_key, environment=os.environ, folder=Path.cwd()))


@named_call
def submit(
    outputs: Outputs,
    *,
    id: str | None = None,  # noqa: A002  the same
    tenant: str | None = None,
    user: str | None = None,
    labels: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | None = None,
    on_error: str = "fail_fast",
    deadline_s: float | None = None,
    wait_for_capacity: bool = False,
    idempotency_key: str | None = None,
    durability: str | None = None,
    client: Client | None = None,
) -> Run:
    """Submit a graph to the federation that `connect` finds. Arguments and errors: see `Client.submit`."""
    return (client or _shared()).submit(
        outputs,
        id=id,
        tenant=tenant,
        user=user,
        labels=labels,
        params=params,
        on_error=on_error,
        deadline_s=deadline_s,
        wait_for_capacity=wait_for_capacity,
        idempotency_key=idempotency_key,
        durability=durability,
    )


@named_call
def get_run(id: str, *, client: Client | None = None) -> Run:  # noqa: A002  the same
    """Return a run by its id. Errors: see `connect` and `Client.run`."""
    return (client or _shared()).run(id)


@named_call
def resume(id: str, reason: str = "", *, client: Client | None = None) -> Run:  # noqa: A002  the same
    """Run again what has not succeeded in a run that failed or was cancelled. Errors: see `connect` and `Run.resume`."""
    run = (client or _shared()).run(id)
    run.resume(reason)
    return run


_END_WORDS = frozenset(state.value for state in RUN_ENDS)
_clients: dict[tuple[int, Access], Client] = {}
_making = threading.Lock()


def _shared(address: str | None = None) -> Client:
    """Return the client of this process for a root, so that connections are reused."""
    access = find_access(address, None, environment=os.environ, folder=Path.cwd())
    with _making:
        return _clients.setdefault((os.getpid(), access), Client(access))


@atexit.register
def _close_shared() -> None:
    for client in _clients.values():
        client.close()


def _run_at(address: str, id: RunId) -> Run:  # noqa: A002  the same
    return Run(id, _shared(address))


def _event_of(fields: dict[str, Any]) -> RunEvent:
    """Return an event from its form in JSON, which has the time as text."""
    at_ms = ms_of(fields.pop("at"))
    event: RunEvent = decode(RunEvent, json.dumps({**fields, "at_ms": at_ms}))
    return event


def _progress_of(view: Mapping[str, Any]) -> Progress:
    """Return how far a run is, from the root's answer about it."""
    ends_at = view.get("estimated_end")
    return Progress(
        state=RunState(view["state"]),
        counts=_counts_of(view["counts"]),
        groups=tuple(
            NodeGroup(
                name=group["name"],
                is_array=group["is_array"],
                total=group["total"],
                counts=_counts_of(group["counts"]),
                part=group["part"],
            )
            for group in view.get("groups", ())  # An older root has none.
        ),
        estimated_end_ms=ms_of(ends_at) if ends_at is not None else None,
    )


def _counts_of(counts: Mapping[str, int]) -> dict[NodeState, int]:
    return {NodeState(state): count for state, count in counts.items()}


def _path_of(run: RunId) -> str:
    if not RUN_ID.fullmatch(run):  # A slash in it would name another route.
        raise UnknownRun(f"there is no run {run!r}: an id has {RUN_ID_RULE}")
    return f"/v1/runs/{quote(run, safe='')}"


def _new_id(spec: Mapping[str, Any]) -> str:
    """Return a new id, named after the first output."""
    outputs = spec.get("outputs")
    first = next(iter(outputs.values()), None) if isinstance(outputs, Mapping) else None
    node = str(first.get("$ref", "")) if isinstance(first, Mapping) else ""
    name = _NOT_IN_IDS.sub("-", node).strip("-")[:40]
    return f"{name or 'run'}-{uuid.uuid4().hex[:16]}"
