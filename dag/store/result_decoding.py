"""Decodes the root's results to values. It checks hashes, and reads the tenant's pickles in the tenant's own process only."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle

from dag.errors import RunFailed
from mesh.core.values import Encoding
from mesh.errors import RuntimeAdapterError


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedNode:
    """A root cause of a failed run."""

    node: str
    attempt: int
    mesh: str | None
    reason: str
    type_name: str
    message: str
    traceback: str


def decode_output(output: Mapping[str, Any], fetch: Callable[[str], bytes]) -> Any:
    """Return the value of one output.

    Args:
        output: The output's part of the answer to `result`.
        fetch: Returns the bytes at an address of the root.
    Raises:
        RuntimeAdapterError: The bytes have another hash or another encoding than the answer says.
    """
    if output["inline"] and output["encoding"] == Encoding.JSON.value:
        return output["value"]
    data = base64.b64decode(output["data"]) if output["inline"] else fetch(output["href"])
    return _part(_decode(data, output["sha256"], Encoding(output["encoding"])), output["path"])


def failure_of(run: str, answer: Mapping[str, Any]) -> RunFailed:
    """Return the error that `result()` raises for a failed run, with the user's own exception as its cause if its bytes came along."""
    failures = [(_failed_node(failure), failure) for failure in answer["failures"]]
    skipped = tuple(skip["node"] for skip in answer["skipped"])
    detail = answer.get("run_detail", "") if not failures else ""  # The whole run failed: at its deadline.
    error = RunFailed(_history(run, [node for node, _ in failures], skipped, detail), tuple(node for node, _ in failures), skipped)
    causes = (_exception(failure) for _, failure in failures)
    error.__cause__ = next((cause for cause in causes if cause is not None), None)
    return error


def _decode(data: bytes, sha256: str, encoding: Encoding) -> Any:
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RuntimeAdapterError(f"the value {sha256} did not arrive as it was written")
    if encoding is Encoding.PICKLE:
        return cloudpickle.loads(data)
    try:
        return json.loads(data)
    except ValueError:
        raise RuntimeAdapterError(f"the value {sha256} is not JSON, although the root says so") from None


def _part(value: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        value = value[step]
    return value


def _failed_node(failure: Mapping[str, Any]) -> FailedNode:
    return FailedNode(
        node=failure["node"],
        attempt=failure["attempt"],
        mesh=failure["mesh"],
        reason=failure["reason"],
        type_name=failure["type"],
        message=failure["message"],
        traceback=failure["traceback"],
    )


def _exception(failure: Mapping[str, Any]) -> BaseException | None:
    """Return the exception; None if it did not come along or cannot be rebuilt. The message has its text in any case."""
    if failure.get("pickled") is None:
        return None
    data = base64.b64decode(failure["pickled"])
    if hashlib.sha256(data).hexdigest() != failure["pickled_sha256"]:
        return None
    try:
        cause = cloudpickle.loads(data)
    except Exception:  # noqa: BLE001  whatever the tenant's class does when it is rebuilt, the failure has to be reported
        return None
    return cause if isinstance(cause, BaseException) else None


def _history(run: str, failures: Sequence[FailedNode], skipped: Sequence[str], detail: str) -> str:
    described = [f"run {run} failed{f': {detail}' if detail else ''}"]
    for failure in failures[:_NAMED]:
        where = f" on mesh {failure.mesh}" if failure.mesh else ""
        described.append(f"{failure.node} (attempt {failure.attempt}{where}): {failure.type_name}: {failure.message}")
        if failure.traceback:
            described.append(failure.traceback.rstrip())
    if len(failures) > _NAMED:
        described.append(f"and {len(failures) - _NAMED} more nodes failed; `failures` of the error lists all")
    if skipped:
        more = f" and {len(skipped) - _NAMED} more" if len(skipped) > _NAMED else ""
        described.append(f"not run because of this: {', '.join(skipped[:_NAMED])}{more}")
    return "\n".join(described)


#: Limit on the failed nodes, and on the skipped ones, in a message.
_NAMED = 10
