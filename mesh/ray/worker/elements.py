"""Elements of a part of an array, one after the other, in a worker.

An element that fails does not stop the others: the part fails at its end, with the index and the error of each. The values of the others
become the part's checkpoint, as they do about once a second while the part runs. So the next attempt runs only the elements that
failed, or had not ended. It is the next attempt after a preemption or the loss of the mesh too.

An element sees a task of its own in `mesh.current_task()`, whose checkpoints and progress are not kept: the part has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from mesh.core.counting import counted
from mesh.ray.user_code.bounded_pickle import pickled_if_small, pickled_within
from mesh.ray.user_code.task_context import TaskContext, elements_of, part_task
from mesh.stages.arrays import UNKNOWN, ArrayArgument, Piece, ranges_of
from mesh.stages.messages import FailedElement

#: Pause between two checkpoints of a part, and time after which the first is made; seconds.
SAVE_EVERY_S = 1.0
#: Most failed elements of a part that are reported with their errors, and characters of such an error; of others the index is reported.
DESCRIBED_MAX, ERROR_CHARS_MAX = 20, 500
#: Characters of the indices in a message.
_INDICES_CHARS_MAX = 200
#: Largest part whose values are pickled once more, to find the element that cannot be; and such a value; bytes.
_PICKLED_BYTES_MAX = 64 * 1024
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class ElementsFailed(Exception):
    """Elements of a part failed; `__cause__` is the error of the first."""

    def __init__(self, message: str, first: BaseException, elements: tuple[FailedElement, ...], of: int | None) -> None:
        super().__init__(message)
        self.first = first
        self.elements = elements
        self.of = of


class Unpicklable(TypeError):
    """The value of an element cannot be pickled."""


class Rules(NamedTuple):
    """Judgements of errors, which the caller has."""

    check: Callable[[Any], None]  #: Raises an error if the value may not leave a task.
    ends_worker: Callable[[BaseException], BaseException | None]  #: Returns the error by which Ray ends the worker, if this one is it.


def run_elements(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], argument: ArrayArgument, rules: Rules, attempt: int
) -> Piece:
    """Call the function for each element of the part; return the values.

    Args:
        args: Arguments by position, `argument` among these or among `kwargs`.
        attempt: Attempt of the part, from 1.

    Raises:
        ElementsFailed: Elements failed.
        TypeError: The value is no list.
        TaskPreempted: The part was asked to stop; what is done is saved.
    """
    piece = argument.piece()
    return _Part(piece, with_argument(function, args, kwargs, argument), rules, attempt).run()


def with_argument(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], argument: ArrayArgument
) -> Callable[[Any], Any]:
    """Return the function of one value in place of the array."""
    if argument.form.get("star"):
        at = next((place for place, given in enumerate(args) if given is argument), None)
        if at is None:
            raise TypeError("`star` is for an array among the arguments by position")
        before, behind = tuple(args[:at]), tuple(args[at + 1 :])
        return lambda item: function(*before, *item, *behind, **kwargs)
    if len(args) == 1 and not kwargs:
        return function
    at = next((place for place, given in enumerate(args) if given is argument), None)
    if at is None:
        own = next(name for name, given in kwargs.items() if given is argument)
        return lambda item: function(*args, **{**kwargs, own: item})
    before, behind = tuple(args[:at]), tuple(args[at + 1 :])
    return lambda item: function(*before, item, *behind, **kwargs)


class _Part:
    """One attempt of a part."""

    def __init__(self, piece: Piece, call: Callable[[Any], Any], rules: Rules, attempt: int) -> None:
        self._piece, self._call, self._rules, self._attempt = piece, call, rules, attempt
        self._context: TaskContext | None = None  #: The task that is this part, once it is asked for.
        self._done: dict[int, Any] = {}  #: Values by place in the part.
        self._failed: dict[int, BaseException] = {}
        self._unsaved = 0

    def run(self) -> Piece:
        """Run what no earlier attempt has done."""
        items, since_s = self._piece.values, time.perf_counter()
        if self._attempt > 1:
            saved = self._part_context().last_checkpoint()
            if isinstance(saved, dict):
                self._done = {place: value for place, value in saved.items() if 0 <= place < len(items)}
        with elements_of(self._piece.first) as running:
            for place, item in enumerate(items):
                if place in self._done:
                    continue
                running[0] = place
                self._run_one(place, item)
                if (now_s := time.perf_counter()) - since_s >= SAVE_EVERY_S:
                    since_s = now_s
                    self._save()
        self._find_unpicklable()
        if self._failed:
            if self._done:
                self._save()
            raise self._failure()
        done = self._done
        return Piece(self._piece.first, self._piece.of, [done[place] for place in range(len(items))])

    def _run_one(self, place: int, item: Any) -> None:
        try:
            value = self._call(item)
            if type(value) not in _PLAIN:
                self._rules.check(value)
        except (Exception, SystemExit) as error:
            if self._rules.ends_worker(error) is not None:
                raise
            self._failed[place] = error
        else:
            self._done[place] = value
            self._unsaved += 1

    def _part_context(self) -> TaskContext:
        if self._context is None:
            self._context = part_task()
        return self._context

    def _save(self) -> None:
        """Save what is done; a stopping point."""
        context = self._part_context()
        progress = len(self._done) / max(1, len(self._piece.values))
        if self._unsaved and self._can_be_pickled(self._done):
            self._unsaved = 0
            context.save_checkpoint(self._done, progress=progress)
        else:
            context.report_progress(progress)

    def _can_be_pickled(self, values: Any) -> bool:
        try:
            pickled_within(values, _PICKLED_BYTES_MAX, what="a value")
        except TypeError:
            return False
        return True

    def _find_unpicklable(self) -> None:
        """Fail the elements whose values cannot be pickled: they would fail the others as well."""
        values = self._done.values()
        if _PLAIN.issuperset(map(type, values)) or pickled_if_small(list(values), _PICKLED_BYTES_MAX) is not None:
            return
        for place, value in list(self._done.items()):
            try:
                pickled_within(value, _PICKLED_BYTES_MAX, what="its value")
            except TypeError as refused:
                del self._done[place]
                self._failed[place] = Unpicklable(str(refused))

    def _failure(self) -> ElementsFailed:
        first, of = self._piece.first, self._piece.of
        places = sorted(self._failed)
        elements = tuple(
            FailedElement(
                index=first + place,
                attempt=self._attempt,
                type_name=type(self._failed[place]).__name__ if number < DESCRIBED_MAX else "",
                message=str(self._failed[place])[:ERROR_CHARS_MAX] if number < DESCRIBED_MAX else "",
            )
            for number, place in enumerate(places)
        )
        error = self._failed[places[0]]
        words = f"element {elements[0].index}{'' if of == UNKNOWN else f' of {of}'}: {error}"
        if len(places) > 1:
            indices = ranges_of([first + place for place in places])
            shown = indices if len(indices) <= _INDICES_CHARS_MAX else f"{indices[:_INDICES_CHARS_MAX].rpartition(',')[0]}, …"
            words += f" ({counted(len(places), 'element')} of this part failed: {shown})"
        failed = ElementsFailed(words, error, elements, None if of == UNKNOWN else of)
        failed.__cause__ = error
        return failed
