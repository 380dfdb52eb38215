"""The end of a stack leaves no process, whatever its store answers."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from federation.config.loading import load_config
from federation.errors import StoreUnavailable
from mesh.ray.cluster.cluster_token import write_token
from mesh.ray.cluster.own_cluster import OwnCluster
from serve_apps.standalone.managed import ManagedProcess
from serve_apps.standalone.stack import Stack
from serve_apps.standalone.stack_folder import StackFolder

LIMIT_S = 60.0
CONFIG = """
federation: {name: tests}
root: {cluster: local}
clusters: {local: {shared: true, nodes: [{cpu: 2}]}}
flavors: {standard: {}}
meshes: {east: {cluster: local, pools: {general: {flavor: standard, capacity: {cpu: 2}}}}}
tenants: {acme: {quotas: {standard: {cpu: {nominal: 2}}}}}
"""


class Part:
    """Process, server, cluster or port claim."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.is_stopped = False
        self._breaks = breaks

    def ask_to_stop(self) -> None:
        if self._breaks:
            raise OSError("no such process")

    def stop(self, _limit_s: float = 0) -> None:
        self.is_stopped = True
        if self._breaks:
            raise OSError("it does not end")

    def release(self) -> None:
        self.is_stopped = True


def nobody() -> str:
    """Address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as client:
        return f"127.0.0.1:{client.getsockname()[1]}"


@pytest.mark.parametrize("url", ["redis+cluster://{}", "redis+sentinel://{}/leases", "redis://{}"], ids=["a cluster", "sentinels", "one"])
def test_a_store_that_is_away_keeps_nothing_running(tmp_path: Path, url: str) -> None:
    stack: Any = Stack(load_config(CONFIG, source="stack.yaml"), StackFolder(tmp_path), say=lambda _: None)
    stack.redis_url, stack.api_key = url.format(nobody()), "smk_00000000_x"
    cluster, port = stack.clusters["main"], stack.port = Part(), Part()
    stack.stop()
    assert (cluster.is_stopped, port.is_stopped) == (True, True)
    assert stack.api_key == ""


@pytest.mark.parametrize("broken", ["child", "root", "cluster", "server"])
def test_failing_part_is_reported_and_stops_no_other_stop(tmp_path: Path, broken: str) -> None:
    stack: Any = Stack(load_config(CONFIG, source="stack.yaml"), StackFolder(tmp_path), say=lambda _: None)
    parts = {name: Part(breaks=name == broken) for name in ("child", "other", "root", "cluster", "last", "server", "port")}
    stack.children = {"east": parts["child"], "west": parts["other"]}
    stack.clusters.update(main=parts["cluster"], more=parts["last"])
    stack.root, stack.redis, stack.port = parts["root"], parts["server"], parts["port"]
    with pytest.raises(OSError, match="it does not end"):
        stack.stop()
    assert [name for name, part in parts.items() if not part.is_stopped] == []
    stack.stop()


@pytest.mark.parametrize(
    "url", ["redis+cluster://{}", "redis+sentinel://{}/leases", "redis://u:secret@{}"], ids=["a cluster", "sentinels", "one"]
)
def test_store_missing_at_start_is_named_by_file_line_and_key(tmp_path: Path, url: str) -> None:
    config = load_config(f"{CONFIG}redis:\n  url: {url.format(nobody())}\n", source="stack.yaml")
    with pytest.raises(StoreUnavailable, match=r"^stack\.yaml:9:3: redis\.url: .*; start the server, name another") as raised:
        Stack(config, StackFolder(tmp_path), say=lambda _: None).start()
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("words", ["redis: embedded server", "ledger: 1 tenant", "cluster local: starting Ray"])
def test_a_start_that_is_not_wanted_any_more_ends_with_the_step(tmp_path: Path, words: str) -> None:
    said: list[str] = []
    with StackFolder(tmp_path) as folder:
        stack: Any = Stack(load_config(CONFIG, source="stack.yaml"), folder, say=said.append, is_wanted=lambda: words not in said[-1])
        said.append("")
        with pytest.raises(KeyboardInterrupt):
            stack.start()
    assert words in said[-1]
    assert (stack.redis, stack.clusters) == (None, {})


def test_tokens_that_a_killed_stack_has_left_are_removed(tmp_path: Path) -> None:
    left = tmp_path / "tokens" / "gone-from-the-file"
    write_token(left)
    with StackFolder(tmp_path) as folder, pytest.raises(KeyboardInterrupt):
        Stack(load_config(CONFIG, source="stack.yaml"), folder, say=lambda _: None, is_wanted=lambda: False).start()
    assert not left.exists()


def test_a_cluster_that_is_starting_is_stopped_with_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stop arrives while the cluster's thread is at work."""
    starting, asked, cluster = threading.Event(), threading.Event(), Part()

    def start(*_: object, **__: object) -> Part:
        starting.set()
        assert asked.wait(LIMIT_S)
        return cluster

    def is_wanted() -> bool:
        if starting.is_set():
            asked.set()
        return not asked.is_set()

    monkeypatch.setattr(OwnCluster, "start", start)
    with StackFolder(tmp_path) as folder:
        stack = Stack(load_config(CONFIG, source="stack.yaml"), folder, say=lambda _: None, is_wanted=is_wanted)
        with pytest.raises(KeyboardInterrupt):
            stack.start()
    assert cluster.is_stopped


def test_unwanted_process_is_not_waited_for(tmp_path: Path) -> None:
    def check_wanted() -> None:
        raise KeyboardInterrupt

    process = ManagedProcess("silent", "http.server", tmp_path / "0", tmp_path / "log", environment={})
    try:
        with pytest.raises(KeyboardInterrupt):
            process.wait_ready(LIMIT_S, check_wanted)
    finally:
        process.kill()
