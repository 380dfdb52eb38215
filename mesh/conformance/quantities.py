"""The kinds `amount` and `resource_set`: all operations on two of them; a case names the results it checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, sub
from typing import Any, TypeVar

from mesh.conformance.fields import CaseError, Fields
from mesh.core.amounts import Amount
from mesh.core.resources import ResourceSet, from_units, to_units
from mesh.errors import AmountError

T = TypeVar("T", Amount, ResourceSet)


def run(case: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the results of all operations on the two quantities, and of the steps."""
    try:
        return _run_amount(case) if case["kind"] == "amount" else _run_set(case)
    except AmountError:
        return {"error": "AmountError"}


def _run_amount(case: Mapping[str, Any]) -> Mapping[str, Any]:
    with Fields(case["given"], "given") as given:
        a, b = Amount.of(given.take("a")), Amount.of(given.take("b", 0))
    left = a
    for step in case.get("steps", ()):
        with Fields(step, "a step") as fields:
            verb, written = fields.take_only()
        if verb not in ("add", "subtract"):
            raise CaseError(f"unknown step {verb!r}; known: add, subtract")
        left = left + Amount.of(written) if verb == "add" else left - Amount.of(written)
    comparisons = {
        "equal": a == b,
        "not_equal": a != b,
        "less": a < b,
        "less_or_equal": a <= b,
        "greater": a > b,
        "greater_or_equal": a >= b,
    }
    return {
        **comparisons,
        "units": a.units,
        "is_whole": a.is_whole,
        "sum": _result_of(_unless_refused(add, a, b)),
        "difference": _result_of(_unless_refused(sub, a, b)),
        "left": _result_of(left),
    }


def _run_set(case: Mapping[str, Any]) -> Mapping[str, Any]:
    with Fields(case["given"], "given") as given:
        a, b = ResourceSet.of(given.take("a")), ResourceSet.of(given.take("b", {}))
        total = ResourceSet.of(given.take("total", {}))
    left = a
    for step in case.get("steps", ()):
        with Fields(step, "a step") as fields:
            left = _step(left, *fields.take_only())
    return {
        "equal": a == b,
        "same_hash": hash(a) == hash(b),
        "subset": a.is_subset_of(b),
        "superset": a.is_superset_of(b),
        "sum": _result_of(_unless_refused(add, a, b)),
        "difference": _result_of(_unless_refused(sub, a, b)),
        "bounded_sum": _result_of(a.add_bounded(b, total)),
        "a": _result_of(a),
        "size": len(a),
        "left": _result_of(left),
    }


def _step(left: ResourceSet, verb: str, written: Any) -> ResourceSet:
    if verb == "delete":
        return left.without(written)
    if verb == "set":
        for name, amount in written.items():
            left = left.with_amount(name, to_units(name, amount))
        return left
    if verb in ("add", "subtract"):
        return left + ResourceSet.of(written) if verb == "add" else left - ResourceSet.of(written)
    raise CaseError(f"unknown step {verb!r}; known: add, subtract, set, delete")


def _unless_refused(operation: Callable[[T, T], T], a: T, b: T) -> T | None:
    try:
        return operation(a, b)
    except AmountError:
        return None


def _result_of(quantity: Amount | ResourceSet | None) -> Any:
    if isinstance(quantity, ResourceSet):
        return quantity.in_ray_units()
    return None if quantity is None else from_units("", quantity.units)
