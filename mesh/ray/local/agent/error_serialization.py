"""A user's exception as text, and as bytes that its own client may unpickle."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from pathlib import Path

import cloudpickle

from mesh.core.counting import counted

PICKLED_BYTES_MAX = 64 * 1024
TEXT_CHARS_MAX = 32 * 1024
_OWN_FOLDER = str(Path(__file__).parents[1])  #: Folder of the local mesh; arguments are read beside the agent's own folder.


@dataclass(frozen=True, slots=True)
class SerializedError:
    """Serialized exception."""

    words: str  #: For example `builtins.ValueError: no`.
    traceback: str  #: Without this project's frames at the top.
    pickled: bytes | None  #: The exception, when it is small and can be unpickled.


def serialize_error(error: BaseException) -> SerializedError:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OWN_FOLDER):
        frames = frames.tb_next
    whole = "".join(traceback.format_exception(type(error), error, frames))
    return SerializedError(_shortened(f"{type(error).__module__}.{type(error).__qualname__}: {error}"), _shortened(whole), _pickled(error))


def _pickled(error: BaseException) -> bytes | None:
    try:
        pickled = bytes(cloudpickle.dumps(error, protocol=5))
        if len(pickled) > PICKLED_BYTES_MAX:
            return None
        pickle.loads(pickled)  # noqa: S301 - just made; many exceptions pickle but do not unpickle
    except Exception:  # noqa: BLE001 - then the text is all that is sent
        return None
    return pickled


def _shortened(text: str) -> str:
    """Shorten a long text in the middle: the begin and the last line of a traceback both count."""
    if len(text) <= TEXT_CHARS_MAX:
        return text
    half = TEXT_CHARS_MAX // 2
    return f"{text[:half]}\n... {counted(len(text) - 2 * half, 'character')} left out ...\n{text[-half:]}"
