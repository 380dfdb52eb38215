"""Signatures of messages: HMAC-SHA-256 over id, time and body, as receivers' libraries of Standard Webhooks verify them.

Source: Standard Webhooks, "Signature scheme".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence

from mesh.errors import MeshError

PREFIX = "whsec_"
#: Bytes of a key.
KEY_BYTES = range(24, 65)


class WrongSecret(MeshError):
    """Text that holds no key of a webhook; the message says what to write."""


def keys_in(text: str, *, place: str) -> tuple[bytes, ...]:
    """Return the keys in the text of a secret file, one a line: each signs, so that a receiver can change from one to the next.

    Args:
        place: Name of the file, for the message.

    Raises:
        WrongSecret: There is none, or a line holds no key.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        raise WrongSecret(f"{place} is empty; write a key like {PREFIX}BASE64, of 24 to 64 bytes")
    return tuple(_key_in(line, place) for line in lines)


def _key_in(line: str, place: str) -> bytes:
    try:
        key = base64.b64decode(line.removeprefix(PREFIX), validate=True) if line.startswith(PREFIX) else b""
    except (binascii.Error, ValueError):
        key = b""
    if len(key) not in KEY_BYTES:
        raise WrongSecret(f"{place} has a line that is no key; write {PREFIX} and the base64 of 24 to 64 random bytes")
    return key


def headers_of(message_id: str, body: bytes, at_s: int, keys: Sequence[bytes]) -> dict[str, str]:
    """Return the headers of one attempt.

    Args:
        at_s: Time of the attempt since the epoch; receivers refuse old ones.
        keys: None: the message is not signed.
    """
    headers = {"webhook-id": message_id, "webhook-timestamp": str(at_s)}
    return {**headers, "webhook-signature": " ".join(_signatures(message_id, body, at_s, keys))} if keys else headers


def _signatures(message_id: str, body: bytes, at_s: int, keys: Iterable[bytes]) -> Iterable[str]:
    content = f"{message_id}.{at_s}.".encode() + body
    return (f"v1,{base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()}" for key in keys)
