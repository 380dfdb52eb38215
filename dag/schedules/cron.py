"""Times of a cron expression in a time zone, by cronsim, which follows Debian's cron where clocks change.

With fixed hours and minutes, a time that clocks skip fires at the first minute after the gap, and a time that comes twice fires the first
time. With minutes or hours that begin with `*`, cron follows real time: it fires in both hours, and not in a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

CRON_CHARS_MAX = 100
CRON_FIELDS = 5
#: Width of the first look back for the last time, and the factor of the next one: a look passes a few hundred times at most.
_LOOK_MS, _WIDER = 3_600_000, 8


def problem_of_cron(cron: str) -> str | None:
    """Return the problem with a cron expression; None: there is none."""
    if len(cron) > CRON_CHARS_MAX or len(cron.split()) != CRON_FIELDS:
        fields = "minute, hour, day of month, month and day of week, like '0 3 * * 1-5'"
        return f"{cron[:CRON_CHARS_MAX]!r} is no cron expression; write {fields}"
    try:
        next(CronSim(cron, datetime(2000, 1, 1, tzinfo=timezone.utc)))
    except CronSimError as wrong:
        return f"{cron!r} is no cron expression: {str(wrong).lower()}; '0 3 * * 1-5' is 3 o'clock from Monday to Friday"
    except StopIteration:
        return f"{cron!r} never comes; choose a day that a month of it has"
    return None


def problem_of_timezone(name: str) -> str | None:
    """Return the problem with the name of a time zone; None: there is none."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return f"{name[:CRON_CHARS_MAX]!r} is no time zone of the IANA database; write one like Europe/Berlin or UTC"
    return None


def next_time_ms(cron: str, zone: str, after_ms: int) -> int | None:
    """Return the first time after `after_ms`; milliseconds since the epoch. None: it never comes again."""
    return next(_times(cron, zone, after_ms), None)


def last_time_ms(cron: str, zone: str, after_ms: int, until_ms: int) -> int | None:
    """Return the last time after `after_ms`, until and with `until_ms`; None: there is none. Fast however long ago `after_ms` is."""
    width_ms = _LOOK_MS
    while until_ms > after_ms:
        start_ms = max(after_ms, until_ms - width_ms)
        last_ms = None
        for time_ms in _times(cron, zone, start_ms):
            if time_ms > until_ms:
                break
            last_ms = time_ms
        if last_ms is not None or start_ms == after_ms:
            return last_ms
        width_ms *= _WIDER
    return None


def _times(cron: str, zone: str, after_ms: int) -> Iterator[int]:
    """Yield the times after `after_ms`, each once."""
    start = datetime.fromtimestamp(after_ms // 1000, tz=ZoneInfo(zone) if zone != "UTC" else timezone.utc)
    for time in CronSim(cron, start):
        time_ms = round(time.timestamp() * 1000)
        if time_ms > after_ms:  # In a repeated hour cronsim names times of the first pass again; skipped times come at the end of the gap.
            yield time_ms
            after_ms = time_ms
