"""The function of a replayed task. It is pickled whole, since a mesh may not have this package."""

from __future__ import annotations

import time
from typing import Any

_SUMS = ("tasks", "files_read", "bytes_read", "files_made", "bytes_made", "files_written", "bytes_written", "checks")
_HEAD = 12  # Bytes in which a file names itself and its size.


def replay_task(work: dict[str, Any], *inputs: Any) -> list[Any]:
    """Read the inputs, work for the task's time, and return its files and the account.

    A node that only adds up accounts has neither id nor files.

    Raises:
        ValueError: A file has another size or content than was written.
    """
    account = dict.fromkeys(_SUMS, 0)
    for (files, before), places, is_taken in zip(inputs, work["reads"], work["accounts"], strict=True):
        for place in places:
            name, size, data = files[place]
            if len(data) != size or data != _content(name, size):
                raise ValueError(
                    f"file {place} of an input is damaged: its length is {len(data)} of {size}, or its content is not what was written"
                )
            account["files_read"] += 1
            account["bytes_read"] += size
            account["checks"] += name + size
        if is_taken:
            for key in _SUMS:
                account[key] += before[key]
    if "id" not in work:
        return [[], account]
    _spend(work["run_s"], work["burn"])
    account["tasks"] += 1
    account["files_made"] += work["made"][0]
    account["bytes_made"] += len(bytes(work["made"][1]))
    files = [[name, size, _content(name, size)] for name, size in work["writes"]]
    account["files_written"] += len(files)
    account["bytes_written"] += sum(size for _, size, _ in files)
    account["checks"] += work["id"] + sum(name + size for name, size, _ in files)
    return [files, account]


def _content(name: int, size: int) -> bytes:
    """Return the content of a file: its name again and again."""
    head = f"{name:010d};\n".encode()
    return (head * (size // _HEAD + 1))[:size]


def _spend(run_s: float, burn: bool) -> None:
    if not burn:
        time.sleep(run_s)
        return
    until = time.process_time() + run_s
    while time.process_time() < until:
        pass
