"""Arguments of the root's applications in a Serve config file, and the secrets that such a file never holds.

Serve keeps the arguments of an application in its own store and shows them on its dashboard. So the arguments name places of secrets,
and each replica reads the secrets itself.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field

from federation.config.loading import FederationConfig, load_config
from federation.config.yaml_source import dotted, parse
from mesh.errors import MeshError

#: Environment variables with the secrets, and files of a folder of secrets.
REDIS_VARIABLE, RECEIPT_VARIABLE = "SCHEDULEMESH_REDIS_URL", "SCHEDULEMESH_RECEIPT_KEYS"
REDIS_FILE, RECEIPT_FILE = "redis-url", "receipt-keys"
#: Sections that a root in Serve does not read: Redis comes from the secrets, modules from the installed packages.
_LEFT_OUT = ("redis", "import_paths")
#: Problem of a file without `storage.url`, whose default is a folder of one machine.
NO_STORAGE = "names no place, but the replicas of the root have no state folder; write a URL that all nodes and meshes reach"
#: Words in the names of URL options whose values are secrets.
_SECRET_WORDS = ("password", "secret", "token", "credential", "sig")


class SecretMissing(MeshError):
    """A secret of the root is at none of its places; the message names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootSecrets:
    """Secrets of the root."""

    redis_url: str = field(repr=False)
    receipt_keys: dict[int, str] = field(repr=False)  #: By version; see `federation.receipts`.


class RootArguments(BaseModel):
    """Arguments of the root's Serve applications."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    federation_file: dict[str, Any] = Field(description="Content of the federation file, without `redis` and `import_paths`.")
    secrets_dir: str | None = Field(default=None, description="Folder with the files of secrets; null: environment variables.")

    def config(self) -> FederationConfig:
        """Return the validated federation file. Raises ConfigError."""
        return load_config(yaml.safe_dump(self.federation_file, sort_keys=False), source="args.federation_file")

    def secrets(self, environment: Mapping[str, str]) -> RootSecrets:
        """Read the secrets.

        Raises:
            SecretMissing: A file or a variable is missing or empty, or the receipt keys cannot be parsed.
        """
        url = self._secret(REDIS_FILE, REDIS_VARIABLE, environment)
        text = self._secret(RECEIPT_FILE, RECEIPT_VARIABLE, environment)
        try:
            keys = {int(number): str(key) for number, key in json.loads(text).items()}
        except (ValueError, AttributeError):
            keys = {}
        if not keys or not all(keys.values()):
            raise SecretMissing(f'the receipt keys are no JSON like {{"1": "…"}}; take {RECEIPT_FILE} from the folder that `prepare` wrote')
        return RootSecrets(redis_url=url, receipt_keys=keys)

    def _secret(self, file: str, variable: str, environment: Mapping[str, str]) -> str:
        if self.secrets_dir is None:
            found, place = environment.get(variable, "").strip(), f"the environment variable {variable} of the Ray node"
        else:
            path = Path(self.secrets_dir) / file
            place = str(path)
            try:
                found = path.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as unread:
                raise SecretMissing(f"the secret {path} cannot be read ({unread}); `schedulemesh prepare` writes such a folder") from None
        if not found:
            raise SecretMissing(f"{place} is empty; `schedulemesh prepare` writes the secrets of the root")
        return found


def arguments_of(text: str, *, source: str, secrets_dir: str | None) -> RootArguments:
    """Return the arguments for the text of a valid federation file.

    Raises:
        ConfigError: The text is no YAML mapping.
        MeshError: A value of the file holds a secret.
    """
    content = {name: part for name, part in parse(text, source=source).value.items() if name not in _LEFT_OUT}
    for place in _secrets_in(content, ()):
        raise MeshError(
            f"{source}: {dotted(place)} holds a secret, which Serve would show; give credentials by the nodes' environment or files"
        )
    return RootArguments(federation_file=content, secrets_dir=secrets_dir)


def write_secrets(folder: Path, *, redis_url: str, receipt_keys: Mapping[int, str]) -> None:
    """Write one file for each secret, readable by its owner only."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, text in ((REDIS_FILE, redis_url), (RECEIPT_FILE, json.dumps(receipt_keys))):
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, 0o600)  # The mode given to `open` applies only to new files.
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)


def _secrets_in(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    """Yield the places of URLs with a password, or with an option that is named like a secret."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _secrets_in(part, (*path, str(key)))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _secrets_in(part, (*path, index))
    elif isinstance(value, str) and "://" in value and _has_secret(value):
        yield path


def _has_secret(url: str) -> bool:
    try:
        parts = urlsplit(url)
        named = [name.lower() for name, _ in parse_qsl(parts.query)]
        return parts.password is not None or any(word in name for name in named for word in _SECRET_WORDS)
    except ValueError:  # Not a URL.
        return False
