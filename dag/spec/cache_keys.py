"""Keys under which values of nodes are cached, and the nodes that have one.

A key is a hash of all that the value of a node follows from: its function, the version that its author gives, its arguments, the
environment of its code, and the number of its outputs. An argument that is the value of another node counts by the hash of that value,
so a key exists only once these values do. Resources, labels and retries are no part of it: the value does not follow from them.

The root cannot read pickles. Their bytes differ between processes though they mean the same, so the client sends a digest of what they
mean (`dag.client.fingerprints`), and the key takes this one. A client that sends a wrong digest spoils only the cache of its own tenant.

Source: ADR 0065.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dag.spec.array_forms import array_key
from dag.spec.control import is_control
from dag.spec.group_forms import group_of
from dag.spec.job_forms import job_of
from federation.config.sections.values import parse_duration
from mesh.core.functions import PROGRAM, SELECTED
from mesh.core.ids import NodeId
from mesh.stages.spec import TaskSpec

#: How long a value is kept whose node names no time: 30 days.
TTL_MS = 30 * 86_400_000
#: Longest time for which a value is kept: a year.
TTL_MS_MAX = 366 * 86_400_000
#: Characters of a version.
VERSION_CHARS_MAX = 200
#: Part of each key; another one makes all kept values unknown.
_SCHEME = "schedulemesh cache 1"
_TIGHT = (",", ":")

NOT_CACHED_ARRAY = "the node is an array, whose elements are not cached; cache the nodes that it reads, or map over nodes of their own"
NOT_CACHED_GROUP = "the node is an actor group, whose state is no value that could be kept; cache the functions around it"
NOT_CACHED_JOB = "the node is a job, whose effects are not its value; cache the functions around it"
NOT_CACHED_PROGRAM = "the node is a program, whose effects are not its value; cache the functions around it"
NOT_CACHED_WHEN = "a node that runs after failures is there for its effects, which a cached value would leave out; drop `cache` or `when`"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRule:
    """Rule by which the values of a node are cached."""

    ttl_ms: int = TTL_MS  #: How long a value is kept.
    version: str = ""  #: Version of the function, by its author.


def ttl_of(asked: bool | str) -> int | None:
    """Return the time to live that an option `cache` asks for; None: the node is not cached.

    Raises:
        ValueError: The text is no time, or too long a one.
    """
    if isinstance(asked, bool):
        return TTL_MS if asked else None
    ttl_ms = parse_duration(asked)
    if not 0 < ttl_ms <= TTL_MS_MAX:
        raise ValueError(f"must be a time above 0 and up to {TTL_MS_MAX // 86_400_000}d (got {asked!r})")
    return ttl_ms


def problem_of_caching(function: str, forms: Iterable[Any], *, is_tolerant: bool) -> str | None:
    """Return why a node's value cannot be cached; None: it can.

    Args:
        forms: Its arguments.
        is_tolerant: The node runs after other ends than success.
    """
    forms = list(forms)
    if function.startswith(PROGRAM):
        return NOT_CACHED_PROGRAM
    if job_of(forms) is not None:
        return NOT_CACHED_JOB
    if group_of(forms) is not None:
        return NOT_CACHED_GROUP
    if any(array_key(form) is not None for form in forms):
        return NOT_CACHED_ARRAY
    return NOT_CACHED_WHEN if is_tolerant else None


def may_be_cached(function: str, forms: Iterable[Any], *, is_tolerant: bool) -> bool:
    """Return whether a default `cache` means the node: its value can be cached, and costs more than to look for it."""
    return not is_control(function) and function != SELECTED and problem_of_caching(function, forms, is_tolerant=is_tolerant) is None


def key_of(task: TaskSpec, rule: CacheRule, *, values: Mapping[NodeId, str], digests: Mapping[str, str], runtime_env: Any = None) -> str:
    """Return the key of a node's value, as SHA-256.

    Args:
        task: The node, its parameters filled in.
        values: Hash of the value of each node that it reads.
        digests: Digests of functions and of pickled arguments, by the name that the graph has for them.
        runtime_env: Ray's runtime environment of the whole run, for nodes without one of their own.

    Raises:
        KeyError: `values` lacks a node that the task reads.
    """
    described = {
        "scheme": _SCHEME,
        "function": [task.function.partition(":")[0] if task.function in digests else task.function, digests.get(task.function, "")],
        "version": rule.version,
        "args": [_canonical(form, values, digests) for form in task.args],
        "kwargs": {name: _canonical(form, values, digests) for name, form in task.kwargs.items()},
        "env": task.ray_options.get("runtime_env") or runtime_env or {},
        "outputs": task.num_returns,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True, separators=_TIGHT, ensure_ascii=True).encode()).hexdigest()


def _canonical(form: Any, values: Mapping[NodeId, str], digests: Mapping[str, str]) -> Any:
    """Return an argument with hashes for the values and pickles in it. Recursive: callers bound the depth.

    JSON keeps 1, 1.0 and true apart; the keys of objects are sorted later.
    """
    if isinstance(form, list):
        return [_canonical(part, values, digests) for part in form]
    if isinstance(form, dict):
        if "$ref" in form:
            return {"$value": values[NodeId(form["$ref"])], "path": form.get("path", [])}
        if len(form) == 1 and isinstance(form.get("$blob"), str):
            return {"$blob": digests.get(form["$blob"], form["$blob"])}
        return {key: _canonical(part, values, digests) for key, part in form.items()}
    return form
