"""The process of a child mesh: its threads survive every answer of a store."""

from __future__ import annotations

import pytest

from federation.dispatch import Notification, NotificationKind
from federation.errors import LedgerUninitialised, StoreUnavailable
from mesh.errors import RuntimeAdapterError
from serve_apps.child_process import _leave, _read_notifications

LETTER = Notification(kind=NotificationKind.STAGE, subject="s")


class Stop:
    """Event that is set after this many waits."""

    def __init__(self, waits):
        self._left = waits

    def is_set(self):
        return self._left == 0

    def wait(self, _seconds):
        self._left -= 1


class Letters:
    """Queue that fails once, then has a notification for the first cursor, and fails for ever."""

    def __init__(self, error):
        self._answers = [error, ("1-0", (LETTER,))]
        self._error = error

    def notifications(self, _mesh, _cursor, _wait_ms):
        answer = self._answers.pop(0) if self._answers else self._error
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), RuntimeAdapterError("garbage"), LedgerUninitialised("empty")])
def test_notifications_are_read_on_after_any_failure(error):
    read = []
    _read_notifications(Letters(error), "east", read.append, Stop(waits=2))
    assert read == [(LETTER,)]


def test_process_ends_when_its_leave_is_refused():
    class Child:
        has_left = False

        def leave(self):
            self.has_left = True
            raise LedgerUninitialised("empty")

    child = Child()
    _leave(child)
    assert child.has_left
