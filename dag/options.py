"""What can be said about a task beside its function and arguments. One model for Python calls and JSON specs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, ValidationInfo

from dag.errors import SpecError
from mesh.errors import AmountError, SelectorError
from mesh.ids import is_fit_name
from mesh.labels import wishes_of
from mesh.printable import check_printable
from mesh.resources import ResourceSet, to_units

#: How other parts of the project call these resources; a custom resource of such a name would be counted twice.
_TAKEN = frozenset({"cpu", "gpu", "memory", "object_store_memory"})
#: What the same resources are called by slips and elsewhere; no mesh has a resource of such a name.
_MISSPELT = frozenset({"cpus", "gpus", "num_cpu", "num_cpus", "num_gpu", "num_gpus", "mem"})
_NAME_MAX = 200
#: How often a node may be run again after its own error.
RETRIES_MAX = 100
#: Validation context of a graph that was accepted before: a rule that came later must not make it unreadable.
KEPT = {"kept": True}


def at_submission(check: Callable[[Any], Any]) -> AfterValidator:
    """A check of what a user submits; what is read with the context `KEPT` passes unchanged."""

    def checked_once(value: Any, info: ValidationInfo) -> Any:
        return value if info.context == KEPT else check(value)

    return AfterValidator(checked_once)


_Printable = Annotated[str, at_submission(check_printable)]


def _cpus(amount: float | None) -> float | None:
    return None if amount is None else _checked("cpu", amount)


def _gpus(amount: float | None) -> float | None:
    if amount is not None and amount > 1 and amount != int(amount):
        raise ValueError(f"must be whole above 1 (got {amount:g}): a task cannot use parts of several GPUs")
    return None if amount is None else _checked("gpu", amount)


def _memory(amount: Any) -> int | str | None:
    if amount is None or (isinstance(amount, (int, str)) and not isinstance(amount, bool)):
        return None if amount is None else _checked("memory", amount)
    raise ValueError(f"must be a whole number of bytes, or like 512MiB, 4GiB (got {amount!r})")


def _custom(amounts: dict[str, float] | None) -> dict[str, float] | None:
    for name, amount in (amounts or {}).items():
        if name.lower() in _TAKEN | _MISSPELT:
            raise ValueError(f"{name} is no custom resource; use num_cpus, num_gpus or memory")
        if not name or len(name) > _NAME_MAX:
            raise ValueError(f"a resource's name has 1 to {_NAME_MAX} characters")
        if not is_fit_name(name):
            raise ValueError(f"{name!r} is no name of a resource; it must not hold `|` or what is no character to read")
        _checked(name, amount)
    return amounts


def _checked(name: str, amount: Any) -> Any:
    try:
        to_units(name, amount)
    except AmountError as wrong:
        raise ValueError(str(wrong)) from None
    return amount


def _wishes(labels: dict[str, str] | None) -> dict[str, str] | None:
    """What cannot be read is refused here, where its author is told: routing would meet it when nobody looks."""
    for key, written in (labels or {}).items():
        try:
            wishes_of({key: written})
        except SelectorError as wrong:
            raise ValueError(f"of {key}: {wrong}") from None
    return labels


class NodeOptions(BaseModel):
    """Options of a node; null, or left out: the default. A node's option replaces the one in the spec's `defaults`, whole."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    num_cpus: Annotated[float | None, at_submission(_cpus)] = Field(default=None, description="CPUs that the task holds; 1 by default.")
    num_gpus: Annotated[float | None, at_submission(_gpus)] = Field(default=None, description="GPUs; 0 by default, whole above 1.")
    memory: Annotated[Any, at_submission(_memory)] = Field(default=None, description="Bytes, or like `4GiB`.")
    resources: Annotated[dict[str, float] | None, at_submission(_custom)] = Field(default=None, description="Custom resources by name.")
    labels: Annotated[dict[_Printable, _Printable] | None, at_submission(_wishes)] = Field(
        default=None,
        description="Labels that the mesh must carry: `x`, or `in(x, y)`; `!x`, `!in(x, y)`: none of these; `!`: must not be there.",
    )
    mesh: _Printable | None = Field(default=None, min_length=1, max_length=_NAME_MAX, description="The one mesh that may run it.")
    retries: int | None = Field(
        default=None, ge=0, le=RETRIES_MAX, description="How often it is run again after its own error; 0 by default."
    )
    priority: int | None = Field(default=None, ge=-1_000_000, le=1_000_000, description="Higher goes first; 0 by default.")
    max_retries: int | None = Field(default=None, ge=-1, le=1_000, description="Ray's own: after the death of a worker; -1: always.")
    retry_exceptions: list[Annotated[_Printable, Field(min_length=1, max_length=_NAME_MAX)]] | None = Field(
        default=None,
        max_length=100,
        description="What `retries` are for: errors of these classes, like `builtins.ConnectionError`, and of those below them; null: all.",
    )
    max_calls: int | None = Field(
        default=None, ge=0, le=1_000_000, description="Ray's own: a worker leaves after so many calls of the function; 0: never."
    )
    label_selector: dict[_Printable, _Printable] | None = Field(default=None, description="Ray's own: labels of nodes within the mesh.")

    def given(self) -> dict[str, Any]:
        """The options that were given."""
        return self.model_dump(exclude_none=True)

    def over(self, defaults: NodeOptions) -> NodeOptions:
        """These options, and for those not given the ones of `defaults`."""
        return NodeOptions.model_construct(**{**defaults.given(), **self.given()})

    def needs(self) -> ResourceSet:
        """What the task holds while it runs."""
        amounts = {"cpu": 1.0 if self.num_cpus is None else self.num_cpus, "gpu": self.num_gpus or 0, "memory": self.memory or 0}
        return ResourceSet.of({**amounts, **(self.resources or {})})

    def for_ray(self) -> dict[str, Any]:
        """What Ray gets unchanged."""
        return self.model_dump(include={"max_retries", "label_selector", "max_calls"}, exclude_none=True)


def words_of(error: Mapping[str, Any]) -> str:
    """A pydantic error in this project's words."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "missing":
        return "is missing"
    return str(error["msg"]).replace("Input should", "must", 1)


def checked(options: Mapping[str, Any]) -> NodeOptions:
    """Options given in Python.

    Raises:
        SpecError: A value is not of its kind; the message tells all of them.
    """
    try:
        return NodeOptions.model_validate(dict(options))
    except ValidationError as wrong:
        described = [f"{'.'.join(map(str, error['loc']))} {words_of(error)}" for error in wrong.errors(include_url=False)]
        raise SpecError((("", "; ".join(described)),)) from None
