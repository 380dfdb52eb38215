"""Users of docs/operating.md, created on a real server as the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import redis
from redis.utils import str_if_bytes

PAGE = Path(__file__).parent.parent / "docs" / "operating.md"
SECRET = "s3cret"


def rules_of(user: str, *, functions: bool) -> list[str]:
    """Return the words of the page's command for the user, on a server with or without functions."""
    title = "Redis 7 and later" if functions else "Redis 6.2"
    (block,) = re.findall(rf"^{re.escape(title)}:\n\n```text\n([\s\S]*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    (command,) = (line for line in block.replace("\\\n", " ").splitlines() if line.startswith(f"ACL SETUSER {user} "))
    return shlex.split(command.replace("SECRET", SECRET))


def refused_to_users(client: redis.Redis) -> list[str]:
    """Return the commands and keys refused to users; refusals of redis-py's own handshake are harmless."""
    refusals = [str_if_bytes(entry["object"]).lower() for entry in client.acl_log()]
    return [refused for refused in refusals if not refused.startswith("client")]


def make_user(client: redis.Redis, user: str, *, functions: bool) -> None:
    client.execute_command(*rules_of(user, functions=functions))
