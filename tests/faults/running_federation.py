"""A whole stack inside the test's process, for rows on real Ray."""

from __future__ import annotations

import re
import threading
from datetime import datetime
from pathlib import Path

from dag.store.client_access import Access
from dag.store.remote import Client
from federation.config.loading import load_config
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

TENANT = "acme"


class Federation:
    """Stack watched as `schedulemesh up` does, and a client of it.

    Args:
        folder: Its state folder.
        config: The text of its file; it has the tenant `TENANT`.
    """

    def __init__(self, folder: Path, config: str) -> None:
        self.said: list[str] = []
        self.folder = StackFolder(folder)
        self.folder.__enter__()
        self.stack = Stack(load_config(config, source="tests/faults"), self.folder, say=self.said.append)
        self.stack.start()
        self.client = Client(Access(address=self.stack.address, api_key=self.stack.api_key, tenant=TENANT))
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watcher")
        self._watcher.start()

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            self.stack.watch()

    def close(self) -> None:
        self._over.set()
        self._watcher.join()
        self.client.close()
        self.stack.stop()
        self.folder.__exit__(None, None, None)

    def pid(self, mesh: str) -> int:
        return self.stack.children[mesh].pid

    def joins(self, mesh: str) -> list[tuple[float, bool]]:
        """Return when its processes joined, in seconds since the epoch, and whether they resumed work."""
        found = re.findall(r"timestamp='(\S+)Z' .*event='joined' .*goes_on=(\w+)", self.stack.children[mesh].log.read_text())
        return [(datetime.fromisoformat(f"{at}+00:00").timestamp(), goes_on == "True") for at, goes_on in found]
