"""Options of a task beside its function and arguments. One model serves Python calls and JSON specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, model_validator

from dag.errors import SpecError
from dag.spec.cache_keys import VERSION_CHARS_MAX, CacheRule, ttl_of
from dag.spec.control import When
from dag.spec.retry_options import ERROR_CHARS_MAX, ERRORS_MAX, MEMORY_GROWTH_MAX, SECONDS_MAX, BackoffOptions, error_name
from mesh.core.ids import is_fit_name
from mesh.core.labels import wishes_of
from mesh.core.near_names import nearest
from mesh.core.node_instances import UNIT_INSTANCE_RESOURCES
from mesh.core.printable import check_printable
from mesh.core.resources import ResourceSet, to_units
from mesh.core.shapes import Gang, Strategy
from mesh.errors import AmountError, SelectorError
from mesh.stages.spec import PRIORITY_MAX

#: Names of these resources elsewhere in the project; a custom resource of such a name would count twice.
_TAKEN = frozenset({"cpu", "gpu", "memory", "object_store_memory"})
#: Frequent wrong names of the same resources; no mesh has a resource of such a name.
_MISSPELT = frozenset({"cpus", "gpus", "num_cpu", "num_cpus", "num_gpu", "num_gpus", "mem"})
_NAME_MAX = 200
#: Limit on the retries of a node after its own errors.
RETRIES_MAX = 100
#: Limit on the bundles of a gang.
GANG_SIZE_MAX = 1_000
#: Limit on the outputs of a node.
OUTPUTS_MAX = 1_000
#: Names of one option: ours, and the one that comes from Ray.
SAME_OPTION = {"retry_on": "retry_exceptions", "retry_exceptions": "retry_on"}
#: Validation context for graphs that were accepted earlier: later rules must not make them unreadable.
KEPT = {"kept": True}


def at_submission(check: Callable[[Any], Any]) -> AfterValidator:
    """Return a check for submissions only: values read with the context `KEPT` pass unchanged."""

    def checked_once(value: Any, info: ValidationInfo) -> Any:
        return value if info.context == KEPT else check(value)

    return AfterValidator(checked_once)


_Printable = Annotated[str, at_submission(check_printable)]
_ErrorName = Annotated[str, Field(min_length=1, max_length=ERROR_CHARS_MAX), at_submission(error_name)]


def _cpus(amount: float | None) -> float | None:
    return None if amount is None else _checked("cpu", amount)


def _gpus(amount: float | None) -> float | None:
    return None if amount is None else _whole_above_one("gpu", amount, "")


def _whole_above_one(name: str, amount: float, place: str) -> float:
    """Refuse parts of several instances, as Ray does."""
    _checked(name, amount)
    if name in UNIT_INSTANCE_RESOURCES and amount > 1 and amount != int(amount):
        what = "GPUs" if name == "gpu" else f"{name}s"
        raise ValueError(f"{place}must be whole above 1 (got {amount:g}): a task cannot use parts of several {what}")
    return amount


def _memory(amount: Any) -> int | str | None:
    if amount is None or (isinstance(amount, (int, str)) and not isinstance(amount, bool)):
        return None if amount is None else _checked("memory", amount)
    raise ValueError(f"must be a whole number of bytes, or like 512MiB, 4GiB (got {amount!r})")


def _custom(amounts: dict[str, float] | None) -> dict[str, float] | None:
    for name, amount in (amounts or {}).items():
        if name.lower() in _TAKEN | _MISSPELT:
            raise ValueError(f"{name} is not a custom resource; use num_cpus, num_gpus or memory")
        if not name or len(name) > _NAME_MAX:
            raise ValueError(f"a resource's name has 1 to {_NAME_MAX} characters")
        if not is_fit_name(name):
            raise ValueError(f"{name!r} is not a resource name: `|` and non-printable characters are not allowed")
        _whole_above_one(name, amount, f"{name} ")
    return amounts


def _checked(name: str, amount: Any) -> Any:
    try:
        to_units(name, amount)
    except AmountError as wrong:
        raise ValueError(str(wrong)) from None
    return amount


def _wishes(labels: dict[str, str] | None) -> dict[str, str] | None:
    """Refuse wrong label requests at submission, because routing would find them too late for their author."""
    for key, written in (labels or {}).items():
        try:
            wishes_of({key: written})
        except SelectorError as wrong:
            raise ValueError(f"label {key}: {wrong}") from None
    return labels


def _strategy(name: Any) -> Any:
    strategies = get_args(Strategy)
    if name not in strategies:
        raise ValueError(f"must be one of {', '.join(strategies)}, not {name!r}{nearest(str(name), strategies)}")
    return name


def _cache(asked: Any) -> Any:
    if asked is not None and not isinstance(asked, (bool, str)):
        raise ValueError(f"must be true, false or a time like 7d (got {asked!r})")
    if asked is not None:
        ttl_of(asked)
    return asked


def _isolation(name: Any) -> Any:
    if name not in (None, "worker", "task"):
        raise ValueError(f"must be task, a Ray task of its own, or worker, not {name!r}")
    return name


class GangOptions(BaseModel):
    """The placement group of a gang node: so many bundles, each of the node's `num_cpus`, `num_gpus`, `memory` and `resources`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    size: int = Field(ge=1, le=GANG_SIZE_MAX, description="Number of bundles.")
    strategy: Annotated[Strategy, BeforeValidator(_strategy)] = Field(
        default="PACK",
        description="`PACK`: few nodes; `SPREAD`: different nodes if possible; `STRICT_PACK`: one node; `STRICT_SPREAD`: all different.",
    )


#: Gang of a program that asks for none: its work in Ray runs in this bundle.
ONE_BUNDLE = GangOptions(size=1)


class NodeOptions(BaseModel):
    """Options of a node; null, or left out: the default. A node's option replaces the same option of the spec's `defaults` whole."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    num_cpus: Annotated[float | None, at_submission(_cpus)] = Field(default=None, description="CPUs that the task holds; 1 by default.")
    num_gpus: Annotated[float | None, at_submission(_gpus)] = Field(default=None, description="GPUs; 0 by default, whole above 1.")
    memory: Annotated[Any, at_submission(_memory)] = Field(default=None, description="Bytes, or like `4GiB`.")
    resources: Annotated[dict[str, float] | None, at_submission(_custom)] = Field(default=None, description="Custom resources by name.")
    labels: Annotated[dict[_Printable, _Printable] | None, at_submission(_wishes)] = Field(
        default=None,
        description="Labels that the mesh must carry: `x`, or `in(x, y)`; `!x`, `!in(x, y)`: none of these; `!`: must not be there.",
    )
    mesh: _Printable | None = Field(default=None, min_length=1, max_length=_NAME_MAX, description="The only mesh that may run the node.")
    retries: int | None = Field(default=None, ge=0, le=RETRIES_MAX, description="Retries after its own errors; 0 by default.")
    priority: int | None = Field(default=None, ge=-PRIORITY_MAX, le=PRIORITY_MAX, description="Higher goes first; 0 by default.")
    max_retries: int | None = Field(
        default=None, ge=-1, le=1_000, description="Ray's own retries after the death of a worker; -1: no limit."
    )
    retry_exceptions: list[Annotated[_Printable, Field(min_length=1, max_length=_NAME_MAX)]] | None = Field(
        default=None,
        max_length=100,
        description="Classes of the errors that `retries` apply to, with their subclasses, like `builtins.ConnectionError`; null: all.",
    )
    retry_on: list[_ErrorName] | None = Field(
        default=None,
        max_length=ERRORS_MAX,
        description="Errors that `retries` apply to, with their subclasses, like `ConnectionError`, `requests.exceptions.Timeout`, or the "
        "reason `OUT_OF_MEMORY`; null: all.",
    )
    never_on: list[_ErrorName] | None = Field(
        default=None, max_length=ERRORS_MAX, description="Errors after which the node fails at once; these beat `retry_on`."
    )
    backoff: BackoffOptions | None = Field(
        default=None, description="Waits before retries: `initial_s`, `factor`, `max_s`, `jitter`; null: those of the federation."
    )
    memory_growth: float | None = Field(
        default=None,
        ge=1,
        le=MEMORY_GROWTH_MAX,
        description="After `OUT_OF_MEMORY` the next attempt asks for so many times the `memory`; 1 by default.",
    )
    schedule_to_start_s: float | None = Field(
        default=None, gt=0, le=SECONDS_MAX, description="Longest wait of an attempt for room and quota, in seconds; null: no limit."
    )
    start_to_close_s: float | None = Field(
        default=None, gt=0, le=SECONDS_MAX, description="Longest run time of an attempt, in seconds; null: no limit."
    )
    schedule_to_close_s: float | None = Field(
        default=None,
        gt=0,
        le=SECONDS_MAX,
        description="Longest time of the node, its retries and the waits between them included, in seconds; null: no limit.",
    )
    max_calls: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Ray's own limit on calls of the function per worker; 0: no limit."
    )
    label_selector: dict[_Printable, _Printable] | None = Field(default=None, description="Ray's own: labels of nodes within the mesh.")
    num_returns: int | None = Field(
        default=None, ge=1, le=OUTPUTS_MAX, description="Number of outputs: the function returns so many values; 1: it returns one."
    )
    isolation: Annotated[Literal["worker", "task"] | None, BeforeValidator(_isolation)] = Field(
        default=None, description="`task`: a Ray task of its own; `worker`, the default: a worker that runs other nodes too."
    )
    runtime_env: dict[str, Any] | None = Field(
        default=None, description="Ray's runtime environment of this node, in which it runs as a Ray task of its own."
    )
    gang: GangOptions | None = Field(
        default=None, description="Placement group of the node's own, for what its code starts; the amounts are those of each bundle."
    )

    cache: Annotated[bool | str | None, BeforeValidator(_cache)] = Field(
        default=None,
        description="Keep the value for later nodes of the tenant with the same function and arguments: `true`, for 30 days, or a time "
        "like `7d`.",
    )
    cache_version: _Printable | None = Field(
        default=None, min_length=1, max_length=VERSION_CHARS_MAX, description="Version of the function: another one is computed anew."
    )
    when: When | None = Field(
        default=None,
        description="When the node runs, by the ends of the nodes in its `after`: all succeeded (`success`, the default), one failed "
        "(`failure`), or in any case (`always`).",
    )

    @model_validator(mode="after")
    def _one_name(self) -> NodeOptions:
        if self.retry_on is not None and self.retry_exceptions is not None:
            raise ValueError("retry_on and retry_exceptions are one option: give one of them")
        return self

    def given(self) -> dict[str, Any]:
        """Return the options that were given."""
        return {name: value for name in type(self).model_fields if (value := getattr(self, name)) is not None}

    def over(self, defaults: NodeOptions) -> NodeOptions:
        """Return these options, completed with those of `defaults`."""
        given = self.given()
        left = {name: value for name, value in defaults.given().items() if SAME_OPTION.get(name) not in given}
        return NodeOptions.model_construct(**{**left, **given})

    def as_cache_rule(self) -> CacheRule | None:
        """Return how the node's value is cached; None: it is not."""
        ttl_ms = ttl_of(self.cache) if self.cache is not None else None
        return None if ttl_ms is None else CacheRule(ttl_ms=ttl_ms, version=self.cache_version or "")

    def needs(self) -> ResourceSet:
        """Return the resources that the task holds while it runs: those of all bundles of a gang."""
        return self._amounts().times(self.gang.size) if self.gang is not None else self._amounts()

    def as_gang(self) -> Gang | None:
        """Return the gang that the node is; None: a task on one node."""
        return None if self.gang is None else Gang(size=self.gang.size, bundle=self._amounts(), strategy=self.gang.strategy)

    def _amounts(self) -> ResourceSet:
        amounts = {"cpu": 1.0 if self.num_cpus is None else self.num_cpus, "gpu": self.num_gpus or 0, "memory": self.memory or 0}
        return ResourceSet.of({**amounts, **(self.resources or {})})

    def for_ray(self) -> dict[str, Any]:
        """Return the options that Ray gets unchanged."""
        return self.model_dump(include={"max_retries", "label_selector", "max_calls", "runtime_env"}, exclude_none=True)


def amounts_of(resources: ResourceSet) -> dict[str, Any]:
    """Return the options that ask for these resources; those whose defaults ask for them are left out."""
    amounts = dict(resources.in_ray_units())
    cpus, gpus, memory = amounts.pop("cpu", 0), amounts.pop("gpu", 0), amounts.pop("memory", 0)
    given = {"num_cpus": float(cpus), "num_gpus": float(gpus), "memory": memory, "resources": amounts}
    return {name: value for name, value in given.items() if (value != 1 if name == "num_cpus" else value)}


def words_of(error: Mapping[str, Any]) -> str:
    """Return a pydantic error as a plain message."""
    if error.get("type") == "value_error":
        return str(error["ctx"]["error"])
    if error.get("type") == "missing":
        return "is missing"
    return str(error["msg"]).replace("Input should", "must", 1)


def checked(options: Mapping[str, Any]) -> NodeOptions:
    """Validate options given in Python.

    Raises:
        SpecError: A value is of the wrong type; the message lists all of them.
    """
    try:
        return NodeOptions.model_validate(dict(options))
    except ValidationError as wrong:
        described = [f"{_written(error['loc'])} {words_of(error)}" for error in wrong.errors(include_url=False)]
        raise SpecError((("", "; ".join(described)),)) from None


def _written(place: tuple[str | int, ...]) -> str:
    """Return the name that a user of Python writes: `size` and `strategy` are options beside the others, not parts of `gang`."""
    return ".".join(map(str, place[1:] if place[0] == "gang" and len(place) > 1 else place))
