"""Bodies of error responses: problem details by RFC 9457, with a stable `code`.

The module imports nothing of the root, so that what answers in place of a gateway starts quickly.
"""

from __future__ import annotations

import json

#: Media type of every error response.
MEDIA_TYPE = "application/problem+json"


def type_of(code: str) -> str:
    """Return the URI that identifies a kind of problem."""
    return f"urn:schedulemesh:problem:{code}"


def title_of(code: str) -> str:
    """Return the code as words, which are the same for each problem of its kind."""
    return code.replace("_", " ").capitalize()


def problem_bytes(status: int, code: str, detail: str) -> bytes:
    """Return a whole body, for a request without an id."""
    named = {"type": type_of(code), "title": title_of(code), "status": status, "detail": detail, "code": code}
    return json.dumps({**named, "problems": [], "request_id": ""}).encode()
