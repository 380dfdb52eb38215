"""Jobs in YAML or JSON, as users write them.

    name: pong
    pool: train
    leader: {name: learner, resources: {cpu: 2, gpu: 1}}
    workerSets:
      - {name: actors, counts: 8, resources: {cpu: 1, memory: 2GiB}}
    minWorkersNum: 4
    schedulerPolicy: {jobQueuePolicy: DRF, basicPolicy: LeaderFirst}

Each key may be in camelCase, as in TY-Arranger, or in snake_case (`min_workers_num`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel, to_snake
from pydantic_core import ErrorDetails

from mesh.core.ids import JobId, LabelName, PoolName, TenantPath
from mesh.core.near_names import near_name
from mesh.core.resources import ResourceSet
from mesh.errors import AmountError, JobSpecError
from mesh.jobs.spec import BasicPolicy, CleanPolicy, JobQueuePolicy, JobSpec, ReplicaSpec, WorkerSetSpec

_MEANT = {
    "template": "members are Ray actors, not pods; write `resources` (and `selector`), and pass their class with the job",
    "volumes": "members share only what their classes open themselves; leave it out",
    "job_queue_policy": "it belongs in `scheduler_policy`",
    "basic_policy": "it belongs in `scheduler_policy`",
    "min_workers": "write `min_workers_num`",
    "clean_policy": "write `clean_pod_policy`",
    "replicas": "write `counts`",
    "count": "write `counts`",
}
#: A key named in a message; users may write either spelling.
_BACKTICKED = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
_KINDS = {
    "int_type": "must be a whole number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping (`key: value`)",
    "model_type": "must be a mapping (`key: value`)",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "missing": "is missing; the job needs it",
}


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True)


class LeaderForm(_Form):
    """The leader."""

    name: str = Field(default="leader", description="For people.")
    resources: dict[str, Any] = Field(default={}, description="Amounts it takes of its node: `{cpu: 2, gpu: 1, memory: 4GiB}`.")
    selector: dict[str, str] = Field(default={}, description="Required labels of its node.")


class WorkerSetForm(_Form):
    """Set of identical workers."""

    name: str = Field(description="Unique name of the set.")
    counts: int = Field(default=1, description="Number of workers; at least 1.")
    resources: dict[str, Any] = Field(default={}, description="Amounts each worker takes of its node.")
    selector: dict[str, str] = Field(default={}, description="Required labels of their nodes.")


class SchedulerPolicyForm(_Form):
    """Order of the job among jobs, and placement of its members."""

    job_queue_policy: JobQueuePolicy = Field(default=JobQueuePolicy.PRIORITY, strict=False, description="`Priority` or `DRF`.")
    basic_policy: BasicPolicy = Field(
        default=BasicPolicy.BIN_PACK,
        strict=False,
        description="`Gang`, `BinPack`, `LeaderFirst`, `MinFragment`, `JobAffinity` or `JobAntiAffinity`.",
    )


class JobForm(_Form):
    """Job as written; `read_job` validates it."""

    name: str = Field(description="Id of the job; submitting the same job under the same id again has no effect.")
    pool: str = Field(description="Pool whose nodes and quota it uses.")
    leader: LeaderForm = Field(description="Starts first; the workers get its address.")
    worker_sets: list[WorkerSetForm] = Field(default=[], description="Sets of identical workers.")
    min_workers_num: int = Field(default=1, description="Workers needed to start; the others are added when there is capacity.")
    restart_limit: int = Field(default=3, description="Restarts after failures, for the leader and for each worker.")
    clean_pod_policy: CleanPolicy = Field(
        default=CleanPolicy.ALL,
        strict=False,
        description="Members removed when the job is over: `All` members, those `Running`, or `None`.",
    )
    priority: int = Field(default=5, description="1 to 10; higher goes first.")
    scheduler_policy: SchedulerPolicyForm = Field(default=SchedulerPolicyForm(), description="Order and placement.")
    terminating: bool = Field(default=False, description="True: end the job.")
    label: str = Field(default="", description="Label queue of its members.")
    tenant: str = Field(default="", description="Tenant of the job.")
    selector: dict[str, str] = Field(default={}, description="Required labels of all its nodes.")


def read_job(raw: Mapping[str, Any]) -> JobSpec:
    """Return the job that a mapping describes.

    Raises:
        JobSpecError: One line for each problem, with the key as it was written and the remedy.
    """
    twice, once = list(_said_twice(raw)), _said_once(raw)
    try:
        spec = _spec(JobForm.model_validate(once))
    except ValidationError as broken:
        raise JobSpecError("\n".join(twice + _lines(broken.errors(include_url=False), once))) from None
    except JobSpecError as broken:
        raise JobSpecError("\n".join(twice + [_as_written(line, raw) for line in str(broken).splitlines()])) from None
    if twice:
        raise JobSpecError("\n".join(twice))
    return spec


def _lines(errors: Sequence[ErrorDetails], raw: Mapping[str, Any]) -> list[str]:
    """Return the errors of form, and those of meaning in the rest, so that users see all problems at once."""
    lines = [_line(error, raw) for error in errors]
    try:
        _spec(JobForm.model_validate(_without(errors, raw)))
    except ValidationError:
        return lines  # The rest is not valid in form either.
    except JobSpecError as broken:
        wrong_keys = {str(error["loc"][0]) for error in errors}
        counts_known = not wrong_keys & {"workerSets", "worker_sets", "minWorkersNum", "min_workers_num"}
        rest = [line for line in str(broken).splitlines() if counts_known or not line.startswith("min_workers_num")]
        lines += [_as_written(line, raw) for line in rest]
    return lines


def _without(errors: Sequence[ErrorDetails], raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy without the invalid parts, with placeholders for missing ones."""
    copied: dict[str, Any] = deepcopy(dict(raw))
    for error in sorted(errors, key=lambda error: [str(step) for step in error["loc"]], reverse=True):
        place: Any = copied
        for step in error["loc"][:-1]:
            place = place[_spelled(step, place)]
        last = _spelled(error["loc"][-1], place)
        if error["type"] != "missing":
            del place[last]
        if last in ("name", "pool", "leader"):  # Required; unnamed sets are told apart by their indices.
            place[last] = {} if last == "leader" else f"unnamed{''.join(map(str, error['loc'][1:-1]))}"
    return copied


def _spelled(step: str | int, place: Any) -> str | int:
    """Return the key as written in the mapping; pydantic reports it in camelCase."""
    snake = to_snake(step) if isinstance(step, str) else step
    return snake if isinstance(place, Mapping) and step not in place and snake in place else step


def _spec(form: JobForm) -> JobSpec:
    wrong: list[str] = []

    def amounts(key: str, requested: Mapping[str, Any]) -> ResourceSet:
        try:
            return ResourceSet.of(requested)
        except AmountError as broken:
            wrong.append(f"{key}.resources: {broken}")
            return ResourceSet()

    leader = ReplicaSpec(name=form.leader.name, resources=amounts("leader", form.leader.resources), selector=form.leader.selector)
    workers = tuple(
        WorkerSetSpec(
            name=worker_set.name,
            counts=worker_set.counts,
            selector=worker_set.selector,
            resources=amounts(f"worker_sets.{worker_set.name}", worker_set.resources),
        )
        for worker_set in form.worker_sets
    )
    try:
        spec = _checked_spec(form, leader, workers)
    except JobSpecError as broken:
        raise JobSpecError("\n".join([*wrong, str(broken)])) from None
    if wrong:
        raise JobSpecError("\n".join(wrong))
    return spec


def _checked_spec(form: JobForm, leader: ReplicaSpec, workers: tuple[WorkerSetSpec, ...]) -> JobSpec:
    return JobSpec(
        job=JobId(form.name),
        pool=PoolName(form.pool),
        leader=leader,
        worker_sets=workers,
        min_workers_num=form.min_workers_num,
        restart_limit=form.restart_limit,
        clean_pod_policy=form.clean_pod_policy,
        priority=form.priority,
        job_queue_policy=form.scheduler_policy.job_queue_policy,
        basic_policy=form.scheduler_policy.basic_policy,
        terminating=form.terminating,
        label=LabelName(form.label),
        tenant=TenantPath(form.tenant),
        selector=form.selector,
    )


def _said_twice(raw: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield a message for each key that is written in both spellings, since the meaning is ambiguous."""
    for key, value in raw.items():
        if to_camel(key) != key and to_camel(key) in raw:
            yield f"{path}{to_camel(key)}: is also written {key}; keep one of the two"
        for index, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, Mapping):
                yield from _said_twice(part, f"{path}{key}.{index}." if isinstance(value, list) else f"{path}{key}.")


def _said_once(value: Any) -> Any:
    """Return a copy with one spelling per key, to find the remaining errors."""
    if isinstance(value, list):
        return [_said_once(part) for part in value]
    if not isinstance(value, Mapping):
        return value
    doubled = {key for key in value if isinstance(key, str) and to_camel(key) != key and to_camel(key) in value}
    return {key: _said_once(part) for key, part in value.items() if key not in doubled}


def _line(error: ErrorDetails, raw: Mapping[str, Any]) -> str:
    return f"{_written_path(error['loc'], raw)}: {_words(error)}"


def _words(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        return _unknown(error["loc"])
    if error["type"] == "enum":
        return f"must be one of {error['ctx']['expected']}, got {error['input']!r}"
    words = _KINDS.get(error["type"], error["msg"])
    return words if error["type"] == "missing" else f"{words} (got {error['input']!r})"


def _unknown(path: tuple[str | int, ...]) -> str:
    key = to_snake(str(path[-1]))
    if key in _MEANT:
        return f"is unknown: {_MEANT[key]}"
    known = sorted(_model_at(path).model_fields)
    near = near_name(key, known)
    return f"is unknown; write `{near}`" if near is not None else f"is unknown; leave it out, or write one of: {', '.join(known)}"


def _model_at(path: tuple[str | int, ...]) -> type[_Form]:
    inner: dict[str, type[_Form]] = {"leader": LeaderForm, "worker_sets": WorkerSetForm, "scheduler_policy": SchedulerPolicyForm}
    return inner.get(to_snake(str(path[0])), JobForm) if len(path) > 1 else JobForm


def _written_path(path: Iterable[str | int], raw: Any) -> str:
    """Return the path as written by the user; pydantic reports it in camelCase."""
    steps = []
    for step in path:
        written = _spelled(step, raw)
        steps.append(str(written))
        try:
            raw = raw[written]
        except (KeyError, IndexError, TypeError):
            raw = None
    return ".".join(steps)


def _as_written(line: str, raw: Mapping[str, Any]) -> str:
    """Return the line with keys as the user spells them; both spellings for keys that the user did not write."""
    key = re.match(r"\w+", line)
    rest = "" if key is None else line[key.end() :]
    if key is not None and key[0] not in raw:
        camel = to_camel(key[0])
        line = camel + rest if camel in raw or camel == key[0] else f"{camel} ({key[0]}){rest}"
    return _BACKTICKED.sub(lambda word: f"`{to_camel(word[1])}` (`{word[1]}`)", line)
