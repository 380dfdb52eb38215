"""The process of a child mesh: its threads survive every answer of a store."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest

from federation.dispatch import Notification, NotificationKind
from federation.errors import LedgerUninitialised, StoreUnavailable
from federation.link import VERBS, LinkTerms
from federation.snapshot import MeshRecord, PluginRecord, PoolRecord
from mesh.core.resources import ResourceSet
from mesh.errors import MeshError, RuntimeAdapterError
from mesh.plugins import Plugin
from serve_apps.child_process import _leave, _read_notifications, main, plugins_of
from serve_apps.processes.settings import ChildSettings, LinkSettings

LETTER = Notification(kind=NotificationKind.STAGE, subject="s")


class Stop:
    """Event that is set after this many waits."""

    def __init__(self, waits):
        self._left = waits

    def is_set(self):
        return self._left == 0

    def wait(self, _seconds):
        self._left -= 1


class Letters:
    """Queue that fails once, then has a notification for the first cursor, and fails for ever."""

    def __init__(self, error):
        self._answers = [error, ("1-0", (LETTER,))]
        self._error = error

    def notifications(self, _mesh, _cursor, _wait_ms):
        answer = self._answers.pop(0) if self._answers else self._error
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("error", [StoreUnavailable("no answer"), RuntimeAdapterError("garbage"), LedgerUninitialised("empty")])
def test_notifications_are_read_on_after_any_failure(error):
    read = []
    _read_notifications(Letters(error), "east", read.append, Stop(waits=2))
    assert read == [(LETTER,)]


def test_process_ends_when_its_leave_is_refused():
    class Child:
        has_left = False

        def leave(self):
            self.has_left = True
            raise LedgerUninitialised("empty")

    child = Child()
    _leave(child)
    assert child.has_left


def settings_with(policy, **plugins):
    pool = PoolRecord(pool="general", flavor="standard", capacity=ResourceSet.of({"cpu": 1}), policy=policy)
    return ChildSettings(
        store=None,
        link=LinkSettings(roots=("https://root:8000",), key="smm_1"),
        ray_address="",
        heartbeat_ms=500,
        storage_url="",
        inline_limit_bytes=0,
        record=MeshRecord(mesh="east", labels={}, pools=(pool,), cluster=""),
        node_labels={},
        warm_runners=0,
        plugins=plugins,
    )


def test_s13_a_process_loads_the_plugins_of_its_settings():
    plugins = plugins_of(settings_with("0.7*mine+0.3*binpack", mine="examples.plugins.near_full_gpu:NearFullGpu"))
    assert [(one.plugin, one.hooks) for one in plugins.records] == [("mine", ("score", "preemption_policy"))]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        pytest.param(settings_with("hybrid", mine="nowhere:Mine"), "plugin mine: nowhere does not import", id="a module that is not there"),
        pytest.param(settings_with("mine"), "there is no policy 'mine'", id="a policy without its plugin"),
        pytest.param(settings_with("mine", mine=f"{__name__}:only_orders"), "there is no policy 'mine'", id="a plugin without a score"),
    ],
)
def test_a_process_does_not_start_without_its_plugins(settings, words):
    with pytest.raises(MeshError, match=words):
        plugins_of(settings)


only_orders = Plugin(name="", priority=lambda _: 1.0)


def test_s13_plugins_come_from_the_operators_settings_alone():
    """Nothing that the root sends names code: no answer of a verb, and no record, has a plugin's source."""
    sent = {part.name for verb in VERBS for kind in (verb.answered, LinkTerms) if is_dataclass(kind) for part in fields(kind)}
    assert not [name for name in sent if "plugin" in name]
    assert [part.name for part in fields(PluginRecord)] == ["plugin", "hooks", "fenced"]


def test_a_process_without_its_plugins_ends_with_one_sentence(tmp_path):
    file = tmp_path / "mesh.json"
    settings_with("hybrid", mine="nowhere:Mine").write(file)
    with pytest.raises(SystemExit, match=r"^plugin mine: nowhere does not import"):
        main(str(file))
