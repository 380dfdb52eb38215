"""What users write for resources, names, classes and jobs, read into values; what cannot be read is named."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from mesh.errors import AmountError
from mesh.ids import TaskId
from mesh.jobs.form import read_job
from mesh.jobs.spec import JobSpec
from mesh.resources import NOTHING, ResourceSet
from mesh.runtime.supervision.pickled_code import pickled_class
from mesh.runtime.supervision.supervision_errors import SubmissionError

#: What a user writes for resources: `{"cpu": 1, "memory": "1GiB"}`, or the value itself.
Amounts = Mapping[str, object] | ResourceSet
#: What Ray and others call what is written otherwise here.
_OTHER_WORDS = {"CPU": "cpu", "GPU": "gpu", "num_cpus": "cpu", "num_gpus": "gpu"}


def read_amounts(amounts: Amounts) -> ResourceSet:
    """Resources as a user writes them. Raises `SubmissionError` when they are none."""
    if isinstance(amounts, ResourceSet):
        return amounts
    if not isinstance(amounts, Mapping):
        raise SubmissionError(f'resources are {amounts!r}; write them by name, like {{"cpu": 1, "memory": "1GiB"}}')
    for name in amounts:
        if name in _OTHER_WORDS:
            raise SubmissionError(f"there is no resource {name!r} here; write {_OTHER_WORDS[name]!r}")
    try:
        return ResourceSet.of(amounts)
    except AmountError as error:
        raise SubmissionError(f"resources: {error}; give amounts of zero or more") from None


def read_bundles(shape: Amounts | Sequence[Amounts]) -> tuple[ResourceSet, ...]:
    """One bundle, or several."""
    if isinstance(shape, Mapping):
        return (read_amounts(shape),)
    return tuple(map(read_amounts, shape)) or (NOTHING,)


def required(parameter: str, value: str) -> str:
    """A name that must not be empty."""
    if not isinstance(value, str) or not value:
        raise SubmissionError(f"{parameter} is missing: give a name that is not empty")
    return value


def read_task_id(name: str | None) -> TaskId:
    """The name given, or a new one."""
    return TaskId(required("task_id", name) if name is not None else f"task-{uuid.uuid4().hex[:12]}")


def read_job_spec(spec: JobSpec | Mapping[str, Any] | str | Path) -> JobSpec:
    """A job as a value, a mapping, YAML text, or the path of a YAML file."""
    if isinstance(spec, JobSpec):
        return spec
    if isinstance(spec, Mapping):
        return read_job(spec)
    try:
        raw = yaml.safe_load(spec.read_text(encoding="utf-8") if isinstance(spec, Path) else spec)
    except (OSError, yaml.YAMLError) as error:
        raise SubmissionError(f"spec: {error}") from None
    if not isinstance(raw, dict):
        raise SubmissionError("spec is no YAML mapping: give a JobSpec, a mapping, the text of a YAML document, or the Path of one")
    return read_job(raw)


def read_class(actor_class: Any) -> bytes:
    """The class as it travels. Raises `SubmissionError` when it is none."""
    try:
        return pickled_class(actor_class)
    except TypeError as error:
        raise SubmissionError(f"actor_class: {error}") from None
