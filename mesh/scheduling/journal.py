"""What the scheduler has heard and decided, as lines; and a scheduler made anew from them.

One line per call of `handle`, written before any of its decisions is carried out:

    {"f":1,"v":17,"events":[{"kind":"TaskSubmitted",…}],"decisions":[{"kind":"StartTask",…}],"crc":"0a1b2c3d"}

`f` is the format, `v` the version of the state after it, `crc` the CRC-32 of all that stands before it in the line. The
scheduler is pure, so the events alone make the state again; the decisions are there to prove it: a replay that decides
otherwise names the first line where it did, instead of going on in a state that never was.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from mesh.errors import MeshError
from mesh.scheduling import decisions as decisions_module
from mesh.scheduling import events as events_module
from mesh.scheduling.decisions import Decision
from mesh.scheduling.events import Event
from mesh.scheduling.plain import Form, PlainValueError, dataclasses_of, form_of, tagged

FORMAT = 1
EVENTS = tagged(dataclasses_of(events_module, Event))
DECISIONS = tagged(dataclasses_of(decisions_module, Decision))


@dataclass(frozen=True, slots=True)
class Kinds:
    """What events and decisions the lines of a journal may hold."""

    events: Form
    decisions: Form


#: Of a journal that holds nothing but what the scheduler hears and decides.
SCHEDULING = Kinds(EVENTS, DECISIONS)
_CRC_MARK = ',"crc":"'
_CRC_SIZE = len(_CRC_MARK) + 8 + len('"}')
_encode_json = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class JournalError(MeshError):
    """A line cannot be read, or the replay of one goes another way; the message begins with the line's number."""


class Handles(Protocol):
    """What a replay needs of a scheduler."""

    def handle(self, *events: Event) -> Sequence[Decision]:
        """Take the events in; return what must be done."""
        ...


S = TypeVar("S", bound=Handles)


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of `handle`."""

    version: int
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]


class _DamagedLine(JournalError):
    """The line is not what was written; the last one of a file may be, after a crash."""


def encode(version: int, events: Iterable[Any], decisions: Iterable[Any], kinds: Kinds = SCHEDULING) -> bytes:
    """A batch as one line, its end included.

    Raises:
        JournalError: Something in it has no plain form.
    """
    try:
        plain = {
            "f": FORMAT,
            "v": version,
            "events": [kinds.events.encode(event) for event in events],
            "decisions": [kinds.decisions.encode(decision) for decision in decisions],
        }
        body = _encode_json(plain)[:-1].encode()
    except (PlainValueError, TypeError, ValueError) as error:
        raise JournalError(f"the batch of version {version} cannot be written: {error}") from error
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def decode(line: str | bytes, number: int = 1, kinds: Kinds = SCHEDULING) -> Batch:
    """A line, with or without its end, as the batch that it was.

    Args:
        number: Of the line in its file, for the message.
    Raises:
        JournalError: It is damaged, of another format, or holds a kind or field that is not known.
    """
    plain = _checked(line.encode() if isinstance(line, str) else bytes(line), number)
    if plain.get("f") != FORMAT:
        raise JournalError(f"line {number}: the format is {plain.get('f')!r}, and this program reads {FORMAT}")
    try:
        return Batch(
            _VERSION.decode(plain["v"]),
            tuple(kinds.events.decode(event) for event in plain["events"]),
            tuple(kinds.decisions.decode(decision) for decision in plain["decisions"]),
        )
    except KeyError as error:
        raise JournalError(f"line {number}: {error} is missing") from None
    except PlainValueError as error:
        raise JournalError(f"line {number}: {error}") from None


def is_whole(line: bytes) -> bool:
    """The line was written to its end, and is what was written."""
    try:
        _checked(_whole(line, 1), 1)
    except JournalError:
        return False
    return True


def read(lines: Iterable[str | bytes], first_number: int = 1, kinds: Kinds = SCHEDULING) -> Iterator[Batch]:
    """The batches of a journal. A last line that was not written to its end is left out: nobody was told what it decided.

    Raises:
        JournalError: A line before the last is damaged, or one cannot be understood.
    """
    damage: _DamagedLine | None = None
    for number, line in enumerate(lines, first_number):
        if damage is not None:
            raise damage
        try:
            yield decode(_whole(line, number), number, kinds)
        except _DamagedLine as error:
            damage = error


def replay(lines: Iterable[str | bytes], scheduler_factory: Callable[[], S], *, first_number: int = 1) -> S:
    """A scheduler that has lived through the journal, and has decided in it as it did then.

    Args:
        scheduler_factory: Makes the scheduler that the journal began with: new, or from the snapshot before it.
    Raises:
        JournalError: As for `read`; or a decision comes out otherwise.
    Source:
        Design promise 6: same events, same decisions.
    """
    scheduler = scheduler_factory()
    for number, batch in enumerate(read(lines, first_number), first_number):
        again = tuple(scheduler.handle(*batch.events))
        if again != batch.decisions:
            raise JournalError(f"line {number}: {_first_difference(batch.decisions, again)}")
    return scheduler


def _whole(line: str | bytes, number: int) -> bytes:
    raw = line.encode() if isinstance(line, str) else bytes(line)
    if not raw.endswith(b"\n"):
        raise _DamagedLine(f"line {number}: it has no end")
    return raw


def _checked(raw: bytes, number: int) -> dict[str, Any]:
    body = raw.rstrip(b"\r\n")
    inner, mark, told = body[:-_CRC_SIZE], body[-_CRC_SIZE : -_CRC_SIZE + len(_CRC_MARK)], body[-10:]
    if mark != _CRC_MARK.encode() or told != b'%08x"}' % zlib.crc32(inner):
        raise _DamagedLine(f"line {number}: its checksum does not hold; it is not what was written")
    try:
        plain = json.loads(body)
    except ValueError as error:
        raise JournalError(f"line {number}: {error}") from None
    if not isinstance(plain, dict):
        raise JournalError(f"line {number}: no JSON object")
    return plain


def _first_difference(then: tuple[Decision, ...], now: tuple[Decision, ...]) -> str:
    for place, (was, is_now) in enumerate(zip(then, now, strict=False)):
        if was != is_now:
            return f"decision {place + 1} was {was}, and is {is_now} now"
    return f"{len(then)} decisions were made, and {len(now)} are now"


_VERSION = form_of(int)
