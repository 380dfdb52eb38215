"""HTTP calls to the root: one connection pool, bounded waits, and retries while the root is away.

Every call of this client is safe to repeat, so a call is retried after a lost connection. A root that was never reached gets less
time than one that was, because it most likely does not exist.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any, TypeVar

import httpx
import httpx_sse
from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from dag.errors import (
    ApiError,
    BacklogFull,
    DagError,
    KeyConflict,
    RunConflict,
    SignalConflict,
    TooManySchedules,
    UnknownArray,
    UnknownLetter,
    UnknownNode,
    UnknownRun,
    UnknownSchedule,
    UnknownSignal,
    UnknownStage,
)
from dag.store.client_access import Access

T = TypeVar("T")
Params = Mapping[str, str | int | float | Sequence[str] | None]

JSON_KIND = "application/json"
#: Read timeout, longer than the interval of the root's keep-alive comments: silence means that the connection is dead.
READ_S_MAX = 30.0
#: Retry time for a root that was reached before: longer than one answer, or a restart of a cluster, may take.
PATIENCE_S = 120.0
#: Retry time for a root that was never reached.
FIRST_PATIENCE_S = 2.0

#: Code of the error when the root does not answer.
UNREACHABLE = "unreachable"
#: Error code of the root's proxy while no gateway runs behind it.
_ROOT_AWAY = "root_away"
#: Statuses of a proxy whose root is being replaced.
_AWAY = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})


class _Away(Exception):
    """The root does not answer now; the call is retried."""

    is_proxied = False  #: True if the root's proxy answered that the root is away.


class _Busy(_Away):
    """The key is over its limit of calls, and the call is retried."""

    def __init__(self, refusal: DagError) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


class HttpCalls:
    """HTTP calls to one root with one API key.

    Args:
        http: Another `httpx.Client` than the built-in one, for tests; its base address and headers are used as they are.
    """

    def __init__(self, access: Access, *, http: httpx.Client | None = None, patience_s: float = PATIENCE_S) -> None:
        self.address = access.address
        self._key_from = access.key_from
        self._patience_s = patience_s
        self._was_reached = False
        self._http = http or httpx.Client(
            base_url=access.address,
            headers={"Authorization": f"Bearer {access.api_key}"},
            timeout=httpx.Timeout(READ_S_MAX, connect=5.0),
        )

    def get(
        self, path: str, params: Params | None = None, *, also_good: tuple[int, ...] = (), patience_s: float | None = None
    ) -> httpx.Response:
        """Return the answer to a GET.

        Args:
            also_good: Error statuses that are returned instead of raised.
            patience_s: How long a root that was reached may be away; None: the client's own limit.
        Raises:
            UnknownRun: There is no such run.
            ApiError: The root refused, or does not answer (status 0).
        """
        return self._call("GET", path, also_good, patience_s, params=_given(params))

    def post(
        self, path: str, body: bytes, *, kind: str = JSON_KIND, params: Params | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Return the answer to a POST of a body of this media type. Raises as `get`, and RunConflict, KeyConflict, BacklogFull."""
        described = {"Content-Type": kind, **(headers or {})}
        return self._call("POST", path, (), None, content=body, params=_given(params), headers=described)

    def put(self, path: str, body: bytes) -> httpx.Response:
        """Return the answer to a PUT of JSON. Raises as `post`."""
        return self._call("PUT", path, (), None, content=body, headers={"Content-Type": JSON_KIND})

    def delete(self, path: str) -> None:
        """Delete the resource. Raises as `get`."""
        self._call("DELETE", path, (), None)

    def events(self, path: str, params: Params) -> Iterator[httpx_sse.ServerSentEvent]:
        """Yield a stream of events until it ends or is cut off; only the events show which of the two.

        Raises:
            UnknownRun, ApiError: As `get`; the stream did not begin.
        """
        opened, source = self._patiently(lambda: self._open_stream(path, params), None)
        with opened, contextlib.suppress(httpx.TransportError):
            yield from source.iter_sse()

    @property
    def was_reached(self) -> bool:
        """Whether a root, or its proxy, has answered this client before."""
        return self._was_reached

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _call(self, method: str, path: str, also_good: tuple[int, ...], patience_s: float | None, **arguments: Any) -> httpx.Response:
        def once() -> httpx.Response:
            with _lost_is_away():
                answer = self._http.request(method, path, **arguments)
            return answer if answer.status_code in also_good else self._checked(answer)

        return self._patiently(once, patience_s)

    def _open_stream(self, path: str, params: Params) -> tuple[ExitStack, httpx_sse.EventSource]:
        with ExitStack() as opened, _lost_is_away():
            source = opened.enter_context(httpx_sse.connect_sse(self._http, "GET", path, params=_given(params)))
            if source.response.status_code != HTTPStatus.OK:
                source.response.read()
            self._checked(source.response)
            return opened.pop_all(), source

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        """Return the answer, or raise if the root refused or the answer does not come from a root."""
        if answer.is_success:
            self._was_reached = True
            return answer
        error = _error_in(answer)
        if error is None or answer.status_code in _AWAY:
            away = _Away(error["detail"] if error else f"HTTP {answer.status_code} from a server that is not a root")
            away.is_proxied = error is not None and error.get("code") == _ROOT_AWAY
            self._was_reached |= away.is_proxied
            raise away
        self._was_reached = True
        if error.get("code") == "too_many_calls":
            raise _Busy(_refusal(answer, error, self._key_from))
        raise _refusal(answer, error, self._key_from)

    def _patiently(self, act: Callable[[], T], patience_s: float | None) -> T:
        limit_s = self._patience_s if patience_s is None else patience_s
        again = Retrying(
            retry=retry_if_exception_type(_Away),
            wait=partial(_pause_s, limit_s),
            stop=partial(self._is_enough, limit_s),
            reraise=True,
        )
        try:
            return again(act)
        except _Busy as busy:
            raise busy.refusal from None
        except _Away as gone:
            words = f"has no root yet ({gone})" if gone.is_proxied else f"does not answer ({gone}); `schedulemesh up` starts a federation"
            raise ApiError(0, f"{self.address} {words}", code=UNREACHABLE) from None

    def _is_enough(self, patience_s: float, tried: RetryCallState) -> bool:
        return (tried.seconds_since_start or 0.0) >= (patience_s if self._was_reached else min(FIRST_PATIENCE_S, patience_s))


_backoff = wait_random_exponential(multiplier=0.05, max=2.0)


def _pause_s(limit_s: float, tried: RetryCallState) -> float:
    """Return the wait before the next try, bounded by the time limit."""
    return min(_backoff(tried), max(0.0, limit_s - (tried.seconds_since_start or 0.0)))


@contextmanager
def _lost_is_away() -> Iterator[None]:
    try:
        yield
    except httpx.TransportError as lost:
        raise _Away(str(lost) or type(lost).__name__) from lost


def _error_in(answer: httpx.Response) -> dict[str, Any] | None:
    """Return the problem details in the body, if a root wrote them: those of other servers have no `code`."""
    try:
        error = answer.json()
    except ValueError:
        return None
    return error if isinstance(error, dict) and {"code", "detail"} <= error.keys() else None


#: Errors of their own by the root's codes.
_REFUSALS: Mapping[str, type[DagError]] = {
    "unknown_run": UnknownRun,
    "unknown_stage": UnknownStage,
    "unknown_node": UnknownNode,
    "unknown_array": UnknownArray,
    "unknown_letter": UnknownLetter,
    "unknown_schedule": UnknownSchedule,
    "too_many_schedules": TooManySchedules,
    "unknown_signal": UnknownSignal,
    "signal_conflict": SignalConflict,
    "run_conflict": RunConflict,
    "key_conflict": KeyConflict,
}


def _refusal(answer: httpx.Response, error: Mapping[str, Any], key_from: str) -> DagError:
    message = str(error["detail"])
    if answer.status_code == HTTPStatus.UNAUTHORIZED and key_from:
        message += f" (the key is that of {key_from})"
    problems = tuple((str(problem["place"]), str(problem["problem"])) for problem in error.get("problems") or ())
    code = str(error.get("code") or "refused")
    if code in _REFUSALS:
        return _REFUSALS[code](message)
    if code == "backlog_full":
        return BacklogFull(message, 1000 * int(answer.headers.get("Retry-After", 0)))
    described = [message, *(f"  {place}: {problem}" if place else f"  {problem}" for place, problem in problems)]
    return ApiError(answer.status_code, "\n".join(described), problems, code=code)


def _given(params: Params | None) -> dict[str, str | int | float | Sequence[str]] | None:
    """Return the parameters that have a value; None if none has: httpx would remove those that the path itself has."""
    return {name: value for name, value in (params or {}).items() if value is not None} or None
