"""Journal of the scheduler's events and decisions as JSON lines.

One line per call of `handle`, written before any of its decisions is carried out:

    {"f":1,"v":17,"events":[{"kind":"TaskSubmitted",…}],"decisions":[{"kind":"StartTask",…}],"crc":"0a1b2c3d"}

`f` is the format, `v` the state version after the call, `crc` the CRC-32 of everything before it in the line. The scheduler is pure, so
the events alone reproduce the state. The decisions show whether a later release decides differently on them.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mesh.core.json_codec import JsonCodecError, TaggedCodec, codec_of, dataclasses_of, json_text
from mesh.errors import MeshError
from mesh.tasks import decisions as decisions_module
from mesh.tasks import events as events_module
from mesh.tasks.decisions import Decision
from mesh.tasks.events import Event

FORMAT = 1
EVENTS = TaggedCodec(dataclasses_of(events_module, Event))
DECISIONS = TaggedCodec(dataclasses_of(decisions_module, Decision))


@dataclass(frozen=True, slots=True)
class Kinds:
    """Codecs of the events and decisions that a journal may contain."""

    events: TaggedCodec
    decisions: TaggedCodec


#: Kinds of a journal with only the scheduler's events and decisions.
SCHEDULING = Kinds(EVENTS, DECISIONS)
_CRC_MARK = ',"crc":"'
_CRC_SIZE = len(_CRC_MARK) + 8 + len('"}')


class JournalError(MeshError):
    """A line cannot be read; the message begins with the line number."""


@dataclass(frozen=True, slots=True)
class Batch:
    """One call of `handle`."""

    version: int
    events: tuple[Event, ...]
    decisions: tuple[Decision, ...]


class _DamagedLine(JournalError):
    """The line is damaged; a crash may leave such a last line."""


def encode(version: int, events: Iterable[Any], decisions: Iterable[Any], kinds: Kinds = SCHEDULING) -> bytes:
    """Return a batch as one line, with its newline.

    Raises:
        JournalError: A value in it cannot be encoded.
    """
    try:
        plain = {
            "f": FORMAT,
            "v": version,
            "events": [kinds.events.encode(event) for event in events],
            "decisions": [kinds.decisions.encode(decision) for decision in decisions],
        }
        body = json_text(plain)[:-1].encode()
    except (JsonCodecError, TypeError, ValueError) as error:
        raise JournalError(f"the batch of version {version} cannot be encoded: {error}") from error
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(body))


def decode(line: str | bytes, number: int = 1, kinds: Kinds = SCHEDULING) -> Batch:
    """Return the batch of a line, with or without its newline.

    Args:
        number: Line number in its file, for the message.

    Raises:
        JournalError: The line is damaged, of another format, or holds an unknown kind or field.
    """
    plain = _checked(line.encode() if isinstance(line, str) else bytes(line), number)
    if plain.get("f") != FORMAT:
        raise JournalError(f"line {number}: the format is {plain.get('f')!r}, this program reads {FORMAT}")
    try:
        return Batch(
            _VERSION.decode(plain["v"]),
            tuple(kinds.events.decode(event) for event in plain["events"]),
            tuple(kinds.decisions.decode(decision) for decision in plain["decisions"]),
        )
    except KeyError as error:
        raise JournalError(f"line {number}: {error} is missing") from None
    except JsonCodecError as error:
        raise JournalError(f"line {number}: {error}") from None


def is_whole(line: bytes) -> bool:
    """Return whether the line is complete and undamaged."""
    try:
        _checked(_whole(line, 1), 1)
    except JournalError:
        return False
    return True


def read(lines: Iterable[str | bytes], first_number: int = 1, kinds: Kinds = SCHEDULING) -> Iterator[Batch]:
    """Yield the batches of a journal. An incomplete last line is ignored: its decisions were never carried out.

    Raises:
        JournalError: A line before the last is damaged, or a line cannot be decoded.
    """
    damage: _DamagedLine | None = None
    for number, line in enumerate(lines, first_number):
        if damage is not None:
            raise damage
        try:
            yield decode(_whole(line, number), number, kinds)
        except _DamagedLine as error:
            damage = error


def _whole(line: str | bytes, number: int) -> bytes:
    raw = line.encode() if isinstance(line, str) else bytes(line)
    if not raw.endswith(b"\n"):
        raise _DamagedLine(f"line {number}: it is not terminated")
    return raw


def _checked(raw: bytes, number: int) -> dict[str, Any]:
    body = raw.rstrip(b"\r\n")
    inner, mark, checksum = body[:-_CRC_SIZE], body[-_CRC_SIZE : -_CRC_SIZE + len(_CRC_MARK)], body[-10:]
    if mark != _CRC_MARK.encode() or checksum != b'%08x"}' % zlib.crc32(inner):
        raise _DamagedLine(f"line {number}: wrong checksum; the line is damaged")
    try:
        plain = json.loads(body)
    except ValueError as error:
        raise JournalError(f"line {number}: {error}") from None
    if not isinstance(plain, dict):
        raise JournalError(f"line {number}: not a JSON object")
    return plain


_VERSION = codec_of(int)
