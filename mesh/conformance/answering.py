"""Steps of a case: one key names the verb, the others its arguments. Errors of the core are answers, by the error's name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from mesh.conformance.fields import CaseError, Fields
from mesh.errors import MeshError

Subject = TypeVar("Subject")

#: Verb to its function of the subject, the verb's value, and the step's other keys.
Verbs = Mapping[str, Callable[[Subject, Any, Fields], Any]]


def answer_all(verbs: Verbs[Subject], subject: Subject, case: Mapping[str, Any]) -> list[Any]:
    """Return the answer to each step of the case, in order.

    Raises:
        CaseError: A step has no known verb.
    """
    return [_answer(verbs, subject, step, f"step {number}") for number, step in enumerate(case.get("steps", ()), 1)]


def _answer(verbs: Verbs[Subject], subject: Subject, step: Any, place: str) -> Any:
    with Fields(step, place) as fields:
        verb = next((name for name in verbs if name in step), None)
        if verb is None:
            raise CaseError(f"{place}: a step needs one of the keys {', '.join(verbs)}, got {', '.join(step)}")
        fields.place = f"{place} ({verb})"
        try:
            return verbs[verb](subject, fields.take(verb), fields)
        except CaseError:
            raise
        except MeshError as wrong:
            return {"error": type(wrong).__name__}
